"""Plain layers of torch under the names and signatures that vllm-omni's denoisers import, on one device."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from peft.tuners import lora
from torch import Tensor, nn


class NoCounterpart(type(Protocol)):  # type: ignore[misc]
    """A class that may stand in annotations and as a base, also beside protocols, and says what it is when made."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if "no_counterpart" in cls.__dict__:
            raise NotImplementedError(f"{cls.__module__}.{cls.__name__} has no counterpart in plain torch")
        return super().__call__(*args, **named)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or "no_counterpart" not in cls.__dict__:
            raise AttributeError(name)
        return Nowhere(f"{cls.__module__}.{cls.__name__}.{name}")


class Nowhere:
    """A module of the engine's, or something in one, that is not there: it may be named, and raises when called."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ANSWERS[name] if name in ANSWERS else Nowhere(f"{self._name}.{name}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError(f"{self._name} has no counterpart in plain torch")

    def __bool__(self) -> bool:
        raise NotImplementedError(f"{self._name} has no counterpart in plain torch")


class Linear(nn.Linear):
    """A parallel linear layer of the engine's: it returns ``(y, None)`` unless it is told otherwise.

    Attributes:
        pair: whether it does.
        hands_bias_on: the bias is left to the caller to add.
    """

    SIZES = (
        "output_sizes", "input_size", "output_size", "input_size_per_partition", "output_size_per_partition",
        "num_heads", "num_kv_heads", "total_num_heads", "total_num_kv_heads", "head_size", "num_kv_head_replicas",
        "tp_size", "tp_rank",
    )  # fmt: skip
    tp_size, tp_rank = 1, 0
    quant_config = quant_method = None

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        _gathered: bool = False,
        skip_bias_add: bool = False,
        params_dtype: torch.dtype | None = None,
        quant_config: Any = None,
        prefix: str = "",
        *,
        return_bias: bool = True,
        **placement: Any,
    ) -> None:
        if quant_config is not None:
            raise NotImplementedError(f"{prefix or 'a linear layer'} has quantised weights, which cannot be trained")
        super().__init__(input_size, output_size, bias=bias, dtype=params_dtype)
        self.pair, self.hands_bias_on = return_bias, skip_bias_add and bias
        self.input_size = self.input_size_per_partition = input_size
        self.output_size = self.output_size_per_partition = output_size

    def forward(self, input: Tensor) -> Any:
        """``(…, input_size)`` to ``(…, output_size)``."""
        left = self.bias if self.hands_bias_on else None
        y = super().forward(input) if left is None else F.linear(input, self.weight)
        return (y, left) if self.pair else y


class Replicated(Linear):
    """A linear layer that every device has: no argument says whether outputs are gathered."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        skip_bias_add: bool = False,
        *rest: Any,
        **named: Any,
    ) -> None:
        super().__init__(input_size, output_size, bias, False, skip_bias_add, *rest, **named)


class Merged(Linear):
    """Layers over one input, as one of the sum of their rows."""

    def __init__(self, input_size: int, output_sizes: list[int], bias: bool = True, *rest: Any, **named: Any) -> None:
        super().__init__(input_size, sum(output_sizes), bias, *rest, **named)
        self.output_sizes = list(output_sizes)
        self.output_partition_sizes = self.output_sizes


class QKV(Merged):
    """Queries, keys and values as one layer."""

    def __init__(
        self,
        hidden_size: int,
        head_size: int,
        total_num_heads: int,
        total_num_kv_heads: int | None = None,
        bias: bool = True,
        *rest: Any,
        v_head_size: int | None = None,
        **named: Any,
    ) -> None:
        heads, few = total_num_heads, total_num_kv_heads or total_num_heads
        sizes = [heads * head_size, few * head_size, few * (v_head_size or head_size)]
        super().__init__(hidden_size, sizes, bias, False, *rest, **named)
        self.num_heads = self.total_num_heads = heads
        self.num_kv_heads = self.total_num_kv_heads = few
        self.head_size, self.num_kv_head_replicas = head_size, 1


class Embedding(nn.Embedding):
    """Rows of a vocabulary, which the engine spreads over devices."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, params_dtype: torch.dtype | None = None, **placement: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, dtype=params_dtype)


class LoraOfPair(lora.Linear):
    """PEFT's LoRA around a layer that returns a pair."""

    def forward(self, x: Tensor, *args: Any, **named: Any) -> Any:
        base: Any = self.get_base_layer()
        pair, base.pair = base.pair, False
        try:
            y = super().forward(x, *args, **named)
        finally:
            base.pair = pair
        return (y, base.bias if base.hands_bias_on else None) if pair else y


class RMSNorm(nn.Module):
    """``x / sqrt(mean(x²) + eps)`` in float32, times the weight.

    With ``residual`` the sum of both is normalised, and returned beside the result.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        var_hidden_size: int | None = None,
        has_weight: bool = True,
        dtype: torch.dtype | None = None,
        **hints: Any,
    ) -> None:
        super().__init__()
        self.hidden_size, self.variance_epsilon = hidden_size, eps
        self.variance_size = var_hidden_size or hidden_size
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=dtype)) if has_weight else None

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        """Normalise the last dimension; shape and dtype stay."""
        if residual is not None:
            x = residual = x + residual
        wide = x.float()
        y = wide * torch.rsqrt(wide[..., : self.variance_size].pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        if self.weight is not None:
            y = y.to(self.weight.dtype) * self.weight
        y = y.to(x.dtype)
        return y if residual is None else (y, residual)


class GatedActivation(nn.Module):
    """``act(a) * b`` of the halves ``a`` and ``b`` of the last dimension."""

    KINDS: ClassVar = {"silu": "silu", "swish": "silu", "gelu": "gelu", "geglu": "gelu", "gelu_pytorch_tanh": "tanh"}

    def __init__(self, kind: str, *hints: Any, **more: Any) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise NotImplementedError(f"the gated activation {kind!r} has no counterpart in plain torch")
        self.kind = self.KINDS[kind]

    def forward(self, x: Tensor) -> Tensor:
        """``(…, 2 * D)`` to ``(…, D)``."""
        gate, passed = x.chunk(2, dim=-1)
        if self.kind == "silu":
            return F.silu(gate) * passed
        return F.gelu(gate, approximate="tanh" if self.kind == "tanh" else "none") * passed


class GatedMLP(nn.Module):
    """``down_proj(silu(gate_proj(x)) * up_proj(x))``, the gated MLP of decoders."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, hidden_act: str, quant_config: Any = None, *,
        bias: bool = False, **hints: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if hidden_act != "silu" or quant_config is not None:
            raise NotImplementedError(f"a gated MLP with {hidden_act!r} or quantised weights has no plain counterpart")
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=bool(bias))
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=bool(bias))
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bool(bias))

    def forward(self, x: Tensor) -> Tensor:
        """``(…, hidden_size)`` to the same."""
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class RoutedExperts(nn.ModuleList):
    """``sum_k w_k expert_k(x)`` over the ``top_k`` experts of the largest softmax probability.

    ``shared_experts``, which all tokens go through, is a part of the module around this one, and is added.
    """

    # What says how experts are spread over devices.
    PLACEMENT = (
        "reduce_results", "quant_config", "prefix", "tp_size", "ep_size", "dp_size", "pcp_size", "enable_eplb",
        "num_redundant_experts", "params_dtype",
    )  # fmt: skip

    def __init__(
        self,
        *,
        num_experts: int,
        top_k: int,
        hidden_size: int,
        intermediate_size: int,
        renormalize: bool = True,
        shared_experts: nn.Module | None = None,
        activation: str = "silu",
        scoring_func: str = "softmax",
        **options: Any,
    ) -> None:
        strange = [name for name, value in options.items() if name not in self.PLACEMENT and value not in (None, False)]
        if strange or activation != "silu" or scoring_func != "softmax" or options.get("quant_config") is not None:
            asked = (strange or [f"{activation} and {scoring_func}"])[0]
            raise NotImplementedError(f"routed experts with {asked} have no counterpart in plain torch")
        super().__init__(GatedMLP(hidden_size, intermediate_size, "silu") for _ in range(num_experts))
        self.top_k, self.renormalize = top_k, renormalize
        self._shared = (shared_experts,)  # in a tuple it is nobody's child twice

    def forward(self, hidden_states: Tensor, router_logits: Tensor) -> Tensor:
        """``(T, hidden_size)`` and ``(T, num_experts)`` to ``(T, hidden_size)``."""
        weights, chosen = router_logits.float().softmax(dim=-1).topk(self.top_k, dim=-1)
        if self.renormalize:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(hidden_states.dtype)
        # Every expert is called, also for no token, so that sharded parameters are gathered on every rank.
        order = chosen.flatten().argsort(stable=True)
        bounds = torch.arange(len(self), device=chosen.device)
        ends = torch.searchsorted(chosen.flatten()[order], bounds, right=True)
        # The one wait for the device: how many tokens each expert gets.
        parts = hidden_states[order // self.top_k].tensor_split(ends[:-1].tolist())
        made = torch.cat([expert(part) for expert, part in zip(self, parts, strict=True)])[order.argsort()]
        mixed: Tensor = (made.view(*chosen.shape, made.shape[-1]) * weights[..., None]).sum(dim=1)
        shared = self._shared[0]
        return mixed if shared is None else shared(hidden_states) + mixed

    @staticmethod
    def make_expert_params_mapping(
        model: Any, ckpt_gate_proj_name: str, ckpt_down_proj_name: str, ckpt_up_proj_name: str, num_experts: int,
        num_redundant_experts: int = 0,
    ) -> list[tuple[str, str, int, str]]:  # fmt: skip
        """Rows of a parameter of all experts, the checkpoint's name, expert and part."""
        parts = (("w13_", ckpt_gate_proj_name, "w1"), ("w2_", ckpt_down_proj_name, "w2"))
        return [
            (f"experts.{fused_name}", f"experts.{expert}.{name}.", expert, part)
            for expert in range(num_experts)
            for fused_name, name, part in (*parts, ("w13_", ckpt_up_proj_name, "w3"))
        ]


class Rotary(nn.Module):
    """Turns pairs of a head by the position times ``theta^(-2i/D)``; nothing is kept between calls.

    With ``is_neox_style`` the pairs are the halves of what is turned, else neighbours.
    """

    def __init__(
        self,
        head_size: int,
        max_position: int = 0,
        is_neox_style: bool = True,
        rope_parameters: dict[str, Any] | None = None,
        **hints: Any,
    ) -> None:
        super().__init__()
        rope = dict(rope_parameters or {})
        kind = rope.get("rope_type", "default")
        if kind != "default" or hints.get("dual_chunk_attention_config") is not None:
            raise NotImplementedError(f"rotary positions of type {kind!r}, or in chunks, have no plain counterpart")
        self.head_size, self.is_neox_style = head_size, is_neox_style
        self.theta = float(rope.get("rope_theta", 10000))
        self.turned = int(rope.get("rope_dim") or head_size * rope.get("partial_rotary_factor", 1.0))

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys ``(T, heads * D)`` at positions ``(T,)``, in the shapes in which they come."""
        steps = torch.arange(0, self.turned, 2, device=positions.device, dtype=torch.float32) / self.turned
        angles = positions.flatten()[:, None, None] * self.theta**-steps
        return self._turn(query, angles.cos(), angles.sin()), self._turn(key, angles.cos(), angles.sin())

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = x.reshape(cos.shape[0], -1, self.head_size)
        turned, rest = heads[..., : self.turned], heads[..., self.turned :]
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        if self.is_neox_style:
            a, b = turned.chunk(2, dim=-1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
        else:
            a, b = turned[..., ::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
        return torch.cat((turned, rest), dim=-1).reshape(x.shape)


@dataclass(init=False)
class AttentionMetadata:
    """What attention is given besides queries, keys and values.

    Attributes:
        attn_mask: ``(B, K)`` true at real keys, or anything that broadcasts to ``(B, H, Q, K)``.
        full_attn_spans: for each sample ranges of tokens that see all of their own range, the others being causal; used
            without a mask.
        extra: hints for kernels; ``valid_kv_length`` cuts the keys, nothing else has an effect here.
    """

    attn_mask: Tensor | None = None
    full_attn_spans: list[list[tuple[int, int]]] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __init__(self, attn_mask: Tensor | None = None, **named: Any) -> None:
        self.attn_mask, self.full_attn_spans = attn_mask, named.pop("full_attn_spans", None)
        self.extra = named.pop("extra", None) or {}
        joint = [name for name, value in named.items() if name.startswith("joint_") and isinstance(value, Tensor)]
        if joint:
            raise NotImplementedError(f"attention with {joint[0]} has no counterpart in plain torch")
        self.__dict__.update({name: value for name, value in named.items() if name not in self.__dataclass_fields__})


class _Backend:
    """What a denoiser asks the attention's backend."""

    supports_piecewise_spans = True
    supports_prefix_kv_slicing = False

    @staticmethod
    def get_name() -> str:
        return "SDPA"

    @staticmethod
    def supports_packed_mask_free() -> bool:
        return False

    @staticmethod
    def supports_multi_doc_packed_varlen() -> bool:
        return False

    @staticmethod
    def supports_attention_mask() -> bool:
        return True


class Attention(nn.Module):
    """Scaled dot-product attention; fewer key and value heads are shared by groups of query heads."""

    attn_backend = _Backend
    use_ring = False

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        causal: bool = False,
        softmax_scale: float | None = None,
        num_kv_heads: int | None = None,
        *,
        custom_attention: nn.Module | None = None,
        impl_overrides: Any = None,
        **hints: Any,
    ) -> None:
        super().__init__()
        if custom_attention is not None or impl_overrides is not None:
            raise NotImplementedError("attention with a kernel of the model's own has no counterpart in plain torch")
        self.num_heads, self.num_kv_heads, self.head_size = num_heads, num_kv_heads or num_heads, head_size
        self.causal, self.softmax_scale = causal, softmax_scale

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attn_metadata: AttentionMetadata | None = None
    ) -> Tensor:
        """Return ``(B, Q, H, D)`` for a query of that shape, key and value ``(B, K, H or fewer, D)``."""
        mask = None
        if attn_metadata is not None:
            length = attn_metadata.extra.get("valid_kv_length")
            if length is not None:
                key, value = key[:, :length], value[:, :length]
            mask = attn_metadata.attn_mask
            if mask is not None and mask.ndim == 2:
                mask = mask.to(torch.bool)[:, None, None, : key.shape[1]]
            elif mask is None and attn_metadata.full_attn_spans is not None:
                mask = _span_mask(query, key, attn_metadata.full_attn_spans)
        query, key, value = (x.transpose(1, 2) for x in (query, key, value))
        if key.shape[1] != query.shape[1]:
            groups = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=self.causal, scale=self.softmax_scale
        )
        return attended.transpose(1, 2)

    @property
    def sdpa_fallback(self) -> Attention:
        """What the engine falls back to where a kernel cannot do something: this."""
        return self

    def is_paged_kv_active(self) -> bool:
        """Whether keys and values are the engine's pages."""
        return False


def _span_mask(query: Tensor, key: Tensor, spans: list[list[tuple[int, int]]]) -> Tensor:
    """Causal, and within each span full; queries are the last tokens of the keys."""
    total = key.shape[1]
    columns = torch.arange(total, device=query.device)
    masks = []
    for ranges in spans:
        reach = columns.clone()
        for start, end in ranges:
            reach[start:end] = end - 1
        masks.append(columns[None] <= reach[total - query.shape[1] :, None])
    return torch.stack(masks)[:, None]


class Platform:
    """One device without kernels of the engine's, so that the plain code runs everywhere."""

    @property
    def device_type(self) -> str:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return "cpu" if accelerator is None else accelerator.type

    device_name = device_type

    def supports_float64(self) -> bool:
        return True

    def reset_diffusion_fused_moe_forward_context(self) -> None:
        """Forget what fused experts were told: there are none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_"):
            return _no
        raise NotImplementedError(f"the platform's {name} has no counterpart in plain torch")


class CachedTransformer(nn.Module):
    """Base class of denoisers whose steps the engine may skip; here none is."""

    def __init__(self, **named: Any) -> None:
        super().__init__()


class Alone:
    """A group of one device, or what the engine was told about such groups."""

    world_size, rank_in_group, is_first_rank, is_last_rank = 1, 0, True, True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("enable_"):
            return False
        raise NotImplementedError(f"{name} of a group of devices has no counterpart in plain torch")


class OnceLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """A logger with the engine's methods; what they say once is said here each time."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})
        self.debug_once, self.info_once, self.warning_once = self.debug, self.info, self.warning


class _ForwardContext:
    """The engine's context of a forward pass, as far as training knows it."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields") or {}
        if name not in fields:
            raise NotImplementedError(f"{name} of the engine's context is not known in training")
        return fields[name]


CONTEXT = _ForwardContext()


def _no(*args: Any, **named: Any) -> bool:
    return False


def _yes(*args: Any, **named: Any) -> bool:
    return True


def _none(*args: Any, **named: Any) -> None:
    return None


def _zero(*args: Any, **named: Any) -> int:
    return 0


def _one(*args: Any, **named: Any) -> int:
    return 1


def _first(value: Any, *args: Any, **named: Any) -> Any:
    return value


def _arguments(*args: Any, **named: Any) -> tuple[Any, ...]:
    return args, named


def _make_layers(count: int, make: Callable[..., nn.Module], prefix: str = "layers") -> tuple[int, int, nn.ModuleList]:
    return 0, count, nn.ModuleList([make(prefix=f"{prefix}.{index}") for index in range(count)])


def _activation(name: str, *hints: Any) -> nn.Module:
    known: dict[str, Callable[[], nn.Module]] = {
        "silu": nn.SiLU, "gelu": nn.GELU, "relu": nn.ReLU, "tanh": nn.Tanh,
        "gelu_new": partial(nn.GELU, approximate="tanh"), "gelu_pytorch_tanh": partial(nn.GELU, approximate="tanh"),
    }  # fmt: skip
    if name not in known:
        raise NotImplementedError(f"the activation {name!r} has no counterpart in plain torch")
    return known[name]()


def _local_device() -> torch.device:
    return torch.device(Platform().device_type)


_GROUPS = (
    "tensor_model_parallel", "tensor_parallel", "sequence_parallel", "ulysses_parallel", "ring_parallel",
    "allgather_parallel", "pipeline_parallel", "data_parallel", "classifier_free_guidance",
)  # fmt: skip

# What stands for a name of the engine's, or for ``module:name``.
ANSWERS: dict[str, Any] = {
    "ColumnParallelLinear": Linear, "RowParallelLinear": Linear, "ReplicatedLinear": Replicated, "LinearBase": Linear,
    "MergedColumnParallelLinear": Merged, "QKVParallelLinear": QKV, "VocabParallelEmbedding": Embedding,
    "Conv3dLayer": nn.Conv3d, "Attention": Attention, "AttentionMetadata": AttentionMetadata, "RMSNorm": RMSNorm,
    "SiluAndMul": partial(GatedActivation, "silu"), "get_act_and_mul_fn": GatedActivation, "get_act_fn": _activation,
    "GeluAndMul": lambda approximate="none": GatedActivation("gelu_pytorch_tanh" if approximate == "tanh" else "gelu"),
    "NewGELU": partial(nn.GELU, approximate="tanh"), "Qwen2MLP": GatedMLP, "Qwen3MLP": GatedMLP, "LlamaMLP": GatedMLP,
    "FusedMoE": RoutedExperts, "get_rope": Rotary, "CachedTransformer": CachedTransformer,
    "make_expert_params_mapping": RoutedExperts.make_expert_params_mapping,
    "fused_moe_make_expert_params_mapping": RoutedExperts.make_expert_params_mapping,
    "init_logger": OnceLogger, "HAS_TRITON": False, "flash_attn_varlen_func": None, "flash_attn_func": None,
    "current_platform": Platform(), "current_omni_platform": Platform(), "PPMissingLayer": nn.Identity,
    **{f"get_{group}_world_size": _one for group in _GROUPS}, **{f"get_{group}_rank": _zero for group in _GROUPS},
    "is_pipeline_first_stage": _yes, "is_pipeline_last_stage": _yes, "is_sp_initialized": _no,
    "model_parallel_is_initialized": _no, "is_pp_missing_parameter": _no,
    "tensor_model_parallel_all_reduce": _first, "tensor_model_parallel_all_gather": _first, "sp_shard": _first,
    "sp_gather": _first, "maybe_remap_kv_scale_name": _first, "download_weights_from_hf_specific": _first,
    "default_weight_loader": None, "divide": lambda total, parts: total // parts,
    "maybe_prefix": lambda prefix, name: f"{prefix}.{name}" if prefix else name, "make_layers": _make_layers,
    "make_empty_intermediate_tensors_factory": _none, "direct_register_custom_op": _none,
    "SequenceParallelInput": _arguments, "SequenceParallelOutput": _arguments, "CacheDiTAdapterConfig": _arguments,
    "get_forward_context": lambda: CONTEXT, "is_forward_context_available": lambda: CONTEXT.fields is not None,
    "get_sp_shard_original_seq_len": _none, "get_current_diffusion_config_or_none": _none,
    **{f"get_{group}_group": Alone for group in ("tp", "pp", "sp")}, "sharded_weight_loader": _none,
    "get_current_vllm_config": lambda: SimpleNamespace(parallel_config=Alone()), "get_local_device": _local_device,
    "set_forward_context": lambda *args, **named: nullcontext(),
    "WeightsMapper": SimpleNamespace,
    "resolve_offload_strategy": lambda *args, **named: "none",
    "OffloadStrategy": SimpleNamespace(**{name: name.lower() for name in (
        "NONE", "MODEL_LEVEL", "LAYER_WISE", "DISTRIBUTED_LAYER_WISE")}),
    "AttentionType": SimpleNamespace(**{name: name.lower() for name in ("ENCODER_DECODER", "ENCODER_ONLY", "DECODER")}),
    **{f"vllm_omni.diffusion.layers.fused_qk_norm_rope:{name}": _no for name in (
        "_fused_cuda_supported", "fused_qk_norm_rope", "fused_qk_norm_rope_min_tokens")},
}  # fmt: skip
