"""LongCatVideoAvatarPipeline with an image: its first frame is given, and the scheduler gets the frames behind it."""

from types import SimpleNamespace

import numpy as np
import torch

PIPELINE = "LongCatVideoAvatarPipeline"
DENOISER = "longcat_avatar"
SAMPLING = {"height": 32, "width": 32}
EXTRA = {"num_frames": 9, "stage": "ai2v", "audio_path": "speech.wav", "use_distill": False}
GUIDANCE = {"text_guidance_scale": 4.0, "audio_guidance_scale": 3.0}
WIDTH = 20


def attach(pipeline, denoiser):
    from diffusers.schedulers import FlowMatchEulerDiscreteScheduler

    pipeline.transformer = denoiser
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler(shift=7.0)
    pipeline.use_distill, pipeline.resolution, pipeline.save_fps = False, "480p", 25


def request(pipeline):
    from PIL import Image

    return {"prompt": "a prompt", "multi_modal_data": {"image": Image.new("RGB", (32, 32))}}


def prompt(pipeline, length):
    generator = torch.Generator().manual_seed(length)
    given = [torch.randn(1, 1, 6, WIDTH, generator=generator) for _ in range(2)]
    masks = [(torch.arange(6) < count).long().view(1, 1, 1, 6) for count in (length, 3)]
    audio = torch.randn(1, 9, 5, 2, 6, generator=generator)
    pipeline.encode_prompt = lambda **_: (given[0], masks[0], given[1], masks[1])
    pipeline._prepare_audio_embeddings = lambda *_, **__: (audio, None, 1)
    pipeline._condition_shape = lambda image, resolution: (32, 32)
    pipeline._preprocess_image = lambda *_, **__: torch.zeros(1, 3, 32, 32)


def on_decode(pipeline, report):
    frame = torch.randn(1, 4, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    config = SimpleNamespace(scale_factor_temporal=4, scale_factor_spatial=8, z_dim=4)
    config.latents_mean, config.latents_std = [0.0] * 4, [1.0] * 4
    pipeline.vae = SimpleNamespace(config=config, encode=lambda _: SimpleNamespace(latents=frame))

    def decode(latents, output_type):
        report(latents)
        return np.zeros((1, 9, 32, 32, 3), dtype=np.float32)

    pipeline._decode_latents = decode
