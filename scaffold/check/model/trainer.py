"""Which trainer of verl-omni a script starts, and what of a sample reaches training under it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scaffold.check.model.hydra import truth

if TYPE_CHECKING:
    from scaffold.check.model.package import Package
    from scaffold.check.model.shell import ShellScript

# Columns of the data set that a row of v1 holds; see `_write_trajectory_to_tq` of verl-omni.
V1_COLUMNS = frozenset({"reward_model", "data_source", "extra_info", "raw_prompt"})
_ENTRY = re.compile(r"^verl_omni\.trainer\.main_([a-z]+)(_v1)?$")
_DEFAULT = re.compile(r"(?m)^trainer:\n(?:[ #].*\n|\n)*?  use_v1: *(\w+)")


def starts_v1(package: Package, script: ShellScript) -> bool | None:
    """Whether a script trains with v1; None where it starts no trainer that the text shows.

    ``main_…_v1`` falls back to v0 where ``trainer.use_v1`` is false, in the script or in the checkout's configuration.
    """
    entries = [match for word in script.words if (match := _ENTRY.match(word.text))]
    if len({match[0] for match in entries}) != 1:
        return None
    if entries[0][2] is None:
        return False
    override = script.override("trainer.use_v1")
    if override is not None:
        return truth(override.usual)
    file = package.project.source(f"verl_omni/trainer/config/_generated_{entries[0][1]}_trainer.yaml")
    default = _DEFAULT.search(file.plain_text) if file is not None else None
    return default is None or truth(default[1])


def v1_scripts(package: Package) -> list[ShellScript]:
    """Return the scripts of a package that train with v1."""
    return [script for script in (*package.launch_scripts, *package.e2e_scripts) if starts_v1(package, script)]


def is_v0_only(package: Package) -> bool:
    """Whether every script of a package certainly trains with v0."""
    scripts = (*package.launch_scripts, *package.e2e_scripts)
    return bool(scripts) and all(starts_v1(package, script) is False for script in scripts)
