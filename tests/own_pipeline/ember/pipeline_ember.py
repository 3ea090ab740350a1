"""Ember: boards of embers. The network predicts the clean board; levels are of the signal's log-ratio to noise."""

import json
import math
import os
from collections.abc import Iterable

import torch
from torch import nn
from vllm.model_executor.models.utils import AutoWeightsLoader
from vllm_omni.diffusion.data import DiffusionOutput, OmniDiffusionConfig
from vllm_omni.diffusion.model_loader.diffusers_loader import DiffusersPipelineLoader
from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch

from .ember_network import EmberEncoder, EmberNetwork

EMBER = 8


class EmberPipeline(nn.Module):
    """Euler steps; guidance in the middle levels alone, brought back to the norm of the prompt's prediction."""

    def __init__(self, *, od_config: OmniDiffusionConfig, prefix: str = "") -> None:
        super().__init__()
        self.od_config = od_config
        with open(os.path.join(od_config.model, "config.json")) as f:
            config = json.load(f)
        self.channels = config["channels"]
        self.words = EmberEncoder(config["vocab_size"], config["words_width"])
        self.notes = EmberEncoder(config["vocab_size"], config["notes_width"])
        self.network = EmberNetwork(
            width=config["hidden_size"],
            depth=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            channels=config["channels"],
            words_width=config["words_width"],
            notes_width=config["notes_width"],
        )
        self.paint = nn.Linear(config["channels"], 3 * EMBER * EMBER)
        self.weights_sources = [
            DiffusersPipelineLoader.ComponentSource(
                model_or_path=od_config.model, subfolder=None, revision=None, prefix=""
            )
        ]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        return AutoWeightsLoader(self).load_weights(weights)

    def levels(self, steps: int, embers: int, device: torch.device) -> torch.Tensor:
        """More noise for larger boards, by the root of their size; 1 and 0 at the ends, whatever the clamp leaves."""
        shift = math.sqrt(embers / 64) * 3.0
        log_snr = torch.linspace(-9.2, 9.2, steps + 1, dtype=torch.float64).clamp(-9.0, 9.0)
        sigmas = 1 / (1 + torch.exp(log_snr / 2) / shift)
        sigmas = (sigmas - sigmas[-1]) / (sigmas[0] - sigmas[-1])
        return sigmas.to(device, torch.float32)

    def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
        sampling = req.sampling_params
        steps = sampling.num_inference_steps or 24
        scale = sampling.guidance_scale or 4.0
        rows, columns = (sampling.height or 256) // EMBER, (sampling.width or 256) // EMBER
        device = self.network.enter.weight.device
        ids = torch.tensor([req.prompts[0].get("prompt_token_ids") or [0]], device=device)
        none = torch.zeros_like(ids)
        words, notes = self.words(ids), self.notes(ids)
        no_words, no_notes = self.words(none), self.notes(none)
        board = torch.randn((1, rows * columns, self.channels), generator=sampling.generator, device=device)
        sigmas = self.levels(steps, rows * columns, device)
        for i in range(steps):
            sigma = sigmas[i]
            log_snr = 2 * torch.log1p(-sigma.clamp(max=0.9999)) - 2 * torch.log(sigma)
            clean = self.network(board, log_snr.expand(1), words, notes)
            if scale > 1.0 and 0.2 <= float(sigma) <= 0.95:
                plain = self.network(board, log_snr.expand(1), no_words, no_notes)
                guided = plain + scale * (clean - plain)
                ratio = clean.norm(dim=-1, keepdim=True) / guided.norm(dim=-1, keepdim=True).clamp(min=1e-6)
                clean = guided * ratio.clamp(max=1.0)
            velocity = (board - clean) / sigma.clamp(min=1e-3)
            board = board + (sigmas[i + 1] - sigma) * velocity
        picture = self.paint(board.to(self.paint.weight.dtype)).unflatten(1, (rows, columns))
        picture = picture.unflatten(-1, (3, EMBER, EMBER)).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
        return DiffusionOutput(output=picture.float().clamp(-1, 1) / 2 + 0.5)
