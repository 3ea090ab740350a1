"""What a path stands for: package, checkout, rendered tree, one file, a package alone, nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.check import check_paths
from scaffold.check.settings import Settings
from scaffold.errors import ScaffoldError

PIPELINES = "verl_omni/pipelines"
NONE = Settings()


@pytest.fixture
def checkout(tmp_path: Path, write_base: Callable[..., Path]) -> Path:
    """Write a checkout with two packages, each broken in its own way."""
    root = tmp_path / "checkout"
    for base in ("diffusers", "non_diffusers"):
        write_base(root, base)
    model = root / PIPELINES / "toy_flow_grpo" / "toy_model.py"
    model.write_text(model.read_text().replace("gradient_checkpointing = True", "gradient_checkpointing = False"))
    return root


def rules_of(*paths: Path, select: tuple[str, ...] = ("OSC0", "OSC104", "OSC502", "OSC701")) -> list[str]:
    """Return the identifiers of what is found."""
    return sorted(finding.rule for finding in check_paths(paths, select=select, settings=NONE).findings)


def test_checkout_is_checked_as_a_whole(checkout: Path) -> None:
    report = check_paths([checkout], settings=NONE)
    assert report.packages == ("toy_flow_grpo", "wheel_flow_grpo")
    # The registry of the second base stands there; the other package is missing in it.
    assert rules_of(checkout) == ["OSC104", "OSC502"]


@pytest.mark.parametrize("below", ["verl_omni", PIPELINES])
def test_folders_above_the_packages(checkout: Path, below: str) -> None:
    assert check_paths([checkout / below], settings=NONE).packages == ("toy_flow_grpo", "wheel_flow_grpo")


def test_package_finds_the_checkout_around_it(checkout: Path) -> None:
    assert rules_of(checkout / PIPELINES / "toy_flow_grpo") == ["OSC104"]
    assert rules_of(checkout / PIPELINES / "wheel_flow_grpo") == ["OSC502"]


def test_package_brings_the_scripts_that_train_it(checkout: Path) -> None:
    script = checkout / "examples/flowgrpo_trainer/toy/run_toy_lora.sh"
    script.write_text(script.read_text().replace("OmniToyForConditional", "OmniToiForConditional"))
    own = check_paths([checkout / PIPELINES / "toy_flow_grpo"], select=["OSC501"], settings=NONE).findings
    assert [finding.key for finding in own] == ["examples/flowgrpo_trainer/toy/run_toy_lora.sh"]
    assert not check_paths([checkout / PIPELINES / "wheel_flow_grpo"], select=["OSC501"], settings=NONE).findings


def test_single_file_shows_only_its_own_findings(checkout: Path) -> None:
    assert rules_of(checkout / PIPELINES / "toy_flow_grpo" / "toy_model.py") == ["OSC104"]
    assert rules_of(checkout / PIPELINES / "toy_flow_grpo" / "common.py") == []


def test_several_paths_of_one_tree(checkout: Path) -> None:
    both = [checkout / PIPELINES / name for name in ("toy_flow_grpo", "wheel_flow_grpo")]
    assert rules_of(*both) == ["OSC104", "OSC502"]
    assert rules_of(checkout, *both) == ["OSC104", "OSC502"]
    assert rules_of(both[0] / "common.py", both[1]) == ["OSC502"]


def test_package_alone_says_nothing_of_what_is_not_there(checkout: Path, tmp_path: Path) -> None:
    alone = tmp_path / "somewhere" / "toy_flow_grpo"
    shutil.copytree(checkout / PIPELINES / "toy_flow_grpo", alone)
    report = check_paths([alone], settings=NONE)
    assert [finding.rule for finding in report.findings] == ["OSC104"]
    assert report.packages == ("toy_flow_grpo",)
    assert rules_of(alone / "toy_model.py") == ["OSC104"]


def test_rendered_tree_is_clean_without_any_ignore(reference: Path) -> None:
    report = check_paths([reference], settings=NONE)
    assert report.findings == ()
    assert report.suppressed == 0
    assert len(report.packages) == 1


def test_rendered_tree_is_judged_by_its_patch(reference: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(reference, tree, symlinks=True)
    patch = tree / "verl_omni.patch"
    lines = patch.read_text().splitlines(keepends=True)
    without = [line for line in lines if not line.startswith("+__all__")]
    assert len(without) == len(lines) - 1
    patch.write_text("".join(without))
    assert rules_of(tree) == ["OSC502"]
    (finding,) = check_paths([tree], settings=NONE).findings
    shown = patch.read_text().splitlines()[finding.line - 1]
    assert finding.source == shown
    assert shown[0] == " "
    assert shown[finding.column - 1 :] == "from . import ("
    patch.write_text("".join(line for line in lines if "special_e2e" not in line))
    assert rules_of(tree) == ["OSC701"]


@pytest.mark.parametrize("name", ["empty", "other", "file.py", "nowhere"])
def test_path_without_integration_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "module.py").write_text("print('hello')\n")
    (tmp_path / "file.py").write_text("x = 1\n")
    with pytest.raises(ScaffoldError) as caught:
        check_paths([tmp_path / name])
    assert caught.value.exit_code == 2
    assert str(tmp_path / name) in caught.value.line


def test_part_of_a_checkout_that_belongs_to_no_package(checkout: Path) -> None:
    with pytest.raises(ScaffoldError, match="holds no integration"):
        check_paths([checkout / "docs"])


def test_script_of_a_package(checkout: Path) -> None:
    script = checkout / "examples/flowgrpo_trainer/toy/run_toy_lora.sh"
    script.write_text(script.read_text().replace("OmniToyForConditional", "OmniToiForConditional"))
    findings = check_paths([script], settings=NONE).findings
    assert findings
    assert {finding.key for finding in findings} == {"examples/flowgrpo_trainer/toy/run_toy_lora.sh"}


def test_links_in_circles_do_not_matter(checkout: Path) -> None:
    (checkout / PIPELINES / "toy_flow_grpo" / "again").symlink_to(checkout)
    (checkout / PIPELINES / "toy_flow_grpo" / "round.py").symlink_to("round.py")
    assert "OSC104" in rules_of(checkout)


def test_nothing_is_executed(checkout: Path, tmp_path: Path) -> None:
    witness = tmp_path / "executed"
    init = checkout / PIPELINES / "toy_flow_grpo" / "__init__.py"
    init.write_text(f"open({str(witness)!r}, 'w').close()\n" + init.read_text())
    check_paths([checkout])
    assert not witness.exists()
