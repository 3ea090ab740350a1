"""BooguImagePipeline: the step is a mixin's, time runs upwards, guidance is written from the conditional branch."""

import contextlib
from types import SimpleNamespace

import torch

PIPELINE = "BooguImagePipeline"
DENOISER = "boogu"
SAMPLING = {"height": 32, "width": 32, "output_type": "pt"}
WIDTH = 24


def _scheduler():
    from vllm_omni.diffusion.models.boogu_image import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler()


def attach(pipeline, denoiser):
    pipeline.transformer = denoiser
    pipeline.scheduler = _scheduler()
    pipeline.vae_scale_factor, pipeline.default_sample_size = 4, 8
    pipeline._execution_device = torch.device("cpu")
    pipeline._is_turbo = False
    pipeline._vae_attention_context = lambda _: contextlib.nullcontext()


def prompt(pipeline, length):
    generator = torch.Generator().manual_seed(length)
    given = [torch.randn(1, count, WIDTH, generator=generator) for count in (length, 3)]
    masks = [torch.ones(value.shape[:2], dtype=torch.bool) for value in given]
    pipeline.encode_prompt = lambda *_, **__: (given[0], masks[0], given[1], masks[1])


def on_decode(pipeline, report):
    class Decoder:
        dtype = torch.float32
        config = SimpleNamespace(scaling_factor=None, shift_factor=None)

        def decode(self, latents, return_dict):
            report(latents)
            return (latents,)

    pipeline.vae = Decoder()
