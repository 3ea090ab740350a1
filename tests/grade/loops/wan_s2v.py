"""WanS2VPipeline, one clip: a multistep scheduler, conditions in a dictionary, the request's generators in a list."""

import types

import torch

PIPELINE = "WanS2VPipeline"
DENOISER = "wan_s2v"
SAMPLING = {
    "height": 64,
    "width": 64,
    "num_frames": 5,
    "guidance_scale": 4.5,
    "guidance_scale_provided": True,
    "seed": 7,
}
EULER = False
CHANNELS, WIDTH, TEXT = 16, 64, 20


def arguments(side):
    return (), {
        "cond_dim": 16, "audio_dim": 16, "num_audio_token": 2, "enable_adain": True, "adain_mode": "attn_norm",
        "audio_inject_layers": [0, 1], "zero_timestep": True, "enable_motioner": False, "enable_framepack": True,
        "text_len": 8, "in_dim": CHANNELS, "dim": WIDTH, "ffn_dim": 96, "freq_dim": 32, "text_dim": TEXT,
        "out_dim": CHANNELS, "num_heads": 2, "num_layers": 2,
    }  # fmt: skip


def attach(pipeline, denoiser):
    from vllm_omni.diffusion.models.schedulers import FlowUniPCMultistepScheduler

    pipeline.transformer = denoiser
    denoiser.dtype = torch.float32  # without it the pipeline takes bfloat16
    pipeline.scheduler = FlowUniPCMultistepScheduler(num_train_timesteps=1000, shift=1.0)
    pipeline.vae_scale_factor_spatial, pipeline.vae_scale_factor_temporal = 8, 4
    pipeline._flow_shift, pipeline.resolution_divisor = 3.0, 8
    pipeline.motion_frames, pipeline.drop_first_motion = 4, True


def prompt(pipeline, length):
    def tensor(*shape):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(length + len(shape)))

    def encode_audio(audio, frames):
        heard = float(audio.sum() > 0)
        return {"audio_emb": tensor(1, 2, 3, WIDTH), "audio_emb_global": tensor(1, 2, 1, WIDTH) * heard}

    pipeline.encode_prompt = lambda **_: (tensor(1, 8, TEXT), tensor(1, 8, TEXT).flip(1))
    pipeline.encode_audio = lambda *_, **__: (torch.ones(1, 1, 8), 1, 5)
    pipeline.encode_ref_image = lambda *_, **__: tensor(1, CHANNELS, 1, 8, 8)
    pipeline.prepare_motion_latents = lambda *_, **__: tensor(1, CHANNELS, 19, 8, 8)
    pipeline.transformer.encode_audio = encode_audio
    pipeline._denormalize_latents = lambda latents: latents
    pipeline._should_release_dit_before_decode = lambda: False


def request(pipeline):
    import numpy
    from PIL import Image

    media = {"image": Image.new("RGB", (64, 64)), "audio": numpy.zeros(16, dtype=numpy.float32)}
    return {"prompt": "a prompt", "multi_modal_data": media}


def on_decode(pipeline, report):
    def decode(latents, return_dict):
        report(latents)
        return (torch.zeros(1, 3, 8, 64, 64),)

    pipeline.vae = types.SimpleNamespace(dtype=torch.float32, decode=decode)
