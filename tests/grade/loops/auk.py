"""AuKPipeline: the loop is a function of another module, branches are one batch, text is kept from call to call."""

from types import SimpleNamespace

import torch

PIPELINE = "AuKPipeline"
DENOISER = "auk"
SAMPLING = {"guidance_scale": 3.0, "guidance_scale_provided": True}
CHANNELS, WIDTH, HOP = 6, 20, 480
INFERENCE = True


def attach(pipeline, denoiser):
    pipeline.dit, pipeline.dtype = denoiser, torch.float32
    pipeline.latent_dim, pipeline.hop_size, pipeline.sample_rate = CHANNELS, HOP, 24000
    pipeline.is_flash, pipeline.default_nfe, pipeline.default_cfg, pipeline.default_sway = False, 32, 2.0, -1.0


def prompt(pipeline, length):
    pipeline.text = torch.randn(length, WIDTH, generator=torch.Generator().manual_seed(length))


def request(pipeline):
    reference = torch.randn(3 * HOP, generator=torch.Generator().manual_seed(5))
    return {
        "prompt": "a prompt",
        "prompt_embeds": pipeline.text,
        "multi_modal_data": {"audio": (reference.numpy(), 24000)},
        "additional_information": {"auk": {"gen_seconds": 7 * HOP / 24000}},
    }


def on_decode(pipeline, report):
    def decode(latents):
        report(latents)
        return torch.zeros(1, 1, 8)

    encoded = torch.randn(1, 3, CHANNELS, generator=torch.Generator().manual_seed(6))
    pipeline.vae = SimpleNamespace(decode=decode, encode=lambda *_, **__: encoded)
