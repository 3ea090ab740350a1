"""A denoiser of images ``(B, C, H, W)`` whose time runs from noise to image, and its training adapter."""

import dataclasses
import json
import os

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from verl_omni.pipelines.model_base import DiffusionModelBase
from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

DEFAULT_SCALE = 3.5


@dataclasses.dataclass
class QuiltSizes:
    width: int = 1536
    heads: int = 16
    depth: int = 20
    patch_size: int = 2
    in_channels: int = 4
    caption_dim: int = 1024
    spans: tuple[int, int, int] = (32, 32, 32)

    def __post_init__(self):
        self.spans = tuple(self.spans)
        if sum(self.spans) * self.heads != self.width:
            raise ValueError(f"{self.spans} are no {self.width // self.heads} channels of a head")

    @classmethod
    def from_model_path(cls, model_path):
        with open(os.path.join(_home(model_path), "config.json")) as f:
            raw = json.load(f)
        return cls(**{k: v for k, v in raw.items() if k in cls.__dataclass_fields__})

    def save_pretrained(self, folder):
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(dataclasses.asdict(self), f)


def _home(model_path):
    below = os.path.join(model_path, "transformer")
    return below if os.path.isdir(below) else model_path


def turned(x, places, spans):
    """Rotates neighbouring channels of ``(B, heads, L, d)`` by places ``(B, L, axes)``."""
    waves = [1 / 10000 ** (torch.arange(0, n, 2, device=x.device).double() / n) for n in spans]
    angles = torch.cat([places[..., i, None].double() * wave for i, wave in enumerate(waves)], -1)[:, None]
    one, two = x.double().unflatten(-1, (-1, 2)).unbind(-1)
    pairs = [one * angles.cos() - two * angles.sin(), one * angles.sin() + two * angles.cos()]
    return torch.stack(pairs, -1).flatten(-2).to(x.dtype)


class Patchwork(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        d, self.heads, self.spans = sizes.width, sizes.heads, sizes.spans
        self.calm = nn.LayerNorm(d)
        self.look = nn.Linear(d, 3 * d)
        self.join = nn.Linear(d, d)
        self.mix = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, places, mask):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.look(self.calm(x)).chunk(3, -1))
        q, k = turned(q, places, self.spans), turned(k, places, self.spans)
        x = x + self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))
        return x + self.mix(x)


class Quilt(NonDiffusersModelBase):
    _no_split_modules = ["Patchwork"]
    _supports_gradient_checkpointing = True

    def __init__(self, sizes: QuiltSizes):
        super().__init__()
        self.config = sizes
        cut = sizes.patch_size**2 * sizes.in_channels
        self.sew, self.unpick = nn.Linear(cut, sizes.width), nn.Linear(sizes.width, cut)
        self.clock = nn.Linear(32, sizes.width)
        self.caption = nn.Linear(sizes.caption_dim, sizes.width)
        self.rows = nn.ModuleList([Patchwork(sizes) for _ in range(sizes.depth)])

    @classmethod
    def from_pretrained(cls, model_path, torch_dtype=torch.bfloat16, **kwargs):
        with torch.device("meta"):
            made = cls(QuiltSizes.from_model_path(model_path))
        held = load_file(os.path.join(_home(model_path), "quilt.safetensors"))
        made.load_state_dict({k: v.to(torch_dtype) for k, v in held.items()}, assign=True, strict=True)
        return made

    def save_pretrained(self, save_directory, safe_serialization=True, **kwargs):
        os.makedirs(save_directory, exist_ok=True)
        self.config.save_pretrained(save_directory)
        save_file(self.state_dict(), os.path.join(save_directory, "quilt.safetensors"))

    def forward(self, image, when, text, text_mask):
        p, (n, c, h, w) = self.config.patch_size, image.shape
        image, when, text = (t.to(self.sew.weight.dtype) for t in (image, when, text))
        cloth = image.reshape(n, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        waves = when[:, None] * 100 ** torch.linspace(0, 1, 16, device=when.device)
        x = torch.cat([self.caption(text), self.sew(cloth)], 1)
        x = x + self.clock(torch.cat([waves.cos(), waves.sin()], -1).to(x.dtype))[:, None]
        grid = torch.cartesian_prod(torch.arange(h // p), torch.arange(w // p)).to(x.device)
        stitches = F.pad(grid, (1, 0)).expand(n, -1, -1).clone()
        stitches[..., 0] = text_mask.sum(1)[:, None]
        words = torch.arange(text.shape[1], device=x.device)[None, :, None].expand(n, -1, 3)
        places = torch.cat([words, stitches], 1)
        mask = F.pad(text_mask.bool(), (0, cloth.shape[1]), value=True)[:, None, None]
        for row in self.rows:
            x = self._checkpointed_call(row, x, places, mask)
        out = self.unpick(x[:, text.shape[1] :]).reshape(n, h // p, w // p, p, p, c)
        return (out.permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w),)


@DiffusionModelBase.register("QuiltPipeline", algorithm="flow_grpo")
class QuiltTrainer(DiffusionModelBase):
    @classmethod
    def build_module(cls, model_config, torch_dtype):
        return Quilt.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)

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
        with open(os.path.join(model_config.local_path, "scheduler", "scheduler_config.json")) as f:
            shift = json.load(f)["shift"]
        t = torch.linspace(0, 1, model_config.pipeline.num_inference_steps + 1)[:-1]
        t = t / (shift - (shift - 1) * t)
        scheduler.set_shift(1.0)
        scheduler.set_timesteps(sigmas=(1 - t).tolist(), device=device)
        scheduler.timesteps = t.to(device)
        scheduler.set_begin_index(0)

    @classmethod
    def prepare_model_inputs(
        cls, module, model_config, latents, timesteps, prompt_embeds, prompt_embeds_mask, negative_prompt_embeds,
        negative_prompt_embeds_mask, micro_batch, step,
    ):  # fmt: skip
        shared = {"image": latents[:, step], "when": timesteps[:, step]}
        wanted = {**shared, "text": prompt_embeds, "text_mask": prompt_embeds_mask}
        return wanted, {**shared, "text": negative_prompt_embeds, "text_mask": negative_prompt_embeds_mask}

    @classmethod
    def forward(cls, module, model_config, model_inputs, negative_model_inputs=None):
        found = []
        for i, length in enumerate(model_inputs["text_mask"].sum(1).tolist()):
            one = {name: value[i : i + 1] for name, value in model_inputs.items()}
            found += module(**one | {name: one[name][:, :length] for name in ("text", "text_mask")})
        return torch.cat(found)

    @classmethod
    def forward_and_sample_previous_step(
        cls, module, scheduler, model_config, model_inputs, negative_model_inputs, scheduler_inputs, step
    ):
        x, t = scheduler_inputs["all_latents"], scheduler_inputs["all_timesteps"]
        v = cls.forward(module, model_config, model_inputs).float()
        u = cls.forward(module, model_config, negative_model_inputs).float()
        v = u + (model_config.pipeline.guidance_scale or DEFAULT_SCALE) * (v - u)
        _, log_prob, mean, std, root = scheduler.sample_previous_step(
            sample=x[:, step].float(), model_output=-v, timestep=t[:, step], prev_sample=x[:, step + 1].float(),
            noise_level=model_config.algo.noise_level, sde_type=model_config.algo.sde_type, return_logprobs=True,
            return_sqrt_dt=True, include_logprob_normalizer=False,
        )  # fmt: skip
        return log_prob, mean, std, root
