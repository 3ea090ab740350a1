"""The version that a lock records is a version: no folder of the disk is read, or built, in its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.spec.lock import seal
from scaffold.upstream.builds import base_of, is_own
from scaffold.upstream.locate import locate, locate_version
from scaffold.version_text import is_version

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"


@pytest.fixture
def resealed(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that writes the reference package with another version in its lock; a folder is called that."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "evilsrc" / "vllm_omni"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")

    def write(version: str) -> Path:
        shutil.copytree(reference, tmp_path / "tree")
        lock = tmp_path / "tree" / PACKAGE / "scaffold.lock.toml"
        text = lock.read_text()
        assert 'version = "0.27.0rc1"' in text
        lock.write_text(seal(text.replace('version = "0.27.0rc1"', f'version = "{version}"')))
        return tmp_path / "tree" / PACKAGE

    return write


@pytest.mark.parametrize("version", ["evilsrc", "./evilsrc", "newest", "../../x+own.g12345678"])
@pytest.mark.parametrize("command", ["update", "drift"])
def test_a_folder_is_named_on_the_command_line_alone(
    command: str, version: str, resealed: Callable[[str], Path], scaffold_cli: Callable[..., Any]
) -> None:
    options = ("--dry-run",) if command == "update" else ("--to", "0.30.0")
    refused = scaffold_cli(command, resealed(version), *options).refusal()
    assert f"upstream.version is '{version}'; it must be a version" in refused


def test_what_is_a_version() -> None:
    for text in ("0.30.0", "0.27.0rc1", "v0.30.0", "0.1.dev12+gabc1234567890", "0.30.0+lantern.g12345678"):
        assert is_version(text), text
    for text in (
        "",
        "evilsrc",
        "/x",
        "0.30.0/../x",
        "0.27.0rc1!1",
        "99999999999999999999.1",
        "1." * 80 + "1",
        "0.30.0\n",
    ):
        assert not is_version(text), text
    assert is_own("0.30.0+lantern.g12345678")
    assert base_of("0.30.0+lantern.g12345678") == "0.30.0"
    assert not is_own("../../x+lantern.g12345678")


def test_a_version_that_is_asked_for_is_no_folder(resealed: Callable[[str], Path]) -> None:
    assert locate("evilsrc").version is None
    with pytest.raises(ScaffoldError, match="'evilsrc' is not a version"):
        locate_version("evilsrc")


def test_a_folder_says_no_number_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "vllm_omni").mkdir()
    (tmp_path / "vllm_omni" / "__init__.py").write_text("")
    (tmp_path / "vllm_omni" / "_version.py").write_text("version = '0/../../../x'\n")
    assert locate(str(tmp_path)).version is None
    (tmp_path / "vllm_omni" / "_version.py").write_text("version = '0.30.0'\n")
    assert locate(str(tmp_path)).version == "0.30.0"
