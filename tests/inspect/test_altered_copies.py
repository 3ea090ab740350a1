"""The answers follow the source: nothing is recognised by a name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from altered import MODEL, PIPELINE, REGISTRY, Copy

from scaffold.inspect import Report, inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
STEP = "scheduler.step(v_t.to(x_t.device), timesteps[i], x_t, dts[i], **_sched_kw)"
SHIFTED = "timesteps = timestep_shift * timesteps / (1 + (timestep_shift - 1) * timesteps)"
COUNT = "else num_timesteps\n"
KWARGS, KEPT = "scheduler_kwargs: dict | None = None,", "scheduler_kwargs=self.scheduler_kwargs,"
HEUN = "FlowMatchHeunDiscreteScheduler"


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(locate("0.27.0rc1"), tmp_path / "copy")


def look(copy: Copy, pipeline: str = "bagel") -> Report:
    return inspect_pipeline(copy.source(), pipeline)


def test_unaltered_copy_answers_like_the_wheel(copy: Copy) -> None:
    assert look(copy).to_json()["answers"] == inspect_pipeline(locate("0.27.0rc1"), "bagel").to_json()["answers"]


# What is altered: file, text, text in its place; and what is found then.
Edits = list[tuple[str, str, str]]
ALTERED: dict[str, tuple[Edits, dict[str, Any]]] = {
    "another default shift": (
        [(PIPELINE, '"timestep_shift", 3.0', '"timestep_shift", 5.5')],
        {"scheduler.shift": 5.5},
    ),
    "shift in a module constant": (
        [
            (PIPELINE, '"timestep_shift", 3.0', '"timestep_shift", FLOW_SHIFT'),
            (PIPELINE, "logger = init_logger(__name__)", "logger = init_logger(__name__)\nFLOW_SHIFT = 2.25"),
        ],
        {"scheduler.shift": 2.25},
    ),
    "shift formula written another way": (
        [(MODEL, SHIFTED, "timesteps = 1.0 / (1.0 + (1.0 / timesteps - 1.0) / timestep_shift)")],
        {"scheduler.shift": 3.0},
    ),
    "other guidance defaults": (
        [
            (PIPELINE, '"cfg_text_scale", 4.0', '"cfg_text_scale", 6.25'),
            (PIPELINE, '"cfg_img_scale", 1.5', '"cfg_img_scale", 1.75'),
            (PIPELINE, '"cfg_interval", (0.4, 1.0)', '"cfg_interval", (0.1, 0.9)'),
        ],
        {"cfg.scales": {"cfg_text_scale": 6.25, "cfg_img_scale": 1.75}, "cfg.interval": [0.1, 0.9]},
    ),
    "open interval": (
        [(MODEL, "t > cfg_interval[0] and t <= cfg_interval[1]", "cfg_interval[0] <= t < cfg_interval[1]")],
        {"detail.cfg.interval_rule": "lo <= sigma < hi"},
    ),
    "another guidance formula": (
        [
            (MODEL, f"{u} + {s} * ({c} - {u})", f"{c} + ({s} - 1.0) * ({c} - {u})")
            for u, s, c in (
                ("cfg_text_v_t", "cfg_text_scale", "v_t"),
                ("cfg_img_v_t", "cfg_img_scale", "v_t_text_"),
                ("cfg_img_v_t", "cfg_img_scale", "v_t_text"),
            )
        ],
        {"detail.cfg.formula": "c+(s-1)(c-u)", "cfg.branches": 3},
    ),
    "three arguments of the step": (
        [(MODEL, STEP, "scheduler.step(v_t.to(x_t.device), timesteps[i], x_t, **_sched_kw)")],
        {"scheduler.arguments": ["model_output", "timestep", "sample"]},
    ),
    "generator as fourth argument": (
        [
            (MODEL, STEP, "scheduler.step(v_t, timesteps[i], x_t, generator, **_sched_kw)"),
            (MODEL, KWARGS, f"{KWARGS}\n        generator=None,"),
            (PIPELINE, KEPT, f"{KEPT}\n                generator=req.sampling_params.generator,"),
        ],
        {"scheduler.arguments": ["model_output", "timestep", "sample", "generator"]},
    ),
    "arguments in another order": (
        [(MODEL, STEP, "scheduler.step(x_t, v_t, t=timesteps[i], **_sched_kw)")],
        {"scheduler.arguments": ["sample", "model_output", "timestep"]},
    ),
    "scheduler method and attribute renamed": (
        [(MODEL, "scheduler.step(", "scheduler.advance("), (PIPELINE, "self.scheduler", "self.sampler")],
        {"scheduler.call": "sampler.advance", "detail.scheduler.attribute": "sampler"},
    ),
    "scheduler object made by the pipeline": (
        [
            (PIPELINE, "self.scheduler: object | None = None", f"self.scheduler = {HEUN}(shift=2.0)"),
            (PIPELINE, "from PIL import Image\n", f"from PIL import Image\nfrom diffusers import {HEUN}\n"),
        ],
        {"scheduler.class": HEUN},
    ),
    "no scheduler object at all": (
        [(PIPELINE, "                scheduler=self.scheduler,\n", "")],
        {
            "scheduler.inline": True,
            "scheduler.call": None,
            "scheduler.steps": "n-1",
            "scheduler.shift": None,
            "verdict.path": "non_diffusers",
        },
    ),
    "negated prediction": (
        [(MODEL, STEP, "scheduler.step(-v_t, timesteps[i], x_t, dts[i], **_sched_kw)")],
        {"scheduler.negated": True},
    ),
    "one point more": ([(MODEL, COUNT, "else num_timesteps + 1\n")], {"scheduler.steps": "n"}),
    "two points more": ([(MODEL, COUNT, "else num_timesteps + 2\n")], {"scheduler.steps": "n+1"}),
    "one point less": ([(MODEL, COUNT, "else num_timesteps - 1\n")], {"scheduler.steps": "n-2"}),
    "an extra step by default": (
        [(MODEL, "_denoise_schedule_extra_step: bool = False", "_denoise_schedule_extra_step: bool = True")],
        {"scheduler.steps": "n"},
    ),
    "rising times": (
        [(MODEL, "torch.linspace(1, 0,", "torch.linspace(0, 1,")],
        {"scheduler.direction": "ascending"},
    ),
    "loop called through its class": (
        [(PIPELINE, "= self.bagel.generate_image(", "= Bagel.generate_image(\n                self.bagel,")],
        {"scheduler.call": "scheduler.step"},
    ),
    "latent sizes": (
        [(PIPELINE, '"z_channels", 16', '"z_channels", 48'), (PIPELINE, '"downsample", 8', '"downsample", 16')],
        {"vae.channels": 48, "vae.downsample": 16},
    ),
    "latent layout": (
        [
            (PIPELINE, "latent.reshape(1, h, w, p, p, c)", "latent.reshape(1, h, w, c, p, p)"),
            (PIPELINE, '"nhwpqc->nchpwq"', '"nhwcpq->nchpwq"'),
        ],
        {"latents.layout": "(h w) (c p q) -> c (h p) (w q)"},
    ),
    "trajectory not returned": (
        [(PIPELINE, '            payload["trajectory"] = trajectory_payload\n', "            pass\n")],
        {"trajectory.recorded": False, "trajectory.fields": []},
    ),
    "negative prompt that is always encoded": (
        [(PIPELINE, "            if neg_prompt:\n", "            if True:\n")],
        {"detail.negative.kind": None},
    ),
    "positions that start at zero": (
        [(MODEL, "_ids.extend([curr_position_id] * (num_image", "_ids.extend([0] * (num_image")],
        {"detail.rope.image_position": "zero"},
    ),
    "scaled time": (
        [(MODEL, "self.time_embedder(timestep)", "self.time_embedder(timestep * 1000)")],
        {"detail.timestep.scale": 1000.0},
    ),
}


@pytest.mark.parametrize(("edits", "answers"), ALTERED.values(), ids=list(ALTERED))
def test_answers_follow_an_edit(copy: Copy, edits: Edits, answers: dict[str, Any]) -> None:
    for edit in edits:
        copy.replace(*edit)
    found = look(copy)
    assert {key: found.value(key) for key in answers} == answers


def test_shift_from_the_dataclass_default(copy: Copy) -> None:
    copy.rewrite(PIPELINE, lambda t: re.sub(r"\n\s+timestep_shift=float\(extra_args.*\),", "", t, count=1))
    copy.replace(PIPELINE, "timestep_shift: float = 3.0", "timestep_shift: float = 4.5")
    assert look(copy).value("scheduler.shift") == 4.5


def test_schedule_that_is_no_shift_is_unknown(copy: Copy) -> None:
    copy.replace(MODEL, SHIFTED, "timesteps = timesteps**timestep_shift")
    found = look(copy).fact("scheduler.shift")
    assert (found.value, found.confidence) == (None, "unknown")


def test_other_extra_argument_names(copy: Copy) -> None:
    copy.replace(PIPELINE, 'extra_args.get("cfg_text_scale"', 'extra_args.get("pull"')
    found = look(copy)
    assert found.value("cfg.scales") == {"pull": 4.0, "cfg_img_scale": 1.5}
    assert "pull" in found.value("prompt.extra_args")


def test_other_token_texts(copy: Copy) -> None:
    copy.replace(PIPELINE, "<|vision_start|>", "<|picture|>")
    assert look(copy).value("detail.tokens.text")["start_of_image"] == "<|picture|>"


def test_token_id_written_out(copy: Copy) -> None:
    copy.replace(PIPELINE, 'tokenizer.convert_tokens_to_ids("<|vision_end|>")', "151700")
    tokens = look(copy).value("tokens")
    assert tokens["end_of_image"] == {"source": "literal", "id": 151700}
    assert tokens["start_of_image"] == {"source": "tokenizer", "id": None}


def test_token_id_from_the_config(copy: Copy) -> None:
    copy.replace(
        PIPELINE,
        "self.tokenizer, self.new_token_ids, _ = add_special_tokens(self.tokenizer)",
        "self.tokenizer, self.new_token_ids, _ = add_special_tokens(self.tokenizer)\n"
        '        self.new_token_ids["end_of_image"] = int(bagel_cfg.get("end_of_image_id", 7))',
    )
    assert look(copy).value("tokens")["end_of_image"] == {"source": "config", "id": 7}


def test_steps_of_the_older_version(tmp_path: Path) -> None:
    copy = Copy(locate("0.22.0"), tmp_path / "copy")
    copy.replace(MODEL, "torch.linspace(1, 0, num_timesteps + 1", "torch.linspace(1, 0, num_timesteps")
    assert look(copy).value("scheduler.steps") == "n-1"


def test_loop_in_a_parent_class_of_another_module(copy: Copy) -> None:
    copy.move_methods(
        MODEL, "Bagel", ("generate_image", "_generate_image_parallel", "_combine_cfg", "prepare_input"),
        "FlowSampler", MODEL.replace("bagel_transformer", "sampling_base"),
    )  # fmt: skip
    found = look(copy)
    before = inspect_pipeline(locate("0.27.0rc1"), "bagel").to_json()["answers"]
    assert found.to_json()["answers"] == before
    assert found.fact("scheduler.call").evidence[0].file.endswith("sampling_base.py")


def test_everything_renamed(copy: Copy) -> None:
    names = {
        "BagelPipeline": "GondolaPipeline",
        "Bagel": "Gondola",
        "BagelGenParams": "Knobs",
        "BagelMLP": "Feed",
        "Qwen2MoTDecoderLayer": "TwinBlock",
        "Qwen2MoTForCausalLM": "TwinHead",
        "Qwen2MoTModel": "TwinTrunk",
        "PackedAttentionMoT": "TwinAttention",
        "generate_image": "paint",
        "prepare_prompts": "ids_of",
        "prepare_vae_latent": "blank",
        "prepare_input": "blank_parts",
        "_combine_cfg": "_mix",
        "add_special_tokens": "name_tokens",
        "num_timesteps": "count",
        "timestep_shift": "bend",
        "x_t": "canvas",
        "v_t": "push",
        "dts": "gaps",
        "timesteps": "moments",
        "bagel": "gondola",
        "TimestepEmbedder": "Clock",
        "PositionEmbedding": "Grid",
    }
    # The library's keyword keeps its name.
    copy.replace(MODEL, "tokenizer.encode(prompt, add_special_tokens=False)", "tokenizer.encode(prompt, **NO_SPECIAL)")
    copy.rename_words(names, (PIPELINE, MODEL))
    copy.rename_words({"BagelPipeline": "GondolaPipeline"}, (REGISTRY,))
    copy.replace(MODEL, "**NO_SPECIAL", "add_special_tokens=False")
    copy.rewrite(
        PIPELINE,
        lambda t: t.replace("vllm.transformers_utils.configs.gondola", "vllm.transformers_utils.configs.bagel"),
    )
    copy.rewrite(PIPELINE, lambda t: t.replace("from .bagel_transformer", "from .core"))
    for old, new in (
        (PIPELINE, "pipe.py"),
        (MODEL, "core.py"),
        ("vllm_omni/diffusion/models/bagel/autoencoder.py", "autoencoder.py"),
    ):
        copy.write(f"vllm_omni/diffusion/models/gondola/{new}", copy.read(old))
    copy.rewrite(REGISTRY, lambda t: t.replace('"bagel",\n        "pipeline_bagel",', '"gondola",\n        "pipe",'))
    found = look(copy, "gondola")
    answers = found.to_json()["answers"]
    assert answers["denoiser"]["class"] == "Gondola"
    assert answers["layers"]["classes"] == ["TwinBlock"]
    assert answers["scheduler"] == {
        "class": None,
        "call": "scheduler.step",
        "arguments": ["model_output", "timestep", "sample", "dt"],
        "inline": False,
        "steps": "n-1",
        "direction": "descending",
        "shift": 3.0,
        "negated": False,
    }
    assert answers["cfg"]["branches"] == 3
    assert answers["cfg"]["execution"] == "packed"
    assert answers["vae"] == {"class": "DistributedAutoEncoder", "downsample": 8, "channels": 16}
    assert set(answers["tokens"]) == {"bos_token_id", "eos_token_id", "start_of_image", "end_of_image"}


def test_denoiser_method_renamed(copy: Copy) -> None:
    def change(text: str) -> str:
        text = text.replace("v_t = self.forward(", "v_t = self.velocity(")
        head, tail = text.split("class Bagel(CFGParallelMixin", 1)
        return head + "class Bagel(CFGParallelMixin" + tail.replace("    def forward(\n", "    def velocity(\n", 1)

    copy.rewrite(MODEL, change)
    found = look(copy)
    assert found.value("denoiser.method") == "velocity"
    assert (found.value("cfg.branches"), found.value("cfg.execution")) == (3, "packed")


def test_another_position_in_the_checkpoint(copy: Copy) -> None:
    copy.replace(PIPELINE, 'for pfx in ("time_embedder.",', 'for pfx in ("clock.",')
    renames = [tuple(r) for r in look(copy).value("checkpoint.renames")]
    assert ("clock.", "bagel.clock.") in renames
    assert ("time_embedder.", "bagel.time_embedder.") not in renames


def test_stacked_table_moved_to_the_class(copy: Copy) -> None:
    copy.replace(MODEL, '(".mlp.gate_up_proj", ".mlp.up_proj", 1),', '(".mlp.gate_up_proj", ".mlp.raise_proj", 1),')
    stacked = [tuple(r) for r in look(copy).value("checkpoint.stacked")]
    assert (".mlp.gate_up_proj", ".mlp.raise_proj", 1) in stacked


def test_no_denoising_loop_is_refused(copy: Copy) -> None:
    stub = "\n    def generate_image(self, **kwargs):\n        return [], None, None, None\n"
    loop = re.compile(r"\n    def generate_image\(.*?(?=\n    @staticmethod\n    def _combine_cfg)", re.DOTALL)
    copy.rewrite(MODEL, lambda text: loop.sub(stub, text))
    found = look(copy)
    assert found.verdict["path"] == "refused"
    assert found.fact("verdict.path").evidence
    assert found.value("scheduler.steps") is None
