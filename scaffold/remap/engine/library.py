"""Functions of Python and of vLLM that loading code calls."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from scaffold.bounded import regular
from scaffold.inspect.program.values import ClassRef
from scaffold.remap.engine.execution import Stream
from scaffold.remap.engine.objects import Objects
from scaffold.remap.engine.plain import mapper
from scaffold.remap.engine.tokens import (
    UNKNOWN,
    External,
    Loader,
    Module,
    Slot,
    SlotLoader,
    SlotShape,
    Symbol,
    Unknown,
    Weight,
)

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (float,), "bool": (bool,), "dict": (dict,), "list": (list,),
    "tuple": (tuple,), "set": (set,), "torch.Tensor": (Weight, Slot), "torch.nn.Parameter": (Slot,),
}  # fmt: skip
_LIST_OPTIONS = {
    "skip_prefixes": "skip_prefixes", "skip_substrs": "skip_substrs",
    "ignore_unexpected_prefixes": "ignore_prefixes", "ignore_unexpected_suffixes": "ignore_suffixes",
}  # fmt: skip


class Library(Objects):
    """Calls of what is not read."""

    def call_external(self, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        name = path.removeprefix("builtins.")
        last = path.rpartition(".")[2]
        method = getattr(self, f"_do_{name}", None) if "." not in name else None
        if method is not None:
            return method(args, kwargs)
        if last == "AutoWeightsLoader":
            return self._auto_loader(args, kwargs)
        if last == "WeightsMapper":
            return mapper(kwargs)
        if last == "default_weight_loader":
            return self._place(args, kwargs)
        if last in ("is_pp_missing_parameter", "is_pp_missing_module"):
            return False
        if path in ("itertools.chain", "itertools.chain.from_iterable"):
            lists = self.iterate(args[0]) if last == "from_iterable" else args
            return Stream([item for value in lists for item in self.iterate(value)])
        if path.startswith("re.") and last in ("match", "search", "fullmatch", "sub", "split", "compile"):
            return _regular(last, args)
        if last in ("OrderedDict", "defaultdict", "deque"):
            return dict(args[0]) if args and isinstance(args[0], dict) else {}
        if last == "tqdm" and args:
            return args[0]
        return self.made_of([*args, *kwargs.values()], last)

    def _auto_loader(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args or not isinstance(args[0], Module):
            return UNKNOWN
        options: dict[str, tuple[str, ...]] = {}
        for given, value in kwargs.items():
            if given not in _LIST_OPTIONS or value is None:
                continue
            if isinstance(value, Unknown):
                raise self.undecided("what the loader skips is not known from the text")
            options[_LIST_OPTIONS[given]] = tuple(text for text in self.iterate(value) if isinstance(text, str))
        return Loader(args[0], **options)

    def _place(self, args: list[Any], kwargs: dict[str, Any], slot: Slot | None = None) -> None:
        """A weight loader's call: parameter, weight, and the shard."""
        values = [*args, *(kwargs[k] for k in ("param", "loaded_weight", "weight") if k in kwargs)]
        rest = [v for k, v in kwargs.items() if k not in ("param", "loaded_weight", "weight")]
        target = next((v for v in values if isinstance(v, Slot)), slot)
        weight = next((v for v in values if isinstance(v, Weight)), None)
        if target is None or weight is None:
            raise self.undecided("a weight loader's parameter or weight is not known from the text")
        shard = [v for v in values if v is not target and v is not weight]
        self.land(target, weight, [*shard, *rest])

    def call_slot_loader(self, loader: SlotLoader, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._place(args, kwargs, loader.slot)

    # Python's own.
    def _do_len(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return len(args[0]) if isinstance(args[0], str | list | tuple | dict | set | frozenset) else UNKNOWN

    def _do_range(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if all(type(a) is int for a in args) and args:
            made = range(*args)
            return list(made) if len(made) < 100_000 else UNKNOWN
        return UNKNOWN

    def _do_enumerate(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return [(number, item) for number, item in enumerate(self.iterate(args[0]))]

    def _do_zip(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return [tuple(row) for row in zip(*(self.iterate(a) for a in args), strict=False)]

    def _do_dict(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args:
            return dict(kwargs)
        kept = self.make_table("dict", args[0])
        if kept is not None:
            return kept
        if isinstance(args[0], dict):
            return {**args[0], **kwargs}
        if isinstance(args[0], Unknown):
            return UNKNOWN
        pairs = self.iterate(args[0])
        if not all(isinstance(p, tuple | list) and len(p) == 2 and not isinstance(p[0], Unknown) for p in pairs):
            return UNKNOWN
        return {key: value for key, value in pairs}  # noqa: C416

    def _do_set(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args:
            return set()
        return self.make_table("set", args[0]) or (
            UNKNOWN if isinstance(args[0], Unknown) else self.make_set(self.iterate(args[0]))
        )

    _do_frozenset = _do_set

    def _do_list(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return UNKNOWN if args and isinstance(args[0], Unknown) else self.iterate(args[0]) if args else []

    def _do_tuple(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if args and isinstance(args[0], SlotShape):
            return args[0]
        return UNKNOWN if args and isinstance(args[0], Unknown) else tuple(self.iterate(args[0])) if args else ()

    def _do_sorted(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(args[0], Unknown):
            return UNKNOWN
        items = self.iterate(args[0])
        key = kwargs.get("key")
        if key is None and not all(isinstance(i, str) for i in items) and not all(type(i) is int for i in items):
            return UNKNOWN
        if key is not None:
            ranks = [self.call(key, [item], {}) for item in items]
            if not all(type(r) is int or isinstance(r, str) for r in ranks):
                return UNKNOWN
            items = [item for _, item in sorted(zip(ranks, items, strict=True), key=lambda pair: pair[0])]
            return items[::-1] if kwargs.get("reverse") is True else items
        return sorted(items, reverse=kwargs.get("reverse") is True)

    def _do_reversed(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.iterate(args[0])[::-1]

    def _do_str(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return str(args[0]) if args and isinstance(args[0], str | int) else UNKNOWN

    def _do_int(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return int(args[0]) if args and isinstance(args[0], str | int) and len(str(args[0])) < 20 else UNKNOWN
        except ValueError:
            return UNKNOWN

    def _do_any(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        items = self.iterate(args[0])
        if any(not isinstance(i, Unknown) and self.truth(i) for i in items):
            return True
        return UNKNOWN if any(isinstance(i, Unknown) for i in items) else False

    def _do_all(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        items = self.iterate(args[0])
        if any(not isinstance(i, Unknown) and not self.truth(i) for i in items):
            return False
        return UNKNOWN if any(isinstance(i, Unknown) for i in items) else True

    def _do_min(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        items = self.iterate(args[0]) if len(args) == 1 else args
        return min(items) if items and all(type(i) is int for i in items) else UNKNOWN

    def _do_max(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        items = self.iterate(args[0]) if len(args) == 1 else args
        return max(items) if items and all(type(i) is int for i in items) else UNKNOWN

    def _do_iter(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.take_stream(args[0])

    def _do_next(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(args[0], Stream):
            return args[0].items.pop(0) if args[0].items else args[1] if len(args) > 1 else UNKNOWN
        return UNKNOWN

    def _do_filter(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return Stream([i for i in self.iterate(args[1]) if self.truth(self.call(args[0], [i], {}))])

    def _do_map(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return Stream([self.call(args[0], [i], {}) for i in self.iterate(args[1])])

    def _do_hasattr(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.has_attr(args[0], args[1]) if isinstance(args[1], str) else UNKNOWN

    def _do_getattr(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        base, name = args[0], args[1]
        if not isinstance(name, str):
            return UNKNOWN
        if isinstance(base, Slot) and name == "weight_loader":
            return SlotLoader(base)
        there = self.has_attr(base, name) if len(args) > 2 else True
        if isinstance(there, Unknown):
            return self.get_attr(base, name) if isinstance(base, External) else UNKNOWN
        return self.get_attr(base, name) if there else args[2]

    def _do_setattr(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        if isinstance(args[0], Module) and isinstance(args[1], str):
            args[0].node.attributes[args[1]] = args[2]

    def _do_isinstance(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        value, kinds = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
        if isinstance(value, Module):
            return _is_a(value, kinds)
        if isinstance(value, Unknown):
            return UNKNOWN
        known = [_TYPES.get(k.path.removeprefix("builtins.")) if isinstance(k, External) else None for k in kinds]
        if any(k is not None and isinstance(value, k) for k in known):
            return True
        return UNKNOWN if any(k is None for k in known) else False

    def _do_callable(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return (
            UNKNOWN if isinstance(args[0], Unknown) else not isinstance(args[0], str | int | type(None) | list | dict)
        )

    def _do_print(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        return None

    def _do_bool(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return UNKNOWN if args and isinstance(args[0], Unknown) else bool(args) and self.truth(args[0])


def _is_a(module: Module, kinds: tuple[Any, ...]) -> Any:
    """Whether a module is of one of these classes, by their names."""
    for kind in kinds:
        if isinstance(kind, Symbol) and isinstance(kind.value, ClassRef):
            name = kind.value.cls.name
        elif isinstance(kind, External):
            name = kind.path.rpartition(".")[2]
        else:
            return UNKNOWN
        if name in module.node.bases:
            return True
    return UNKNOWN if module.node.open else False


def _regular(name: str, args: list[Any]) -> Any:
    if not args or not all(isinstance(a, str) for a in args):
        return UNKNOWN
    try:
        return regular(partial(getattr(re, name), args[0]), *args)
    except (re.error, TypeError, ValueError):
        return UNKNOWN
