"""Where the tool's own data files are, in a checkout and in an installed wheel alike."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
RUNTIME = "flow_grpo_runtime"
"""The folder below ``verl_omni/pipelines`` with the shared runtime; it is not a package of a model."""


def templates_root() -> Path:
    """Return the folder of Jinja templates.

    A wheel carries it as ``scaffold/_templates``; a checkout has it beside the package.

    Raises:
        FileNotFoundError: the installation is damaged and holds neither.
    """
    for candidate in (PACKAGE_ROOT / "_templates", PACKAGE_ROOT.parent / "templates"):
        if (candidate / "blocks").is_dir():
            return candidate
    raise FileNotFoundError(f"no templates beside {PACKAGE_ROOT}; reinstall omni-scaffold")


def runtime_root() -> Path:
    """Return the folder of the runtime that rendered packages share.

    A wheel carries it in ``scaffold/_runtime``; a checkout has it beside the package.

    Raises:
        FileNotFoundError: the installation is damaged and holds neither.
    """
    for candidate in (PACKAGE_ROOT / "_runtime" / RUNTIME, PACKAGE_ROOT.parent / "runtime/src" / RUNTIME):
        if (candidate / "calls.py").is_file():
            return candidate
    raise FileNotFoundError(f"no runtime beside {PACKAGE_ROOT}; reinstall omni-scaffold")


def installed_runtime() -> Path:
    """Return the folder of the runtime as a package outside of verl-omni meets it: installed, else the tool's."""
    found = find_spec(RUNTIME)
    places = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(places[0]) if places else runtime_root()


def presets_root() -> Path:
    """Return the folder that holds presets and their checkpoint manifests."""
    return PACKAGE_ROOT / "presets"


def kit_root() -> Path:
    """Return the folder to put on ``sys.path`` so that a rendered package finds the contract kit."""
    return PACKAGE_ROOT / "verify" / "kit"


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of this distribution asks for.

    It names the libraries: the distribution itself is on no package index, so anybody could register its name.
    """
    from packaging.requirements import Requirement

    try:
        listed = [Requirement(text) for text in metadata.requires("omni-scaffold") or ()]
    except metadata.PackageNotFoundError:
        listed = []
    named = [one for one in listed if one.marker is not None and one.marker.evaluate({"extra": extra})]
    wanted = [f"'{one.name}{one.specifier}'" for one in named if not one.marker or not one.marker.evaluate()]
    return f"pip install {' '.join(wanted)}" if wanted else f"pip install '.[{extra}]' in the clone"
