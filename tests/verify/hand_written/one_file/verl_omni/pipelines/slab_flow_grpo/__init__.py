"""Slab: the whole integration in one file, as a first prototype has it. Sizes stay a plain dictionary."""

import json
import math
import os
import random
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from verl_omni.pipelines.diffusion_rollout_output import rollout_output
from verl_omni.pipelines.model_base import DiffusionModelBase, VllmOmniPipelineBase
from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline

__all__ = ["Slab", "SlabTrainer", "SlabRollout"]
PIXELS = 16


class Row(nn.Module):
    def __init__(self, g):
        super().__init__()
        d, q = g["d"], g["q"]
        self.q, self.per = q, d // q
        if d % q:
            raise ValueError(f"{d} does not divide into {q}")
        self.pre, self.post = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mix = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, g["fat"]), nn.Linear(g["fat"], d)

    def forward(self, x, mask):
        a, b, c = (t.unflatten(-1, (self.q, self.per)).transpose(1, 2) for t in self.mix(self.pre(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(a, b, c, attn_mask=mask).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.post(x))))


class Slab(NonDiffusersModelBase):
    _no_split_modules = ["Row"]
    _supports_gradient_checkpointing = True

    def __init__(self, g):
        super().__init__()
        self.g = g
        self.words = nn.Embedding(g["words"], g["d"])
        self.spots = nn.Embedding(g["cells"] ** 2, g["d"])
        self.enter = nn.Linear(g["z"], g["d"])
        self.clock = nn.Linear(64, g["d"])
        self.rows = nn.ModuleList([Row(g) for _ in range(g["stack"])])
        self.leave = nn.Linear(g["d"], g["z"])

    @classmethod
    def from_pretrained(cls, model_path, torch_dtype=torch.bfloat16, **kwargs):
        with open(os.path.join(model_path, "slab.json")) as f:
            raw = json.load(f)
        with torch.device("meta"):
            self = cls({**raw["body"], "z": raw["latents"]["z"]})
        held = load_file(os.path.join(model_path, "parts", "slab.safetensors"))
        named = {k.removeprefix("slab.").replace("attn_in", "mix").replace("attn_out", "out"): v for k, v in held.items()}
        self.load_state_dict(named, assign=True, strict=True)
        return self.to(torch_dtype)

    def save_pretrained(self, save_directory, safe_serialization=True, **kwargs):
        os.makedirs(os.path.join(save_directory, "parts"), exist_ok=True)
        with open(os.path.join(save_directory, "slab.json"), "w") as f:
            json.dump({"body": {k: v for k, v in self.g.items() if k != "z"}, "latents": {"z": self.g["z"]}}, f)
        out = {"slab." + k.replace("mix", "attn_in").replace(".out.", ".attn_out."): v for k, v in self.state_dict().items()}
        save_file(out, os.path.join(save_directory, "parts", "slab.safetensors"))

    def forward(self, z, clock, spots, ids=None, real=None):
        x = self.enter(z.to(self.enter.weight.dtype)) + self.spots(spots)
        x = x + self.clock(clock.to(self.enter.weight.dtype))[:, None]
        mask = None
        if ids is not None:
            x = torch.cat([self.words(ids) * _order(ids, self.g["d"]), x], 1)
            mask = F.pad(real, (0, z.shape[1]), value=True)[:, None, None, :]
        for row in self.rows:
            x = self._checkpointed_call(row, x, mask)
        return (self.leave(x[:, -z.shape[1] :]),)


def _order(ids, d):
    """The only notion of order that text has here."""
    steps = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return (1 + 0.1 * steps)[None, :, None]


def _levels(n):
    t = torch.linspace(1, 0, max(n, 2), dtype=torch.float32)
    return (3.0 * t / (1 + 2.0 * t))[:-1]


def _fill(scheduler, n, device="cpu"):
    scheduler.set_shift(1.0)
    scheduler.set_timesteps(sigmas=_levels(n).tolist(), device=device)
    scheduler.timesteps = scheduler.sigmas[:-1].clone()
    scheduler.set_begin_index(0)


@DiffusionModelBase.register("OmniSlabForConditionalGeneration", algorithm="flow_grpo")
class SlabTrainer(DiffusionModelBase):
    @classmethod
    def build_module(cls, model_config, torch_dtype):
        return Slab.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)

    @classmethod
    def configure_trainable_params(cls, module, model_config):
        module.float().requires_grad_(True)

    @classmethod
    def build_scheduler(cls, model_config):
        scheduler = FlowMatchSDEDiscreteScheduler()
        cls.set_timesteps(scheduler, model_config, "cpu")
        return scheduler

    @classmethod
    def set_timesteps(cls, scheduler, model_config, device):
        _fill(scheduler, model_config.pipeline.num_inference_steps, device)

    @classmethod
    def prepare_model_inputs(
        cls, module, model_config, latents, timesteps, prompt_embeds, prompt_embeds_mask, negative_prompt_embeds,
        negative_prompt_embeds_mask, micro_batch, step,
    ):  # fmt: skip
        rows, columns = (side // PIXELS for side in (model_config.pipeline.height, model_config.pipeline.width))
        cells = getattr(module, "module", module).g["cells"]
        spots = (torch.arange(rows)[:, None] * cells + torch.arange(columns)).flatten().to(latents.device)
        now = timesteps[:, step].float()
        waves = now[:, None] * torch.exp(torch.linspace(0, math.log(1000.0), 32, device=now.device))
        shared = {
            "z": latents[:, step],
            "clock": torch.cat([waves.cos(), waves.sin()], -1),
            "spots": spots.expand(len(latents), -1),
        }
        column = micro_batch["prompt_token_ids"]
        prompts = [torch.as_tensor(list(getattr(p, "data", p))) for p in column]
        ids = nn.utils.rnn.pad_sequence(prompts, batch_first=True).to(latents.device)
        lengths = torch.tensor([len(p) for p in prompts], device=latents.device)
        real = torch.arange(ids.shape[1], device=latents.device) < lengths[:, None]
        return {**shared, "ids": ids, "real": real}, {**shared, "ids": None, "real": None}

    @classmethod
    def forward_and_sample_previous_step(
        cls, module, scheduler, model_config, model_inputs, negative_model_inputs, scheduler_inputs, step
    ):
        x, t = scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]
        scale = getattr(model_config.pipeline, "cfg_text_scale", 4.0)
        v = module(**model_inputs)[0].float()
        if scale > 1.0:
            u = module(**negative_model_inputs)[0].float()
            v = u + scale * (v - u)
        _, log_prob, mean, std, root = scheduler.sample_previous_step(
            sample=x[:, step].float(), model_output=v, timestep=t[:, step], prev_sample=x[:, step + 1].float(),
            noise_level=model_config.algo.noise_level, sde_type=model_config.algo.sde_type, return_logprobs=True,
            return_sqrt_dt=True, include_logprob_normalizer=False,
        )  # fmt: skip
        return log_prob, mean, std, root


class _Tape:
    """Stands where the pipeline has its scheduler."""

    def start(self, n, window, options):
        self.inner = FlowMatchSDEDiscreteScheduler()
        _fill(self.inner, n)
        self.window, self.options, self.i = window or (0, len(self.inner.timesteps)), options, 0
        self.x, self.lp = [], []

    def step(self, v, sigma, x, dt, **_):
        inside = self.window[0] <= self.i < self.window[1]
        options = self.options if inside else {**self.options, "noise_level": 0.0}
        following, lp, *_ = self.inner.step(
            v.float()[None], self.inner.timesteps[self.i], x.float()[None], return_dict=False, return_logprobs=True,
            include_logprob_normalizer=False, **options,
        )  # fmt: skip
        if inside:
            self.x = self.x or [x.float()[None]]
            self.x.append(following)
            self.lp.append(lp)
        self.i += 1
        return SimpleNamespace(prev_sample=following[0], log_prob=lp[0] if inside else None)


@VllmOmniPipelineBase.register("OmniSlabForConditionalGeneration", algorithm="flow_grpo")
class SlabRollout(BagelPipeline):
    def __init__(self, *, od_config, prefix=""):
        super().__init__(od_config=od_config, prefix=prefix)
        self.scheduler = _Tape()

    def forward(self, req):
        p = req.sampling_params
        asked = p.extra_args
        asked.setdefault("cfg_text_scale", 4.0)
        window, size = None, asked.get("sde_window_size")
        if size:
            low, high = asked.get("sde_window_range") or (0, size)
            begin = low if high - size <= low else random.Random(int(os.environ["LOCAL_RANK"])).randint(low, high - size)
            window = (begin, begin + size)
        options = {"noise_level": asked.get("noise_level", 0.0), "sde_type": asked.get("sde_type", "sde")}
        tape = self.scheduler
        tape.start(p.num_inference_steps, window, options)
        out = super().forward(req)
        if not tape.x:
            return rollout_output(media=None, to_cpu=False)
        begin, end = tape.window
        return rollout_output(
            media=out.output["payload"]["image"],
            trajectory_latents=torch.stack(tape.x, 1),
            trajectory_timesteps=tape.inner.timesteps[begin:end][None],
            trajectory_log_probs=torch.stack(tape.lp, 1),
            to_cpu=False,
        )
