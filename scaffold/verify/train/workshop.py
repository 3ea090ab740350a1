"""The tree in which a package is trained: a copy of the checkout with the package laid over it."""

from __future__ import annotations

import shutil
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import copy_tree, read_text
from scaffold.files.resources import installed_runtime
from scaffold.plan.hooks import add_package
from scaffold.target.capabilities import REGISTRY
from scaffold.verify.package import CONTAINER, Package
from scaffold.verify.rollout.engine_side.sources import RUNTIME

# What the run reads of a checkout; its .git, docs and docker files stay away.
COPIED = ("verl_omni", "examples", "tests/special_e2e")
LAID_OVER = ("examples", "tests/special_e2e")
OUTSIDE = ("src", "scripts", "tests/smoke")
SKIPPED = ("__pycache__", "*.pyc")


def build_workshop(folder: Path, checkout: Path, packages: list[Package]) -> Path:
    """Copy the checkout into ``folder``, then each package with its scripts; one that lies in a checkout is registered.

    Nothing of the checkout or of a package's own tree is changed or written to, whatever links they hold.

    Raises:
        ScaffoldError: one of them holds what is not a plain file, or the registry of the checkout cannot be read.
    """
    registry = folder / REGISTRY
    try:
        for name in COPIED:
            if (checkout / name).is_dir():
                copy_tree(checkout / name, folder / name, inside=checkout, skip=SKIPPED)
        for package in packages:
            if package.layout.external:
                for name in OUTSIDE:
                    if (package.root / name).is_dir():
                        copy_tree(package.root / name, folder / name, inside=package.root, skip=SKIPPED)
                continue
            place = folder.joinpath(*CONTAINER, package.name)
            if package.root != checkout:
                shutil.rmtree(place, ignore_errors=True)
                copy_tree(package.folder, place, inside=package.root, skip=SKIPPED)
                shared = package.folder.with_name(RUNTIME)
                if shared.is_dir() and not package.checkout:
                    copy_tree(shared, place.with_name(RUNTIME), inside=package.root, skip=SKIPPED)
                for name in LAID_OVER:
                    if (package.root / name).is_dir() and not package.checkout:
                        copy_tree(package.root / name, folder / name, inside=package.root, skip=SKIPPED)
            registry.write_text(add_package(read_text(registry), package.name), encoding="utf-8")
    except OSError as error:
        raise ScaffoldError(f"{error.filename or checkout} cannot be copied: {error.strerror}") from None
    except (UnicodeDecodeError, SyntaxError) as error:
        raise ScaffoldError(f"{checkout / REGISTRY} cannot be read: {error}") from None
    return folder


def workshop_sources(folder: Path, packages: list[Package]) -> list[Path]:
    """Folders of the workshop from which packages outside of ``verl_omni`` come, and an installed runtime.

    The runtime is copied there: what is installed beside it would hide libraries of the run's own environment.
    """
    found = [folder / package.layout.packages for package in packages if package.layout.external]
    if not all(package.carries_runtime for package in packages):
        installed, beside = installed_runtime(), folder / "runtime"
        copy_tree(installed, beside / installed.name, inside=installed.parent, skip=SKIPPED)
        found.append(beside)
    return list(dict.fromkeys(found))


def smoke_script(folder: Path, package: Package, model: str) -> Path:
    """The script of a package that trains on a tiny checkpoint.

    Raises:
        ScaffoldError: it has none.
    """
    path = folder / package.layout.smoke / f"run_flowgrpo_{model}.sh"
    if not path.is_file():
        raise ScaffoldError(
            f"there is no {package.layout.smoke}{path.name} to train with",
            hint="level train runs the package's smoke test",
        )
    return path
