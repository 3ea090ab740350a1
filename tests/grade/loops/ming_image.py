"""MingImageDiffusionPipeline: the denoiser reads a condition and a reference image from the engine's context."""

import contextlib
from types import SimpleNamespace

import torch

PIPELINE = "MingImageDiffusionPipeline"
DENOISER = "ming_image"
TAKEN = 4  # the fifth turn is at level 0 and changes nothing
SAMPLING = {"height": 32, "width": 32, "guidance_scale": 3.0}
WIDTH = 24


def arguments(side):
    return (), {
        "in_channels": 4, "dim": 48, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 4, "n_kv_heads": 4,
        "cap_feat_dim": WIDTH, "axes_dims": [4, 4, 4], "axes_lens": [128, 64, 64],
        "alignment_padding_mode": "zero_masked", "multi_frame_output": False,
    }  # fmt: skip


@contextlib.contextmanager
def surroundings():
    from vllm_omni.diffusion.forward_context import create_forward_context, override_forward_context

    config = SimpleNamespace(parallel_config=SimpleNamespace(sequence_parallel_size=1, ulysses_mode="strict"))
    with override_forward_context(create_forward_context(omni_diffusion_config=config)):
        yield


def attach(pipeline, denoiser):
    from diffusers.schedulers import FlowMatchEulerDiscreteScheduler

    pipeline.transformer = denoiser
    pipeline.scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    pipeline._execution_device = torch.device("cpu")
    pipeline.is_layer_decomposition = False
    pipeline.default_num_inference_steps, pipeline.default_guidance_scale = 12, 1.0
    pipeline._num_frames_per_prompt, pipeline._uses_cudagraph_trees = 1, False
    pipeline._pending_prompt_embeds = pipeline._pending_negative_prompt_embeds = None
    pipeline.vae_scale_factor, pipeline.text_encoder, pipeline.tokenizer = 2, None, None
    pipeline.image_processor = None
    pipeline.conditioning = lambda query, direct: (query, direct)


def prompt(pipeline, length):
    generator = torch.Generator().manual_seed(length)
    pipeline.given = {
        "query_hidden_states": torch.randn(length, WIDTH, generator=generator),
        "direct_hidden_states": torch.randn(1, 48, generator=generator),
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
