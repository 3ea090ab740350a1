"""LingBotVideoPipeline: a multistep scheduler, video latents, the request's generator goes to the step."""

from types import SimpleNamespace

import torch

PIPELINE = "LingBotVideoPipeline"
DENOISER = "lingbot_video"
SAMPLING = {"height": 32, "width": 32, "num_frames": 5, "guidance_scale": 3.0, "guidance_scale_provided": True}
EULER = False  # outside of the window a step is Euler's, the pipeline's own is of second order
WIDTH = 20


def _scheduler():
    from vllm_omni.diffusion.models.schedulers import FlowUniPCMultistepScheduler

    return FlowUniPCMultistepScheduler(num_train_timesteps=1000, shift=1.0)


def attach(pipeline, denoiser):
    pipeline.transformer = denoiser
    pipeline.scheduler = _scheduler()
    pipeline.vae_scale_factor_spatial, pipeline.vae_scale_factor_temporal = 8, 4
    pipeline.default_negative_prompt = pipeline.default_image_negative_prompt = "bad"
    pipeline.enable_diffusion_pipeline_profiler = False


def prompt(pipeline, length):
    def encode(text, **_):
        count = 3 if text == "bad" else length
        generator = torch.Generator().manual_seed(count)
        return torch.randn(1, count, WIDTH, generator=generator), torch.ones(1, count, dtype=torch.long)

    pipeline.encode_prompt = encode


def on_decode(pipeline, report):
    class Decoder(torch.nn.Linear):
        config = SimpleNamespace(latents_mean=[0.0] * 4, latents_std=[1.0] * 4)

        def decode(self, latents):
            report(latents)
            return (latents[:, :3],)

    pipeline.vae = Decoder(1, 1)
