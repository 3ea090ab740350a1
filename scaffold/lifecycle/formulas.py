"""Packages of before the rollout carried noise levels and guidance: their formulas, rendered or written, are let go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from scaffold.errors import ConflictError
from scaffold.files.git import versions
from scaffold.plan.change import plain

if TYPE_CHECKING:
    from scaffold.lifecycle.package import ScaffoldedPackage
    from scaffold.plan.change import FileState

# What ``common.py`` of a package with formulas defines.
_GUIDE = re.compile(rb"^(?:def guide\b|guide\b.*=)", re.MULTILINE)


def without_formulas(
    package: ScaffoldedPackage,
    recorded: Mapping[str, str],
    there: Mapping[str, FileState | None],
    new: Mapping[str, FileState],
) -> tuple[dict[str, str], list[str]]:
    """Let the new state replace what had formulas: nothing of them has a place in it.

    A file that a person completed goes too where git has it.

    Returns:
        Digests of the files as they may be replaced, and what to tell the user.

    Raises:
        ConflictError: git does not have what a person wrote.
    """
    model = package.spec.value("names.model")
    common, schedule = f"{package.path}/common.py", f"{package.path}/{model}_schedule.py"
    state = plain(there.get(common))
    if state is None or common not in new or not _GUIDE.search(state.content) or _GUIDE.search(new[common].content):
        return dict(recorded), []
    digests = dict(recorded)
    told = [f"{common}: schedule and guidance go; the rollout carries its noise levels and what its pipeline does"]
    for path in (common, schedule):
        state = plain(there.get(path))
        if path not in digests or state is None or state.content_sha256 == digests[path]:
            continue
        if state.content not in versions(package.root, path):
            raise ConflictError(
                f"{path}: what was written in it has no reader any more: the rollout carries its noise levels and what"
                " its pipeline does; nothing was written",
                hint="commit it, so that `update` may take it away",
            )
        digests[path] = state.content_sha256
        told.append(f"{path}: what was written in it is in git, and has no reader any more")
    return digests, told
