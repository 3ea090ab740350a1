"""Each known bug, put into a copy of the reference package, fails the contract that is meant for it.

A case names the contracts that must fail; ``consequences`` may, and every other contract asked must pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scaffold.verify.catalogue import catalogue

MODEL, COMMON = "{model}_model.py", "common.py"
TRAINING, ROLLOUT = "diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py"
DATA = "../../../examples/flowgrpo_trainer/data_process/{model}_ocr.py"
BEFORE_OUTPUT = "        return (self.llm2vae("
# Asked in every case beside those that must fail, so that a contract that fails on everything shows.
OTHERS = ("determinism", "padding-invariance", "config-round-trip", "window-per-rank")


@dataclass(frozen=True)
class Bug:
    """An edit that puts a bug in.

    Attributes:
        pitfall: number in the list of known bugs; None for a mistake that is not on it.
        edits: file, anchor, new text.
        fails: contracts that must fail.
        consequences: contracts that may fail or skip too.
    """

    pitfall: int | None
    name: str
    edits: tuple[tuple[str, str, str], ...]
    fails: tuple[str, ...]
    consequences: tuple[str, ...] = ()
    spec_edits: tuple[tuple[str, str], ...] = ()


BUGS = (
    Bug(
        1,
        "image tokens at the padded length",
        ((MODEL, "            first = text_mask.sum(dim=1, keepdim=True, dtype=torch.float32)\n", ""),),
        ("padding-invariance",),
    ),
    Bug(
        2,
        "log-probs cut by the window again",
        (
            (
                ROLLOUT,
                "torch.stack(self._log_probs, dim=1)",
                "torch.stack(self._log_probs[begin:end] or [torch.zeros(1)], dim=1)",
            ),
        ),
        ("window-alignment",),
    ),
    Bug(
        3,
        "checkpoint loaded without strictness",
        (
            (MODEL, "        check_state(model.state_dict(), state, model_path)\n", ""),
            (MODEL, "strict=True, assign=True", "strict=False, assign=True"),
        ),
        ("loading",),
    ),
    Bug(
        4,
        "model built in memory before it is loaded",
        (
            (
                MODEL,
                '        with torch.device("meta"):\n            model = cls(config)\n',
                "        model = cls(config)\n",
            ),
            (MODEL, "strict=True, assign=True", "strict=True"),
        ),
        ("loading-memory",),
    ),
    Bug(
        5,
        "one step more in the rollout",
        (
            (
                ROLLOUT,
                "            num_inference_steps=requested_steps,\n",
                "            num_inference_steps=requested_steps + 1,\n",
            ),
            (
                ROLLOUT,
                "        output = super().forward(req)\n",
                "        params.num_inference_steps = requested_steps + 1\n        output = super().forward(req)\n",
            ),
        ),
        ("schedule-diffusers-0.38.0",),
    ),
    Bug(
        6,
        "log-probs of another shape in the rollout",
        ((ROLLOUT, "torch.stack(self._log_probs, dim=1)", "torch.stack(self._log_probs, dim=0)"),),
        ("rollout-log-probs", "window-alignment"),
    ),
    Bug(
        6,
        "log-prob of another shape in training",
        (
            (
                TRAINING,
                "        return log_prob, prev_sample_mean",
                "        return log_prob[:, None], prev_sample_mean",
            ),
        ),
        ("sde-step",),
        ("rollout-log-probs", "window-alignment", "padding-invariance", "float32-kept"),
    ),
    Bug(
        7,
        "normaliser on one side",
        ((TRAINING, "include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER", "include_logprob_normalizer=True"),),
        ("rollout-log-probs",),
    ),
    Bug(
        8,
        "padded keys attended to",
        ((MODEL, "            self.key_mask = F.pad(text_mask, (0, 2 + latent_length), value=True)\n", ""),),
        ("padding-invariance",),
    ),
    Bug(
        10,
        "gradient checkpointing claimed and not used",
        ((MODEL, "self._checkpointed_call(layer, context, latents, layout)", "layer(context, latents, layout)"),),
        ("gradient-checkpointing",),
    ),
    Bug(
        10,
        "gradient checkpointing without gradients",
        (
            (
                MODEL,
                "self._checkpointed_call(layer, context, latents, layout)",
                "(self._gradient_checkpointing_func or torch.nn.Module.__call__)(layer, context, latents, layout)",
            ),
        ),
        ("checkpointing-under-no-grad",),
        ("gradient-checkpointing", "lora-learns"),
    ),
    Bug(
        11,
        "adapters switched off in the first layer only",
        (
            (
                MODEL,
                "    def add_adapter(self, adapter_config",
                "    def disable_adapters(self) -> None:\n"
                "        for module in self.layers[0].modules():\n"
                '            if hasattr(module, "enable_adapters"):\n'
                "                module.enable_adapters(False)\n\n"
                "    def add_adapter(self, adapter_config",
            ),
        ),
        ("lora-switch",),
    ),
    Bug(
        12,
        "dropout in train mode",
        (
            (
                MODEL,
                "        return (self.llm2vae(",
                "        latents = F.dropout(latents, 0.1, self.training)\n        return (self.llm2vae(",
            ),
        ),
        ("train-mode",),
        ("gradient-checkpointing",),
    ),
    Bug(
        13,
        "latents recorded in bf16",
        ((ROLLOUT, "self._latents.append(prev_sample)", "self._latents.append(prev_sample.bfloat16().float())"),),
        ("window-alignment", "rollout-log-probs"),
    ),
    Bug(
        13,
        "scheduler fed bf16",
        ((ROLLOUT, "model_output.float()[None]", "model_output[None]"),),
        ("float32-kept",),
    ),
    Bug(
        15,
        "window drawn for each request",
        ((COMMON, 'random.Random(int(os.environ["LOCAL_RANK"])).randint', "random.randint"),),
        ("window-per-rank",),
    ),
    Bug(
        16,
        "one noise for all",
        (
            (
                ROLLOUT,
                "            generator=self._generator,\n",
                "            generator=torch.Generator().manual_seed(0),\n",
            ),
        ),
        ("rollout-noise",),
    ),
    Bug(
        17,
        "global generator reseeded",
        (
            (
                ROLLOUT,
                "        output = super().forward(req)\n",
                "        torch.manual_seed(0)\n        output = super().forward(req)\n",
            ),
        ),
        ("rollout-noise",),
    ),
    Bug(
        18,
        "LoRA target that no module has",
        (),
        ("lora-targets",),
        spec_edits=(
            ('    "q_proj_moe_gen",\n    "k_proj_moe_gen",', '    "q_projection_moe_gen",\n    "k_proj_moe_gen",'),
        ),
    ),
    Bug(
        19,
        "B cut off from the loss",
        ((MODEL, "self.lora_B[name].weight.t()", "self.lora_B[name].weight.t().detach()"),),
        ("lora-learns",),
        ("fsdp2-gloo",),
    ),
    Bug(
        22,
        "parameter that nothing fills",
        (
            (
                MODEL,
                "        self.norm = RMSNorm(hidden, config.rms_norm_eps)\n",
                "        self.norm = RMSNorm(hidden, config.rms_norm_eps)\n"
                "        self.spare_moe_gen = nn.Parameter(torch.ones(hidden))\n",
            ),
        ),
        ("trainable-parameters",),
    ),
    Bug(
        26,
        "two architecture strings",
        ((ROLLOUT, '@VllmOmniPipelineBase.register("Omni', '@VllmOmniPipelineBase.register("Other'),),
        ("registration",),
    ),
    Bug(
        27,
        "key that forward does not take",
        ((TRAINING, '"latent_pos_ids": cls', '"position_ids": cls'),),
        ("input-keys", "forward"),
        OTHERS,
    ),
    Bug(
        29,
        "scale written twice",
        ((TRAINING, 'guidance["cfg_text_scale"] * (conditional', "3.0 * (conditional"),),
        ("cfg-formula", "cfg-settings"),
    ),
    Bug(
        31,
        "prompt stripped of its quotes in the rollout",
        ((ROLLOUT, "        return decoded.strip()\n", '        return decoded.strip().replace(\'"\', "")\n'),),
        ("prompt-ids",),
    ),
    Bug(
        32,
        "layer class that does not exist",
        ((MODEL, '_no_split_modules = ["', '_no_split_modules = ["Old'),),
        ("layer-prefixes", "fsdp2-gloo"),
    ),
    Bug(
        34,
        "weight read past LoRA",
        (
            (
                MODEL,
                "self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))",
                "F.linear(F.silu(self.gate_proj(x)) * self.up_proj(x), self.down_proj.weight)",
            ),
        ),
        ("lora-learns",),
        ("fsdp2-gloo",),
    ),
    Bug(
        36,
        "configuration saved without a field",
        (
            (MODEL, "            rope_theta=_required(text", "            rope_theta=2 * _required(text"),
            (
                MODEL,
                "{_CONFIG_MARK: type(self).__name__, **asdict(self)}",
                'asdict(self) | {"llm_config": asdict(self)}',
            ),
        ),
        ("config-round-trip",),
        ("weights-round-trip", "loading", "loading-memory"),
    ),
    Bug(
        39,
        "bare tensor",
        (
            (
                MODEL,
                "return (self.llm2vae(self.norm_moe_gen(latents)),)",
                "return self.llm2vae(self.norm_moe_gen(latents))",
            ),
        ),
        ("forward",),
        ("padding-invariance", "lora-learns", "sde-step"),
    ),
    Bug(
        40,
        "adapter with state",
        ((TRAINING, "    @classmethod\n    def build_scheduler(cls, ", "    def build_scheduler(cls, "),),
        ("signatures",),
    ),
    Bug(
        41,
        "interval of another type",
        (
            (
                COMMON,
                'values["cfg_interval"] = (float(interval[0]), float(interval[1]))',
                'values["cfg_interval"] = interval',
            ),
        ),
        ("cfg-settings",),
    ),
    Bug(
        42,
        "host synchronisation",
        (
            (
                MODEL,
                "        features = timestep_features",
                "        assert timestep.abs().max().item() >= 0\n        features = timestep_features",
            ),
        ),
        ("host-synchronisation",),
    ),
    Bug(
        43,
        "ids cut at the maximum length",
        (
            (
                DATA,
                "    if len(ids) > max_length:\n        raise",
                "    ids = ids[:max_length]\n    if len(ids) > max_length:\n        raise",
            ),
        ),
        ("prompt-preprocessor",),
    ),
    Bug(
        None,
        "noise inside the model",
        ((MODEL, BEFORE_OUTPUT, "        latents = latents + 1e-3 * torch.randn_like(latents)\n" + BEFORE_OUTPUT),),
        ("determinism",),
        OTHERS,
    ),
    Bug(
        None,
        "samples of a batch mixed",
        (
            (
                MODEL,
                BEFORE_OUTPUT,
                "        latents = latents - 0.1 * latents.mean(dim=0, keepdim=True)\n" + BEFORE_OUTPUT,
            ),
        ),
        ("batch-equals-singles",),
        ("padding-invariance",),
    ),
    Bug(
        None,
        "prompt in the unconditional branch",
        (
            (
                TRAINING,
                '"text_token_ids": None, "text_attention_mask": None}',
                '"text_token_ids": ids, "text_attention_mask": mask}',
            ),
        ),
        ("cfg-branches",),
    ),
    Bug(
        None,
        "place of a latent forgotten",
        (
            (
                MODEL,
                "(latents + self.latent_pos_embed(latent_pos_ids))",
                "(latents + 0 * self.latent_pos_embed(latent_pos_ids))",
            ),
        ),
        ("inputs-matter",),
    ),
    Bug(
        None,
        "adapter that scales the base",
        (
            (
                MODEL,
                "        return out.unflatten(0, x.shape[:-1])\n",
                "        return 1.001 * out.unflatten(0, x.shape[:-1])\n",
            ),
        ),
        ("lora-starts-at-base",),
    ),
    Bug(
        None,
        "adapter whose weights are not loaded",
        (
            (
                MODEL,
                "    def add_adapter(self, adapter_config",
                '    def load_lora_adapter(self, adapter_path, adapter_name="default"):\n'
                "        self.add_adapter(LoraConfig.from_pretrained(adapter_path), adapter_name)\n\n"
                "    def add_adapter(self, adapter_config",
            ),
        ),
        ("lora-save-load",),
    ),
    Bug(
        None,
        "weights saved in half precision",
        ((MODEL, "tensor.contiguous()", "tensor.half().float().contiguous()"),),
        ("weights-round-trip",),
    ),
    Bug(
        35,
        "weight of a layer read outside of it",
        (
            (
                MODEL,
                BEFORE_OUTPUT,
                "        latents = latents + self.layers[0].mlp.up_proj.weight.sum()\n" + BEFORE_OUTPUT,
            ),
        ),
        ("fsdp2-gloo",),
    ),
    Bug(
        None,
        "another function once distributed",
        (
            (
                MODEL,
                BEFORE_OUTPUT,
                "        if torch.distributed.is_initialized():\n            latents = latents.cos()\n" + BEFORE_OUTPUT,
            ),
        ),
        ("fsdp2-gloo",),
    ),
    Bug(
        None,
        "one container of prompt ids forgotten",
        (
            (
                TRAINING,
                "return column.unbind() if column.is_nested or column.ndim == 2 else [column]",
                "return column.unbind()",
            ),
        ),
        ("prompt-containers",),
    ),
    Bug(
        7,
        "noise level of the request ignored",
        ((ROLLOUT, 'self._options = {"noise_level": noise_level,', 'self._options = {"noise_level": 0.7,'),),
        ("rollout-log-probs",),
    ),
    Bug(
        29,
        "scale of the request ignored",
        (
            (
                ROLLOUT,
                "resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS})",
                "resolve_guidance({})",
            ),
        ),
        ("cfg-settings",),
    ),
    Bug(
        None,
        "renorm that scales up",
        ((TRAINING, ".clamp(min=minimum, max=1.0)", ".clamp(min=minimum)"),),
        ("cfg-formula",),
    ),
    Bug(
        None,
        "interval closed at its low end",
        ((TRAINING, "(sigma > low)", "(sigma >= low)"),),
        ("cfg-formula",),
    ),
    Bug(
        None,
        "first sample decides about guidance",
        ((TRAINING, "torch.where(active.view(-1, 1, 1), guided", "torch.where(active[0], guided"),),
        ("step-per-sample",),
    ),
    Bug(
        None,
        "first sample's noise level for all",
        (
            (
                TRAINING,
                "            timestep=timesteps[:, step],\n            prev_sample",
                "            timestep=timesteps[:1, step].expand(len(timesteps)),\n            prev_sample",
            ),
        ),
        ("step-per-sample",),
    ),
    Bug(
        None,
        "unconditional branch without gradient",
        ((TRAINING, "guide(velocity, unconditional, ", "guide(velocity, unconditional.detach(), "),),
        ("cfg-branches",),
    ),
    Bug(
        18,
        "LoRA scaled twice",
        ((MODEL, "alpha=self.scaling[name])", "alpha=self.scaling[name] ** 2)"),),
        ("lora-update",),
    ),
)


def names(bug: Bug) -> str:
    return f"{bug.pitfall}-{bug.name}"


@pytest.mark.parametrize("bug", BUGS, ids=names)
def test_each_known_bug_fails_its_contract(bug: Bug, copied: Path, results: Any, edit: Callable[..., None]) -> None:
    model = copied.name.removesuffix("_flow_grpo")
    for file, anchor, text in bug.edits:
        edit((copied / file.format(model=model)).resolve(), anchor, text)
    for anchor, text in bug.spec_edits:
        edit(copied / "scaffold.toml", anchor, text)
    found = results(copied, *dict.fromkeys((*bug.fails, *OTHERS)))
    lines = {name: f"{check.status}: {check.reason}" for name, check in found.items()}
    assert [name for name in bug.fails if found[name].status != "fail"] == [], lines
    beside = set(found) - {*bug.fails, *bug.consequences}
    assert [name for name in beside if found[name].status != "pass"] == [], lines
    assert bug.pitfall is None or bug.pitfall in found[bug.fails[0]].pitfalls


def test_timesteps_beside_sigmas_fail_on_the_diffusers_that_ignores_them(
    copied: Path, results: Any, edit: Callable[..., None]
) -> None:
    """Pitfall 44: 0.38.0 honours ``timesteps=``, 0.40.0 does not."""
    edit(copied / COMMON, "    scheduler.timesteps = scheduler.sigmas[:-1].clone()\n", "")
    edit(
        copied / COMMON, "set_timesteps(sigmas=sigmas, device", "set_timesteps(sigmas=sigmas, timesteps=sigmas, device"
    )
    found = results(copied, "schedule-diffusers-0.38.0", "schedule-diffusers-0.40.0")
    if found["schedule-diffusers-0.40.0"].status == "skip":
        pytest.skip(found["schedule-diffusers-0.40.0"].reason)
    assert found["schedule-diffusers-0.38.0"].status == "pass", found["schedule-diffusers-0.38.0"].reason
    assert found["schedule-diffusers-0.40.0"].status == "fail"


def test_every_contract_has_a_bug_that_fails_it() -> None:
    shown = {name for bug in BUGS for name in bug.fails} | {"schedule-diffusers-0.40.0"}
    assert {entry.id for entry in catalogue()} - shown == {"fsdp2-nccl"}, "the one that needs two GPUs"
