"""Makes a patch for a release without a checkout.

A profile records, for each file to edit, the lines next to an insertion and their numbers. The sketch is a text with
these lines at their places and fillers elsewhere. The edits are applied to the sketch, and the patch is the diff with
one line of context, in which no filler appears.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scaffold.errors import ScaffoldError
from scaffold.plan.change import FileState
from scaffold.plan.edits import FileEdit
from scaffold.plan.hooks import REGISTRY, RegistryEdit
from scaffold.plan.registry.order import place
from scaffold.plan.unified import difference
from scaffold.target.profile import ContractProfile

FILLER = "#~"


def patch(profile: ContractProfile, edits: Iterable[FileEdit]) -> str:
    """Return the edits as one unified diff for a checkout of the profile's release.

    A package the release already has is omitted from the sketch: the patch is for a checkout without it.

    Raises:
        ScaffoldError: the profile does not know a file that is to be edited.
    """
    grouped: dict[str, list[FileEdit]] = {}
    for edit in edits:
        grouped.setdefault(edit.path, []).append(edit)
    parts = []
    for path, mine in sorted(grouped.items()):
        packages = [edit.package for edit in mine if isinstance(edit, RegistryEdit)]
        before = after = _sketch(profile, path, packages)
        for edit in mine:
            after = _registered(after, edit.package) if isinstance(edit, RegistryEdit) else edit.apply(after)
        part = difference(path, FileState.text(before), FileState.text(after), context=1)
        if FILLER in part:
            raise ScaffoldError(f"{path}: the profile {profile.name} lacks a line beside the insertion")
        parts.append(part)
    return "".join(parts)


def _sketch(profile: ContractProfile, path: str, packages: list[str]) -> str:
    if path == REGISTRY:
        return _text(_registry(profile, packages))
    places = {
        profile.smoke_runner: "runner",
        profile.docs_index: "docs_index",
        profile.smoke_groups: "smoke_groups",
        profile.models_page: "models_page",
    }
    known = profile.sketch.get(places.get(path, ""))
    if not known:
        raise ScaffoldError(f"the profile {profile.name} does not know where to edit {path}")
    return _text({int(line): text for line, text in known.items()})


def _registry(profile: ContractProfile, absent: list[str]) -> Mapping[int, str]:
    known = profile.sketch["registry"]
    packages = [package for package in known["packages"] if package not in absent]
    exports = [package for package in known["last_exports"] if package not in absent]
    block = ["from . import (", *(f"    {package}," for package in packages), ")"]
    block += [f"from .{package} import *  # noqa: F401, F403" for package in packages]
    block += ["", "__all__ = []  " + FILLER]
    lines = dict(enumerate(block, start=known["line"]))
    last = known["line"] + len(block) + len(packages) - 2
    lines.update({last - i: f"__all__ += list({name}.__all__)" for i, name in enumerate(reversed(exports))})
    return lines


def _registered(sketch: str, package: str) -> str:
    """Return a sketched registry with a package, as `RegistryEdit.apply` would, without parsing it."""
    lines = sketch.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith("from . import (")) + 1
    names = [line.strip().rstrip(",") for line in lines[first : lines.index(")\n", first)]]
    at = place(names, package)
    exports = max(i for i, line in enumerate(lines) if line.startswith("__all__ +="))
    lines.insert(exports + 1, f"__all__ += list({package}.__all__)\n")
    lines.insert(first + len(names) + 1 + at, f"from .{package} import *  # noqa: F401, F403\n")
    lines.insert(first + at, f"    {package},\n")
    return "".join(lines)


def _text(lines: Mapping[int, str]) -> str:
    return "".join(lines.get(number, f"{FILLER} {number}") + "\n" for number in range(1, max(lines) + 1))
