"""Functions of torch by name: which a tape may hold, and what may be asked of a tensor without deciding by its numbers.

A tape travels from one process to another, and nothing of it is trusted: a name is looked up here, in a table that is
made of torch's own functions, and what stands in no list is refused.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.overrides import resolve_name


def words(*lists: str) -> list[str]:
    """The words of texts."""
    return [word for words in lists for word in words.split()]


_ARITHMETIC = """
abs absolute add addcdiv addcmul asin asinh acos acosh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor
ceil clamp clamp_max clamp_min clip conj conj_physical copysign cos cosh deg2rad div divide eq erf erfc erfinv exp exp2
expm1 float_power floor floor_divide fmax fmin fmod frac ge greater greater_equal gt heaviside hypot isclose isfinite
isinf isnan isneginf isposinf isreal ldexp le lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2
logical_and logical_not logical_or logical_xor logit lt maximum minimum mul multiply nan_to_num ne neg negative
not_equal polar positive pow rad2deg reciprocal remainder round rsqrt rsub sgn sigmoid sign signbit sin sinc sinh sqrt
square sub subtract tan tanh true_divide trunc where xlogy angle complex real imag
"""
_OPERATORS = "add and div eq floordiv ge gt invert le lt matmul mod mul ne neg or pow sub truediv xor"
_REDUCTIONS = """
all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin cumprod cumsum diff dist kthvalue logsumexp
max mean median min nanmean nanmedian nanquantile nansum norm prod quantile sort std std_mean sum topk var var_mean
vector_norm matrix_norm renorm trapezoid
"""
_PRODUCTS = "addbmm addmm addmv addr baddbmm bmm cross dot einsum inner kron matmul mm mv outer tensordot vdot vecdot"
_SHAPES = """
adjoint as_strided as_tensor broadcast_tensors broadcast_to cat chunk clone column_stack concat concatenate contiguous
cpu cuda detach diag diagonal dsplit dstack expand expand_as flatten flip fliplr flipud fold gather hsplit hstack
index_add
index_copy index_fill index_put index_select masked_fill masked_scatter moveaxis movedim narrow pad permute
pixel_shuffle pixel_unshuffle ravel repeat repeat_interleave reshape reshape_as resolve_conj resolve_neg roll rot90
row_stack scatter scatter_add select select_scatter slice_scatter split split_with_sizes squeeze stack swapaxes swapdims
t take take_along_dim tensor_split tile transpose tril triu unbind unflatten unfold unsqueeze view view_as
view_as_complex view_as_real vsplit vstack alias copy fill zero requires_grad __getitem__ __setitem__ atleast_1d
atleast_2d atleast_3d
"""
_DTYPES = "to type type_as float double half bfloat16 int long short bool cfloat cdouble"
_MADE_LIKE = """
zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty
"""
_LAYERS = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d affine_grid avg_pool1d avg_pool2d avg_pool3d celu conv1d
conv2d conv3d cosine_similarity elu gelu glu grid_sample group_norm hardsigmoid hardswish hardtanh huber_loss
instance_norm interpolate l1_loss layer_norm leaky_relu linear local_response_norm log_softmax logsigmoid max_pool1d
max_pool2d max_pool3d mish mse_loss normalize pairwise_distance relu relu6 rms_norm selu silu smooth_l1_loss softmax
softmin softplus softsign tanhshrink threshold upsample
"""
_TRANSFORMS = """
fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftn
"""
_PROPERTIES = "data T mT H mH real imag"

# What a tensor's form says, and what only shows it. A property is asked for by its getter.
_FORM = """
size dim ndimension numel nelement element_size stride storage_offset is_contiguous is_floating_point is_complex
is_signed is_same_size is_inference is_pinned is_shared get_device __len__ __repr__ __format__ __dir__ __hash__
is_conj is_neg result_type sym_size dim_order
"""
_FORM_PROPERTIES = """
shape dtype device ndim layout requires_grad is_cuda is_cpu is_leaf is_meta is_sparse is_quantized is_nested grad
grad_fn itemsize nbytes names output_nr is_xpu is_mps is_mkldnn is_vulkan is_ipu is_xla is_maia is_mtia _base _version
"""
# Their result says whether numbers are finite, which training need not ask again.
CHECKS = frozenset(words("isnan isinf isfinite isposinf isneginf"))
ABOUT_CHECKS = frozenset(
    words("""
all any logical_not logical_or logical_and bitwise_not bitwise_or bitwise_and or and invert sum max min amax
count_nonzero gt lt ge le eq ne
""")
)
DRAWS = frozenset(
    words("""
rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial poisson dropout
alpha_dropout feature_dropout feature_alpha_dropout dropout1d dropout2d dropout3d rrelu uniform exponential
log_normal cauchy geometric random gumbel_softmax fractional_max_pool2d fractional_max_pool3d
""")
)
# Training leaves the tensor as it is: a rollout has no gradient to stop, and training has one device.
DETACHES = frozenset(words("detach data requires_grad cpu cuda alias"))
# A narrower dtype is the rollout's; training computes in float32.
NARROWS = frozenset(words("half bfloat16"))


def last(name: str) -> str:
    """The function's own name: ``add`` of ``torch.Tensor.add_``, of ``torch.Tensor.__iadd__``, of ``torch.add``."""
    name = name.removesuffix(".__get__").rpartition(".")[2]
    if name.startswith("__") and name.endswith("__"):
        inner = name.strip("_")
        if inner in ("getitem", "setitem", "len", "repr", "format", "dir", "hash"):
            return name
        bare = inner[1:] if inner[:1] in ("i", "r") and inner[1:] in _OPERATORS.split() else inner
        return bare if bare in _OPERATORS.split() else name
    return name.rstrip("_")


def changes(name: str) -> bool:
    """Whether it changes its first argument."""
    own = name.rpartition(".")[2]
    if own.startswith("__"):
        return own == "__setitem__" or (own[2] == "i" and own.strip("_")[1:] in _OPERATORS.split())
    return own.endswith("_")


@cache
def functions() -> dict[str, Any]:
    """What a tape may hold, by name."""
    both = words(_ARITHMETIC, _REDUCTIONS, _PRODUCTS, _SHAPES, _LAYERS)
    owners = (torch, torch.nn.functional, torch.linalg, torch.special)
    plain: list[tuple[Any, str]] = [(owner, name) for owner in owners for name in both]
    plain += [(torch.fft, name) for name in words(_TRANSFORMS)]
    plain += [(torch, name) for name in words(_MADE_LIKE)]
    of_tensors = [*both, *words(_DTYPES, _MADE_LIKE), *(f"{name}_" for name in both)]
    of_tensors += [f"__{side}{name}__" for name in words(_OPERATORS) for side in ("", "r", "i")]
    plain += [(torch.Tensor, name) for name in of_tensors]
    found = {}
    for owner, name in plain:
        function = getattr(owner, name, None)
        if callable(function) and (full := resolve_name(function)) is not None:
            found[full] = function
    for name in words(_PROPERTIES):
        found[f"torch.Tensor.{name}.__get__"] = getattr(torch.Tensor, name).__get__
    return found


@cache
def asked() -> frozenset[str]:
    """What may be asked of a tensor: its form, and its text."""
    return frozenset(
        {f"torch.Tensor.{name}.__get__" for name in words(_FORM_PROPERTIES)}
        | {f"{owner}.{name}" for owner in ("torch", "torch.Tensor") for name in words(_FORM)}
    )


def name_of(function: Any) -> str:
    """The name under which a function of torch may be looked up, or another text."""
    return _names().get(function) or resolve_name(function) or getattr(function, "__name__", repr(function))


@cache
def _names() -> dict[Any, str]:
    return {function: name for name, function in functions().items()}
