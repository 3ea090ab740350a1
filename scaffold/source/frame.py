"""The state of an execution: activations of functions, and the undecided conditions and loops around."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaffold.source.classes import ClassInfo
from scaffold.source.modules import ModuleInfo

Env = dict[str, Any]
Conditions = tuple[tuple[Any, bool], ...]


@dataclass(eq=False)
class LoopContext:
    """The exits of the loop being executed."""

    breaks: list[Env] = field(default_factory=list)
    continues: list[Env] = field(default_factory=list)


@dataclass(eq=False)
class Frame:
    """One activation of a function, a module or a class body."""

    module: ModuleInfo
    node: ast.AST | None = None
    owner: ClassInfo | None = None
    bound: Any = None
    env: Env = field(default_factory=dict)
    closure: Mapping[str, Any] | None = None
    returns: list[tuple[Any, Conditions]] = field(default_factory=list)
    """What was returned, and under which conditions of this activation."""
    outside: int = 0
    """How many conditions held when this activation began."""
    yields: list[Any] = field(default_factory=list)
    loops: list[LoopContext] = field(default_factory=list)
    callers: tuple[str, ...] = ()
    """Names of the functions around, this one's the last."""

    @property
    def name(self) -> str:
        """The function's name; empty for anything else."""
        return self.node.name if isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else ""


@dataclass(eq=False)
class Path:
    """The path to the current statement; empty in an execution that decides every condition.

    Attributes:
        conditions: undecided conditions that hold here, with their truth.
        loops: numbers of the loops whose number of turns is unknown.
        rows: items of the loops that are followed turn by turn.
        marks: how many calls each branch around began with.
        branches: the branches around: how deep they stand, the condition, and its truth there.
        depth: how many of the branches and loops around may not run.
    """

    conditions: list[tuple[Any, bool]] = field(default_factory=list)
    loops: list[int] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    branches: list[tuple[int, Any, bool]] = field(default_factory=list)
    depth: int = 0

    def mark(self) -> tuple[int, int, int, int, int]:
        """Return a mark that `back` returns to."""
        return len(self.conditions), len(self.loops), len(self.rows), len(self.marks), self.depth

    def back(self, mark: tuple[int, int, int, int, int]) -> None:
        """Remove what was added since a mark."""
        del self.conditions[mark[0] :], self.loops[mark[1] :], self.rows[mark[2] :], self.marks[mark[3] :]
        self.depth = mark[4]


class Chain(dict[str, Any]):
    """Names of an enclosing function that has an enclosing one, looked up when they are needed."""

    def __init__(self, inner: Env, outer: Mapping[str, Any]) -> None:
        super().__init__()
        self._inner, self._outer = inner, outer

    def __contains__(self, key: object) -> bool:
        return key in self._inner or key in self._outer

    def __getitem__(self, key: str) -> Any:
        return self._inner[key] if key in self._inner else self._outer[key]


def closure_of(frame: Frame) -> Mapping[str, Any]:
    """Return the closure of a function made here; as in Python, it sees names that are bound later."""
    return Chain(frame.env, frame.closure) if frame.closure else frame.env


def replace_env(env: Env, other: Env) -> None:
    """Make ``env`` hold what ``other`` holds; closures keep seeing the same dictionary."""
    if env is not other:
        env.clear()
        env.update(other)
