"""What a template of a team must give in place of the packaged one: the same files, the same names, no new errors."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.render.code import public_names

if TYPE_CHECKING:
    from scaffold.check import Finding
    from scaffold.render import RenderedFile
    from scaffold.team import TeamFile

PACKAGE = "verl_omni/pipelines/"
HINT = "give what the packaged template gives; {% include 'packaged/NAME' %} takes it over"


def require_promises(
    files: Mapping[str, RenderedFile], packaged: Mapping[str, RenderedFile], used: Mapping[str, TeamFile]
) -> None:
    """Compare what a team's templates give with what the packaged ones do for the same spec.

    Args:
        files: rendered with the team's templates.
        packaged: rendered without.
        used: the team's templates that had a part.

    Raises:
        ScaffoldError: a file, a public name of the package, or something that a rule of ``check`` asks for, is missing.
    """
    gone = sorted(packaged.keys() - files.keys())
    if gone:
        raise ScaffoldError(f"{_culprits(packaged[gone[0]], used)} gives no {gone[0]}", hint=HINT)
    for path, file in packaged.items():
        if path.startswith(PACKAGE) and path.endswith(".py"):
            given = public_names(files[path].content)
            missing = [name for name in public_names(file.content) if name not in given]
            if missing:
                named = ", ".join(missing[:5])
                raise ScaffoldError(f"{_culprits(files[path], used)}: {path} lacks {named}", hint=HINT)
    known = {(finding.rule, finding.key) for finding in _errors(packaged)}
    for finding in _errors(files):
        if (finding.rule, finding.key) not in known:
            place = f"{finding.key}:{finding.line}: {finding.rule} {finding.message}"
            culprits = _culprits(files.get(finding.key), used)
            raise ScaffoldError(f"{culprits}: {place}", hint=f"`omni-scaffold check --explain {finding.rule}` says why")


def _culprits(file: RenderedFile | None, used: Mapping[str, TeamFile]) -> str:
    """The template that a file is of, where that is the team's; else all that had a part."""
    shown = sorted(one.shown for one in used.values())
    return file.template if file is not None and file.template in shown else ", ".join(shown)


def _errors(files: Mapping[str, RenderedFile]) -> list[Finding]:
    """What the rules of ``check`` find in the tree."""
    from scaffold.check import check_paths

    with tempfile.TemporaryDirectory(prefix="omni-scaffold-") as folder:
        root = Path(folder)
        for path, file in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.link_to is None:
                target.write_text(file.content, encoding="utf-8")
        packages = sorted({root / "/".join(path.split("/")[:3]) for path in files if path.startswith(PACKAGE)})
        found = check_paths(packages).findings
    return [finding for finding in found if finding.severity == "error"]
