"""What a package uses of vllm-omni that the newer version lacks or changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scaffold.lifecycle.drift.uses import Name, Use

if TYPE_CHECKING:
    from scaffold.lifecycle.drift.names import Found, Names
    from scaffold.source.classes import ClassInfo

    Classes = tuple[ClassInfo, ClassInfo]


@dataclass(frozen=True)
class SurfaceChange:
    """A change of a used name, at a line of the package; ``before`` or ``after`` is None if that version lacks it."""

    kind: str
    name: str
    file: str
    line: int
    before: Found | None
    after: Found | None
    effect: str


def surface_changes(package: tuple[Use, ...], before: Names, after: Names) -> tuple[SurfaceChange, ...]:
    """Compare every use in both versions. A name the older version lacks is not drift."""
    found: list[SurfaceChange] = []
    missing: set[Name] = set()
    for use in package:
        if use.kind == "import":
            changes = list(_import(use, before, after))
            missing |= {use.owner for change in changes if change.after is None}
            found += changes
    replaced = _replaced(package, before, after)
    for use in package:
        # Uses of a name whose import fails are not reported again.
        if use.kind == "import" or use.owner in missing:
            continue
        if use.kind == "field":
            found += _field(use, before, after, replaced)
        elif use.kind == "keywords":
            found += _keywords(use, before, after)
        elif (classes := _classes(use, before, after)) is not None:
            found += _OF_CLASSES[use.kind](use, classes, before, after)
    found += _abstract(package, before, after, missing)
    found.sort(key=lambda change: (change.file, change.line, change.kind, change.name))
    first: dict[tuple[str, str, str], SurfaceChange] = {}
    for change in found:
        first.setdefault((change.file, change.kind, change.name), change)
    return tuple(first.values())


def _replaced(package: tuple[Use, ...], before: Names, after: Names) -> dict[Name, Name]:
    """Return the old and the new type of the arguments of overridden methods."""
    found = {}
    for use in package:
        classes = _classes(use, before, after) if use.kind == "override" else None
        if classes is not None:
            old, new = before.argument_class(classes[0], use.name), after.argument_class(classes[1], use.name)
            if old is not None and new is not None and old != new:
                found[old] = new
    return found


def _import(use: Use, before: Names, after: Names) -> Iterator[SurfaceChange]:
    old, new = before.name(use.owner), after.name(use.owner)
    if old is None or (new is not None and new.text == old.text):
        return
    dotted = ".".join(use.owner)
    effect = "importing the package fails" if new is None else f"it is a {new.text} now, not a {old.text}"
    yield _change("import", dotted, use, old, new, effect)


def _classes(use: Use, before: Names, after: Names) -> Classes | None:
    old, new = before.cls(use.owner), after.cls(use.owner)
    return (old, new) if old is not None and new is not None else None


def _override(use: Use, classes: Classes, before: Names, after: Names) -> Iterator[SurfaceChange]:
    name = f"{use.owner[1]}.{use.name}"
    old, new = before.signature(classes[0], use.name), after.signature(classes[1], use.name)
    if old is None and new is not None:
        yield _change("override", name, use, old, new, "a method of the package overrides one that upstream now has")
    elif old is not None and new is None:
        yield _change("override", name, use, old, new, "nothing calls the package's method any more")
    elif old is not None and new is not None:
        if old.text != new.text:
            yield _change("override", name, use, old, new, "the package's method is called with other arguments")
        types = before.argument_class(classes[0], use.name), after.argument_class(classes[1], use.name)
        if use.typed and types[0] != types[1] and None not in types:
            shown = [".".join(argument) for argument in types if argument]
            given = replace(old, text=shown[0]), replace(new, text=shown[1])
            yield _change("override", name, use, *given, "it is given another type")


def _call(use: Use, classes: Classes, before: Names, after: Names) -> Iterator[SurfaceChange]:
    name = f"super().{use.name}"
    old, new = before.signature(classes[0], use.name), after.signature(classes[1], use.name)
    if old is None:
        return
    if new is None:
        yield _change("call", name, use, old, new, "the method that is called is gone")
        return
    found = classes[1].find_method(use.name)
    if old.text != new.text and found is not None and not _binds(found[1].args, use, bound=True):
        yield _change("call", name, use, old, new, _misfit(found[1].args, use))


def _keywords(use: Use, before: Names, after: Names) -> Iterator[SurfaceChange]:
    old, new = before.call_signature(use.owner), after.call_signature(use.owner)
    if old is None or new is None or old[1].text == new[1].text:
        return
    if _binds(old[0], use, bound=False) and not _binds(new[0], use, bound=False):
        yield _change("call", use.name, use, old[1], new[1], _misfit(new[0], use))


def _misfit(arguments: ast.arguments, use: Use) -> str:
    known = {argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    refused = [name for name in use.keywords if name not in known] if arguments.kwarg is None else []
    if refused:
        return f"the call names {', '.join(refused)}, which is not an argument any more"
    return "the call does not fit the signature"


def _read(use: Use, classes: Classes, before: Names, after: Names) -> Iterator[SurfaceChange]:
    old, new = before.attribute(classes[0], use.name), after.attribute(classes[1], use.name)
    if old is not None and new is None:
        yield _change("attribute", f"self.{use.name}", use, old, new, "the attribute that is read is gone")


def _set(use: Use, classes: Classes, before: Names, after: Names) -> Iterator[SurfaceChange]:
    old, new = before.mentioned(classes[0], use.name), after.mentioned(classes[1], use.name)
    if old is not None and new is None:
        effect = "upstream no longer uses the attribute that is set"
        yield _change("attribute", f"self.{use.name}", use, old, new, effect)


def _field(use: Use, before: Names, after: Names, replaced: dict[Name, Name]) -> Iterator[SurfaceChange]:
    owner = replaced.get(use.owner, use.owner)
    old_cls, new_cls = before.cls(use.owner), after.cls(owner)
    if old_cls is None or new_cls is None:
        return
    shown = owner[1]
    if use.given and use.method is not None:
        types = before.argument_class(old_cls, use.method), after.argument_class(new_cls, use.method)
        old_cls, new_cls = (
            names.cls(name) if name is not None else None for names, name in zip((before, after), types, strict=True)
        )
        shown = new_cls.name if new_cls is not None else shown
    elif use.method is not None:
        old_cls, new_cls = before.result_class(old_cls, use.method), after.result_class(new_cls, use.method)
        shown = f"{use.method}()"
    for part in use.name.split("."):
        if old_cls is None or new_cls is None:
            return
        old, new = before.attribute(old_cls, part), after.attribute(new_cls, part)
        shown = f"{shown}.{part}"
        if old is None:
            return
        if new is None:
            yield _change("field", shown, use, old, new, f"{new_cls.name} has no {part}")
            return
        old_cls, new_cls = before.type_of(old_cls, part), after.type_of(new_cls, part)


def _abstract(
    package: tuple[Use, ...], before: Names, after: Names, missing: set[tuple[str, str]]
) -> Iterator[SurfaceChange]:
    bases = {use.owner: use for use in reversed(package) if use.kind == "override" and use.owner not in missing}
    for owner, first in bases.items():
        own = {use.name for use in package if use.kind == "override" and use.owner == owner}
        classes = _classes(first, before, after)
        if classes is None:
            continue
        old, new = before.abstract_methods(classes[0]), after.abstract_methods(classes[1])
        for name in sorted(new.keys() - old.keys() - own):
            yield _change("abstract", f"{owner[1]}.{name}", first, None, new[name], "the class cannot be instantiated")


def _binds(arguments: ast.arguments, use: Use, *, bound: bool) -> bool:
    """Whether a call with this many positional arguments and these keywords binds to a signature."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    if bound:
        positional, required = positional[1:], max(0, required - 1)
    names = [argument.arg for argument in positional]
    keywords = [argument.arg for argument in arguments.kwonlyargs]
    if use.positional < 0:
        return True
    if use.positional > len(names) and arguments.vararg is None:
        # A dataclass is compared by its fields, which bind by position too.
        return not names and use.positional <= len(keywords)
    open_names = set(names[use.positional :]) | set(keywords)
    if arguments.kwarg is None and not set(use.keywords) <= open_names:
        return False
    needed = set(names[use.positional : required])
    needed |= {name for name, default in zip(keywords, arguments.kw_defaults, strict=True) if default is None}
    if not names and use.positional:
        needed -= set(keywords[: use.positional])
    return needed <= set(use.keywords)


def _change(kind: str, name: str, use: Use, old: Found | None, new: Found | None, effect: str) -> SurfaceChange:
    return SurfaceChange(kind, name, use.file, use.line, old, new, effect)


_OF_CLASSES = {"override": _override, "call": _call, "read": _read, "set": _set}
