"""The noise levels of rendered packages are those of the pipelines' own schedulers, to the last bit."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaffold.files.resources import templates_root
from scaffold.grade.models_page import model_name
from scaffold.grade.ported_spec import build_ported_spec
from scaffold.grade.rendering import scheduler_text
from scaffold.inspect import inspect_pipeline
from scaffold.render import derive_names
from scaffold.render.environment import Sources, environment, render_template
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate
from scaffold.verify.rollout.environment import find_environment

pytestmark = pytest.mark.upstream
FOLDER = "verl_omni/pipelines/_package_"
CHILD = Path(__file__).with_name("real_schedules.py")
FILES = (
    "vllm_omni/diffusion/models/schedulers/base.py",
    "vllm_omni/diffusion/models/schedulers/scheduling_flow_unipc_multistep.py",
    "vllm_omni/diffusion/models/schedulers/scheduling_flow_match_euler_discrete.py",
    "vllm_omni/diffusion/models/omnigen2/pipeline_omnigen2.py",
    "vllm_omni/diffusion/models/boogu_image/scheduling_flow_match_euler_discrete_time_shifting.py",
    "vllm_omni/diffusion/models/mammoth_moda2/schedulers.py",
)
# Settings of checkpoints; None is a checkpoint without the file.
SCHEDULERS: dict[str, list[dict[str, Any] | None]] = {
    "OmniGen2Pipeline": [{"dynamic_time_shift": True}, {"dynamic_time_shift": False, "num_train_timesteps": 1000}],
    "BooguImagePipeline": [
        {},
        {"time_shift_version": "v1", "base_shift": 0.4},
        {"do_shift": False},
        {"dynamic_time_shift": False, "seq_len": 4096, "time_shift_v2_half_scaling_factor": 20.0},
    ],
    "LingBotVideoPipeline": [{}, {"shift": 5.0, "num_train_timesteps": 1000}],
    "AnimaPipeline": [None, {"shift": 2.5}, {}],
    "MingImageDiffusionPipeline": [
        {"use_dynamic_shifting": True},
        {"use_dynamic_shifting": True, "time_shift_type": "linear", "max_shift": 1.5},
        {"shift": 3.0},
    ],
    # It switches the shift by the image's size on, whatever the file says.
    "MingImagePipeline": [{}, {"use_dynamic_shifting": False, "base_shift": 0.6, "max_shift": 1.3}],
    "LongCatVideoAvatarPipeline": [{}, {"shift": 7.0}],
}
NAMED = {"HunyuanImage3ForCausalMM": ("generation_config.json", [{"flow_shift": 3.0}, {"flow_shift": 7.5}])}
NAMED["AuKPipeline"] = ("config.json", [{}, {"defaults": {"sway": -0.5}}, {"defaults": {"nfe": 16}}])
ESTABLISHED = {
    "0.30.0": [
        "OmniGen2Pipeline", "BooguImagePipeline", "MammothModa2DiTPipeline", "WanS2VPipeline", "LingBotVideoPipeline",
        "SanaWmPipeline", "AnimaPipeline", "HunyuanImage3ForCausalMM", "MingImageDiffusionPipeline", "AuKPipeline",
        "Pi0Pipeline", "Pi05Pipeline", "LancePipeline", "MingImagePipeline",
        "LongCatVideoAvatarPipeline",
    ],
    "0.27.0rc1": ["OmniGen2Pipeline", "BooguImagePipeline", "WanS2VPipeline", "LingBotVideoPipeline"],
    "0.22.0": ["OmniGen2Pipeline", "WanS2VPipeline"],
}  # fmt: skip


@cache
def _package(version: str, key: str) -> dict[str, str]:
    """The files that the schedule is in; the denoiser is not ported for it."""
    source = locate(version)
    request = SpecRequest(inspect_pipeline(source, key), derive_names(model_name(key)), default_profile())
    spec = build_ported_spec(request, None, None, "no denoiser", source).as_written()
    assert spec.value("schedule.established") is True
    sources = Sources(templates_root())
    context = {**spec.context(), "ported": {"source": None, "scheduler": scheduler_text(spec, None)}}
    names = {"common.py": "common.ported.py", f"{model_name(key)}_schedule.py": "_model__schedule.ported.py"}
    return {
        name: render_template(environment(sources), sources, f"{FOLDER}/{template}.jinja", context)
        for name, template in names.items()
    }


def _lay_out(folder: Path, version: str) -> None:
    source = locate(version)
    for file in FILES:
        if source.exists(file):
            target = folder / "sources" / file.replace("/", "__")
            target.parent.mkdir(exist_ok=True)
            target.write_text(source.read(file), encoding="utf-8")
    for key in ESTABLISHED[version]:
        package = folder / "packages" / key
        package.mkdir(parents=True)
        for name, text in _package(version, key).items():
            (package / name).write_text(text, encoding="utf-8")
        name, settings = NAMED.get(key, ("scheduler/scheduler_config.json", SCHEDULERS.get(key, [None])))
        for number, setting in enumerate(settings):
            checkpoint = folder / "checkpoints" / f"{key}.{number}"
            checkpoint.mkdir(parents=True)
            if setting is not None:
                (checkpoint / name).parent.mkdir(exist_ok=True)
                (checkpoint / name).write_text(json.dumps(setting), encoding="utf-8")


Run = Callable[..., subprocess.CompletedProcess[str]]


def _compare(run: Run, folder: Path, version: str, environment: dict[str, str]) -> dict[str, Any]:
    done = run([CHILD, folder, version], env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "version", [pytest.param(v, marks=pytest.mark.table if v == "0.27.0rc1" else []) for v in ESTABLISHED]
)
def test_levels_are_those_of_the_real_schedulers(
    version: str, tmp_path: Path, kit_environment: Callable[..., dict[str, str]], warm_python: Run
) -> None:
    _lay_out(tmp_path, version)
    found = find_environment(version)

    def of_the_engine(arguments: list[Any], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        assert not isinstance(found, str)
        command = [str(found.python), *map(str, arguments)]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)

    for run in [warm_python] if isinstance(found, str) else [warm_python, of_the_engine]:
        outcome = _compare(run, tmp_path, version, kit_environment())
        assert sorted(outcome) == sorted(ESTABLISHED[version])
        for name, result in outcome.items():
            assert result["wrong"] == [], name
            assert result["compared"] >= 18, name


def test_the_comparison_sees_another_shift(
    tmp_path: Path, kit_environment: Callable[..., dict[str, str]], warm_python: Run
) -> None:
    _lay_out(tmp_path, "0.22.0")
    common = tmp_path / "packages" / "WanS2VPipeline" / "common.py"
    text = common.read_text(encoding="utf-8")
    assert "shift=3.0" in text
    common.write_text(text.replace("shift=3.0", "shift=3.0001"), encoding="utf-8")
    shutil.rmtree(tmp_path / "packages" / "OmniGen2Pipeline")
    outcome = _compare(warm_python, tmp_path, "0.22.0", kit_environment())
    assert outcome["WanS2VPipeline"]["wrong"]
