"""Lantern: pictures from words, by a small transformer over patches of a picture's pixels."""

from collections.abc import Iterable

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import nn
from vllm.model_executor.models.utils import AutoWeightsLoader
from vllm_omni.diffusion.data import DiffusionOutput, OmniDiffusionConfig
from vllm_omni.diffusion.model_loader.diffusers_loader import DiffusersPipelineLoader
from vllm_omni.diffusion.utils.tf_utils import get_transformer_config_kwargs
from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch

PATCH = 8


class LanternBlock(nn.Module):
    """Attention from patches to patches and words, then a layer for each token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        query, key, value = self.split(self.query(y)), self.split(self.key(y)), self.split(self.value(y))
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(nn.functional.gelu(self.widen(self.between(x))))


class LanternTransformer(nn.Module):
    """Velocity of every patch, from patches, words and the noise level."""

    def __init__(self, width: int = 64, heads: int = 4, num_layers: int = 2, vocab_size: int = 1000) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, width)
        self.enter = nn.Linear(3 * PATCH * PATCH, width)
        self.level = nn.Linear(1, width)
        self.blocks = nn.ModuleList([LanternBlock(width, heads) for _ in range(num_layers)])
        self.leave = nn.Linear(width, 3 * PATCH * PATCH)

    def forward(self, patches: torch.Tensor, level: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        tokens = self.enter(patches) + self.level(level[:, None, None].to(patches.dtype))
        x = torch.cat([self.words(words), tokens], dim=1)
        for block in self.blocks:
            x = block(x)
        return self.leave(x[:, words.shape[1] :])


class LanternPipeline(nn.Module):
    """Euler steps from noise to a picture, guided by an empty prompt."""

    def __init__(self, *, od_config: OmniDiffusionConfig, prefix: str = "") -> None:
        super().__init__()
        self.od_config = od_config
        self.scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(od_config.model, subfolder="scheduler")
        settings = get_transformer_config_kwargs(od_config.tf_model_config, LanternTransformer)
        self.transformer = LanternTransformer(**settings)
        self.weights_sources = [
            DiffusersPipelineLoader.ComponentSource(
                model_or_path=od_config.model, subfolder="transformer", revision=None, prefix="transformer."
            )
        ]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        return AutoWeightsLoader(self).load_weights(weights)

    def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
        sampling = req.sampling_params
        steps = sampling.num_inference_steps or 20
        scale = sampling.guidance_scale or 3.0
        height, width = sampling.height or 256, sampling.width or 256
        prompt = req.prompts[0]
        ids = prompt.get("prompt_token_ids")
        device = self.transformer.enter.weight.device
        words = torch.tensor([ids], device=device)
        nothing = torch.zeros_like(words)
        count = (height // PATCH) * (width // PATCH)
        shape = (1, count, 3 * PATCH * PATCH)
        latents = torch.randn(shape, generator=sampling.generator, device=device, dtype=torch.float32)
        self.scheduler.set_timesteps(steps, device=device)
        for t in self.scheduler.timesteps:
            level = (t / 1000).expand(1)
            said = self.transformer(latents, level, words)
            unsaid = self.transformer(latents, level, nothing)
            velocity = unsaid + scale * (said - unsaid)
            latents = self.scheduler.step(velocity, t, latents, return_dict=False)[0]
        patches = latents.unflatten(1, (height // PATCH, width // PATCH)).unflatten(-1, (3, PATCH, PATCH))
        picture = patches.permute(0, 3, 1, 4, 2, 5).flatten(2, 3).flatten(3, 4)
        return DiffusionOutput(output=picture.clamp(-1, 1) / 2 + 0.5)
