"""MingImagePipeline: a loop of its base class, a schedule that is switched on by hand, a reference image."""

import contextlib
from types import SimpleNamespace

import torch

PIPELINE = "MingImagePipeline"
DENOISER = "ming_zimage"
TAKEN = 4  # the fifth turn is at level 0 and changes nothing
SAMPLING = {"height": 32, "width": 32}
GUIDANCE = {"cfg": 2.0}
WIDTH = 24


@contextlib.contextmanager
def surroundings():
    from vllm_omni.diffusion.forward_context import create_forward_context, override_forward_context

    config = SimpleNamespace(parallel_config=SimpleNamespace(sequence_parallel_size=1, ulysses_mode="strict"))
    with override_forward_context(create_forward_context(omni_diffusion_config=config)):
        yield


def attach(pipeline, denoiser):
    from diffusers.schedulers import FlowMatchEulerDiscreteScheduler
    from vllm_omni.transformers_utils.configs.ming_flash_omni import MingImageGenConfig

    pipeline.transformer = denoiser
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler()
    pipeline._execution_device = torch.device("cpu")
    pipeline._pending_prompt_embeds = pipeline._pending_negative_prompt_embeds = None
    pipeline.image_gen_config = MingImageGenConfig()
    pipeline.vae_scale_factor, pipeline.text_encoder, pipeline.tokenizer = 2, None, None
    pipeline.image_processor, pipeline.byte5, pipeline._dtype = None, None, torch.float32

    class Encoder:
        def __call__(self, hidden):
            return hidden

        def zero_negative(self, embeds):
            return torch.zeros_like(embeds)

    pipeline.condition_encoder = Encoder()


def prompt(pipeline, length):
    pipeline.scheduler.config["use_dynamic_shifting"] = True  # after the file was written, as the constructor does
    generator = torch.Generator().manual_seed(length)
    pipeline.given = {
        "thinker_hidden_states": torch.randn(length, WIDTH, generator=generator),
        "reference_image": torch.randn(1, 4, 16, 16, generator=generator),
    }


def request(pipeline):
    return {"prompt": "a prompt", "extra": pipeline.given}


def on_decode(pipeline, report):
    class Decoder:
        dtype = torch.float32
        config = SimpleNamespace(scaling_factor=1.0, shift_factor=0.0)

        def encode(self, image):
            return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: image))

        def decode(self, latents, return_dict):
            report(latents)
            return (latents,)

    pipeline.vae = Decoder()
