"""Partial packages in the loops of the real pipelines: what the rollout records, training makes again.

One process builds all pipelines at a tiny size with random weights; a case is a module of ``loops/``.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import kit_root
from scaffold.grade import specify
from scaffold.grade.decide import specify_ported
from scaffold.grade.models_page import model_name
from scaffold.grade.proof import TOLERANCE, agreements
from scaffold.inspect import inspect_pipeline
from scaffold.new import render_package
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate
from tests.engine_worker import answers, engine_version_is_there

pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.upstream, pytest.mark.xdist_group("real loops")]
VERSION = "0.30.0"
HERE = Path(__file__).resolve().parent
CASES = sorted(path.stem for path in (HERE / "loops").glob("*.py"))
ROLLED = sorted(path.stem for path in (HERE / "rolled").glob("*.py"))
HALF = ("anima", "omnigen2")
# Of each kind one; the others are of `make rollout-table`.
KINDS = ("anima", "auk", "lingbot_video", "longcat_avatar", "ming_flash", "omnigen2", "pi0")
RECORDING, NODES, CALLS, TAPE, TRAINING = (
    f"flow_grpo_runtime/{name}.py" for name in ("recording", "values", "calls", "tape_play", "training")
)

LOOP = "sana_wm_loop.py"


def literals(path: Path) -> Mapping[str, Any]:
    """Constants of a case, which imports what is not installed here."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("PIPELINE", "EULER")
    }


PIPELINES = {
    case: literals(HERE / folder / f"{case}.py")["PIPELINE"]
    for folder, cases in (("loops", CASES), ("rolled", ROLLED))
    for case in cases
}

# Mistake: file, text, what takes its place, and what is said or measured then.
MISTAKES = {
    "training with another formula": (
        TAPE,
        'frame = record["programs"][number]',
        'frame = {**record["programs"][number], "sign": -record["programs"][number]["sign"]}',
        None,
    ),
    "another schedule": (
        RECORDING,
        "self.levels.append(following if following > NEAR else 0.0)",
        "self.levels.append(0.99 * following)",
        "goes from noise level",
    ),
    "branches exchanged": (
        TRAINING,
        "calls.velocity(module(calls=calls)[0].float())",
        "calls.velocity(module(calls=calls)[0].float().flip(0))",
        None,
    ),
    "the time of another step": (
        NODES,
        "value_at(content[step], 0, latents)",
        "value_at(content[0], 0, latents)",
        None,
    ),
    "latents that are not the recorded ones": (
        RECORDING,
        "output = StepOutput(moved.to(torch.promote_types",
        "output = StepOutput(2 * moved.to(torch.promote_types",
        "changes the latents",
    ),
}
# The same where the update of the loop is replaced, in a pipeline whose first frame is given.
MISTAKEN_UPDATES = {
    "a first frame that takes part": (
        CALLS,
        "[step.free for step in steps]",
        "[None for step in steps]",
        "what is given has a step",
    ),
}


@cache
def rendered(pipeline: str) -> tuple[Any, Any, Any]:
    """Files of a pipeline's package, its spec, and the port; mistakes are made in copies."""
    source = locate(VERSION)
    names = derive_names(model_name(pipeline))
    request = SpecRequest(inspect_pipeline(source, pipeline), names, default_profile())
    graded = specify(request, source)
    if graded.port is None:  # composed of shared blocks where a preset knows the model; its loop is one of a kind
        graded = specify_ported(request, source, "asked for")
    assert graded.port is not None
    return (*render_package(graded.spec, [], None, graded.port), graded.port)


def task(
    case: str, folder: Path, *, dtype: str = "float32", mistake: str | None = None, rolled: bool = False
) -> dict[str, Any]:
    """Render a case's package into a folder of its own and say how to run it."""
    cases = HERE / ("rolled" if rolled else "loops")
    files, spec, port = rendered(literals(cases / f"{case}.py")["PIPELINE"])
    tree = folder / f"{case}-{dtype}-{mistake or 'whole'}".replace(" ", "-").replace("'", "")
    for path, file in files.items():
        if path.startswith("verl_omni/"):
            text = file.content
            if mistake is not None and path.endswith("/" + {**MISTAKES, **MISTAKEN_UPDATES}[mistake][0]):
                _, before, after, _ = {**MISTAKES, **MISTAKEN_UPDATES}[mistake]
                assert text.count(before) == 1, (mistake, text.count(before))
                text = text.replace(before, after)
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text, encoding="utf-8")
    return {
        "root": str(HERE.parents[1]),
        "helpers": str(HERE.parent / "port"),
        "kit": str(kit_root()),
        "profile": "main",
        "cases": str(cases),
        "rolled": rolled,
        "denoisers": str(HERE.parent / "port" / "cases"),
        "case": case,
        "name": mistake or case,
        "dtype": dtype,
        "tree": str(tree),
        "package": f"verl_omni.pipelines.{spec.value('names.package')}",
        "model": spec.value("names.model"),
        "module": spec.value("names.module_class"),
        "fused": [dataclasses.asdict(entry) for entry in port.fused],
    }


def measured(tasks: list[dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """Run tasks in one process of the environment; results by their names."""
    engine_version_is_there(VERSION)
    return answers(VERSION, HERE / "loop_worker.py", tasks, folder, name="name")


@cache
def results(names: tuple[str, ...], dtype: str = "float32") -> dict[str, dict[str, Any]]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return measured([task(case, Path(folder), dtype=dtype) for case in names], Path(folder))


def in_float32(case: str) -> dict[str, Any]:
    """Return the result of a case, measured with all that run when it does."""
    return results(tuple(name for name in CASES if (name in KINDS) == (case in KINDS)))[case]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in KINDS else pytest.mark.rollout_table) for case in CASES]
)
def test_training_makes_the_recorded_steps_again(case: str) -> None:
    found = in_float32(case)
    assert "error" not in found, f"{found.get('error')}\n" + "\n".join(found.get("at", []))
    for name, steps in (("whole", found["taken"]), ("window", 2), ("cps", found["taken"])):
        run = found[name]
        assert run["finite"], name
        assert run["shape"][:2] == [2, steps + 1], name  # prompts of 6 and of 4 tokens in one micro-batch
        assert run["log_prob"] <= 1e-6, name
        assert run["formula"] <= 1e-6, name
        assert run["gradients"] > 20 * steps, name
        assert abs(run["moved"] - found["free"]) < 1e-3, name
    assert found["steps_differ"] > 0.1  # noise was added
    if found["euler"]:
        assert found["without_noise"] <= 1e-6
    else:
        assert 1e-3 < found["without_noise"] < 0.5  # a solver of higher order, which a stochastic step replaces


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[] if case in (*KINDS, *ROLLED) else pytest.mark.rollout_table)
        for case, key in PIPELINES.items()
        if key in agreements()[VERSION]
    ],
)
def test_what_docs_models_says_of_a_loop_is_measured(case: str) -> None:
    recorded = agreements()[VERSION][PIPELINES[case]]
    found = rolled()[case] if case in ROLLED else in_float32(case)
    log_prob = max(found[name]["log_prob"] for name in ("whole", "window", "cps"))
    assert found["without_noise"] <= recorded.loop + TOLERANCE
    assert log_prob <= recorded.log_prob + TOLERANCE


@pytest.mark.parametrize("case", HALF)
def test_log_probs_agree_in_half_precision(case: str) -> None:
    """The pipeline rounds its latents and combines its branches in bfloat16; trajectory and velocity stay float32."""
    found = results(HALF, "bfloat16")[case]
    assert "error" not in found, f"{found.get('error')}\n" + "\n".join(found.get("at", []))
    assert max(found[name]["log_prob"] for name in ("whole", "window", "cps")) <= 1e-6
    assert found["without_noise"] <= 0.05


@cache
def rolled() -> dict[str, dict[str, Any]]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return measured([task(case, Path(folder), rolled=True) for case in ROLLED], Path(folder))


@pytest.mark.parametrize("case", ROLLED)
def test_the_rollout_records_the_steps_of_the_real_loop(case: str) -> None:
    """Around a prediction that is written down: loops of pipelines that cannot be trained yet."""
    found = rolled()[case]
    assert "error" not in found, f"{found.get('error')}\n" + "\n".join(found.get("at", []))
    assert found["without_noise"] <= 1e-6
    for name, steps in (("whole", 5), ("window", 2), ("cps", 5)):
        run = found[name]
        assert run["shape"][:2] == [1, steps + 1], name
        assert run["levels"] <= 1e-6, name
        assert run["log_prob"] <= 1e-6, name
        assert run["differ"] > 0.05, name


@cache
def mistaken() -> dict[str, dict[str, Any]]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        tasks = [task("omnigen2", Path(folder), mistake=name) for name in MISTAKES]
        tasks += [task("sana_wm", Path(folder), mistake=name) for name in MISTAKEN_UPDATES]
        return measured(tasks, Path(folder))


@pytest.mark.parametrize("mistake", [*MISTAKES, *MISTAKEN_UPDATES])
def test_a_mistake_is_seen(mistake: str) -> None:
    found = mistaken()[mistake]
    said = {**MISTAKES, **MISTAKEN_UPDATES}[mistake][3]
    if said is None:
        assert "error" not in found, found
        assert found["whole"]["log_prob"] > 1e-4
    else:
        assert said in found.get("error", ""), found
