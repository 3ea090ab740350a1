"""The real vllm-omni on a CPU: the reference passes, broken copies of it fail where they should."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.upstream import DEFAULT_VERSION
from scaffold.verify.result import CheckResult
from scaffold.verify.rollout.environment import BOOT, Environment, find_environment
from scaffold.verify.rollout.pins import packaged_versions
from tests.real_rollout import OF_CHECKOUTS, OF_COMPOSED, OF_HAND, OF_OTHERS, PERHAPS, assert_passes, is_found, rolled

# In one worker: each that runs an engine of this version imports it.
pytestmark = [pytest.mark.rollout, pytest.mark.slow, pytest.mark.xdist_group("engine 0.27.0rc1")]
VERSION = "0.27.0rc1"


def environment(version: str) -> Environment:
    found = find_environment(version)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def verify(package: Path, version: str = VERSION, *select: str) -> dict[str, CheckResult]:
    return rolled(package, version, *select)


def failing(results: dict[str, CheckResult]) -> dict[str, str]:
    return {name: f"{result.value} {result.reason}" for name, result in results.items() if result.status != "pass"}


@pytest.fixture
def package(reference: Path) -> Path:
    return next(reference.glob("verl_omni/pipelines/*/scaffold.toml")).parent


EACH_VERSION = [
    pytest.param(v, marks=[] if v == DEFAULT_VERSION else pytest.mark.rollout_table) for v in packaged_versions()
]


@pytest.mark.parametrize("version", EACH_VERSION)
def test_reference_passes_every_check(package: Path, version: str) -> None:
    results = verify(package, version)
    assert_passes(results, version, "BagelPipeline")
    for name, result in results.items():
        if name.endswith("-log-prob") and "bf16" not in name and name not in OF_OTHERS:
            assert result.series is not None
            assert len(result.series["rollout log-prob"]) == len(result.series["training log-prob"]) > 1
            assert result.series["rollout log-prob"] == pytest.approx(result.series["training log-prob"], abs=1e-6)


@pytest.mark.parametrize("version", EACH_VERSION)
def test_plugin_leaves_the_choice_of_platform_alone_unless_asked(version: str) -> None:
    code = f"""
import runpy
boot = runpy.run_path({str(BOOT)!r})
boot["introduce"]("scaffold", boot["ROOT"])
from scaffold.verify.rollout.engine_side.settings import declare_torchvision_operators
declare_torchvision_operators()
import os
import vllm_omni.platforms
for asked in ("", "1"):
    os.environ.pop("OMNI_SCAFFOLD_ROLLOUT_ON_CPU", None)
    if asked:
        os.environ["OMNI_SCAFFOLD_ROLLOUT_ON_CPU"] = asked
    print("PLATFORM", vllm_omni.platforms.resolve_current_omni_platform_cls_qualname())
"""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMNI_SCAFFOLD", "PYTHON"))}
    done = subprocess.run(
        [str(environment(version).python), "-W", "ignore", "-c", code],
        env={**plain, "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    chosen = [line.rpartition(".")[2] for line in done.stdout.splitlines() if line.startswith("PLATFORM ")]
    assert chosen == ["UnspecifiedOmniPlatform", "CpuPlatform"]


TRAINING, ROLLOUT, MODEL = "diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py", "bagel_model.py"
SENT = """            if name.startswith("transformer."):
                name = to_checkpoint_key("""
DROPPED = 'name.startswith("transformer.") and ".mlp_moe_gen." in name'
LENGTHS = "        lengths = mask.sum(dim=1).tolist()\n"
SHORTER = "        mask = mask & (torch.arange(mask.shape[1]) < mask.sum(dim=1, keepdim=True) - 1)\n"
# One copy may hold several bugs: each must be found by the checks that are meant for it, and by no other.
COPIES = {
    "bugs that show in their own scenario": (
        (
            (MODEL, "            first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)\n", ""),
            (ROLLOUT, "torch.stack(self._log_probs, dim=1)", "torch.stack(self._log_probs, dim=1)[:, begin:end]"),
            (ROLLOUT, "if modules and not super().load_weights(", "if not modules and not super().load_weights("),
            (ROLLOUT, 'generator=extra_args.get("generator")', "generator=torch.Generator().manual_seed(0)"),
            (
                ROLLOUT,
                SENT,
                SENT.replace("if ", f"if {DROPPED}:\n                continue\n            if "),
            ),
            (ROLLOUT, "(window or (0, count)) if noise_level > 0.0 else (0, 0)", "window or (0, count)"),
            (ROLLOUT, "if noise_level > 0.0 and not 0 <=", "if not 0 <="),
        ),
        (
            "rollout-window-alignment",
            "rollout-validation",
            "rollout-ragged-log-prob",
            "rollout-ragged-velocity",
            "rollout-independent-noise",
            "rollout-weight-sync-log-prob",
            "rollout-weight-sync-velocity",
            "rollout-lora-log-prob",
            "rollout-lora-velocity",
        ),
        ("rollout-sde-log-prob", "rollout-sde-velocity", "rollout-control-end-token", "rollout-control-stale-lora"),
    ),
    "guidance written twice and drifted": (
        (
            (
                TRAINING,
                "resolve_guidance({name: getattr(model_config.pipeline, name, None) for name in CFG_DEFAULTS})",
                'resolve_guidance({name: getattr(model_config.pipeline, name, {"cfg_text_scale": 3.0}.get(name))'
                " for name in CFG_DEFAULTS})",
            ),
        ),
        ("rollout-sde-log-prob", "rollout-sde-velocity", "rollout-ragged-log-prob"),
        ("rollout-guidance-given-log-prob", "rollout-guidance-off-log-prob", "rollout-control-reversed-prompt"),
    ),
    "the end token cut off in training": (
        ((TRAINING, LENGTHS, SHORTER + LENGTHS),),
        ("rollout-sde-log-prob", "rollout-native-prompt-log-prob", "rollout-guidance-off-velocity"),
        ("rollout-window-alignment", "rollout-independent-noise"),
    ),
    "one step more in the rollout than in training": (
        (
            (
                ROLLOUT,
                "        output = super().forward(req)\n",
                "        params.num_inference_steps = requested_steps + 1\n        output = super().forward(req)\n",
            ),
        ),
        ("rollout-sde-log-prob", "rollout-sde-velocity", "rollout-window-alignment"),
        (),
    ),
    "latents handed to training in bfloat16": (
        ((ROLLOUT, "self._latents.append(prev_sample)", "self._latents.append(prev_sample.bfloat16().float())"),),
        ("rollout-sde-log-prob",),
        ("rollout-window-alignment",),
    ),
    "noise outside of the window": (
        (
            (
                ROLLOUT,
                'self._options if inside else {**self._options, "noise_level": 0.0, "return_logprobs": False}',
                "self._options",
            ),
        ),
        ("rollout-window-noise",),
        ("rollout-window-alignment",),
    ),
    "the trajectory in the precision of the model": (
        ((ROLLOUT, "self._latents.append(prev_sample)", "self._latents.append(prev_sample.to(model_output.dtype))"),),
        ("rollout-bf16-recorded",),
        ("rollout-bf16-tables", "rollout-bf16-velocity"),
    ),
    "a branch that only half precision takes": (
        (
            (
                TRAINING,
                '        if guidance["cfg_text_scale"] > 1.0:\n',
                '        if guidance["cfg_text_scale"] > 1.0 and next(module.parameters()).dtype == torch.float32:\n',
            ),
        ),
        ("rollout-bf16-log-prob", "rollout-bf16-velocity"),
        ("rollout-sde-log-prob",),
    ),
}


@pytest.fixture
def broken(self_contained: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that edits a copy of the self-contained package; an anchor that is not there is an error."""

    def make(edits: tuple[tuple[str, str, str], ...]) -> Path:
        shutil.copytree(self_contained, tmp_path / "copy")
        folder = next((tmp_path / "copy").glob("verl_omni/pipelines/*/scaffold.toml")).parent
        for file, anchor, text in edits:
            source = (folder / file).read_text(encoding="utf-8")
            assert source.count(anchor) == 1, f"{file} has {source.count(anchor)} times {anchor!r}"
            (folder / file).write_text(source.replace(anchor, text), encoding="utf-8")
        return folder

    return make


# What they fail, other copies fail too.
FURTHER = {"guidance written twice and drifted", "latents handed to training in bfloat16"}


def test_further_copies_fail_nothing_of_their_own() -> None:
    shown = {check for name, (_, fails, _) in COPIES.items() if name not in FURTHER for check in fails}
    assert shown >= {check for name in FURTHER for check in COPIES[name][1]}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rollout_table] * (name in FURTHER)) for name in COPIES]
)
def test_broken_copies_fail_where_they_should(name: str, broken: Callable[..., Path]) -> None:
    environment(VERSION)
    edits, fails, passes = COPIES[name]
    results = verify(broken(edits), VERSION, *fails, *passes)
    assert results[fails[0]].status == "fail", failing(results)
    assert {name for name, result in results.items() if is_found(result)} == set(fails), failing(results)
    assert {name for name, result in results.items() if result.status == "pass"} == set(passes), failing(results)
    if name.startswith("one step more"):
        assert "training" in results["rollout-sde-log-prob"].reason


@pytest.mark.parametrize("version", [VERSION])
def test_hand_written_package_fails_only_where_it_is_wrong(version: str) -> None:
    """The integration in a checkout of verl-omni main, on the real verl-omni."""
    checkout = os.environ.get("VERL_OMNI_SRC")
    if not checkout:
        pytest.skip("VERL_OMNI_SRC names no checkout of verl-omni")
    package = Path(checkout) / "verl_omni" / "pipelines" / "bagel_flow_grpo"
    results = verify(package, version)
    assert "real verl_omni" in results["rollout-engine-float32"].reason
    # Its training recomputes nothing that was recorded, its rollout records no velocity and makes one image at a time.
    skipped = {name for name, result in results.items() if result.status == "skip"}
    together = {name for name in results if name.startswith("rollout-together-")}
    assert skipped == {*OF_OTHERS, *OF_HAND, *OF_COMPOSED, *PERHAPS, "rollout-window-noise", *together}
    assert set(failing(results)) - skipped == {
        *OF_CHECKOUTS,  # it reads a column of the data set, which v1's rows have not
        "rollout-window-alignment",
        "rollout-validation",
        "rollout-window-log-prob",
        "rollout-ragged-log-prob",
        "rollout-ragged-velocity",
        "rollout-lora-log-prob",
        "rollout-lora-velocity",
    }
    assert "[1, 3): 2 steps with 1 log-probs" in results["rollout-window-alignment"].reason
    assert "binds 2 of 14" in results["rollout-lora-log-prob"].reason
    assert 0.1 < (results["rollout-ragged-velocity"].value or 0) < 1


PASSED = "pair[0].startswith('transformer.') and '.mlp_moe_gen.' in pair[0]"


@pytest.mark.rollout_table
def test_an_adapter_that_the_trainer_merges_reaches_the_rollout(
    rendered: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERL_OMNI_SRC", raising=False)  # a checkout of another release
    tree = shutil.copytree(rendered("bagel", "--profile", "v0.3.0", "--vllm-omni", VERSION), tmp_path / "tree")
    package = tree / "verl_omni/pipelines/bagel_flow_grpo"
    knobs = package / "scaffold.toml"
    knobs.write_text(knobs.read_text().replace("merge = false", "merge = true"))
    names = ("rollout-lora-log-prob", "rollout-lora-velocity", "rollout-control-stale-lora")
    results = verify(package, VERSION, *names)
    assert {results[name].status for name in names} == {"pass"}
    assert "2 pushes; 68 tensors, merged by the trainer" in results[names[0]].reason
    # Of merged weights some are passed over.
    loader = f"    def load_weights(self, weights):\n        kept = (pair for pair in weights if not ({PASSED}))\n"
    loader += "        return super().load_weights(kept)\n\n    def __init__(self"
    adapter = package / "vllm_omni_rollout_adapter.py"
    adapter.write_text(adapter.read_text().replace("    def __init__(self", loader, 1))
    assert is_found(verify(package, VERSION, *names)[names[0]])
