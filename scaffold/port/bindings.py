"""Names of a port: what each definition, import and plain layer is called in it, and what was noted on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scaffold.port.files import Files
from scaffold.port.layers import ENGINES
from scaffold.port.names import Defined, Scope
from scaffold.port.reading import inference_kind
from scaffold.port.result import Assumption, Gap
from scaffold.port.supports import support_names
from scaffold.source.modules import Import, ModuleGraph

# What is followed; all else of the engine's is answered or has no counterpart.
FOLLOWED = (
    "vllm_omni.diffusion.models.",
    "vllm_omni.diffusion.layers.",
    "vllm_omni.diffusion.utils.",
    "vllm_omni.model_executor.layers.",
    "vllm_omni.model_executor.models.",
    "vllm_omni.transformers_utils.configs.",
)
NOT_FOLLOWED = ("vllm_omni.diffusion.layers.custom_op", "vllm_omni.diffusion.layers.fused_moe")
# What the text of `support` calls by these names; unused imports are dropped at the end.
STANDARD: dict[str, tuple[str, str | None]] = {
    "torch": ("torch", None),
    "nn": ("torch", "nn"),
    "F": ("torch.nn", "functional"),
    "Any": ("typing", "Any"),
    "dataclass": ("dataclasses", "dataclass"),
    "field": ("dataclasses", "field"),
}


class Bindings:
    """The names that a port binds, and its notes."""

    def __init__(self, graph: ModuleGraph, version: str) -> None:
        self.graph, self.version = graph, version
        self.files = Files(graph)
        self.gaps: dict[tuple[str, int, str], Gap] = {}
        self.assumptions: dict[tuple[str, int], Assumption] = {}
        self.answered: set[str] = set()  # names of what the surroundings answered
        self.libraries: dict[str, tuple[str, str | None]] = dict(STANDARD)
        self.supports: dict[str, set[str]] = {}
        self._order: dict[Defined, str] = {}
        self._pending: list[Defined] = []

    @contextmanager
    def probing(self) -> Iterator[None]:
        """Ask for nothing: what is rewritten inside is looked at, and leaves no trace in the port."""
        kept = dict(self._order), list(self._pending), dict(self.libraries)
        supports = {module: set(names) for module, names in self.supports.items()}
        notes = dict(self.gaps), dict(self.assumptions)
        try:
            yield
        finally:
            self._order, self._pending, self.libraries = kept
            self.supports = supports
            self.gaps, self.assumptions = notes

    def followed(self, origin: Defined) -> bool:
        """Tell whether the text of a definition is taken over."""
        module = origin.module + "."
        own = self.graph.source.packages[1:]
        return (module.startswith(FOLLOWED) or module.partition(".")[0] in own) and origin.module not in NOT_FOLLOWED

    def reference(self, origin: Defined) -> str:
        """Ask for a definition; returns its name in the port."""
        if origin not in self._order:
            name = origin.name
            if name in self._order.values() or name in self.libraries or name in support_names():
                name = f"{name}_of_{origin.module.rpartition('.')[2]}"
            self._order[origin] = name
            self._pending.append(origin)
        return self._order[origin]

    def imported(self, name: str, scope: Scope, path: str) -> str:
        """Ask for the import that binds a name where it stands; returns the name in the port.

        Args:
            name: the name there.
            scope: where that is.
            path: what it means; a library's, also where a module of the engine's hands it on.
        """
        entry = scope.imports.get(name) or scope.info.imports.get(name)
        if entry is not None and entry.module.partition(".")[0] in ENGINES:
            module, _, last = path.rpartition(".")
            return self._bind(name, Import(module, last, 0) if module else Import(path, None, 0))
        if entry is None:
            for star in scope.info.stars:
                return self.library(star, name)
            return name
        return self._bind(name, entry)

    def library(self, module: str, name: str | None = None) -> str:
        """Ask for an import by module and name; returns what it is bound to."""
        return self._bind(name or module.partition(".")[0], Import(module, name, 0))

    def _bind(self, alias: str, entry: Import) -> str:
        wanted = (entry.module, entry.name)
        base, count = alias, 1
        while alias in self._order.values() or (
            alias in self.libraries and _dotted(self.libraries[alias]) != _dotted(wanted)
        ):
            count += 1
            alias = f"{base}_{count}"
        self.libraries.setdefault(alias, wanted)
        return alias

    def support(self, module: str, name: str) -> str:
        """Ask for one of our own classes; returns its name."""
        self.supports.setdefault(module, set()).add(name)
        return name

    @property
    def order(self) -> dict[Defined, str]:
        """The definitions and their names in the port."""
        return self._order

    def gap(self, what: str, file: str, line: int) -> Gap:
        """Note what was not carried over."""
        left_out = inference_kind(self.graph.source.tree(file), line)
        return self.gaps.setdefault((file, line, what), Gap(what, file, line, self.version, left_out))

    def assume(self, what: str, file: str, line: int) -> None:
        """Note an answer that was taken as given."""
        self.assumptions.setdefault((file, line), Assumption(what, file, line))


def _dotted(entry: tuple[str, str | None]) -> str:
    return ".".join(part for part in entry if part)
