"""The layers of ``torch.nn`` whose parameters follow from their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from scaffold.bounded import call
from scaffold.remap.parameters.values import ModuleValue, Shape, TensorValue
from scaffold.source.values import UNKNOWN, UndecidedError

EMPTY = {
    *("Identity", "Dropout", "Dropout1d", "Dropout2d", "SiLU", "GELU", "ReLU", "ReLU6", "LeakyReLU", "Sigmoid", "Tanh"),
    *("Softmax", "Softplus", "Mish", "ELU", "Flatten", "Unflatten", "AvgPool2d", "MaxPool2d", "Upsample"),
    *("AdaptiveAvgPool2d", "PixelShuffle", "PixelUnshuffle"),
}
_SHOWN = 80
_TENSORS = ("empty", "zeros", "ones", "randn", "rand")
_SAME_SHAPE = ("clone", "detach", "float", "half", "to", "cpu", "contiguous", "normal_", "zero_", "fill_", "mul")


def shown(value: Any) -> str:
    """Return a value for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def layer(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a call of a name of ``torch`` gives; ``UNKNOWN`` where it has no parameters to tell.

    Raises:
        UndecidedError: it makes a module whose parameters the arguments do not tell.
    """
    short = name.removeprefix("torch.nn.")
    if name.startswith("torch.nn.") and "." not in short:
        make = _LAYERS.get(short)
        if make is not None:
            return make(*args, **kwargs)
        if short in EMPTY:
            return ModuleValue()
        if short[:1].isupper():
            raise UndecidedError(f"the parameters of nn.{short} are not known")
        return UNKNOWN
    head, _, last = name.rpartition(".")
    if head == "torch" and last in _TENSORS:
        size = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        return TensorValue(_shape(kwargs.get("size", size)))
    if name == "torch.full":
        return TensorValue(_shape(args[0] if args else kwargs.get("size")))
    return UNKNOWN


def tensor_method(tensor: TensorValue, name: str) -> Any:
    """Return what a method of a tensor gives."""
    return TensorValue(tensor.shape) if name in _SAME_SHAPE else UNKNOWN


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise UndecidedError(f"a size is {shown(value)} instead of a number")
    if value.bit_length() > 63:
        raise UndecidedError("a number does not fit 64 bits")
    return value


def _shape(value: Any) -> Shape:
    return tuple(_size(size) for size in ([value] if isinstance(value, int) else _items(value)))


def _items(value: Any) -> list[Any]:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(call(list, value))
    raise UndecidedError(f"a list is {shown(value)}")


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UndecidedError(f"a flag is {shown(value)} instead of true or false")
    return value


def _weighted(weight: Shape, bias: Shape | None) -> ModuleValue:
    return ModuleValue({"weight": weight} | ({} if bias is None else {"bias": bias}))


def _linear(in_features: Any, out_features: Any, bias: Any = True, device: Any = None, dtype: Any = None) -> Any:
    rows = _size(out_features)
    return _weighted((rows, _size(in_features)), (rows,) if _flag(bias) else None)


def _embedding(num_embeddings: Any, embedding_dim: Any, *_: Any, **__: Any) -> Any:
    return _weighted((_size(num_embeddings), _size(embedding_dim)), None)


def _layer_norm(
    normalized_shape: Any, eps: Any = None, elementwise_affine: Any = True, bias: Any = True, **_: Any
) -> Any:
    shape = _shape(normalized_shape)
    if not _flag(elementwise_affine):
        return ModuleValue()
    return _weighted(shape, shape if _flag(bias) else None)


def _rms_norm(normalized_shape: Any, eps: Any = None, elementwise_affine: Any = True, **_: Any) -> Any:
    return _weighted(_shape(normalized_shape), None) if _flag(elementwise_affine) else ModuleValue()


def _group_norm(num_groups: Any, num_channels: Any, eps: Any = None, affine: Any = True, **_: Any) -> Any:
    shape = (_size(num_channels),)
    return _weighted(shape, shape) if _flag(affine) else ModuleValue()


def _convolution(dimensions: int) -> Callable[..., Any]:
    def make(
        in_channels: Any,
        out_channels: Any,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Any = 1,
        bias: Any = True,
        **_: Any,
    ) -> Any:
        kernel = (kernel_size,) * dimensions if isinstance(kernel_size, int) else tuple(_items(kernel_size))
        rows = _size(out_channels)
        weight = (rows, _size(in_channels) // _size(groups), *map(_size, kernel))
        return _weighted(weight, (rows,) if _flag(bias) else None)

    return make


def _parameter(data: Any, requires_grad: Any = True) -> Any:
    if not isinstance(data, TensorValue):
        raise UndecidedError("the shape of an nn.Parameter is not known")
    return TensorValue(data.shape, parameter=True)


def _listed(modules: Iterable[Any]) -> ModuleValue:
    made = ModuleValue()
    for number, module in enumerate(modules):
        if not isinstance(module, ModuleValue):
            raise UndecidedError("a list of modules holds something that is no known module")
        made.children[str(number)] = module
    return made


def _sequential(*modules: Any) -> Any:
    return _module_dict(modules[0]) if len(modules) == 1 and isinstance(modules[0], dict) else _listed(modules)


def _module_list(modules: Any = ()) -> Any:
    return _listed(_items(modules))


def _module_dict(modules: Any = None) -> Any:
    made = ModuleValue()
    for name, module in (modules or {}).items():
        if not isinstance(name, str) or not isinstance(module, ModuleValue):
            raise UndecidedError("a dictionary of modules holds something that is no known module")
        made.children[name] = module
    return made


def _parameter_list(values: Any = ()) -> Any:
    made = ModuleValue()
    for number, value in enumerate(_items(values)):
        if not isinstance(value, TensorValue):
            raise UndecidedError("a list of parameters holds something whose shape is not known")
        made.tensors[str(number)] = value.shape
    return made


_LAYERS: dict[str, Callable[..., Any]] = {
    "Linear": _linear,
    "Embedding": _embedding,
    "LayerNorm": _layer_norm,
    "RMSNorm": _rms_norm,
    "GroupNorm": _group_norm,
    "Conv1d": _convolution(1),
    "Conv2d": _convolution(2),
    "Conv3d": _convolution(3),
    "Parameter": _parameter,
    "Sequential": _sequential,
    "ModuleList": _module_list,
    "ModuleDict": _module_dict,
    "ParameterList": _parameter_list,
}
