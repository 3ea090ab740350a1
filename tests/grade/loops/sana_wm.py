"""SanaWmPipeline: a scheduler's step with a time for each token; the first frame is given and takes no part in it."""

import types

import torch

PIPELINE = "SanaWmPipeline"
DENOISER = "sana_wm"
SAMPLING = {
    "height": 64, "width": 64, "num_frames": 17, "seed": 7, "guidance_scale": 3.0, "guidance_scale_provided": True,
    "output_type": "np",
}  # fmt: skip
FREE = 2 / 3  # the first of three frames is given
CHANNELS, WIDTH = 128, 20
DTYPE = torch.float32  # the worker sets another


def arguments(side):
    from vllm_omni.diffusion.models.sana_wm.config import SanaWmConfig

    config = SanaWmConfig(
        num_blocks=4, hidden_size=48, mlp_ratio=2.0, softmax_every_n=2, linear_head_dim=24, chunk_plucker_channels=48,
        chunk_plucker_post_attn_blocks=4, model_max_length=8,
    )  # fmt: skip
    return (config,), {"latent_channels": CHANNELS, "prompt_channels": WIDTH}


def attach(pipeline, denoiser):
    from vllm_omni.diffusion.models.sana_wm.config import SanaWmConfig

    pipeline.transformer, pipeline.sana_wm_config = denoiser, SanaWmConfig()
    pipeline._last_prompt_attention_mask = None
    pipeline.resolve_checkpoint = lambda: None


def prompt(pipeline, length):
    def tensor(*shape, seed):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DTYPE)

    def embeds(prompt, **_):
        pipeline._last_prompt_attention_mask = torch.tensor([[1.0] * length + [0.0] * (8 - length)])
        return tensor(1, 8, WIDTH, seed=length if prompt["prompt"] else 3)

    pipeline._native_prompt_embeds = embeds
    pipeline._vae_encode_first_frame = lambda *_, **__: tensor(1, CHANNELS, 1, 2, 2, seed=length + 20)


def request(pipeline):
    import numpy

    image = numpy.zeros((64, 64, 3), dtype=numpy.uint8)
    payload = {"action": "w-16", "num_frames": 17, "height": 64, "width": 64}
    return {"prompt": "a prompt", "multi_modal_data": {"image": image}, "sana_wm": payload}


def on_decode(pipeline, report):
    def decode(self, latents, **_):
        report(latents)
        return torch.zeros(1, 3, 17, 64, 64)

    pipeline._decode_native_latents = types.MethodType(decode, pipeline)
