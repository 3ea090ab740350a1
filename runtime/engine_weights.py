"""From the actor into the rollout engine: weights, and LoRA folded into them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .checkpoint import DenoiserSource, read_checkpoint
from .fused import Fused, part_of, plain_modules, plain_name

SENT = "transformer."  # before the name of each weight that the trainer sends


def fill_denoiser(denoiser: nn.Module, weights: Iterable[tuple[str, Tensor]], fused: Fused) -> set[str]:
    """Put the actor's weights into the rollout engine's denoiser, in the memory that its parameters have.

    They have the names of the training module, except where the engine fuses layers: those are filled part by part.

    Args:
        denoiser: the engine's module.
        weights: ``transformer.<training name>`` and tensors.
        fused: layers that the engine fuses.

    Returns:
        Names of the denoiser's parameters that were filled.

    Raises:
        KeyError: the denoiser has no parameter of a name.
        ValueError: a tensor has another shape than its parameter.
    """
    targets = {plain_name(name): tensor for name, tensor in (*denoiser.named_buffers(), *denoiser.named_parameters())}
    modules = plain_modules(denoiser)
    filled: set[str] = set()
    for sent, tensor in weights:
        name = plain_name(sent.removeprefix(SENT))
        shard: tuple[Any, ...] = ()
        if name not in targets:
            name, shard = part_of(name, targets, modules, fused)
        target = targets[name]
        load = getattr(target, "weight_loader", None)
        with torch.no_grad():
            if load is not None:
                load(target, tensor, *shard)
            elif target.shape != tensor.shape:
                raise ValueError(f"{sent} has shape {tuple(tensor.shape)}, the engine's {name} {tuple(target.shape)}")
            else:
                target.copy_(tensor)
        filled.add(name)
    return filled


class LoraFold:
    """Folds each LoRA update into the weights of the checkpoint anew, so nothing adds up.

    One layer at a time, in the memory that the engine's parameters have: a sleeping engine wakes with what it had, and
    no second copy of the weights is kept. Those of the checkpoint are mapped from its files, as the training module's
    are, and read when they are needed.

    Args:
        source: where the pipeline gets its denoiser from.
        model_path: the checkpoint.
    """

    def __init__(self, source: DenoiserSource, model_path: str) -> None:
        self.source = source
        self.model_path = model_path
        self._base: dict[str, Tensor] | None = None
        self._folded: set[str] = set()
        self._sums: dict[str, tuple[torch.dtype, Tensor]] = {}

    def noting(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Pass the actor's weights on, and keep the sum of each, by which a changed base is recognised."""
        for name, tensor in weights:
            self._sums[plain_name(name.removeprefix(SENT))] = tensor.dtype, tensor.sum(dtype=torch.float64)
            yield name, tensor

    def fold(self, denoiser: nn.Module, tensors: dict[str, Tensor], peft_config: dict[str, Any]) -> None:
        """Give the engine's weights an update of the actor's.

        Args:
            denoiser: the engine's module.
            tensors: ``transformer.<training name>.lora_A.weight`` and ``….lora_B.weight``, of all layers with LoRA.
            peft_config: PEFT's configuration as a dictionary.

        Raises:
            ValueError: the update is not plain LoRA, is no pairs of matrices, the checkpoint has no weight for a
                module, or the actor's is another.
            KeyError: the denoiser has no parameter for a module.
        """
        scaling = lora_scaling(peft_config)
        sent = lora_modules(tensors)
        base = self._base_weights()
        names = {plain_name(f"{module}.weight".removeprefix(SENT)): module for module in sent}
        unknown = sorted(names.keys() - base.keys())
        if unknown:
            raise ValueError(f"LoRA on {unknown[0]!r}: the checkpoint has no weight of that name")
        targets = {plain_name(name): parameter for name, parameter in denoiser.named_parameters()}
        modules = plain_modules(denoiser)

        def weights() -> Iterator[tuple[str, Tensor]]:
            for name in sorted(names.keys() | self._folded):
                held = targets[name if name in targets else part_of(name, targets, modules, self.source.fused)[0]]
                self._require_same(name, base[name])
                # As the engine holds it without LoRA: rounded to its dtype first.
                weight = base[name].to(held.device).to(held.dtype).float()
                if name in names:
                    pair = (tensors[f"{names[name]}.lora_{side}.weight"] for side in "AB")
                    down, up = (matrix.to(held.device).float() for matrix in pair)
                    weight = weight.addmm(up, down, alpha=scaling)
                yield f"{SENT}{name}", weight.to(held.dtype)

        fill_denoiser(denoiser, weights(), self.source.fused)
        self._folded = set(names)

    def _base_weights(self) -> dict[str, Tensor]:
        """The checkpoint's tensors under the names of the training module, mapped."""
        if self._base is None:
            folder = local_checkpoint(self.model_path)
            module, sources, config = self.source.built(folder, torch.float32)
            checkpoint = read_checkpoint(module, folder, sources, self.source, config)
            checkpoint.tie(module)
            self._base = {name: checkpoint.state[name] for name, _ in module.named_parameters()}
        return self._base

    def _require_same(self, name: str, weight: Tensor) -> None:
        if name not in self._sums:
            return
        dtype, synced = self._sums[name]
        if not torch.allclose(weight.to(dtype).sum(dtype=torch.float64), synced.cpu(), rtol=1e-6, atol=1e-6):
            raise ValueError(f"the actor's base weight {name!r} is not the checkpoint's to fold LoRA into")


def lora_scaling(peft_config: dict[str, Any]) -> float:
    """What an update is multiplied with.

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


def local_checkpoint(model_path: str) -> str:
    """Local place of a checkpoint, which may have been named by its Hub id."""
    if os.path.exists(model_path):
        return model_path
    from huggingface_hub import snapshot_download

    return str(snapshot_download(model_path, local_files_only=True))


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
        if prefix is None or "LinearBase" not in _kinds(linear):
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
        if "LinearBase" in (_kinds(module) if packed else _kinds(module)[:2]) and not hasattr(module, "output_sizes")
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


def has_engine_linear(pipeline: nn.Module) -> bool:
    """Whether a pipeline has a linear layer of the engine's."""
    return any("LinearBase" in _kinds(module) for module in pipeline.modules())


def _kinds(module: Any) -> list[str]:
    return [kind.__name__ for kind in type(module).__mro__]
