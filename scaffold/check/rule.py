"""What a rule is: a module in ``rules/`` with constants, documentation, examples and a check."""

# Annotations are evaluated here: a NamedTuple would compile each that is left as a string, at every start.

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scaffold.check.finding import Safety, Severity, Span
from scaffold.check.model.package import Objective, Package
from scaffold.check.model.source import SourceFile

if TYPE_CHECKING:
    from scaffold.check.example import Example

Scope = Literal["package", "project", "comments"]
GROUPS = {
    "0": "files",
    "1": "model module",
    "2": "training adapter",
    "3": "rollout adapter",
    "4": "key remap",
    "5": "wiring",
    "6": "data",
    "7": "tests and scripts",
    "9": "suppressions",
}


class Hit(NamedTuple):
    """A place where a rule's pattern was found.

    Args:
        file: the file.
        at: a node of the file's tree, or a span; of a class or function the name is marked.
        message: what is wrong there, naming what was found; one line, no final full stop.
        help: what to do; the rule's ``HELP`` by default.
        fixable: False where the rule's ``fix`` cannot help here.
        data: whatever ``fix`` needs.
    """

    file: SourceFile
    at: ast.AST | Span
    message: str
    help: str | None = None
    fixable: bool = True
    data: Any = None


class Applies(NamedTuple):
    """The packages that a rule applies to; None stands for any.

    Args:
        non_diffusers: packages that load their module themselves (True) or leave it to diffusers (False).
        objective: how the package is trained; packages of which that is unknown are left out.
        diffusion: diffusion packages (the default), autoregressive ones (False).
        resolved: only packages all of whose files can be parsed.
    """

    non_diffusers: bool | None = None
    objective: Objective | None = None
    diffusion: bool | None = True
    resolved: bool = True

    def to(self, package: Package) -> bool:
        """Whether the rule applies to a package."""
        return (
            (self.diffusion is None or package.is_diffusion == self.diffusion)
            and (not self.resolved or package.resolved)
            and (self.non_diffusers is None or package.is_non_diffusers == self.non_diffusers)
            and (self.objective is None or package.objective == self.objective)
        )


class Rule(NamedTuple):
    """A rule, read from its module.

    Attributes:
        id: ``OSC103``.
        name: kebab case, names the bad pattern.
        severity: ``error`` or ``warning``.
        checklist: items of the guide's checklist and pitfalls (``M3``, ``pitfall 32``).
        applies: the packages that it applies to.
        scope: what its check is given: a package, the project, or the suppression comments.
        help: what to do, one line.
        documentation: the module's docstring.
        check: finds the places.
        fix: returns the file's new text (or path -> text, for other files) for a hit, None where it cannot.
        safety: of the fix.
        failing, passing: examples.
    """

    id: str
    name: str
    severity: Severity
    checklist: tuple[str, ...]
    applies: Applies
    scope: Scope
    help: str | None
    documentation: str
    check: Callable[[Any], Iterable[Hit]]
    fix: Callable[[Hit], str | Mapping[str, str] | None] | None
    safety: Safety
    failing: tuple["Example", ...]
    passing: tuple["Example", ...]

    @property
    def group(self) -> str:
        """What the rule is about, from its number."""
        return GROUPS[self.id[3]]

    @property
    def summary(self) -> str:
        """First line of the documentation."""
        return self.documentation.strip().partition("\n")[0]

    @classmethod
    def of(cls, module: ModuleType) -> "Rule":
        """Read a rule from its module."""
        return cls(
            id=module.ID,
            name=module.NAME,
            severity=module.SEVERITY,
            checklist=tuple(module.CHECKLIST),
            applies=getattr(module, "APPLIES", Applies()),
            scope=getattr(module, "SCOPE", "package"),
            help=getattr(module, "HELP", None),
            documentation=module.__doc__ or "",
            check=module.check,
            fix=getattr(module, "fix", None),
            safety=getattr(module, "FIX_SAFETY", "unsafe"),
            failing=tuple(getattr(module, "FAILING", ())),
            passing=tuple(getattr(module, "PASSING", ())),
        )


Hits = Iterator[Hit]
