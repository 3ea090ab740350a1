"""vLLM's ``AutoWeightsLoader``, as it is documented: by prefix into modules, their own loaders first."""

from __future__ import annotations

from typing import Any

from scaffold.remap.engine.execution import Execution
from scaffold.remap.engine.tokens import Function, Loader, Mapper, Module, Slot, Unknown
from scaffold.remap.engine.undecided import LoadingError

LOADER = "load_weights"
_ROTARY = ("rotary_pos_emb.inv_freq", "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


class AutoLoader(Execution):
    """Loading through the tree of modules."""

    def load_into(self, loader: Loader, weights: list[Any], mapper: Any) -> set[str]:
        """Place weights below a module.

        Raises:
            LoadingError: a name that no module or parameter has.
            UndecidedError: names or the mapper are not known.
        """
        if isinstance(mapper, Unknown):
            raise self.undecided("the names' mapper is not known from the text")
        given: list[tuple[str, Any]] = []
        for item in weights:
            if not (isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str)):
                raise self.undecided("a weight without a name that is known from the text")
            name: str | None = item[0]
            if isinstance(mapper, Mapper) and name is not None:
                name = mapper.rename(name)
            if name is None or any(part in name for part in (*_ROTARY, *loader.skip_substrs)):
                continue
            given.append((name, item[1]))
        return self._module(loader, "", loader.module, given)

    def _module(self, loader: Loader, prefix: str, module: Module, weights: list[tuple[str, Any]]) -> set[str]:
        loaded: set[str] = set()
        method = self.own_loader(module) if module.node is not loader.module.node else None
        if method is not None:
            result = self.call(method, [weights], {})
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
                raise LoadingError(f"{self.place()}: {module.node.kind} has no module or parameter {place!r}")
        return loaded

    def _child(self, loader: Loader, place: str, module: Module, head: str, group: list[tuple[str, Any]]) -> set[str]:
        return self._module(loader, place, self.child_of(module, head), group)

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
                raise LoadingError(f"{self.place()}: {name!r} is below the parameter {place!r}")
            self.land(Slot(_join(self.place_of(module), _join(head, rest)), module.node.sharded), weight, [])
            loaded.add(name)
        return loaded

    def own_loader(self, module: Module) -> Function | None:
        raise NotImplementedError

    def child_of(self, module: Module, name: str) -> Module:
        """Return a child, which knows the numbers of the layers that led to it."""
        raise NotImplementedError

    def place_of(self, module: Module) -> str:
        """Return the module's first name below the pipeline, with numbers filled in."""
        raise NotImplementedError


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _starts(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)
