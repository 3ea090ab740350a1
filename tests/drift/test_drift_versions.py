"""BAGEL from version to version: what changed, with places on both sides that can be looked up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

# Fact -> whether rendered lines rest on it, from 0.22.0 to the version.
STEP = {
    "answers.cfg.execution": False,
    "answers.checkpoint.renames": True,
    "answers.checkpoint.stacked": True,
    "answers.denoiser.params": False,
    "answers.scheduler.steps": True,
    # The runtime takes a request of either type, and refuses the engine's step-wise mode in every version.
    "detail.request.class": False,
    "detail.request.module": False,
}
KEYS = {
    "answers.prompt.prompt_keys": False,
    "answers.trajectory.fields": False,
    "detail.negative.keys": False,
}
EXPECTED = {
    "0.24.0": STEP,
    "0.27.0rc1": {**STEP, **KEYS},
    "0.28.0": {**STEP, **KEYS},
    "0.30.0": {
        **STEP,
        **KEYS,
        "detail.step_execution": False,
        "detail.request.sizes": False,
        "detail.pre_process": False,
        "answers.prompt.sampling_params": False,
    },
}
# In 0.28.0 nothing changed that had not before.
VERSIONS = [*("0.24.0", "0.27.0rc1"), pytest.param("0.28.0", marks=pytest.mark.table), "0.30.0"]
SHAPE = {
    *("schema", "pipeline", "from", "to", "package", "affected", "gone", "rendering"),
    *("facts", "together", "ported", "executed", "surface", "formula"),
}


@pytest.fixture(scope="session")
def drift(scaffold_cli: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return a function that compares two versions once and gives the JSON."""
    known: dict[tuple[str, str], dict[str, Any]] = {}

    def compare(before: str, after: str) -> dict[str, Any]:
        if (before, after) not in known:
            outcome = scaffold_cli("drift", "bagel", "--from", before, "--to", after, "--format", "json")
            known[before, after] = json.loads(outcome.success())
        return known[before, after]

    return compare


@pytest.mark.parametrize("after", VERSIONS)
def test_facts_that_changed(drift: Callable[..., dict[str, Any]], after: str) -> None:
    found = drift("0.22.0", after)
    seen = {fact["fact"]: bool(fact["lines"]) for fact in found["facts"]}
    assert {name: lines for name, lines in seen.items() if not name.startswith("detail.checkpoint.")} == EXPECTED[after]
    assert set(found) == SHAPE
    assert (found["from"], found["to"], found["schema"]) == ("0.22.0", after, 1)
    assert found["affected"] is True
    assert found["rendering"] is None


@pytest.mark.parametrize("after", VERSIONS)
def test_evidence_can_be_looked_up(drift: Callable[..., dict[str, Any]], after: str) -> None:
    from scaffold.upstream import locate

    sources = {"before": locate("0.22.0"), "after": locate(after)}
    for fact in drift("0.22.0", after)["facts"]:
        for side, source in sources.items():
            assert fact["evidence"][side], (fact["fact"], side)
            for place in fact["evidence"][side]:
                assert 1 <= place["line"] <= len(source.read(place["file"]).splitlines())


def test_lines_are_those_that_new_renders(
    drift: Callable[..., dict[str, Any]], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--profile", "v0.1.0", "--vllm-omni", "0.22.0")
    scaffold_cli("new", "bagel", *options, "--patch", "--out", out).success()
    lines = 0
    for fact in drift("0.22.0", "0.30.0")["facts"]:
        for hunk in fact["lines"]:
            text = (out / hunk["file"]).read_text().splitlines() if (out / hunk["file"]).exists() else []
            assert (
                text[hunk["line"] - 1 : hunk["line"] - 1 + len(hunk["before"])] == hunk["before"] or not hunk["before"]
            )
            lines += 1
    assert lines > 5


def test_no_change_no_line(drift: Callable[..., dict[str, Any]], scaffold_cli: Callable[..., Any]) -> None:
    found = drift("0.27.0rc1", "0.28.0")
    assert found["facts"] == found["surface"] == found["together"] == []
    assert found["affected"] is False
    printed = scaffold_cli("drift", "bagel", "--from", "0.27.0rc1", "--to", "0.28.0").success()
    assert printed.splitlines()[1:] == ["", "no fact changed; nothing to do"]


def test_result_that_lost_an_argument(drift: Callable[..., dict[str, Any]]) -> None:
    """What v0.1.0's adapter returns cannot be made in 0.30.0; no fact of the pipeline says so."""
    surface = {change["name"]: change for change in drift("0.22.0", "0.30.0")["surface"]}
    lost = surface["forward().custom_output"]
    assert lost["effect"] == "DiffusionOutput has no custom_output"
    assert (lost["file"], lost["before"], lost["after"]) == (
        *("verl_omni/pipelines/flow_grpo_runtime/results.py", "attribute"),
        None,
    )
    assert drift("0.22.0", "0.24.0")["surface"] == []


def test_text_names_places_lines_and_the_next_step(scaffold_cli: Callable[..., Any]) -> None:
    printed = scaffold_cli("drift", "bagel", "--from", "0.22.0", "--to", "0.30.0").success()
    assert "answers.scheduler.steps" in printed
    assert "-         # vllm-omni 0.22.0 evaluates the model once more than training does" in printed
    assert "vllm_omni_rollout_adapter.py:" in printed
    assert "(vllm_omni/diffusion/models/bagel/pipeline_bagel.py:" in printed
    assert "breaks: rollout and training run different numbers of steps" in printed
    assert "next: `omni-scaffold update PACKAGE --vllm-omni 0.30.0`" in printed


def test_package_is_enough(
    drift: Callable[..., dict[str, Any]], scaffold_cli: Callable[..., Any], rendered_default: Path, tmp_path: Path
) -> None:
    folder = rendered_default / "verl_omni/pipelines/toy_flow_grpo"
    named = ("drift", "BagelPipeline", "--from", "0.27.0rc1", "--package", folder, "--to")
    whole = (*named, "0.22.0", "--format", "json")
    expected = {to: json.loads(scaffold_cli(*named, to, "--format", "json").out) for to in ("0.28.0", "0.22.0")}
    for target, version, code in (
        (folder, "0.22.0", 1),
        (rendered_default, "0.28.0", 0),
        (folder / "scaffold.toml", "0.28.0", 0),
    ):
        found = scaffold_cli("drift", target, "--to", version, "--format", "json")
        assert (found.code, found.err, json.loads(found.out)) == (code, "", expected[version])
    assert scaffold_cli("drift", ".", "--to", "0.28.0", cwd=folder).code == 0
    assert f"next: `omni-scaffold update {folder} --vllm-omni 0.22.0`" in scaffold_cli(*whole[:-2]).out
    # A folder that only bears the name of a pipeline is none.
    (tmp_path / "bagel").mkdir()
    pipeline = ("drift", "bagel", "--from", "0.27.0rc1", "--to", "0.28.0")
    assert scaffold_cli(*pipeline, cwd=tmp_path).success() == scaffold_cli(*pipeline).success()


def test_package_that_is_none_is_one_line(
    scaffold_cli: Callable[..., Any], rendered_default: Path, tmp_path: Path
) -> None:
    for command in (("drift", "--to", "0.30.0"), ("update",), ("remove",)):
        line = scaffold_cli(command[0], "no/such/package", *command[1:]).refusal(2)
        assert "no such folder here: no/such/package" in line
    assert "holds no scaffold.toml" in scaffold_cli("drift", tmp_path, "--to", "0.30.0").refusal(2)
    line = scaffold_cli("drift", rendered_default, "--to", "0.30.0", "--package", rendered_default).refusal(2)
    assert "leave out --package" in line
    assert "give --from, or a package" in scaffold_cli("drift", "bagel", "--to", "0.30.0").refusal(2)
    assert "is empty" in scaffold_cli("drift", "", "--to", "0.30.0").refusal(2)


def test_package_gives_the_exit_code(scaffold_cli: Callable[..., Any], rendered_default: Path) -> None:
    """One that nothing affects; `test_package_is_enough` has the others."""
    arguments = ("drift", "BagelPipeline", "--from", "0.27.0rc1", "--package", rendered_default)
    assert scaffold_cli(*arguments, "--to", "0.30.0").code == 0


def test_change_that_no_line_rests_on_does_not_affect_a_package(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("--profile", "v0.2.0", "--vllm-omni", "0.24.0", "--patch", "--out", out)
    scaffold_cli("new", "toy", "--pipeline", "bagel", *arguments).success()
    outcome = scaffold_cli("drift", "bagel", "--from", "0.24.0", "--to", "0.27.0rc1", "--package", out)
    assert "answers.prompt.prompt_keys" in outcome.out
    assert "no rendered line rests on it" in outcome.out
    # Its result type went from 0.24.0 to 0.27.0rc1 without the argument that this release's adapter fills.
    assert outcome.code == (1 if "custom_output" in outcome.out else 0)


def test_package_knows_its_own_version(scaffold_cli: Callable[..., Any], rendered_default: Path) -> None:
    arguments = ("drift", "bagel", "--package", rendered_default)
    outcome = scaffold_cli(*arguments, "--to", "0.22.0")
    assert outcome.code == 1
    assert outcome.out.startswith("bagel  vllm-omni 0.27.0rc1 to 0.22.0, ")
    assert "rendered from vllm-omni 0.27.0rc1" in scaffold_cli(
        *arguments, "--from", "0.24.0", "--to", "0.30.0"
    ).refusal(2)


def test_other_pipelines_package_is_refused(scaffold_cli: Callable[..., Any], rendered_default: Path) -> None:
    arguments = ("--from", "0.27.0rc1", "--to", "0.30.0", "--package", rendered_default)
    assert "integrates BagelPipeline" in scaffold_cli("drift", "QwenImagePipeline", *arguments).refusal(2)


@pytest.mark.parametrize("pipeline", ["QwenImagePipeline", "sd3"])
def test_pipeline_without_a_preset_has_facts_alone(scaffold_cli: Callable[..., Any], pipeline: str) -> None:
    arguments = ("--from", "0.22.0", "--to", "0.30.0", "--format", "json")
    found = json.loads(scaffold_cli("drift", pipeline, *arguments).success())
    assert found["rendering"] is not None
    assert all(fact["lines"] is None for fact in found["facts"])
    assert found["affected"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("NoSuchPipeline", "--from", "0.27.0rc1", "--to", "0.30.0"), "no pipeline 'NoSuchPipeline'"),
        (("bagel", "--from", "", "--to", "0.30.0"), "empty"),
        (("bagel", "--from", "0.27.0rc1"), "--to"),
        (("bagel", "--to", "0.27.0rc1"), "--from"),
        (("bagel", "--from", "0.27.0rc1", "--to", "0.30.0", "--package", "/nowhere"), "no such folder here: /nowhere"),
    ],
)
def test_wrong_use_is_one_line(scaffold_cli: Callable[..., Any], arguments: tuple[str, ...], message: str) -> None:
    assert message in scaffold_cli("drift", *arguments).refusal(2)


SEEN = """\
vllm-omni 0.27.0rc1, cfg_text_scale=4

2 steps, noise levels 1, 0.5, 0

in 2 of 2 steps, from step 1:

velocity = p1 + (p0 - p1) * 4
"""


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("p0 - p1", "p1 - p0", ["velocity = p1 + (p1 - p0) * 4", "gone: velocity = p1 + (p0 - p1) * 4"]),
        ("0.27.0rc1", "0.28.0", []),
        ("scale=4", "scale=5", []),
    ],
)
def test_another_formula_than_git_has_is_a_finding(
    package: Path, scaffold_cli: Callable[..., Any], old: str, new: str, changed: list[str]
) -> None:
    folder = package / "verl_omni/pipelines/toy_flow_grpo"
    (folder / "formula.txt").write_text(SEEN)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "What a rollout did")):
        subprocess.run(["git", "-C", package, "-c", "user.name=a", "-c", "user.email=a@b.c", *words], check=True)
    (folder / "formula.txt").write_text(SEEN.replace(old, new))
    done = scaffold_cli("drift", folder, "--to", "0.28.0", "--format", "json")
    found = json.loads(done.out)
    assert (done.code, found["formula"], found["affected"]) == (int(bool(changed)), changed, bool(changed))
    assert ("the formula did" in scaffold_cli("drift", folder, "--to", "0.28.0").out) is bool(changed)
