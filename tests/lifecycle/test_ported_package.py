"""A package whose denoiser is ported follows the code that it was ported from, and no other under the same number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from overruled import overrule

from scaffold.spec import LOCK_NAME, read_spec
from scaffold.upstream import locate

pytestmark = [pytest.mark.upstream, pytest.mark.xdist_group("ported packages")]
VERSION = "0.30.0"
DENOISER = "vllm_omni/diffusion/models/omnigen2/omnigen2_transformer.py"
PORTED = "verl_omni/pipelines/omnigen2_flow_grpo/omnigen2_denoiser.py"
SPEC = "verl_omni/pipelines/omnigen2_flow_grpo/scaffold.toml"
BEFORE, AFTER = "theta=10000", "theta=12345"


@pytest.fixture(scope="module")
def other(upstream_copies: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a vllm-omni that calls itself 0.30.0 and has another denoiser."""
    copy = upstream_copies.Copy(locate(VERSION), tmp_path_factory.mktemp("other") / "vllm", ("omnigen2",))
    (copy.root / "vllm_omni/_version.py").write_text(f"version = '{VERSION}'\n")
    copy.replace(DENOISER, BEFORE, AFTER)
    root: Path = copy.root
    return root


@pytest.fixture(scope="module")
def trees(other: Path, scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trees")
    for name, source in (("own", VERSION), ("other", str(other))):
        scaffold_cli("new", "omnigen2", "--vllm-omni", source, "--out", folder / name).success()
    return {name: folder / name for name in ("own", "other")}


@pytest.fixture
def tree(trees: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(trees[name], tmp_path / name, symlinks=True))

    return copy


def test_update_reads_the_folder_that_is_named(
    tree: Callable[[str], Path], other: Path, scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("own")
    old = (out / PORTED).read_text()
    scaffold_cli("update", out, "--vllm-omni", other)
    new = (out / PORTED).read_text()
    # The pipeline, which nobody changed, names the same number for the tables that it hands to the denoiser.
    assert (old.count(BEFORE), new.count(BEFORE), new.count(AFTER)) == (2, 1, 1)


@pytest.mark.parametrize("flags", [(), ("--spec",), ("--vllm-omni", VERSION)])
def test_other_code_under_the_same_number_is_not_taken_for_the_packages_own(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any], flags: tuple[str, ...]
) -> None:
    out = tree("other")
    # As a package has it whose versions were told apart by their number alone.
    stored = read_spec(out / SPEC).spec
    stored.sections["upstream"]["version"] = VERSION
    (out / SPEC).write_text(stored.to_toml())
    (out / SPEC).with_name(LOCK_NAME).write_text(stored.to_lock())
    line = scaffold_cli("update", out, *flags).refusal(2)
    assert "ported from other code than that of vllm-omni 0.30.0" in line
    assert AFTER in (out / PORTED).read_text()


def test_the_packages_own_code_is_known_by_its_version(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("other")
    assert str(read_spec(out / SPEC).spec.value("upstream.version")).startswith(f"{VERSION}+vllm.g")
    assert "nothing to do" in scaffold_cli("update", out).success()
    scaffold_cli("update", out, "--vllm-omni", VERSION)
    assert BEFORE in (out / PORTED).read_text()


def test_update_goes_on_where_the_code_is_named(
    tree: Callable[[str], Path], other: Path, scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("other")
    scaffold_cli("update", out, "--from", other, "--vllm-omni", VERSION)
    assert BEFORE in (out / PORTED).read_text()


def test_drift_shows_the_lines_whose_code_changed(
    tree: Callable[[str], Path], other: Path, scaffold_cli: Callable[..., Any]
) -> None:
    done = scaffold_cli(
        *("drift", "OmniGen2Pipeline", "--from", VERSION, "--to", other, "--package", tree("own")),
        *("--format", "json"),
    )
    found = json.loads(done.out)
    assert done.code == 1
    assert found["affected"]
    assert found["facts"] == []
    (hunk,) = found["ported"]
    assert hunk["file"] == PORTED
    assert [line.replace(BEFORE, AFTER) for line in hunk["before"]] == hunk["after"] != hunk["before"]


def test_nothing_is_affected_by_the_same_code(tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]) -> None:
    done = scaffold_cli("drift", "OmniGen2Pipeline", "--to", VERSION, "--package", tree("own"))
    assert done.code == 0
    assert "nothing to do" in done.out


@pytest.mark.parametrize("value", ["complete", "partial"])
def test_package_of_either_grade_is_rendered_from_its_spec(
    tree: Callable[[str], Path], scaffold_cli: Callable[..., Any], value: str
) -> None:
    out = tree("own")
    overrule(out / SPEC, "grade.value", f'"{value}"')
    assert scaffold_cli("update", out, "--spec").code == 0
    assert BEFORE in (out / PORTED).read_text()


def test_grade_that_does_not_exist_is_refused(tree: Callable[[str], Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("own")
    overrule(out / SPEC, "grade.value", '"rubbish"')
    assert "grade.value is 'rubbish'" in scaffold_cli("update", out, "--spec").refusal(2)
