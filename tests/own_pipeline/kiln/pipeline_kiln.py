"""Kiln: boards of tiles from words, sampled by a loop of its own and painted by a small decoder."""

import json
import os
from collections.abc import Iterable

import torch
from torch import nn
from vllm.model_executor.models.utils import AutoWeightsLoader
from vllm_omni.diffusion.data import DiffusionOutput, OmniDiffusionConfig
from vllm_omni.diffusion.model_loader.diffusers_loader import DiffusersPipelineLoader
from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch

from .kiln_transformer import KilnConfig, KilnTransformer

TILE = 8


class KilnPainter(nn.Module):
    """Tiles to pixels in [-1, 1]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.paint = nn.Linear(channels, 3 * TILE * TILE)

    def forward(self, board: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        pixels = self.paint(board).unflatten(1, (rows, columns)).unflatten(-1, (3, TILE, TILE))
        return pixels.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3).clamp(-1, 1)


class KilnPipeline(nn.Module):
    """Euler steps over shifted levels; guidance by an empty prompt, its deviation brought back to the prompt's."""

    def __init__(self, *, od_config: OmniDiffusionConfig, prefix: str = "") -> None:
        super().__init__()
        self.od_config = od_config
        with open(os.path.join(od_config.model, "config.json")) as f:
            config = json.load(f)
        self.shift = config.get("shift", 3.0)
        self.channels = config["tile_channels"]
        self.transformer = KilnTransformer(
            KilnConfig(
                hidden_size=config["hidden_size"],
                intermediate_size=config["intermediate_size"],
                num_hidden_layers=config["num_hidden_layers"],
                num_attention_heads=config["num_attention_heads"],
                num_key_value_heads=config["num_key_value_heads"],
                vocab_size=config["vocab_size"],
                tile_channels=config["tile_channels"],
            )
        )
        self.painter = KilnPainter(config["tile_channels"])
        self.weights_sources = [
            DiffusersPipelineLoader.ComponentSource(
                model_or_path=od_config.model, subfolder=None, revision=None, prefix=""
            )
        ]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        return AutoWeightsLoader(self).load_weights(weights)

    def levels(self, steps: int, device: torch.device) -> torch.Tensor:
        sigmas = torch.linspace(1, 0, steps + 1, device=device)
        return self.shift * sigmas / (1 + (self.shift - 1) * sigmas)

    def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
        sampling = req.sampling_params
        steps = sampling.num_inference_steps or 24
        scale = sampling.extra_args.get("heat", 5.0)
        rescale = sampling.extra_args.get("rescale", 0.0)
        height, width = sampling.height or 512, sampling.width or 512
        rows, columns = height // TILE, width // TILE
        device = self.transformer.enter.weight.device
        token_ids = torch.tensor([req.prompts[0].get("prompt_token_ids")], device=device)
        empty = torch.zeros_like(token_ids)
        board = torch.randn((1, rows * columns, self.channels), generator=sampling.generator, device=device)
        sigmas = self.levels(steps, device)
        for i in range(steps):
            sigma = sigmas[i].expand(1)
            wanted = self.transformer(board, sigma, token_ids, rows, columns)
            if scale != 1.0:
                unwanted = self.transformer(board, sigma, empty, rows, columns)
                velocity = unwanted + scale * (wanted - unwanted)
                if rescale > 0:
                    level = wanted.std(dim=(-2, -1), keepdim=True) / velocity.std(dim=(-2, -1), keepdim=True)
                    velocity = velocity * (rescale * level + 1 - rescale)
            else:
                velocity = wanted
            board = board + (sigmas[i + 1] - sigmas[i]) * velocity
        picture = self.painter(board.to(self.painter.paint.weight.dtype), rows, columns)
        return DiffusionOutput(output=picture.float() / 2 + 0.5)
