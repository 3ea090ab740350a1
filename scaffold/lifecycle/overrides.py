"""Checks that the team presets a package was rendered with are present."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.errors import ConflictError
from scaffold.team import FOLDER, PRESETS

if TYPE_CHECKING:
    from scaffold.lifecycle.package import ScaffoldedPackage


def require_overrides(package: ScaffoldedPackage) -> None:
    """Check that the package's team presets are present: rendering without them would revert the team's values.

    Raises:
        ConflictError: names what is missing.
    """
    there = {f"{PRESETS}/{file.name}" for layer in package.team.presets for file in layer}
    missing = sorted(package.spec.overrides.keys() - there)
    if missing:
        stood = ", ".join(f"{name} ({package.spec.overrides[name].partition(' ')[0]})" for name in missing)
        raise ConflictError(
            f"{package.lock_path}: rendered with {stood}, which is not there; nothing was written",
            hint=f"put it back into {FOLDER}/, name the preset with --preset FILE, or go on without it with --packaged",
        )
