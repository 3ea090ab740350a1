"""A pipeline that updates its sample itself, upwards in time, and predicts the clean image: rendered and run."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pixel_checkpoint import HEAD, write_checkpoint

from scaffold.spec import IntegrationSpec, read_spec

pytestmark = pytest.mark.upstream
VERSIONS = ("0.27.0rc1", pytest.param("0.28.0", marks=pytest.mark.table), "0.30.0")
PACKAGE = "verl_omni/pipelines/sensenova_u1_flow_grpo"


def spec_of(tree: Path) -> IntegrationSpec:
    return read_spec(tree / PACKAGE / "scaffold.toml").spec


def functions(path: Path) -> dict[str, str]:
    """Every function and method of a file by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("version", VERSIONS)
def test_conventions_come_from_the_source(sensenova: Callable[..., Path], version: str) -> None:
    spec = spec_of(sensenova(version))
    expected = {
        "upstream.scheduler_attribute": "sde_scheduler",
        "upstream.time": "1 - sigma",
        "upstream.output_sign": -1,
        "upstream.default_seed": 42,
        "upstream.input_module": "fm_modules.vision_model_mot_gen",
        "upstream.sample_rank": 3,
        "schedule.direction": "ascending",
        "schedule.shift": 3.0,
        "schedule.steps": "n",
        "architecture.prediction": "clean",
        "architecture.velocity_floor": 0.02,
        "architecture.latent_input": "patches",
        "architecture.latent_output": "mlp",
        "architecture.head_intermediate_size": HEAD,
        "architecture.experts": "_mot_gen",
        "architecture.norm_parts": ["", "_hw"],
        "cfg.interval_rule": "lo <= sigma <= hi",
        "cfg.renorms": ["global", "channel"],
        "prompt.negative_text": "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<img>",
        "prompt.suffix": "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n<img>",
        "latents.patch": 8,
        "lora.sync": "adapter",
    }
    assert {key: spec.value(key) for key in expected} == expected
    assert str(spec.value("prompt.prefix")).startswith("<|im_start|>system\n")
    assert {"t_eps": 0.02, "think": False, "batch_size": 1}.items() <= spec.value("upstream.pinned").items()
    cited = (
        "upstream.output_sign",
        "upstream.ported",
        "architecture.velocity_floor",
        "prompt.prefix",
        "prompt.negative_text",
        "upstream.default_seed",
    )
    for key in cited:
        assert "fact " in spec.provenance[key], key


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_update_of_the_loop_is_replaced(sensenova: Callable[..., Path], version: str) -> None:
    from scaffold.upstream import locate

    tree = sensenova(version)
    source = locate(version)
    upstream = source.tree("vllm_omni/diffusion/models/sensenova_u1/pipeline_sensenova_u1.py")
    (original,) = (
        ast.unparse(node)
        for node in ast.walk(upstream)
        if isinstance(node, ast.FunctionDef) and node.name == "_run_denoising_loop"
    )
    ported = functions(tree / PACKAGE / "vllm_omni_rollout_adapter.py")["_run_denoising_loop"]
    before, after = original.splitlines(), ported.splitlines()
    taken = [line.strip() for line in before if line not in after]
    added = [line.strip() for line in after if line not in before]
    assert taken == ["t_next = ns.timesteps[step_i + 1]", "z = z + (t_next - t) * v_pred"]
    assert added == ["z = self.sde_scheduler.step(v_pred, t, z).prev_sample"]


@pytest.mark.parametrize("version", VERSIONS)
def test_check_has_nothing_to_say(
    sensenova: Callable[..., Path], scaffold_cli: Callable[..., Any], version: str
) -> None:
    assert "All checks passed" in scaffold_cli("check", sensenova(version)).success()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "version", "plain"),
    [
        ("main", "0.30.0", False),
        ("main", "0.30.0", True),
        pytest.param("v0.2.0", "0.24.0", False, marks=pytest.mark.table),
        ("v0.1.0", "0.22.0", False),
    ],
)
def test_its_own_tests_pass(
    sensenova: Callable[..., Path],
    kit_environment: Callable[..., Any],
    warm_python: Callable[..., Any],
    profile: str,
    version: str,
    plain: bool,
) -> None:
    tree = sensenova(version, profile, plain)
    done = warm_python(
        ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/pipelines"],
        cwd=tree,
        env=kit_environment(tree, OMNI_SCAFFOLD_KIT_PROFILE=profile),
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


CONTRACTS = (
    "forward",
    "inputs-matter",
    "padding-invariance",
    "cfg-branches",
    "cfg-formula",
    "cfg-settings",
    "prompt-ids",
    "prompt-preprocessor",
    "config-round-trip",
    "sde-step",
    "rollout-log-probs",
    "window-alignment",
    "float32-kept",
    "loading",
)


@pytest.mark.parametrize("version", [pytest.param("0.27.0rc1", marks=pytest.mark.slow), "0.30.0"])
def test_contracts_hold(warm: None, sensenova: Callable[..., Path], version: str) -> None:
    from scaffold.verify.run import verify

    found = verify(sensenova(version) / PACKAGE, select=CONTRACTS)
    assert {result.id: result.status for result in found.checks} == dict.fromkeys(CONTRACTS, "pass"), found.checks


def test_a_sign_that_is_wrong_is_seen(warm: None, sensenova: Callable[..., Path], tmp_path: Path) -> None:
    import shutil

    from scaffold.verify.run import verify

    tree = shutil.copytree(sensenova(), tmp_path / "tree", symlinks=True)
    adapter = tree / PACKAGE / "vllm_omni_rollout_adapter.py"
    text = adapter.read_text(encoding="utf-8")
    assert text.count("taken(-model_output") == 1
    adapter.write_text(text.replace("taken(-model_output", "taken(model_output"))
    found = verify(tree / PACKAGE, select=("rollout-log-probs", "registration"))
    assert {result.id: result.status for result in found.checks} == {
        "rollout-log-probs": "fail",
        "registration": "pass",
    }


def test_noise_that_follows_the_image_is_rendered_where_the_configuration_asks(sensenova: Callable[..., Path]) -> None:
    ruled, plain = spec_of(sensenova()), spec_of(sensenova(plain=True))
    assert ruled.value("architecture.noise_rule")["embedder"] == "noise_scale_embedder"
    assert ruled.value("architecture.noise_rule")["fields"] == {
        "noise_scale": 1.0,
        "noise_mode": "resolution",
        "noise_base_tokens": 64,
        "noise_limit": 8.0,
    }
    assert plain.value("architecture.noise_rule") is None
    fixed = {entry["path"]: entry["value"] for entry in plain.value("checkpoint.fixed_config")}
    assert fixed == {
        "use_pixel_head": False,
        "add_noise_scale_embedding": False,
        "noise_scale_mode": "none",
        "noise_scale": 1.0,
    }


def test_without_a_checkpoint_sizes_are_those_of_the_released_one(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    told = scaffold_cli("new", "sensenova_u1", "--vllm-omni", "0.30.0", "--patch", "--out", tmp_path / "out").success()
    assert "complete" in told
    spec = read_spec(tmp_path / "out" / PACKAGE / "scaffold.toml").spec
    assert spec.value("architecture.hidden_size") == 4096
    assert spec.provenance["architecture.hidden_size"].startswith("manifest sensenova-u1-8b-mot")
    assert spec.value("architecture.noise_rule") is not None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"use_pixel_head": True}, "use_pixel_head is True: no template renders a convolutional pixel head"),
        ({"noise_scale_mode": "cubic"}, "noise_scale_mode is 'cubic'"),
        ({"add_noise_scale_embedding": False}, "add_noise_scale_embedding is False, but the checkpoint has a"),
    ],
)
def test_a_part_that_no_template_renders_is_named(
    scaffold_cli: Callable[..., Any], tmp_path: Path, config: dict[str, Any], reason: str
) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", config=config)
    flags = ("--vllm-omni", "0.30.0", "--checkpoint", checkpoint, "--patch", "--out", tmp_path / "out")
    told = " ".join(scaffold_cli("new", "sensenova_u1", *flags).success().split())
    assert "partial" in told
    assert reason in told


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        ({"fm_modules.fm_head.0.weight": None}, {}, "fm_head"),
        ({"fm_modules.vision_model_mot_gen.embeddings.dense_embedding.weight": (64, 25, 2, 2)}, {}, "does not feed"),
        ({"fm_modules.timestep_embedder.mlp.2.bias": None}, {}, "timestep_embedder"),
        ({}, {"vision_config.patch_size": 8}, "downsample_ratio"),
        ({}, {"llm_config.head_dim": 32}, "32 wide"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(
    scaffold_cli: Callable[..., Any], tmp_path: Path, change: Any, config: Any, message: str
) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", change, config)
    flags = ("--vllm-omni", "0.30.0", "--checkpoint", checkpoint, "--patch", "--out", tmp_path / "out")
    assert message in scaffold_cli("new", "sensenova_u1", *flags).refusal()
