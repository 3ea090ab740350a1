"""Runs a pipeline's loading code on a set of names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scaffold.remap.engine.domain import STEPS_OF_A_WEIGHT, Loading
from scaffold.remap.engine.naming import LayerCounts
from scaffold.remap.engine.tokens import Landing, Loader, LoadingError, Module, Weight
from scaffold.remap.engine.tree import build_tree
from scaffold.source.classes import ClassInfo
from scaffold.source.values import UndecidedError
from scaffold.upstream import UpstreamSource, resolve_pipeline


@dataclass(frozen=True)
class Loaded:
    """What a set of weights became.

    Attributes:
        landings: places by name; a name that was dropped has none.
        error: what the engine would raise, or None.
        assumed: what was taken for granted.
    """

    landings: Mapping[str, tuple[Landing, ...]]
    error: str | None
    assumed: frozenset[str]


@dataclass(frozen=True)
class HookCall:
    """What a hook of the package did: weights that it loaded, what it returned, and what is left open about it."""

    loaded: Loaded
    result: Any
    left_open: tuple[str, ...]


class Engine:
    """One pipeline of one version, constructed once and loaded as often as needed.

    Raises:
        ScaffoldError: there is no such pipeline.
        UndecidedError: its constructor cannot be followed.
    """

    def __init__(
        self,
        source: UpstreamSource,
        pipeline: str,
        names: Iterable[str] = (),
        configs: Mapping[str, Any] | None = None,
        package: Mapping[str, ast.Module] | None = None,
    ) -> None:
        from scaffold.inspect.program import Program

        self.source = source
        self.configs = configs or {}
        self.package = dict(package or {})
        self.program = Program(source, resolve_pipeline(source, pipeline))
        self.program.scopes.graph.hold(self.package)
        try:
            with _deep():
                self.program.construct()
                self.tree = build_tree(self.program)
        except (RecursionError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise UndecidedError(f"the constructor of {pipeline} cannot be followed ({type(error).__name__})") from None
        self.counts = LayerCounts(names)

    def load(self, weights: Sequence[tuple[str, Sequence[int]]], *, handler: ClassInfo | None = None) -> Loaded:
        """Load weights in one call, through ``handler`` where a class of the package comes first.

        Raises:
            UndecidedError: the text does not settle what becomes of them.
        """
        run = self._interpreter(handler)
        given = [(name, Weight(name, tuple(shape))) for name, shape in weights]

        # What is done for each weight is done more often for more of them.
        run.budget.steps += STEPS_OF_A_WEIGHT * len(given)

        def load() -> None:
            method = run.objects.own_loader(Module(self.tree))
            if method is None:
                run.auto_loader.load_into(Loader(Module(self.tree)), given, None)
            else:
                run.call(method, [given], {})

        error, _ = _guarded(run, load)
        landings = {name: tuple(places) for name, places in run.landings.items()}
        return Loaded(landings, error, frozenset(run.assumed))

    def call_hook(self, handler: ClassInfo, name: str, tensors: Mapping[str, Sequence[int]], options: Any) -> HookCall:
        """Call a method of the package's class that takes tensors by name and a configuration.

        Raises:
            UndecidedError: the text does not settle what it does.
        """
        run = self._interpreter(handler)
        run.lenient = True
        given = {tensor: Weight(tensor, tuple(shape)) for tensor, shape in tensors.items()}
        method = run.objects.method(Module(self.tree), name)
        error, result = _guarded(run, lambda: run.call(method, [given, options], {}))
        landings = {tensor: tuple(places) for tensor, places in run.landings.items()}
        return HookCall(Loaded(landings, error, frozenset(run.assumed)), result, tuple(run.left_open))

    def _interpreter(self, handler: ClassInfo | None) -> Loading:
        return Loading(self.program, self.tree, self.program.scopes.graph, self.counts, self.configs, handler)

    def rollout_handler(self) -> ClassInfo | None:
        """Return the class of the package that subclasses the pipeline, if any."""
        for name, tree in self.package.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and any(_last(base) == self.program.cls.name for base in node.bases):
                    scopes = self.program.scopes
                    handler = scopes.classes.get(node, scopes.graph.own(name))
                    # Its import may not be one that can be followed.
                    handler.mro += [cls for cls in self.program.cls.mro if cls not in handler.mro]
                    return handler
        return None


def _guarded(run: Loading, action: Callable[[], Any]) -> tuple[str | None, Any]:
    """Return what the engine would raise, and the action's result."""
    try:
        with _deep():
            return None, action()
    except LoadingError as found:
        return str(found) if found.place is not None else f"the loading code: {found}", None
    except (RecursionError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as found:
        # The source is anybody's: what was not foreseen in it is left open.
        error = UndecidedError(f"not followed ({type(found).__name__}: {found})")
        error.place = run.at
        raise error from None


@contextmanager
def _deep() -> Iterator[None]:
    """Room for the nesting of an interpreter within the interpreter."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 12_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
