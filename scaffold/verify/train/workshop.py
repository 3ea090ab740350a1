"""The tree in which a package is trained: a copy of the checkout with the package laid over it."""

from __future__ import annotations

import shutil
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.plan.hooks import add_package
from scaffold.target.capabilities import REGISTRY
from scaffold.verify.package import CONTAINER, Package

# What the run reads of a checkout; its .git, docs and docker files stay away.
COPIED = ("verl_omni", "examples", "tests/special_e2e")
LAID_OVER = ("examples", "tests/special_e2e")


def build_workshop(folder: Path, checkout: Path, packages: list[Package]) -> Path:
    """Copy the checkout into ``folder``, then each package with its scripts, and register it.

    Nothing of the checkout or of a package's own tree is changed or written to.

    Raises:
        ScaffoldError: the registry of the checkout cannot be read.
    """
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        if (checkout / name).is_dir():
            shutil.copytree(checkout / name, folder / name, symlinks=True, ignore=ignore)
    registry = folder / REGISTRY
    for package in packages:
        place = folder.joinpath(*CONTAINER, package.name)
        if package.root != checkout:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(package.folder, place, ignore=ignore)
            for name in LAID_OVER:
                if (package.root / name).is_dir() and not package.checkout:
                    shutil.copytree(package.root / name, folder / name, dirs_exist_ok=True, ignore=ignore)
        try:
            registry.write_text(add_package(registry.read_text(encoding="utf-8"), package.name), encoding="utf-8")
        except (OSError, UnicodeDecodeError, SyntaxError) as error:
            raise ScaffoldError(f"{checkout / REGISTRY} cannot be read: {error}") from None
    return folder


def smoke_script(folder: Path, model: str) -> Path:
    """The script of a package that trains on a tiny checkpoint.

    Raises:
        ScaffoldError: it has none.
    """
    path = folder / "tests" / "special_e2e" / f"run_flowgrpo_{model}.sh"
    if not path.is_file():
        raise ScaffoldError(
            f"there is no tests/special_e2e/{path.name} to train with", hint="level train runs the package's smoke test"
        )
    return path
