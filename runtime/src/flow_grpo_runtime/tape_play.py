"""Tapes, played: what a pipeline made of its predictions is made of others, with gradients.

A tape travels from one process to another, and nothing of it is trusted: a function is looked up by its name, in a
table that is made of torch's own, and what stands in no list is refused. The same lists say what may be asked of a
tensor without deciding by its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.overrides import resolve_name

HALF = (torch.float16, torch.bfloat16)

# A program: {"ops": [(name, arguments, named arguments), …], "end": node}. A node is a tuple whose first entry says
# where a value comes from: ("source", call, leaf), ("result", op, place or None), ("constant", place), ("plain",
# value), or what holds others: ("list" | "tuple" | "slice", nodes), ("dict", {name: node}); or ("device",),
# ("ellipsis",), ("format", name).
Program = Mapping[str, Any]
Leaf = tuple[int, int]


class TapeError(RuntimeError):
    """The pipeline makes its velocity in a way that training cannot make again; one line that says what, and where."""


def leaves_of_node(node: Sequence[Any]) -> Iterator[Any]:
    """The nodes of a tree that hold no others."""
    if node[0] in ("list", "tuple", "slice", "dict"):
        for item in node[1].values() if node[0] == "dict" else node[1]:
            yield from leaves_of_node(item)
    else:
        yield node


def sources(program: Program) -> list[Leaf]:
    """The predictions that a program takes, as call and leaf, sorted."""
    nodes = [node for op in program["ops"] for node in op[1:]] + [program["end"]]
    return sorted({(node[1], node[2]) for tree in nodes for node in leaves_of_node(tree) if node[0] == "source"})


def play(
    program: Program, constants: Sequence[Any], leaves: Mapping[Leaf, torch.Tensor], latents: torch.Tensor
) -> torch.Tensor:
    """Make of other predictions what the pipeline made of its own.

    What the pipeline computed in half precision is computed in float32. What it detached is not: a rollout has no
    gradients, and training needs them.

    Args:
        program: of :meth:`tape.Tape.cut`, as it is or as it comes back from a record.
        constants: tensors and floats of the step; ``("latents", shape, dtype, earlier)`` stands for its latents.
        leaves: predictions by call and leaf, shaped as the denoiser returned them. They are not changed.
        latents: ``(1, …)`` float32 latents of the step.

    Returns:
        What the pipeline would have given to its update, in the shape it had there.

    Raises:
        TapeError: a function of the program is none that a tape may hold.
    """
    device = next(iter(leaves.values())).device
    begun = {place: _wide(leaf, device).clone() for place, leaf in leaves.items()}
    results: list[Any] = []

    def constant(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _wide(value, device).clone()
        if isinstance(value, list | tuple):
            return latents.to(device, _dtype(value[2])).reshape(value[1]).clone()
        return value

    def value_of(node: Sequence[Any]) -> Any:
        kind = node[0]
        if kind == "result":
            return results[node[1]] if node[2] is None else results[node[1]][node[2]]
        if kind == "source":
            return begun[node[1], node[2]]
        if kind == "constant":
            return constant(constants[node[1]])
        if kind == "dict":
            return {name: value_of(item) for name, item in node[1].items()}
        if kind in ("list", "tuple", "slice"):
            made = [value_of(item) for item in node[1]]
            return made if kind == "list" else tuple(made) if kind == "tuple" else slice(*made)
        if kind == "device":
            return device
        if kind == "ellipsis":
            return ...
        if kind == "format":
            found = getattr(torch, node[1], None)
            if not isinstance(found, torch.memory_format):
                raise TapeError(f"the record names {str(node[1])[:60]!r}, which is no format of memory")
            return found
        return _dtype(node[1]) if isinstance(node[1], torch.dtype) else node[1]

    known = functions()
    with torch.autocast(device.type, enabled=False):
        for name, positional, named in program["ops"]:
            if name not in known:
                raise TapeError(f"the record calls {str(name)[:60]!r}, which is no function that a tape may hold")
            arguments, own = value_of(positional), last(name)
            if own in DETACHES:
                results.append(arguments[0].view_as(arguments[0]))
            elif own in NARROWS:
                results.append(arguments[0].float())
            else:
                made = known[name](*arguments, **value_of(named))
                results.append(arguments[0] if changes(name) else made)
        found: torch.Tensor = value_of(program["end"])
        return found


@dataclass(frozen=True)
class Taped:
    """What a pipeline made of the predictions of one step.

    Attributes:
        program, constants: as :func:`play` takes them.
        leaves: of each prediction, by call and leaf: its shape, and which rows ``[first, end)`` of the call it is.
        sign: of the velocity in what the pipeline steps with.
        front: where a denoiser returns more than the latents' part, that stands in front.
    """

    program: Mapping[str, Any]
    constants: Sequence[Any]
    leaves: Mapping[Leaf, tuple[tuple[int, ...], int, int]]
    sign: int
    front: bool = False

    @property
    def places(self) -> list[Leaf]:
        """The predictions that it takes, as call and row."""
        return [(call, row) for (call, _), (_, first, end) in self.leaves.items() for row in range(first, end)]

    def assembled(self, rows: Mapping[Leaf, torch.Tensor]) -> dict[Leaf, torch.Tensor]:
        """Predictions as the denoiser returned them, of rows ``(1, …)`` in the shape of the latents.

        What a denoiser returns beside the latents' part is 0.
        """
        found = {}
        for (call, leaf), (shape, first, end) in self.leaves.items():
            stacked = torch.cat([rows[call, row] for row in range(first, end)])
            if stacked.numel() != torch.Size(shape).numel():
                wide = list(shape)
                dim = next(i for i in range(1, len(shape)) if stacked.shape[i] != shape[i])
                wide[dim] = shape[dim] - stacked.shape[dim]
                both = [stacked.new_zeros(wide), stacked]
                stacked = torch.cat(both[::-1] if self.front else both, dim=dim)
            found[call, leaf] = stacked.reshape(shape)
        return found

    def velocity(self, rows: Mapping[Leaf, torch.Tensor], latents: torch.Tensor) -> torch.Tensor:
        """The velocity ``(1, …)`` float32 that the pipeline makes of predictions, in the shape of ``latents``."""
        made = self.sign * play(self.program, self.constants, self.assembled(rows), latents).float()
        return made.reshape(latents.shape)

    @classmethod
    def read(cls, record: Mapping[str, Any], step: int) -> Taped:
        """The tape of a step of a record."""
        number, constants = record["tapes"][step]
        frame = record["programs"][number]
        leaves = {(call, leaf): (tuple(shape), first, end) for (call, leaf), (shape, first, end) in frame["leaves"]}
        return cls(frame["program"], constants, leaves, frame["sign"], frame.get("front", False))


def require_gradients(
    program: Program, constants: Sequence[Any], leaves: Mapping[Leaf, torch.Tensor], latents: torch.Tensor
) -> None:
    """See that gradients reach the predictions of a program.

    Args:
        program, constants, leaves, latents: as in :func:`play`.

    Raises:
        TapeError: they do not, or autograd cannot follow (a change in place of one of several views, say).
    """
    with torch.inference_mode(False), torch.enable_grad():
        begun = {place: leaf.detach().to(torch.float32, copy=True).requires_grad_() for place, leaf in leaves.items()}
        try:
            made = play(program, constants, begun, latents.clone()).float().flatten()
            (made * torch.linspace(-1.0, 2.0, len(made), device=made.device)).sum().backward()  # type: ignore[no-untyped-call]
        except TapeError:
            raise
        except RuntimeError as error:
            raise TapeError(
                f"autograd cannot follow what the pipeline makes of its predictions: {_line(error)}"
            ) from error
    gradients = [leaf.grad for leaf in begun.values()]
    if any(gradient is None for gradient in gradients) or not any(bool(g.any()) for g in gradients if g is not None):
        raise TapeError("no gradient reaches a prediction that the pipeline takes its step with")
    if not all(bool(g.isfinite().all()) for g in gradients if g is not None):
        raise TapeError("the gradient of a prediction that the pipeline takes its step with is not finite")


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _wide(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device, torch.float32 if tensor.dtype in HALF else None)


def _dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALF else dtype


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
