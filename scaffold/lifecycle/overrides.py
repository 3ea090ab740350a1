"""Presets and templates of a team that a package was rendered with: whether they are there, and what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.errors import ConflictError
from scaffold.team import CHECKOUT, FOLDER, PRESETS, TEMPLATES, Team, TeamFile, team_of

if TYPE_CHECKING:
    from scaffold.lifecycle.package import ScaffoldedPackage


def require_overrides(package: ScaffoldedPackage) -> None:
    """Check that what the package was rendered with is there: rendering without it would take a team's values back.

    Raises:
        ConflictError: names what is missing.
    """
    there = {f"{PRESETS}/{file.name}" for layer in package.team.presets for file in layer}
    there |= {f"{TEMPLATES}/{name}" for name in package.team.templates}
    missing = sorted(package.spec.overrides.keys() - there)
    if missing:
        stood = ", ".join(f"{name} ({package.spec.overrides[name].partition(' ')[0]})" for name in missing)
        preset = any(name.startswith(f"{PRESETS}/") for name in missing)
        raise ConflictError(
            f"{package.lock_path}: rendered with {stood}, which is not there; nothing was written",
            hint=f"put it back into {FOLDER}/{', name the preset with --preset FILE,' if preset else ''} "
            "or go on without it with --packaged",
        )


def recorded_team(package: ScaffoldedPackage) -> Team:
    """Return the templates that the package was rendered with, found by their digests: on disk, else in git's history.

    Where one of them cannot be found, those that are there now count.
    """
    from scaffold.git import versions

    found, there = [], team_of(package.root)
    for key, record in package.spec.overrides.items():
        kind, _, name = key.partition("/")
        if kind != TEMPLATES:
            continue
        where, now = record.partition(" ")[0], there.templates.get(name)
        path = f"{FOLDER}/{key}"
        candidates = [] if now is None else [now]
        if where == CHECKOUT and ".." not in name.split("/") and (now is None or now.record != record):
            texts = (content.decode("utf-8", "replace") for content in versions(package.root, path))
            candidates += [TeamFile(where, name, package.root / path, path, text) for text in texts]
        match = next((file for file in candidates if file.record.partition(" ")[2] == record.partition(" ")[2]), None)
        if match is None:
            return there
        found.append(match)
    return Team(given=tuple(found))
