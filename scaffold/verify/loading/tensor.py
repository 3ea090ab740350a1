"""A tensor that is a header alone: shape and dtype of a checkpoint's tensor, no values, and the keys it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# Nothing can be said of these without the values.
_VALUES = {
    *("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__contains__", "nonzero"),
    *("unique", "masked_select", "_local_scalar_dense", "allclose"),
}
_ELSEWHERE = {"cpu", "cuda", "to", "contiguous", "pin_memory", "clone", "detach"}


class ValuesNeededError(Exception):
    """The loading code asks for the values of a tensor."""


class HeaderTensor(Tensor):
    """Lies on the meta device, says that it lies on the CPU, and takes no memory.

    Attributes:
        keys: file and key of each tensor of the checkpoint that it is made of.
    """

    keys: frozenset[tuple[str, str]]

    @staticmethod
    def of(shape: tuple[int, ...], dtype: torch.dtype, key: tuple[str, str]) -> HeaderTensor:
        """A tensor of the files."""
        made = torch.empty(shape, dtype=dtype, device="meta").as_subclass(HeaderTensor)
        made.keys = frozenset([key])
        return made

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """Loaders ask this to find parameters that nothing has filled."""
        return False

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where a file's tensors lie."""
        return torch.device("cpu")

    def data_ptr(self) -> int:
        """An address that a view shares with what it is a view of."""
        with torch._C.DisableTorchFunctionSubclass():
            return int(self.untyped_storage()._cdata + self.storage_offset() * self.element_size())

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation on shapes and dtypes; the result comes from the keys of all its arguments.

        Raises:
            ValuesNeededError: its outcome depends on values.
        """
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        given = [value for value in _tensors((args, kwargs)) if isinstance(value, HeaderTensor)]
        keys = frozenset().union(*(value.keys for value in given if hasattr(value, "keys")))
        if name in _VALUES:
            raise ValuesNeededError(f"{name} of {sorted(keys)[0][1] if keys else 'a tensor'}")
        if name == "equal":
            return _same(*args[:2])
        if name == "copy_" or (name == "__setitem__" and isinstance(args[2], HeaderTensor)):
            return _copied(args, name, keys)
        if name in ("cpu", "cuda", "pin_memory"):
            return args[0]
        if name == "to":
            args, kwargs = (
                (args[0], *(a for a in map(_dtype_only, args[1:]) if a is not None)),
                {k: v for k, v in kwargs.items() if k in ("dtype", "copy")},
            )
            if len(args) == 1 and not kwargs:
                return args[0]
        kwargs.pop("device", None)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*_on_meta(args), **_on_meta(kwargs))
        return _marked(result, keys)


def _dtype_only(value: Any) -> Any:
    """What an argument of ``to`` says of the dtype."""
    if isinstance(value, Tensor):
        return value.dtype
    return value if isinstance(value, torch.dtype) else None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _on_meta(value: Any) -> Any:
    """Arguments with every tensor on the meta device, where operations need no values."""
    if isinstance(value, HeaderTensor):
        return value
    if isinstance(value, Tensor):
        return value if value.is_meta else value.to("meta")
    if isinstance(value, tuple):
        return tuple(map(_on_meta, value))
    if isinstance(value, list):
        return list(map(_on_meta, value))
    return {k: _on_meta(v) for k, v in value.items()} if isinstance(value, dict) else value


def _marked(value: Any, keys: frozenset[tuple[str, str]]) -> Any:
    if isinstance(value, Tensor):
        made = value if isinstance(value, HeaderTensor) else value.as_subclass(HeaderTensor)
        made.keys = keys
        return made
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        return type(value)(_marked(item, keys) for item in value)
    return value


def _same(one: Any, other: Any) -> bool:
    """Whether two tensors are the same part of the same tensor of the files."""
    return (
        isinstance(one, HeaderTensor)
        and isinstance(other, HeaderTensor)
        and one.keys == other.keys
        and one.shape == other.shape
    )


# Storage that a header was copied into, and what it came from.
COPIED: dict[int, set[tuple[str, str]]] = {}
_KEPT: list[Any] = []  # a storage that is freed would give its address to the next


def _copied(args: Any, name: str, keys: frozenset[tuple[str, str]]) -> Any:
    """Note that a header is written into a tensor; shapes have to fit as they would."""
    target, source = args[0], args[1 if name == "copy_" else 2]
    if name == "__setitem__":
        with torch._C.DisableTorchFunctionSubclass():
            target = torch.empty_like(args[0], device="meta")[args[1]] if not args[0].is_meta else args[0][args[1]]
    if isinstance(source, Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            torch.empty(source.shape, device="meta").expand(target.shape)  # raises where it does not fit
    _note(args[0], keys)
    return args[0]


def follow(given: Any, made: Any) -> None:
    """Note that tensors are made of others that a header was copied into, as a cast of such a parameter is."""
    if not COPIED:
        return
    with torch._C.DisableTorchFunctionSubclass():
        plain = [value for value in _tensors(given) if not isinstance(value, HeaderTensor)]
        keys = set().union(*(COPIED.get(_storage(value), ()) for value in plain))
        for value in _tensors(made) if keys else ():
            if not isinstance(value, HeaderTensor):
                _note(value, keys)


def _note(tensor: Tensor, keys: Iterable[tuple[str, str]]) -> None:
    COPIED.setdefault(_storage(tensor), set()).update(keys)
    if _storage(tensor):
        _KEPT.append(tensor.untyped_storage())


def _storage(tensor: Tensor) -> int:
    """What views of one memory have in common; 0 of a tensor that has none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0


def keys_of(tensor: Tensor) -> frozenset[tuple[str, str]]:
    """File and key of what a parameter was filled from; nothing where nothing filled it."""
    if isinstance(tensor, HeaderTensor):
        return tensor.keys
    with torch._C.DisableTorchFunctionSubclass():
        return frozenset(COPIED.get(_storage(tensor), ()))


LARGE = 1 << 16  # numbers; tables of positions and the like may be smaller, and are computed as ever


class _Loading(TorchFunctionMode):
    """Puts what has no values yet, and is as large as a weight, on the meta device; follows what headers went into."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.empty, torch.rand, torch.randn) and not kwargs.get("out"):
            with torch._C.DisableTorchFunction():
                made = func(*args, **{**kwargs, "device": "meta"})
            if made.numel() >= LARGE:
                return made
        result = func(*args, **kwargs)
        follow((args, kwargs), result)
        return result


@contextmanager
def on_meta() -> Iterator[None]:
    """While a loader runs."""
    with _Loading():
        yield
