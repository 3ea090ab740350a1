"""One thing of the source changes: exactly that is found, and what rests on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

PIPELINE = "vllm_omni/diffusion/models/bagel/pipeline_bagel.py"
MODEL = "vllm_omni/diffusion/models/bagel/bagel_transformer.py"
BATCH = "vllm_omni/diffusion/worker/request_batch.py"
RUNTIME = "verl_omni/pipelines/flow_grpo_runtime/composed_rollout.py"
DATA = "vllm_omni/diffusion/data.py"
COMMON = "verl_omni/pipelines/toy_flow_grpo/common.py"


@pytest.fixture
def drift(scaffold_cli: Callable[..., Any], upstream: Any) -> Callable[..., dict[str, Any]]:
    """Return a function that compares the default version with the altered copy."""

    def compare(package: Path | None = None, code: int | None = None) -> dict[str, Any]:
        options = ("--package", package) if package is not None else ()
        outcome = scaffold_cli(
            *("drift", "BagelPipeline", "--from", "0.27.0rc1", "--to", upstream.root, "--format", "json"), *options
        )
        assert outcome.err == ""
        assert outcome.code == (code if code is not None else 1 if package is not None else 0), outcome.out
        found: dict[str, Any] = json.loads(outcome.out)
        return found

    return compare


def test_moved_lines_are_no_change(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    for path in (PIPELINE, MODEL, BATCH):
        upstream.rewrite(path, lambda text: "# moved\n" * 40 + text)
    found = drift(package, code=0)
    assert found["facts"] == found["surface"] == []
    assert found["affected"] is False


def test_other_shift(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    upstream.replace(PIPELINE, '"timestep_shift", 3.0', '"timestep_shift", 2.5')
    found = drift(package)
    assert {fact["fact"] for fact in found["facts"]} == {"answers.scheduler.shift", "detail.request.settings"}
    (fact,) = [fact for fact in found["facts"] if fact["fact"] == "answers.scheduler.shift"]
    assert (fact["fact"], fact["before"], fact["after"]) == ("answers.scheduler.shift", 3.0, 2.5)
    assert "schedule.shift" in fact["spec"]
    lines = {hunk["file"]: hunk for hunk in fact["lines"]}
    assert "SCHEDULE_SHIFT = 3.0" in lines[COMMON]["before"]
    assert "SCHEDULE_SHIFT = 2.5" in lines[COMMON]["after"]
    assert fact["effect"]


def test_lines_are_those_on_disk(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    upstream.replace(PIPELINE, '"timestep_shift", 3.0', '"timestep_shift", 2.5')
    path = package / COMMON
    text = path.read_text().splitlines()
    line = text.index("SCHEDULE_SHIFT = 3.0") + 1
    path.write_text("\n".join(["# mine"] * 7 + text) + "\n")
    hunk = next(h for h in drift(package)["facts"][0]["lines"] if h["file"] == COMMON)
    assert (hunk["line"], hunk["edited"]) == (line + 7, False)
    path.write_text("\n".join(["# mine"] * 7 + text).replace("SHIFT = 3.0", "SHIFT = 2.75") + "\n")
    hunk = next(h for h in drift(package)["facts"][0]["lines"] if h["file"] == COMMON)
    assert hunk["edited"] is True


def test_value_that_a_person_set_does_not_follow(
    upstream: Any, drift: Callable[..., dict[str, Any]], package: Path, scaffold_cli: Callable[..., Any]
) -> None:
    upstream.replace(PIPELINE, '"timestep_shift", 3.0', '"timestep_shift", 2.5')
    spec = package / "verl_omni/pipelines/toy_flow_grpo/scaffold.toml"
    spec.write_text(spec.read_text().replace("\nshift = 3.0 ", "\nshift = 1.5 "))
    scaffold_cli("update", package, "--spec").success()
    (fact,) = [fact for fact in drift(package)["facts"] if fact["fact"] == "answers.scheduler.shift"]
    assert fact["kept"] == ["schedule.shift"]
    assert fact["lines"] == []


def test_answer_that_no_template_renders(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    text = upstream.read(MODEL)
    assert text.count("scheduler.step(v_t.to(x_t.device),") > 0
    upstream.replace(MODEL, "scheduler.step(v_t.to(x_t.device),", "scheduler.step(-v_t.to(x_t.device),")
    found = drift(package)
    (fact,) = [fact for fact in found["facts"] if fact["fact"] == "answers.scheduler.negated"]
    assert "scheduler.negated is True" in fact["refused"]
    assert fact["effect"].startswith("nothing can be rendered any more: ")


def test_overridden_method_that_is_renamed(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    upstream.replace(PIPELINE, "    def load_weights(self", "    def take_weights(self")
    names = {(change["kind"], change["name"]): change for change in drift(package)["surface"]}
    gone = names["override", "BagelPipeline.load_weights"]
    assert gone["after"] is None
    assert gone["file"] == RUNTIME
    assert "def load_weights" in (package / RUNTIME).read_text().splitlines()[gone["line"] - 1]
    assert names["call", "super().load_weights"]["after"] is None


def test_signature_that_changes(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    upstream.replace(PIPELINE, "    def load_weights(self, weights", "    def load_weights(self, strict, weights")
    surface = {(change["kind"], change["name"]): change for change in drift(package)["surface"]}
    assert "strict" in surface["override", "BagelPipeline.load_weights"]["after"]
    assert surface["call", "super().load_weights"]["effect"] == "the call does not fit the signature"


def test_request_field_that_is_renamed(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    text = upstream.read(BATCH)
    assert "def sampling_params(" in text or "sampling_params:" in text
    for old in ("def sampling_params(", "sampling_params:"):
        if old in text:
            upstream.replace(BATCH, old, old.replace("sampling_params", "params"))
    surface = [change for change in drift(package)["surface"] if change["kind"] == "field"]
    assert {change["name"] for change in surface} == {"DiffusionRequestBatch.sampling_params"}
    (change,) = [change for change in surface if change["file"] == RUNTIME]
    assert "sampling_params" in (package / RUNTIME).read_text().splitlines()[change["line"] - 1]
    assert surface[0]["evidence"]["before"][0]["file"] == BATCH


def test_module_that_moves(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    upstream.replace(DATA, "class OmniDiffusionConfig", "class EngineConfig")
    found = drift(package)
    (change,) = [change for change in found["surface"] if change["kind"] == "import"]
    assert change["name"].endswith("data.OmniDiffusionConfig")
    assert change["effect"] == "importing the package fails"


def test_pipeline_that_is_gone(upstream: Any, drift: Callable[..., dict[str, Any]], package: Path) -> None:
    upstream.replace("vllm_omni/diffusion/registry.py", '"BagelPipeline"', '"OtherPipeline"')
    found = drift(package)
    assert "no pipeline 'BagelPipeline'" in found["gone"]
    assert found["affected"] is True


def test_file_that_does_not_parse_is_no_file_without_uses(scaffold_cli: Callable[..., Any], package: Path) -> None:
    broken = package / COMMON
    broken.write_text(broken.read_text() + "def (\n")
    options = ("--from", "0.27.0rc1", "--to", "0.28.0", "--package", package)
    line = scaffold_cli("drift", "BagelPipeline", *options).refusal(2)
    assert line.startswith(f"{COMMON}: does not parse as Python")
