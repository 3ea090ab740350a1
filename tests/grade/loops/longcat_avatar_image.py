"""LongCatVideoAvatarPipeline with an image: its first frame is given, and the scheduler gets the frames behind it."""

from types import SimpleNamespace

import torch
from loops import longcat_avatar as words_alone
from loops.longcat_avatar import DENOISER, GUIDANCE, SAMPLING, WIDTH, attach  # noqa: F401  # parts of the case

PIPELINE = "LongCatVideoAvatarPipeline"
EXTRA = {**words_alone.EXTRA, "stage": "ai2v"}


def request(pipeline):
    from PIL import Image

    return {"prompt": "a prompt", "multi_modal_data": {"image": Image.new("RGB", (32, 32))}}


def prompt(pipeline, length):
    words_alone.prompt(pipeline, length)
    pipeline._condition_shape = lambda image, resolution: (32, 32)
    pipeline._preprocess_image = lambda *_, **__: torch.zeros(1, 3, 32, 32)


def on_decode(pipeline, report):
    words_alone.on_decode(pipeline, report)
    frame = torch.randn(1, 4, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    config = pipeline.vae.config
    config.z_dim, config.latents_mean, config.latents_std = 4, [0.0] * 4, [1.0] * 4
    pipeline.vae.encode = lambda _: SimpleNamespace(latents=frame)
