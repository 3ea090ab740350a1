"""OmniGen2Pipeline from a prompt's embeddings to the VAE; time runs upwards, guidance is of two branches."""

from types import SimpleNamespace

import torch

PIPELINE = "OmniGen2Pipeline"
DENOISER = "omnigen2"
SAMPLING = {"height": 32, "width": 32}
WIDTH = 24
DTYPE = torch.float32  # the worker sets another


def attach(pipeline, denoiser):
    from vllm_omni.diffusion.models.omnigen2.pipeline_omnigen2 import FlowMatchEulerDiscreteScheduler

    pipeline.transformer = denoiser
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler()
    pipeline.vae_scale_factor, pipeline.default_sample_size = 4, 8
    pipeline.prepare_image = lambda **_: None


def prompt(pipeline, length):
    generator = torch.Generator().manual_seed(length)
    mask = torch.ones(1, length, dtype=torch.bool)
    mask[:, -1] = False
    given = [torch.randn(1, length, WIDTH, generator=generator), mask]
    given += [torch.randn(1, 3, WIDTH, generator=generator), torch.ones(1, 3, dtype=torch.bool)]
    given[::2] = [value.to(DTYPE) for value in given[::2]]
    pipeline.encode_prompt = lambda *_, **__: tuple(given)


def on_decode(pipeline, report):
    class Decoder:
        dtype = DTYPE
        config = SimpleNamespace(scaling_factor=None, shift_factor=None)

        def decode(self, latents, return_dict):
            report(latents)
            return (latents,)

    pipeline.vae = Decoder()
