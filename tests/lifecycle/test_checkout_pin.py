"""A package and the vllm-omni that its checkout pins: another version is asked for by name, and said wherever it is."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import NEW, PACKAGE, snapshot

from scaffold.spec import read_spec

pytestmark = pytest.mark.upstream
SPEC = f"{PACKAGE}/scaffold.toml"
README = "examples/flowgrpo_trainer/toy/README.md"
NEWER = ("--vllm-omni", "0.30.0")
ALLOW = "--allow-version-mismatch"
IN_README = "- vllm-omni 0.30.0, for which the package was made. The checkout that it was written into pins 0.27.0rc1"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new))


def move_pin(root: Path, version: str) -> None:
    path = root / "pyproject.toml"
    path.write_text(re.sub(r"vllm-omni==[^\"]+", f"vllm-omni=={version}", path.read_text()))


@pytest.mark.parametrize("option", [(), ("--dry-run",), ("--diff",), ("--force",)])
def test_new_for_another_version_is_refused(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any], option: tuple[str, ...]
) -> None:
    root = standin()
    before = snapshot(root)
    line = scaffold_cli(*NEW, "--verl-omni", root, *NEWER, *option).refusal(4)
    assert "pins vllm-omni 0.27.0rc1" in line
    assert "0.30.0" in line
    assert ALLOW in line
    assert snapshot(root) == before


def test_new_for_another_version_that_is_allowed_says_so(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = standin()
    printed = scaffold_cli(*NEW, "--verl-omni", root, *NEWER, ALLOW).success()
    assert "note: the package is for vllm-omni 0.30.0, the checkout pins 0.27.0rc1: install 0.30.0" in printed
    assert IN_README in (root / README).read_text()
    found = scaffold_cli("check", root / PACKAGE, "--select", "OSC530")
    assert found.code == 1
    assert "made for vllm-omni 0.30.0, and the checkout pins 0.27.0rc1" in found.out
    # What was allowed once need not be said again; what goes elsewhere must be.
    before = snapshot(root)
    for again in (NEWER, ("--spec",)):
        assert "nothing to do" in scaffold_cli("update", root / PACKAGE, *again).success()
    assert ALLOW in scaffold_cli("update", root / PACKAGE, "--vllm-omni", "0.28.0").refusal(4)
    assert snapshot(root) == before
    # The pin moved: nothing is amiss any more.
    move_pin(root, "0.30.0")
    assert "note:" not in scaffold_cli("update", root / PACKAGE).success()
    assert IN_README not in (root / README).read_text()
    assert read_spec(root / SPEC).spec.value("upstream.checkout_pin") is None
    assert scaffold_cli("check", root / PACKAGE, "--select", "OSC530").code == 0


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        ("~=0.27.0", 4),
        pytest.param(">=0.27.0rc1,<0.28", 4, marks=pytest.mark.table),
        pytest.param("==0.27.*", 4, marks=pytest.mark.table),
        ("!=0.30.0", 4),
        (">=0.27.0rc1", 0),
    ],
)
def test_a_range_that_leaves_the_version_out_is_a_pin_too(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any], asked: str, ends: int
) -> None:
    root = standin()
    project = root / "pyproject.toml"
    project.write_text(re.sub(r"vllm-omni==[^\"]+", f"vllm-omni{asked}", project.read_text()))
    command = (*NEW, "--verl-omni", root, *NEWER)
    if not ends:
        scaffold_cli(*command).success()
        return
    line = scaffold_cli(*command).refusal(4)
    assert f"pins vllm-omni {asked} and the package would be for 0.30.0" in line
    scaffold_cli(*command, ALLOW).success()
    assert "nothing to do" in scaffold_cli("update", root / PACKAGE, *NEWER).success()


def test_a_requirement_that_names_no_version_is_said_to_be_unknown(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = standin()
    edit(root / "pyproject.toml", "vllm-omni==0.27.0rc1", "vllm-omni @ git+https://host.invalid/vllm-omni")
    printed = scaffold_cli(*NEW, "--verl-omni", root, *NEWER, "--dry-run").success()
    assert "whether the source that was read is that version is not known" in " ".join(printed.split())


def test_partial_package_says_it_too(standin: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = standin()
    command = ("new", "omnigen2", "--verl-omni", root, *NEWER)
    scaffold_cli(*command).refusal(4)
    scaffold_cli(*command, ALLOW).success()
    text = (root / "examples/flowgrpo_trainer/omnigen2/README.md").read_text()
    assert f"## Prerequisites\n\n{IN_README}" in text


def test_spec_for_another_version_is_refused(
    package: Callable[..., Path], standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    spec, root = package(name="other") / SPEC, standin()
    move_pin(root, "0.30.0")
    before = snapshot(root)
    assert ALLOW in scaffold_cli("new", "toy", "--spec", spec, "--verl-omni", root).refusal(4)
    assert snapshot(root) == before
    scaffold_cli("new", "toy", "--spec", spec, "--verl-omni", root, ALLOW).success()
    assert read_spec(root / SPEC).spec.value("upstream.checkout_pin")


def test_update_away_from_the_pin_is_refused(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    before = snapshot(root)
    assert ALLOW in scaffold_cli("update", root / PACKAGE, *NEWER).refusal(4)
    assert snapshot(root) == before
    printed = scaffold_cli("update", root / PACKAGE, *NEWER, ALLOW).success()
    assert "note: the package is for vllm-omni 0.30.0, the checkout pins 0.27.0rc1" in printed
    assert IN_README in (root / README).read_text()


def test_update_does_not_go_back_by_itself(
    written: dict[str, Path], package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package()
    scaffold_cli("update", root / PACKAGE, *NEWER, ALLOW).success()
    before = snapshot(root)
    line = scaffold_cli("update", root / PACKAGE).refusal(4)
    assert "0.27.0rc1, which is older" in line
    assert snapshot(root) == before
    back, stay = re.findall(r"--vllm-omni (\S+)", line)
    assert "nothing to do" in scaffold_cli("update", root / PACKAGE, "--vllm-omni", stay).success()
    scaffold_cli("update", root / PACKAGE, "--vllm-omni", back).success()
    assert snapshot(root) == snapshot(written["main"])


def test_newest_release_is_no_name_of_an_older_one(
    output: Callable[..., Path], scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["scaffold.upstream.locate"], "newest_release", lambda distribution: "0.28.0")
    before = snapshot(output("0.30.0"))
    line = scaffold_cli("update", output("0.30.0"), "--vllm-omni", "newest", "--dry-run").refusal(4)
    assert "the newest release is 0.28.0, which is older" in line
    assert snapshot(output("0.30.0")) == before


def test_source_without_a_version_is_said_to_be_unknown(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    import zipfile

    from scaffold.upstream.cache import cache_root

    with zipfile.ZipFile(cache_root() / "wheels/vllm_omni-0.27.0rc1-py3-none-any.whl") as wheel:
        names = [name for name in wheel.namelist() if "dist-info" not in name and not name.endswith("_version.py")]
        wheel.extractall(tmp_path / "source", names)
    printed = scaffold_cli(*NEW, "--verl-omni", standin(), "--vllm-omni", tmp_path / "source").success()
    assert "whether the source that was read is that version is not known" in printed


def advised(line: str) -> list[list[str]]:
    """Return the commands that a line names."""
    return [command.split()[1:] for command in re.findall(r"`(omni-scaffold [^`]+)`", line)]


def test_new_over_an_updated_package_names_the_command(
    written: dict[str, Path], package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package()
    scaffold_cli("update", root / PACKAGE, *NEWER, ALLOW).success()
    before = snapshot(root)
    line = scaffold_cli(*NEW, "--verl-omni", ".", cwd=root).refusal(4)
    assert "made for vllm-omni 0.30.0, not 0.27.0rc1" in line
    assert snapshot(root) == before
    (command,) = advised(line)
    assert command == ["update", PACKAGE, "--vllm-omni", "0.27.0rc1"]
    scaffold_cli(*command, cwd=root).success()
    assert snapshot(root) == snapshot(written["main"])


def test_new_over_an_edited_package_names_the_command(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package()
    common = root / PACKAGE / "common.py"
    common.write_text(common.read_text() + "\n\nMINE = 1\n")
    before = snapshot(root)
    line = scaffold_cli(*NEW, "--verl-omni", root).refusal(4)
    assert f"{PACKAGE}/common.py (differs)" in line
    assert "move these files away" not in line
    (command,) = advised(line)
    assert command == ["update", str(root / PACKAGE)]
    scaffold_cli(*command).success()
    assert snapshot(root) == before


def test_new_over_an_edited_spec_names_the_command(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package()
    edit(root / SPEC, "\nshift = 3.0 ", "\nshift = 2.5 ")
    line = scaffold_cli(*NEW, "--verl-omni", root).refusal(4)
    assert "set by hand: schedule.shift" in line
    command = advised(line)[0]
    assert command == ["update", str(root / PACKAGE), "--spec"]
    scaffold_cli(*command).success()
    assert "SCHEDULE_SHIFT = 2.5\n" in (root / PACKAGE / "common.py").read_text()
    # The same by `new --spec` over an edited file of the package.
    (root / PACKAGE / "common.py").write_text("MINE = 1\n")
    line = scaffold_cli("new", "toy", "--spec", root / SPEC, "--verl-omni", root).refusal(4)
    assert advised(line) == [command]


def test_new_over_an_updated_tree_of_its_own_names_the_command(
    output: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    out = output("0.30.0")
    before = snapshot(out)
    line = scaffold_cli(*NEW, "--vllm-omni", "0.27.0rc1", "--patch", "--out", out).refusal(2)
    assert advised(line) == [["update", str(out / PACKAGE), "--vllm-omni", "0.27.0rc1"]]
    assert snapshot(out) == before


def test_model_that_somebody_else_wrote_is_another_matter(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = standin()
    (root / PACKAGE).mkdir()
    (root / PACKAGE / "common.py").write_text("theirs\n")
    assert "choose another MODEL" in scaffold_cli(*NEW, "--verl-omni", root).refusal(4)
