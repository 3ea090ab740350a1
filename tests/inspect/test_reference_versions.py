"""The worked example on real wheels: the versions differ, the answers must show it."""

from __future__ import annotations

import pytest

from scaffold.inspect import Report, inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
VERSIONS = ("0.22.0", "0.24.0", "0.27.0rc1", "0.28.0", "0.30.0")
_reports: dict[str, Report] = {}


def report(version: str) -> Report:
    if version not in _reports:
        _reports[version] = inspect_pipeline(locate(version), "bagel")
    return _reports[version]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


def test_scheduler(version: str) -> None:
    answers = report(version).to_json()["answers"]["scheduler"]
    assert answers == {
        "class": None,
        "call": "scheduler.step",
        "arguments": ["model_output", "timestep", "sample", "dt"],
        "inline": False,
        "steps": "n" if version == "0.22.0" else "n-1",
        "direction": "descending",
        "shift": 3.0,
        "negated": False,
    }


def test_guidance(version: str) -> None:
    answers = report(version).to_json()["answers"]["cfg"]
    assert answers == {
        "branches": 3,
        "scales": {"cfg_text_scale": 4.0, "cfg_img_scale": 1.5},
        "interval": [0.4, 1.0],
        "renorm": ["text_channel", "global", "channel"],
        "execution": "sequential" if version == "0.22.0" else "packed",
    }


def test_prompt(version: str) -> None:
    answers = report(version).to_json()["answers"]["prompt"]
    assert answers["kind"] == ["text"]
    assert ("negative_prompt" in answers["prompt_keys"]) is (version not in ("0.22.0", "0.24.0"))
    assert {"prompt", "multi_modal_data", "modalities"} <= set(answers["prompt_keys"])
    assert {
        "cfg_text_scale", "cfg_img_scale", "cfg_interval", "cfg_renorm_type", "cfg_renorm_min", "timestep_shift",
        "negative_prompt", "think",
    } <= set(answers["extra_args"])  # fmt: skip
    assert {"height", "width", "num_inference_steps", "seed"} <= set(answers["sampling_params"])
    assert "guidance_scale" not in answers["sampling_params"]


def test_denoiser_and_layers(version: str) -> None:
    answers = report(version).to_json()["answers"]
    assert (answers["denoiser"]["class"], answers["denoiser"]["method"]) == ("Bagel", "forward")
    assert answers["denoiser"]["params"][:2] == ["x_t", "timestep"]
    assert answers["layers"] == {"classes": ["Qwen2MoTDecoderLayer"]}


def test_trajectory(version: str) -> None:
    answers = report(version).to_json()["answers"]["trajectory"]
    names = ("latents", "timesteps", "log_probs", "decoded")
    where = "trajectory_" if version in ("0.22.0", "0.24.0") else "output.payload.trajectory."
    assert answers == {"recorded": True, "fields": [where + name for name in names]}


def test_checkpoint(version: str) -> None:
    answers = report(version).to_json()["answers"]["checkpoint"]
    assert answers["files"] == ["*.safetensors"]
    renames = {tuple(r) for r in answers["renames"]}
    assert {("vae_model.", "vae."), ("encoder.", "vae.encoder."), ("vae2llm.", "bagel.vae2llm.")} <= renames
    stacked = {tuple(r) for r in answers["stacked"]}
    assert (".qkv_proj", ".v_proj", "v") in stacked
    if version == "0.22.0":
        assert (".qkv_proj_moe_gen", ".q_proj_moe_gen", "q") in stacked
        assert (".gate_up_proj", ".up_proj", 1) in stacked
    else:
        assert (".qkv_proj.gen_exp", ".q_proj_moe_gen", "q") in stacked
        assert (".o_proj_moe_gen.", ".o_proj.gen_exp.") in renames
        assert (".mlp.gate_up_proj", ".mlp.up_proj", 1) in stacked


def test_tokens_vae_latents(version: str) -> None:
    found = report(version)
    answers = found.to_json()["answers"]
    names = ["bos_token_id", "eos_token_id", "start_of_image", "end_of_image"]
    assert answers["tokens"] == {n: {"source": "tokenizer", "id": None} for n in names}
    texts = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    assert found.value("detail.tokens.text") == dict(zip(names, texts, strict=True))
    assert answers["vae"] == {"class": "DistributedAutoEncoder", "downsample": 8, "channels": 16}
    assert answers["latents"] == {"layout": "(h w) (p q c) -> c (h p) (w q)"}


def test_details(version: str) -> None:
    value = report(version).value
    request = "OmniDiffusionRequest" if version == "0.22.0" else "DiffusionRequestBatch"
    assert value("detail.request.class") == request
    assert value("detail.config.class") == "OmniDiffusionConfig"
    assert value("detail.output.class") == "DiffusionOutput"
    assert value("detail.scheduler.attribute") == "scheduler"
    assert value("detail.scheduler.kwargs_attribute") == "scheduler_kwargs"
    assert value("detail.scheduler.sample_rank") == 2
    assert value("detail.cfg.formula") == "u+s(c-u)"
    assert value("detail.cfg.interval_rule") == "lo < sigma <= hi"
    assert value("detail.cfg.epsilon") == 1e-8
    assert {p["name"]: p["default"] for p in value("detail.cfg.parameters")} == {
        "cfg_text_scale": 4.0,
        "cfg_img_scale": 1.5,
        "cfg_interval": [0.4, 1.0],
        "cfg_renorm_type": "global",
        "cfg_renorm_min": 0.0,
    }
    assert (value("detail.prompt.begin_token"), value("detail.prompt.end_token")) == ("bos_token_id", "eos_token_id")
    assert value("detail.prompt.add_special_tokens") is False
    assert value("detail.negative.kind") == "empty"
    assert value("detail.layers.activation") == "silu"
    assert value("detail.timestep.max_period") == 10000.0
    assert value("detail.timestep.scale") == 1.0
    assert value("detail.timestep.order") == ["cos", "sin"]
    assert value("detail.position.attribute") == "latent_pos_embed"
    assert value("detail.rope.image_position") == "text_length"
    assert value("detail.sequence") == ["text", "start_of_image", "latents", "end_of_image"]
    assert value("detail.text_attention") == "causal"
    assert value("detail.step_execution") is (version == "0.30.0")
    files = value("detail.config_files")
    assert files["config.json"]["keys"]["vae_config.z_channels"] == 16
    assert files["config.json"]["keys"]["latent_patch_size"] == 2
    assert files["config.json"]["keys"]["max_latent_size"] == 32
    assert files["llm_config.json"]["class"] == "Qwen2MoTConfig"


def test_every_answer_has_evidence_in_a_real_line(version: str) -> None:
    source = locate(version)
    shown = inspect_pipeline(source, "BagelPipeline").to_json()
    assert shown["verdict"]["path"] == "non_diffusers"
    assert shown["upstream"] == {
        "version": version,
        "pipeline": "BagelPipeline",
        "module": "vllm_omni.diffusion.models.bagel.pipeline_bagel",
        "registry_keys": ["BagelPipeline"],
    }
    known = {key for key, sure in shown["confidence"].items() if sure != "unknown"}
    for key in known:
        places = shown["evidence"][key]
        assert places, key
        for place in places:
            lines = source.read(place["file"]).splitlines()
            assert 0 < place["line"] <= len(lines), (key, place)
            assert lines[place["line"] - 1].strip(), (key, place)
    assert set(shown["confidence"]) == set(shown["evidence"])
    assert not [key for key in set(shown["confidence"]) - known if not key.startswith("details.")]


def test_evidence_of_the_shift_is_the_request_default_not_the_checkpoints() -> None:
    fact = report("0.27.0rc1").fact("scheduler.shift")
    line = locate("0.27.0rc1").read(fact.evidence[0].file).splitlines()[fact.evidence[0].line - 1]
    assert 'get("timestep_shift", 3.0)' in line
