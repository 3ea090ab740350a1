"""AnimaPipeline: diffusers' scheduler with shift 3, two calls of the denoiser at a step, latents of one frame."""

from types import SimpleNamespace

import torch

PIPELINE = "AnimaPipeline"
DENOISER = "anima"
WEIGHTS = "anima.safetensors"  # the one file that the adapter looks for
SAMPLING = {"height": 32, "width": 32, "guidance_scale": 4.0, "guidance_scale_provided": True}
WIDTH, CHANNELS = 20, 16
DTYPE = torch.float32  # the worker sets another


def arguments(side):
    return (), {
        "in_channels": CHANNELS, "out_channels": CHANNELS, "num_attention_heads": 2, "attention_head_dim": 24,
        "num_layers": 2, "mlp_ratio": 2.0, "text_embed_dim": WIDTH, "adaln_lora_dim": 8, "max_size": (4, 16, 16),
    }  # fmt: skip


def attach(pipeline, denoiser):
    from diffusers.schedulers import FlowMatchEulerDiscreteScheduler

    pipeline.transformer = denoiser
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    pipeline.vae_scale_factor = 4
    pipeline.text_encoder = SimpleNamespace(dtype=DTYPE)


def prompt(pipeline, length):
    generator = torch.Generator().manual_seed(length)
    given = [torch.randn(1, count, WIDTH, generator=generator).to(DTYPE) for count in (length, 3)]
    encoded = {
        f"{branch}{name}": value
        for branch, value in (("", given[0]), ("negative_", given[1]))
        for name in ("qwen_prompt_embeds", "qwen_attention_mask", "t5_input_ids", "t5_attention_mask")
    }
    pipeline.encode_prompt = lambda **_: encoded
    pipeline.condition_prompt_embeds = lambda qwen_prompt_embeds, **_: qwen_prompt_embeds


def on_decode(pipeline, report):
    class Decoder:
        dtype = DTYPE
        config = SimpleNamespace(latents_mean=[0.0] * CHANNELS, latents_std=[1.0] * CHANNELS, z_dim=CHANNELS)

        def decode(self, latents, return_dict):
            report(latents)
            return (latents,)

    pipeline.vae = Decoder()
