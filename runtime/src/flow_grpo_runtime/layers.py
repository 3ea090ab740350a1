"""Layers of a pipeline that compute in training as they do in the rollout, whatever dtype the trainer gives them."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .upstream_layers import Embedding, Linear


class _Covered:
    """A tensor that mixed-precision wrappers do not see."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` made to what plain lists, tuples, dictionaries and objects of data hold."""
    if type(value) in (list, tuple):
        return type(value)(_each(item, change) for item in value)
    if type(value) is dict:
        return {key: _each(item, change) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(changed, field.name, _each(getattr(value, field.name), change))
        return changed
    return change(value)


def _size(value: Any) -> int:
    return value.element_size() if isinstance(value, torch.Tensor) and value.is_floating_point() else 0


def _cover(value: Any, least: int) -> Any:
    shown = not _size(value) or (value.requires_grad and _size(value) == least)
    return value if shown else _Covered(value)


def _uncover(value: Any) -> Any:
    return value.tensor if isinstance(value, _Covered) else value


def _put_before(layer: torch.nn.Module, cls: type, **more: Any) -> None:
    """Give ``layer`` a class that has ``cls`` before its own."""
    kind: Any = type(layer)
    layer.__class__ = _before(cls, kind, tuple(sorted(more.items())))


@cache
def _before(cls: Any, kind: Any, more: tuple[tuple[str, Any], ...]) -> type:
    def reduced(self: Any, protocol: Any) -> tuple[Any, ...]:
        """Pickle the class by its bases: it has no importable name itself."""
        return _made_again, _lineage(type(self)), vars(self)

    named = {"__module__": kind.__module__, "_put_before": (cls, kind, more), "__reduce_ex__": reduced}
    return type(kind.__name__, (cls, kind), {**named, **dict(more)})


def _lineage(kind: type) -> tuple[Any, ...]:
    """The class that a layer had at first, and what was put before it, in that order."""
    made: Any = vars(kind).get("_put_before")
    if made is None:
        return (kind,)
    cls, below, more = made
    return (*_lineage(below), (cls, more))


def _made_again(kind: Any, *before: tuple[Any, tuple[tuple[str, Any], ...]]) -> Any:
    for cls, more in before:
        kind = _before(cls, kind, more)
    return kind.__new__(kind)


class CheckpointedLayer(torch.nn.Module):
    """Mixin of a layer's class: its activations are recomputed in the backward pass.

    Attributes:
        gradient_checkpointing: whether it is; without gradients it is not.
    """

    gradient_checkpointing: bool = False
    _gradient_checkpointing_func: Callable[..., Any] | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        compute = super().forward
        if not self.gradient_checkpointing or not torch.is_grad_enabled():
            return compute(*args, **kwargs)
        again = self._gradient_checkpointing_func or checkpoint
        return again(partial(compute, **kwargs), *args, use_reentrant=False)

    @classmethod
    def of(cls, module: torch.nn.Module, names: Sequence[str]) -> list[CheckpointedLayer]:
        """Put it before the classes of those names in ``module``.

        Returns:
            The outermost layers; a layer within another one is recomputed with it.
        """
        prefixes = tuple(f"{path}." for path, layer in module.named_modules() if _is_named(layer, names))
        outermost = [
            layer
            for path, layer in module.named_modules()
            if path and _is_named(layer, names) and not path.startswith(prefixes)
        ]
        for layer in outermost:
            if not isinstance(layer, cls):
                _put_before(layer, cls)
        return [layer for layer in outermost if isinstance(layer, cls)]


def _is_named(layer: torch.nn.Module, names: Sequence[str]) -> bool:
    return type(layer).__name__ in names


class ExactArguments(torch.nn.Module):
    """Mixin of a layer's class: its arguments keep their dtype.

    FSDP2 rounds floating tensors among the arguments of each sharded layer to the dtype of its parameters. Tables of
    rotary positions and modulation in float32 would lose their low bits, which the rollout keeps. What gets a gradient
    and is as narrow as anything that does stays in sight: by its gradient FSDP2 knows when a layer is done.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        sizes: list[int] = []

        def noted(value: Any) -> Any:
            if _size(value) and value.requires_grad:
                sizes.append(_size(value))
            return value

        _each([args, kwargs], noted)
        cover = partial(_cover, least=min(sizes, default=0))
        return super().__call__(*_each(args, cover), **_each(kwargs, cover))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*_each(args, _uncover), **_each(kwargs, _uncover))

    @classmethod
    def of(cls, module: torch.nn.Module, names: Sequence[str]) -> None:
        """Put it before the classes of those names in ``module``; names and states stay."""
        for layer in module.modules():
            # A sharded layer is of a class of its own.
            named = any(kind.__name__ in names for kind in type(layer).__mro__)
            if named and not isinstance(layer, cls):
                _put_before(layer, cls)


def computed_in(module: torch.nn.Module) -> torch.dtype:
    """The dtype that a module computes in, within its forward pass.

    FSDP2 keeps parameters in float32 and gives those of the module itself their narrower copies there; those of layers
    that it shards apart are still what it keeps.
    """
    parameters = list(module.parameters())
    return next((p for p in parameters if getattr(p, "placements", None) is None), parameters[0]).dtype


def _is_torchs(layer: torch.nn.Module) -> bool:
    """Whether a layer is one of torch's own, or stands for one in an imported denoiser."""
    return type(layer).__module__.startswith("torch.nn.") or isinstance(layer, Linear | Embedding)


class WideInputs(torch.nn.Module):
    """Mixin of a torch layer's class: an input wider than the weights is computed in its own dtype.

    Pipelines keep some layers in float32, those of the timestep for one, and hand float32 to them. VeRL-Omni gives all
    parameters one dtype: such weights are rounded, what is computed with them is not.
    """

    def forward(self, input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        attributes = {name: getattr(self, name, None) for name in ("weight", "bias")}
        parameters = {name: tensor for name, tensor in attributes.items() if isinstance(tensor, torch.Tensor)}
        narrow = any(tensor.dtype != torch.promote_types(tensor.dtype, input.dtype) for tensor in parameters.values())
        if not narrow or not input.is_floating_point() or torch.is_autocast_enabled(input.device.type):
            return super().forward(input, *args, **kwargs)
        wide = {name: tensor.to(input.dtype) for name, tensor in parameters.items()}
        return torch.func.functional_call(self, wide, (input, *args), kwargs)

    @classmethod
    def of(cls, module: torch.nn.Module) -> None:
        """Put it before the classes of torch's own layers in ``module``; names and states stay."""
        for layer in module.modules():
            if _is_torchs(layer) and not isinstance(layer, cls) and getattr(layer, "weight", None) is not None:
                _put_before(layer, cls, __module__=cls.__module__)


class WideParameters(torch.nn.Module):
    """Mixin of a class of the pipeline: it computes with float32 copies of the parameters in ``_wide``.

    The pipeline keeps them in float32, so that what they are added to becomes float32. VeRL-Omni gives all parameters
    one dtype: such parameters are rounded, what is computed with them is not.
    """

    _wide: tuple[str, ...] = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        saved = {name: vars(self)[name] for name in self._wide if name in vars(self)}  # where FSDP1 puts them
        vars(self).update({name: getattr(self, name).float() for name in self._wide})
        try:
            return super().forward(*args, **kwargs)
        finally:
            for name in self._wide:
                del vars(self)[name]
            vars(self).update(saved)

    @staticmethod
    def kept(module: torch.nn.Module) -> set[str]:
        """Names of what stays in float32 under the pipeline's own ``to``; ``module`` is on the meta device."""
        if type(module).to is torch.nn.Module.to:
            return set()
        parameters = copy.deepcopy(module).to(torch.bfloat16).named_parameters()
        return {name for name, parameter in parameters if parameter.dtype == torch.float32}

    @classmethod
    def of(cls, module: torch.nn.Module, kept: set[str]) -> None:
        """Put it before the classes of modules in ``module`` that use such parameters themselves."""
        for path, layer in module.named_modules():
            prefix = f"{path}." if path else ""
            names = tuple(name for name, _ in layer.named_parameters(recurse=False) if prefix + name in kept)
            if names and not _is_torchs(layer):
                _put_before(layer, cls, _wide=names)


def unwrapped(module: Any) -> Any:
    """What FSDP1 has put itself around; the module itself without it."""
    while hasattr(module, "_fsdp_wrapped_module"):
        module = module._fsdp_wrapped_module
    return module


def exact_tables(module: torch.nn.Module, build: Callable[[Any], torch.nn.Module]) -> None:
    """Give tables that the class computes, and no checkpoint has, the dtype that it computes them in.

    VeRL-Omni gives buffers the dtype of the parameters; the rollout computes its tables anew.

    Args:
        module: perhaps sharded.
        build: of the module without wrappers, one of the same class and configuration. Called where a table is narrow.
    """
    inner = unwrapped(module)
    places = [
        (path, layer, name)
        for path, layer in inner.named_modules()
        for name, table in layer.named_buffers(recurse=False)
        if name in layer._non_persistent_buffers_set and 0 < _size(table) < torch.float32.itemsize
    ]
    if not places or "_exact_tables" in vars(inner):
        return
    vars(inner)["_exact_tables"] = True
    exact = dict(build(inner).named_buffers())
    for path, layer, name in places:
        table = layer._buffers[name]
        found = exact.get(".".join((*(part for part in path.split(".") if part != "_fsdp_wrapped_module"), name)))
        if found is not None and torch.equal(found.to(table), table):
            layer._buffers[name] = found.to(table.device)


def name_parameters(module: torch.nn.Module) -> None:
    """Let layers that FSDP1 has left without a parameter name those that they compute with.

    Some classes ask a layer for the dtype of its first one.
    """
    units: list[Any] = [unit for unit in module.modules() if hasattr(unit, "_fsdp_wrapped_module")]
    if not units or "_named" in vars(module):
        return
    vars(module)["_named"] = True
    for handle in filter(None, (unit._handle for unit in units)):
        for name, layer, _ in handle.flat_param._param_infos:
            vars(layer).setdefault("_flattened", []).append(name)
    for layer in module.modules():
        if next(layer.parameters(), None) is None and next(_flattened(layer), None) is not None:
            vars(layer)["parameters"] = types.MethodType(_flattened, layer)


def _flattened(self: torch.nn.Module, recurse: bool = True) -> Iterator[torch.Tensor]:
    """What FSDP1 has put in the place of parameters."""
    for layer in self.modules() if recurse else (self,):
        yield from (getattr(layer, name) for name in vars(layer).get("_flattened", ()))
