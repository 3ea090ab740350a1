"""LoRA from the trainer into an engine's weights: what an update is made of, and what it is folded into."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

SENT = "transformer."  # before the name of each weight that the trainer sends

# Where the weights wait that LoRA is folded into: in the mapped files, in pinned memory of the host, on the card.
BASES = ("mapped", "pinned", "card")

_BLOCK = 1 << 21  # words that are digested at once: bounds what that takes of a device's memory


def lora_scaling(peft_config: dict[str, Any]) -> float:
    """The factor of ``B @ A``.

    Raises:
        ValueError: it is not plain LoRA of one rank.
    """
    if peft_config.get("use_dora") or peft_config.get("rank_pattern") or peft_config.get("alpha_pattern"):
        raise ValueError("only plain LoRA of one rank can be folded (no DoRA, no rank or alpha patterns)")
    rank = int(peft_config["r"])
    return float(peft_config["lora_alpha"] / (rank**0.5 if peft_config.get("use_rslora") else rank))


def lora_modules(tensors: dict[str, Tensor]) -> set[str]:
    """Modules that an update has both matrices of.

    Raises:
        ValueError: something else is in it.
    """
    modules = {name.removesuffix(".lora_A.weight") for name in tensors if name.endswith(".lora_A.weight")}
    strange = sorted(tensors.keys() ^ {f"{module}.lora_{side}.weight" for module in modules for side in "AB"})
    if strange:
        raise ValueError(f"{strange[0]!r} and {len(strange) - 1} more are no pairs of LoRA matrices of a projection")
    return modules


def base_place(od_config: Any) -> str:
    """Where the engine's ``additional_config.lora_base`` asks the checkpoint's weights to wait for the next push.

    Raises:
        ValueError: at no place that there is.
    """
    asked = (getattr(od_config, "additional_config", None) or {}).get("lora_base", BASES[0])
    if asked not in BASES:
        raise ValueError(f"additional_config.lora_base is {asked!r}, which is none of {', '.join(BASES)}")
    return str(asked)


def digest(tensor: Tensor) -> str:
    """Digest of shape, dtype and bytes, made where the tensor lies and the same on every device.

    Words of four bytes are multiplied by numbers that hang on their place and added up modulo 2**64, which finds what
    moved as well as what changed; SHA-256 is over the sums of the blocks, since it has no kernel for a device.
    """
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if len(data) % 4:
        data = torch.cat([data, data.new_zeros(-len(data) % 4)])
    words = (data.clone() if data.storage_offset() % 4 else data).view(torch.int32)
    factors = torch.arange(1, min(len(words), _BLOCK) + 1, device=words.device)
    for factor in (-7046029254386353131, -4658895280553007687):
        factors = factors * factor
        factors = factors ^ (factors >> 31)
    sums = [(block * factors[: len(block)]).sum() for block in torch.split(words, _BLOCK)]
    told = torch.stack(sums).tolist() if len(words) else []
    return hashlib.sha256(repr((tuple(tensor.shape), str(tensor.dtype), told)).encode()).hexdigest()


class LoraFold:
    """Folds each LoRA update into the weights of the checkpoint anew, so nothing adds up.

    One layer at a time, in the memory that the engine's parameters have: a sleeping engine wakes with what it had, and
    no second copy of the weights is kept. Those of the checkpoint are mapped from its files, as the training module's
    are. A push reads those that LoRA is on, or was on in the push before, and each is compared with the actor's once.

    Args:
        opened: maps the checkpoint's tensors, under the names of the training module.
        plain: the training module's name of a parameter, from the one that the actor sends.
        base: where the checkpoint's weights wait for the next push, one of ``BASES``.
    """

    def __init__(
        self, opened: Callable[[], Mapping[str, Tensor]], plain: Callable[[str], str], base: str = BASES[0]
    ) -> None:
        self._opened, self._plain, self._place = opened, plain, base
        self._held: dict[str, Tensor] = {}
        self._base: Mapping[str, Tensor] | None = None
        self._folded: set[str] = set()
        self._synced: dict[str, tuple[torch.dtype, str]] = {}
        self._released: dict[tuple[str, torch.dtype], str] = {}

    def noting(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Pass the actor's weights on, and keep the digest of each, by which a changed base is recognised."""
        for name, tensor in weights:
            if name.startswith(SENT):
                self._synced[self._plain(name)] = tensor.dtype, digest(tensor)
            yield name, tensor

    def folded(
        self,
        tensors: dict[str, Tensor],
        peft_config: dict[str, Any],
        placement: Callable[[str], tuple[torch.device, torch.dtype]],
    ) -> Iterator[tuple[str, Tensor]]:
        """Weights with an update of the actor's, and those of the checkpoint where LoRA no longer is.

        Args:
            tensors: ``transformer.<training name>.lora_A.weight`` and ``….lora_B.weight``, of all layers with LoRA.
            peft_config: PEFT's configuration as a dictionary.
            placement: where the engine has the weight of a training name, and in which dtype.

        Raises:
            ValueError: the update is not plain LoRA, is no pairs of matrices, the checkpoint has no weight for a
                module, or the actor's is another.
        """
        scaling = lora_scaling(peft_config)
        modules = {self._plain(f"{module}.weight"): module for module in lora_modules(tensors)}
        if self._base is None:
            self._base = self._opened()
        base = self._base
        unknown = sorted(modules.keys() - base.keys())
        if unknown:
            raise ValueError(f"LoRA on {modules[unknown[0]]!r}: the checkpoint has no weight of that name")

        def weights() -> Iterator[tuple[str, Tensor]]:
            for name in sorted(modules.keys() | self._folded):
                device, dtype = placement(name)
                weight = self._read(base, name, device)
                self._require_same(name, weight)
                # As the engine holds it without LoRA: rounded to its dtype first.
                weight = weight.to(dtype).float()
                if name in modules:
                    pair = (tensors[f"{modules[name]}.lora_{side}.weight"] for side in "AB")
                    down, up = (matrix.to(device).float().flatten(1) for matrix in pair)
                    weight = weight.flatten(1).addmm(up, down, alpha=scaling).view_as(weight)
                yield f"{SENT}{name}", weight.to(dtype)
            self._folded = set(modules)

        return weights()

    def _read(self, base: Mapping[str, Tensor], name: str, device: torch.device) -> Tensor:
        """A weight of the checkpoint on the engine's device."""
        if self._place == "mapped" or device.type == "cpu":
            return base[name].to(device)
        if name not in self._held:
            self._held[name] = base[name].pin_memory() if self._place == "pinned" else base[name].to(device)
        return self._held[name].to(device, non_blocking=True)

    def _require_same(self, name: str, weight: Tensor) -> None:
        if name not in self._synced:
            return
        dtype, synced = self._synced[name]
        if (name, dtype) not in self._released:
            self._released[name, dtype] = digest(weight.to(dtype))
        if self._released[name, dtype] != synced:
            raise ValueError(f"the actor's base weight {name!r} is not the checkpoint's to fold LoRA into")


def placeholder_adapter(
    pipeline: nn.Module, peft_config: dict[str, Any], *, packed: bool = True, unused: Sequence[str] = ()
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What is left for the engine's adapter manager, which insists on binding something, once LoRA is folded.

    Args:
        pipeline: the engine's; it is given a linear layer that nothing calls, unless ``unused`` names one.
        peft_config: of the update.
        packed: whether the manager wraps layers of every kind.
        unused: prefixes of modules that nothing trained is part of, with a dot, one of which has such a layer.

    Returns:
        An adapter of zeros on that layer, and its configuration.

    Raises:
        ValueError: there is no layer that it could bind.
    """
    if not unused:
        add_spare_linear(pipeline, packed=packed)
    rank = int(peft_config["r"])
    for name, module in pipeline.named_modules():
        linear = getattr(module, "base_layer", module)
        prefix = next((prefix for prefix in unused or ("lora_spare.",) if f".{prefix}" in f".{name}."), None)
        if prefix is None or "LinearBase" not in kinds(linear):
            continue
        target = name[f".{name}.".index(f".{prefix}") :]
        adapter = {
            f"{target}.lora_A.weight": torch.zeros(rank, linear.input_size),
            f"{target}.lora_B.weight": torch.zeros(linear.output_size, rank),
        }
        return adapter, {**peft_config, "target_modules": [target]}
    raise ValueError("the engine has no unused linear module to bind a placeholder adapter to")


def add_spare_linear(pipeline: Any, *, packed: bool = True) -> None:
    """Give the manager a linear layer that nothing calls: the engine builds no part of the model but what it uses.

    It is a second module over the weight of the smallest one that is not packed of several; the first stays as it
    is, and so do the names of its parameters. Where the pipeline has none of the engine's layers it is a new one,
    whose weight is no parameter: no checkpoint holds it.
    """
    import copy

    if hasattr(pipeline, "lora_spare"):
        return
    plain = [
        module
        for module in pipeline.modules()
        if "LinearBase" in (kinds(module) if packed else kinds(module)[:2]) and not hasattr(module, "output_sizes")
    ]
    if plain:
        spare = copy.copy(min(plain, key=lambda module: module.input_size * module.output_size))
    else:
        from vllm.model_executor.layers.linear import ReplicatedLinear

        like = next(pipeline.parameters(), torch.empty(0))
        spare = ReplicatedLinear(8, 8, bias=False, params_dtype=like.dtype).to(like.device)
        weight = spare.weight.detach()
        del spare.weight
        spare.register_buffer("weight", weight, persistent=False)
    pipeline.lora_spare = nn.ModuleDict({"linear": spare})
    pipeline._lora_components = [*(getattr(pipeline, "_lora_components", None) or ()), "lora_spare"]


def kinds(module: Any) -> list[str]:
    return [kind.__name__ for kind in type(module).__mro__]
