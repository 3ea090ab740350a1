"""vLLM's ``AutoWeightsLoader``, as it is documented: by prefix into modules, their own loaders first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaffold.remap.engine.tokens import Loader, LoadingError, Mapper, Module, Slot
from scaffold.source.values import UNKNOWN, UndecidedError, Unknown

if TYPE_CHECKING:
    from scaffold.remap.engine.domain import Loading

LOADER = "load_weights"
_ROTARY = ("rotary_pos_emb.inv_freq", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


class AutoLoader:
    """Loading through the tree of modules."""

    def __init__(self, domain: Loading) -> None:
        self.domain = domain

    def load_through(self, loader: Loader, args: list[Any], kwargs: dict[str, Any]) -> Any:
        weights = args[0] if args else kwargs.get("weights", UNKNOWN)
        mapper = kwargs.get("mapper", args[1] if len(args) > 1 else None)
        if not isinstance(mapper, (Mapper, Unknown, type(None))):
            mapper = UNKNOWN
        return self.load_into(loader, self.domain.iterate(weights), mapper)

    def load_into(self, loader: Loader, weights: list[Any], mapper: Any) -> set[str]:
        """Place weights below a module.

        Raises:
            LoadingError: a name that no module or parameter has.
            UndecidedError: names or the mapper are not known.
        """
        if isinstance(mapper, Unknown):
            raise UndecidedError("the names' mapper is not known from the text")
        given: list[tuple[str, Any]] = []
        for item in weights:
            if not (isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str)):
                raise UndecidedError("a weight without a name that is known from the text")
            name: str | None = item[0]
            if isinstance(mapper, Mapper) and name is not None:
                name = mapper.rename(name)
            if name is None or any(part in name for part in (*_ROTARY, *loader.skip_substrs)):
                continue
            given.append((name, item[1]))
        return self._module(loader, "", loader.module, given)

    def _module(self, loader: Loader, prefix: str, module: Module, weights: list[tuple[str, Any]]) -> set[str]:
        loaded: set[str] = set()
        method = self.domain.objects.own_loader(module) if module.node is not loader.module.node else None
        if method is not None:
            result = self.domain.call(method, [weights], {})
            return (
                {_join(prefix, name) for name in result if isinstance(name, str)} if isinstance(result, set) else loaded
            )
        groups: dict[str, list[tuple[str, Any]]] = {}
        for name, weight in weights:
            head, _, rest = name.partition(".")
            groups.setdefault(head, []).append((rest, weight))
        for head, group in groups.items():
            place = _join(prefix, head)
            child = module.node.child(head)
            if child is not None:
                if not _starts(place + ".", loader.skip_prefixes):
                    loaded |= self._child(loader, place, module, head, group)
            elif module.node.open or head in (module.node.parameters or ()):
                loaded |= self._parameter(loader, place, module, head, group)
            elif not (
                _starts(place, loader.skip_prefixes)
                or _starts(place + ".", (*loader.skip_prefixes, *loader.ignore_prefixes))
                or _starts(place, loader.ignore_prefixes)
                or place.endswith(loader.ignore_suffixes or ("\0",))
            ):
                raise LoadingError(f"{module.node.kind} has no module or parameter {place!r}")
        return loaded

    def _child(self, loader: Loader, place: str, module: Module, head: str, group: list[tuple[str, Any]]) -> set[str]:
        return self._module(loader, place, self.domain.objects.child_of(module, head), group)

    def _parameter(
        self, loader: Loader, place: str, module: Module, head: str, group: list[tuple[str, Any]]
    ) -> set[str]:
        loaded = set()
        for rest, weight in group:
            name = _join(place, rest)
            if _starts(name, loader.skip_prefixes):
                continue
            if rest and not module.node.open:
                if _starts(name, loader.ignore_prefixes):
                    continue
                raise LoadingError(f"{name!r} is below the parameter {place!r}")
            self.domain.land(Slot(_join(module.node.place, _join(head, rest)), module.node.sharded), weight, [])
            loaded.add(name)
        return loaded


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _starts(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)
