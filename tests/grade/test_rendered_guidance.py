"""Guidance and sign of rendered packages, computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import templates_root
from scaffold.grade import specify
from scaffold.grade.models_page import model_name
from scaffold.grade.ported_spec import build_ported_spec
from scaffold.grade.rendering import scheduler_text
from scaffold.inspect import inspect_pipeline
from scaffold.new import render_package
from scaffold.render import derive_names
from scaffold.render.environment import Sources, environment, render_template
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
FOLDER = "verl_omni/pipelines/_package_"
CHILD = """
import importlib, json, sys, types
import torch
package = types.ModuleType("rendered")
package.__path__ = [sys.argv[1]]
sys.modules["rendered"] = package
common = importlib.import_module("rendered.common")
c, u = torch.tensor([[[3.0, 4.0], [1.0, 0.0]]] * 2), torch.tensor([[[1.0, 0.0], [1.0, 1.0]]] * 2)
if len(sys.argv) > 3:
    u = torch.stack([u, torch.tensor([[[2.0, 2.0], [0.0, 4.0]]] * 2)])
given = common.resolve_guidance(json.loads(sys.argv[2]))
sigma = torch.tensor([0.9, 0.3])
print(json.dumps({
    "guided": common.guide(c, u, given, sigma=sigma, schedule=[0.9, 0.3]).tolist(),
    "alone": common.guide(c, None, given, sigma=sigma, schedule=[0.9, 0.3]).tolist(),
    "velocity": common.to_velocity(c).tolist(),
}))
"""
C, U = [[3.0, 4.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 1.0]]


@pytest.fixture
def computed(
    tmp_path: Path, kit_environment: Callable[..., Any], warm_python: Callable[..., Any]
) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a pipeline's rendered guidance on made-up predictions."""
    return lambda key, overrides, *more: _computed(warm_python, kit_environment(), tmp_path, key, overrides, *more)


def _computed(
    warm_python: Callable[..., Any], env: dict[str, str], folder: Path, key: str, overrides: dict[str, Any], *more: str
) -> dict[str, Any]:
    source = locate("0.30.0")
    request = SpecRequest(inspect_pipeline(source, key), derive_names(model_name(key)), default_profile())
    spec = build_ported_spec(request, None, None, "no denoiser", source).as_written()
    sources = Sources(templates_root())
    context = {**spec.context(), "ported": {"source": None, "scheduler": scheduler_text(spec, None)}}
    names = {"common.py": "common.ported.py", f"{model_name(key)}_schedule.py": "_model__schedule.ported.py"}
    for target, template in names.items():
        text = render_template(environment(sources), sources, f"{FOLDER}/{template}.jinja", context)
        (folder / target).write_text(text, encoding="utf-8")
    run = warm_python(["-c", CHILD, folder, json.dumps(overrides), *more], env=env)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


def mixed(weight_c: float, weight_u: float) -> list[list[float]]:
    return [[weight_c * c + weight_u * u for c, u in zip(*rows, strict=True)] for rows in zip(C, U, strict=True)]


@pytest.mark.parametrize(
    ("key", "scale", "expected", "sign"),
    [
        ("OmniGen2Pipeline", 3.0, mixed(3.0, -2.0), -1),  # u + s (c - u)
        ("AuKPipeline", 3.0, mixed(4.0, -3.0), -1),  # c + s (c - u)
        ("WanS2VPipeline", 2.0, mixed(2.0, -1.0), 1),
        ("BooguImagePipeline", 3.0, mixed(3.0, -2.0), -1),  # c + (s - 1) (c - u), while the branch runs
        ("MingImageDiffusionPipeline", 3.0, mixed(4.0, -3.0), -1),
        ("MingImagePipeline", 3.0, mixed(4.0, -3.0), -1),  # asked for as cfg first
        ("MammothModa2DiTPipeline", 3.0, mixed(3.0, -2.0), -1),  # lerp; asked for as text_guidance_scale first
    ],
)
def test_a_pair(
    computed: Callable[..., dict[str, Any]], key: str, scale: float, expected: list[Any], sign: int
) -> None:
    found = computed(key, {"guidance_scale": scale})
    assert found["guided"] == [expected, expected]
    assert found["alone"] == [C, C]
    assert found["velocity"] == [[[sign * value for value in row] for row in C]] * 2


def test_three_predictions(computed: Callable[..., dict[str, Any]]) -> None:
    """u + st (c - ut) + sa (ut - u), with u = U and ut = [[2, 2], [0, 4]]."""
    given = {"text_guidance_scale": 3.0, "audio_guidance_scale": 2.0}
    found = computed("LongCatVideoAvatarPipeline", given, "three")
    assert found["guided"] == [[[6.0, 10.0], [2.0, -5.0]]] * 2
    assert found["alone"] == [C, C]
    again = computed("LongCatVideoAvatarPipeline", {"guidance_scale": 3.0}, "three")
    assert again["guided"] == [mixed(3.0, -2.0)] * 2  # both scales are that one where they are not given


def test_an_interval_and_a_norm(computed: Callable[..., dict[str, Any]]) -> None:
    """Outside of (0.4, 1] the conditional prediction stays; inside the guided one gets at most its norm."""
    given = {"cfg_text_scale": 3.0, "cfg_img_scale": 1.0, "cfg_renorm_type": "global", "cfg_renorm_min": 0.0}
    found = computed("LancePipeline", given)
    guided = mixed(3.0, -2.0)
    norm, target = (sum(v * v for row in rows for v in row) ** 0.5 for rows in (guided, C))
    expected = [[value * target / norm for value in row] for row in guided]
    assert found["guided"][0] == [pytest.approx(row, rel=1e-5) for row in expected]
    assert found["guided"][1] == C
    assert found["velocity"] == [C, C]


ADAPTER = """
import importlib, json, sys, types
package = types.ModuleType("rendered")
package.__path__ = [sys.argv[1]]
sys.modules["rendered"] = package
from verl_omni.pipelines.flow_grpo_runtime.rollout import RecordedRollout, RolloutPlan
params = types.SimpleNamespace(**json.loads(sys.argv[2]))
plan = RolloutPlan(common=importlib.import_module("rendered.common"))
guidance = RecordedRollout._set_guidance(types.SimpleNamespace(rollout_plan=plan), params, {})
print(json.dumps([vars(params), guidance]))
"""


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [
        # The second name alone decides whether the branch runs.
        (
            "AnimaPipeline",
            {"true_cfg_scale": 3.0, "guidance_scale": 1.0},
            {"true_cfg_scale": 3.0, "guidance_scale": 3.0},
        ),
        (
            "AnimaPipeline",
            {"true_cfg_scale": None, "guidance_scale": 2.0},
            {"true_cfg_scale": 2.0, "guidance_scale": 2.0},
        ),
        # Two settings that share a name are asked for by their own.
        (
            "LongCatVideoAvatarPipeline",
            {"text_guidance_scale": 3.0, "audio_guidance_scale": 2.0, "guidance_scale": 5.0},
            {"text_guidance_scale": 3.0, "audio_guidance_scale": 2.0, "guidance_scale": 5.0},
        ),
    ],
)
def test_the_rollout_gets_the_values_under_every_name(
    tmp_path: Path,
    kit_environment: Callable[..., Any],
    warm_python: Callable[..., Any],
    key: str,
    given: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    source = locate("0.30.0")
    request = SpecRequest(inspect_pipeline(source, key), derive_names(model_name(key)), default_profile())
    graded = specify(request, source)
    files, _ = render_package(graded.spec, [], None, graded.port)
    for path, file in files.items():
        if path.endswith(("/common.py", "_schedule.py")):
            (tmp_path / path.rpartition("/")[2]).write_text(file.content or "", encoding="utf-8")
    flags = {f"{name}_provided": value is not None for name, value in given.items()}
    run = warm_python(["-c", ADAPTER, tmp_path, json.dumps({**given, **flags})], env=kit_environment())
    assert run.returncode == 0, run.stderr[-2000:]
    params, guidance = json.loads(run.stdout)
    assert {name: params[name] for name in expected} == expected
    assert guidance.items() <= expected.items()
