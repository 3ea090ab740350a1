"""State of one concrete execution of loading code: frames, landings, budget."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaffold.bounded import Budget
from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program
from scaffold.inspect.program.classes import ClassInfo
from scaffold.remap.engine.naming import LayerCounts
from scaffold.remap.engine.scope import Scope, Scopes
from scaffold.remap.engine.tokens import UNKNOWN, Landing, Slot, SlotShape, Unknown, Weight
from scaffold.remap.engine.tree import EngineModule
from scaffold.remap.engine.undecided import UndecidedError

STEPS = 1_500_000
STEPS_OF_A_WEIGHT = 1000
"""Nodes evaluated before the question is left open."""
MAX_FRAMES = 60


@dataclass(eq=False)
class Frame:
    """One activation of a function."""

    scope: Scope
    env: dict[str, Any] = field(default_factory=dict)
    closure: Mapping[str, Any] = field(default_factory=dict)
    bound: Any = None
    owner: ClassInfo | None = None
    yields: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Handler:
    """The class of a package whose methods come before the pipeline's, as its base class's do after."""

    node: ast.ClassDef
    scope: Scope


class Execution:
    """What every part of the interpreter shares.

    Attributes:
        landings: what became of each weight, by the name it set out under.
        assumed: what was taken for granted on the way.
        lenient: whether a call that the text does not settle gives an unknown value instead of an error.
        left_open: why such calls were not settled.
    """

    def __init__(
        self,
        program: Program,
        tree: EngineModule,
        scopes: Scopes,
        counts: LayerCounts,
        configs: Mapping[str, Any],
        handler: Handler | None = None,
    ) -> None:
        self.program = program
        self.tree = tree
        self.scopes = scopes
        self.counts = counts
        self.configs = configs
        self.handler = handler
        self.landings: dict[str, list[Landing]] = {}
        self.assumed: set[str] = set()
        self.lenient = False
        self.left_open: list[str] = []
        self.budget = Budget(STEPS, lambda: self.undecided("loading takes too many steps to follow"))
        self.frames = 0
        self.at: Evidence | None = None

    # Defined by the other parts.
    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        raise NotImplementedError

    def run(self, body: list[ast.stmt], frame: Frame) -> Any:
        raise NotImplementedError

    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def get_attr(self, base: Any, name: str) -> Any:
        raise NotImplementedError

    def step(self, node: ast.AST, frame: Frame) -> None:
        """Count a node, and remember where the execution stands."""
        self.budget.spend()

    def mark(self, node: ast.stmt, frame: Frame) -> None:
        """Remember the statement being executed."""
        self.at = Evidence(frame.scope.file, node.lineno)

    def place(self) -> str:
        """The line being executed, as text."""
        return f"{self.at.file}:{self.at.line}" if self.at is not None else "the loading code"

    def undecided(self, what: str) -> UndecidedError:
        """Return the error that leaves the question open here."""
        return UndecidedError(f"{self.place()}: {what}")

    def truth(self, value: Any) -> bool:
        """Return whether a value counts as true.

        Raises:
            UndecidedError: it is not known.
        """
        if isinstance(value, Unknown):
            raise self.undecided("a condition is not known from the text")
        if isinstance(value, bool | int | float | str | bytes | list | tuple | dict | set | frozenset | type(None)):
            return bool(value)
        if isinstance(value, Weight):
            raise self.undecided("a condition on a tensor's values")
        return True

    def iterate(self, value: Any) -> list[Any]:
        """Return the items of an iterable.

        Raises:
            UndecidedError: they are not known.
        """
        if isinstance(value, list | tuple | str):
            return list(value)
        if isinstance(value, dict):
            return list(value)
        if isinstance(value, set | frozenset):
            return sorted(value, key=repr)
        if isinstance(value, Stream):
            rest, value.items = value.items, []
            return rest
        raise self.undecided("a loop over something that is not known from the text")

    def make_set(self, items: list[Any]) -> Any:
        """Return a set; unknown where an item cannot be in one."""
        if any(isinstance(item, Unknown | list | dict | set) for item in items):
            return UNKNOWN
        return set(items)

    def land(self, slot: Slot, weight: Any, shard: list[Any]) -> None:
        """Record that a weight reached a parameter."""
        text = ", ".join(str(part) for part in shard if not isinstance(part, Unknown))
        for one in _weights(weight):
            pieces = "".join(f"[{piece}]" for piece in one.pieces)
            found = Landing(slot.place, text + pieces, self.at)
            entries = self.landings.setdefault(one.name, [])
            if found not in entries:
                entries.append(found)

    def made_of(self, values: list[Any], how: str) -> Any:
        """Return what an operation that is not read makes of weights; unknown where it was given none."""
        weights = [weight for value in values for weight in _given(value)]
        if not weights:
            return UNKNOWN
        first = weights[0]
        merged = dict.fromkeys(name for weight in weights for name in (weight.name, *weight.merged))
        merged.pop(first.name)
        return Weight(first.name, None, (*first.pieces, how), tuple(merged))

    def equal(self, left: Any, right: Any) -> Any:
        """Compare; the shape of a parameter is taken to be that of the weight that is offered to it."""
        if isinstance(left, SlotShape) or isinstance(right, SlotShape):
            self.assumed.add("shapes of the engine's parameters are the checkpoint's")
            return True
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return UNKNOWN
        return left == right


class Stream:
    """A list that is consumed."""

    def __init__(self, items: list[Any]) -> None:
        self.items = list(items)


def _given(value: Any) -> list[Weight]:
    if isinstance(value, Weight):
        return [value]
    if isinstance(value, list | tuple) and len(value) <= 100:
        return [weight for item in value for weight in _given(item)]
    return []


def _weights(value: Any) -> list[Weight]:
    if isinstance(value, Weight):
        return [value, *(Weight(name, None, value.pieces) for name in value.merged)]
    return []
