"""Checkouts and packages that the tests of a package's life share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import NEW, RELEASES, write_standin


@pytest.fixture
def standin(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a stand-in of a release below the test's folder."""

    def make(release: str = "main", name: str = "checkout", *, git: bool = False) -> Path:
        return write_standin(tmp_path / name, release, git=git)

    return make


@pytest.fixture
def small_checkpoint(python_file: Callable[[Path, str], Any]) -> Callable[[Path], Path]:
    """Return the function of the tests of ``new`` that writes a checkpoint with small shapes."""
    module = python_file(Path(__file__).resolve().parents[1] / "new/small_checkpoint.py", "small_checkpoint_of_new")
    write: Callable[[Path], Path] = module.write_checkpoint
    return write


@pytest.fixture(scope="session")
def written(
    scaffold_cli: Callable[..., Any], lay_out: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Return a stand-in of each release with the package in it, to be copied."""
    found = {}
    for release in RELEASES:
        root = tmp_path_factory.mktemp("written") / "checkout"

        def write(root: Path = root, release: str = release) -> None:
            scaffold_cli(*NEW, "--verl-omni", write_standin(root, release)).success()

        lay_out(("written", release), root, write)
        found[release] = root
    return found


@pytest.fixture
def package(written: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies a stand-in with the package in it."""

    def make(release: str = "main", name: str = "checkout") -> Path:
        return Path(shutil.copytree(written[release], tmp_path / name, symlinks=True))

    return make


@pytest.fixture(scope="session")
def output(rendered: Callable[..., Path]) -> Callable[..., Path]:
    """Return a function that renders a version beside nothing, once for each."""

    def render(version: str, *options: str) -> Path:
        return rendered(*NEW[1:], "--vllm-omni", version, *options)

    return render
