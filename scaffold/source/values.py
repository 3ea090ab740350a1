"""Values that all domains share: functions, classes, modules, and unknown values."""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from scaffold.source.classes import ClassInfo
    from scaffold.source.modules import ModuleInfo


class Evidence(NamedTuple):
    """A place in the source read; ``file`` is relative to the folder that holds ``vllm_omni/``."""

    file: str
    line: int


class PlacedError(Exception):
    """Ends an execution; the interpreter adds the place of the statement where it is missing."""

    place: Evidence | None = None

    def __str__(self) -> str:
        said = super().__str__()
        return said if self.place is None else f"{self.place.file}:{self.place.line}: {said}"


class UndecidedError(PlacedError):
    """The text does not tell a value; the message says why, without a final full stop."""


@dataclass(eq=False)
class Value:
    """Anything; ``at`` is where it was computed."""

    at: Evidence | None = field(default=None, kw_only=True, repr=False)

    def __init_subclass__(cls) -> None:
        """Keep the representation of this class: values lead to each other, also back to themselves."""
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Value.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Kind and plain fields, in at most a few hundred characters."""
        plain = {f.name: getattr(self, f.name, None) for f in fields(self)}
        told = (f"{n}={reprlib.repr(v)}" for n, v in plain.items() if isinstance(v, (str, int, float)))
        return f"{type(self).__name__}({', '.join(told)})"

    def parts(self) -> list[Value]:
        """The values this one was made from."""
        return []


@dataclass(eq=False)
class Unknown(Value):
    """A value that the text does not tell."""

    reason: str = ""

    def __repr__(self) -> str:
        return "an unknown value"


@dataclass(eq=False)
class ModuleRef(Value):
    module: ModuleInfo


@dataclass(eq=False)
class External(Value):
    """A name of a package that is not read, such as ``torch.linspace``."""

    path: str


@dataclass(eq=False)
class ClassRef(Value):
    cls: ClassInfo


@dataclass(eq=False)
class Func(Value):
    """A function of the source, with its closure and its receiver."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: ModuleInfo
    owner: ClassInfo | None = None
    bound: Any = None
    closure: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(eq=False)
class Super(Value):
    obj: Any
    owner: ClassInfo


UNKNOWN = Unknown()


@dataclass(eq=False)
class Bound:
    """A method of a value whose methods the domain knows."""

    receiver: Any
    name: str


class Keys(list[Any]):
    """The keys of a table, in order; operators of sets treat them as a set."""


class Stream:
    """A list that is consumed."""

    def __init__(self, items: list[Any]) -> None:
        self.items = list(items)
