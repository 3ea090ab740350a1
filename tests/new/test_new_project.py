"""`new --out`: an installable project whose package is that of the way into a checkout, apart from imports."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli

from scaffold.files.resources import runtime_root
from scaffold.render.runtime import version_of

pytestmark = pytest.mark.upstream
PACKAGE = "src/bagel_flow_grpo"
NEW = ("new", "bagel", "--vllm-omni", "0.27.0rc1", "--packaged")


@pytest.fixture(scope="module")
def rendered_once(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("project") / "out"
    scaffold_cli(*NEW, "--out", out).success()
    return out


@pytest.fixture
def project(rendered_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(rendered_once, tmp_path / "out"))


def without_imports(text: str) -> str:
    """A file as code, without its import statements."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return ast.unparse(tree)


def imported(text: str) -> set[tuple[str, str]]:
    """What a file imports, by names as a checkout has them."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    own = re.compile(r"^(?=(?:flow_grpo_runtime|bagel_flow_grpo)\b)")
    return {(own.sub("verl_omni.pipelines.", node.module or ""), a.name) for node in nodes for a in node.names}


def test_the_package_differs_from_the_golden_one_in_imports_and_licence_alone(
    rendered_once: Path, reference: Path
) -> None:
    golden = reference / "verl_omni/pipelines/bagel_flow_grpo"
    names = sorted(path.name for path in golden.glob("*.py"))
    assert names == sorted(path.name for path in (rendered_once / PACKAGE).glob("*.py"))
    for name in names:
        here, there = ((folder / name).read_text() for folder in (rendered_once / PACKAGE, golden))
        assert without_imports(here) == without_imports(there), name
        assert imported(here) == imported(there), name
        comments = [re.findall(r"(?m)^ *#.*$", text) for text in (here, there)]
        assert comments[1][0].startswith("# Copyright"), name
        assert comments[0] == comments[1][13:], name
    assert (rendered_once / PACKAGE / "scaffold.toml").read_text() == (golden / "scaffold.toml").read_text()


def test_it_is_a_distribution_that_asks_for_the_runtime_by_version(rendered_once: Path) -> None:
    built = tomli.loads((rendered_once / "pyproject.toml").read_text())
    version = version_of(runtime_root())
    assert version is not None
    assert built["project"]["name"] == "bagel-flow-grpo"
    assert built["project"]["dependencies"] == [f"flow-grpo-runtime>={version},<{version + 1}"]
    assert built["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [PACKAGE]
    assert not list(rendered_once.rglob("flow_grpo_runtime"))
    assert not (rendered_once / "verl_omni.patch").exists()


def test_nothing_in_it_assumes_a_checkout(rendered_once: Path) -> None:
    for path in rendered_once.rglob("*"):
        if path.is_file() and not path.name.startswith("scaffold."):
            text = path.read_text()
            for word in ("verl_omni/pipelines", "examples/flowgrpo", "special_e2e", "verl_omni.pipelines.bagel"):
                assert word not in text, (path, word)


@pytest.mark.parametrize("script", ["scripts/run_bagel_ocr_lora.sh", "tests/smoke/run_flowgrpo_bagel.sh"])
def test_scripts_name_the_library_on_both_sides(rendered_once: Path, script: str) -> None:
    text = (rendered_once / script).read_text()
    for side in ("model", "rollout"):
        assert f"    actor_rollout_ref.{side}.external_lib=bagel_flow_grpo\n" in text


def test_check_finds_what_is_wrong_in_it_and_nothing_else(project: Path, scaffold_cli: Callable[..., Any]) -> None:
    assert "1 package" in scaffold_cli("check", project).success()
    script = project / "scripts/run_bagel_ocr_lora.sh"
    script.write_text(script.read_text().replace("lora_rank=64", "lora_rnak=64"))
    found = scaffold_cli("check", project, "--format", "json")
    places = {(finding["rule"], finding["path"].rpartition("/")[2]) for finding in json.loads(found.out)["findings"]}
    assert ("OSC523", "run_bagel_ocr_lora.sh") in places


def test_a_script_that_names_no_library_is_told(project: Path, scaffold_cli: Callable[..., Any]) -> None:
    script = project / "scripts/run_bagel_ocr_lora.sh"
    script.write_text(re.sub(r"(?m)^    actor_rollout_ref\.\w+\.external_lib=.*\n", "", script.read_text()))
    found = scaffold_cli("check", project, "--select", "OSC541")
    assert found.code == 1
    assert "actor_rollout_ref.model.external_lib and actor_rollout_ref.rollout.external_lib are not set" in found.out


def test_it_lives_as_a_package_in_a_checkout_does(project: Path, scaffold_cli: Callable[..., Any]) -> None:
    assert "nothing to do" in scaffold_cli("update", project, "--packaged").success()
    spec = project / PACKAGE / "scaffold.toml"
    spec.write_text(re.sub(r"(?m)^group_size = .*", "group_size = 8", spec.read_text()))
    assert "group_size 16 to 8" in scaffold_cli("update", project / PACKAGE, "--spec").success()
    assert "rollout.n=8" in (project / "scripts/run_bagel_ocr_lora.sh").read_text()
    scaffold_cli("drift", project / PACKAGE, "--to", "0.27.0rc1").success()
    mine = project / "src/bagel_flow_grpo/mine.py"
    mine.write_text("MINE = 1\n")
    scaffold_cli("remove", project, "--force").success()
    assert [path for path in project.rglob("*") if path.is_file()] == [mine]


def test_a_spec_of_one_place_renders_in_the_other(
    project: Path, reference: Path, scaffold_cli: Callable[..., Any], tmp_path: Path, tree_of: Callable[[Path], Any]
) -> None:
    spec = project / PACKAGE / "scaffold.toml"
    scaffold_cli("new", "bagel", "--spec", spec, "--patch", "--out", tmp_path / "tree").success()
    there, golden = tree_of(tmp_path / "tree"), tree_of(reference)
    assert there.keys() == golden.keys()
    assert {path for path in golden if there[path] != golden[path]} <= {
        "verl_omni/pipelines/bagel_flow_grpo/scaffold.lock.toml"
    }


def test_a_checkout_takes_the_installed_runtime_where_it_is_asked_to(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    scaffold_cli(*NEW, "--patch", "--runtime", "installed", "--out", tmp_path / "out").success()
    assert [path.name for path in (tmp_path / "out/verl_omni/pipelines").iterdir()] == ["bagel_flow_grpo"]
    text = (tmp_path / "out/verl_omni/pipelines/bagel_flow_grpo/common.py").read_text()
    assert "from flow_grpo_runtime.levels import" in text
    assert "1 package" in scaffold_cli("check", tmp_path / "out").success()


def test_the_next_step_installs_it(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    said = scaffold_cli(*NEW, "--out", "mine", cwd=tmp_path).success()
    steps = "next: `pip install -e mine`, `omni-scaffold check mine`, then `omni-scaffold verify mine`"
    assert said.splitlines()[-1] == steps


def test_flags_that_contradict_the_place_are_refused(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    said = scaffold_cli(*NEW, "--runtime", "beside", "--out", tmp_path / "out").refusal()
    assert "--runtime beside goes with a checkout" in said
    assert "--patch goes with --out" in scaffold_cli(*NEW, "--patch", "--verl-omni", tmp_path).refusal()
