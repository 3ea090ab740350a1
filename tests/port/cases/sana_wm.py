"""SanaWmTransformer3DModel with camera conditions, on a noise level a frame."""

import importlib

import torch

MODULE = "vllm_omni.diffusion.models.sana_wm.sana_wm_transformer"
CLASS = "SanaWmTransformer3DModel"
VERSIONS = ("0.30.0",)
SIZES = {
    "num_blocks": 4, "hidden_size": 48, "mlp_ratio": 2.0, "softmax_every_n": 2, "linear_head_dim": 24,
    "chunk_plucker_channels": 6, "chunk_plucker_post_attn_blocks": 4, "model_max_length": 8,
}  # fmt: skip


def arguments(side):
    real = "vllm_omni.diffusion.models.sana_wm.config"
    config = importlib.import_module(real if side == "real" else "ported_denoiser").SanaWmConfig
    return (config(**SIZES),), {"latent_channels": 4, "prompt_channels": 20}


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    raymap = torch.cat([torch.eye(4).flatten().repeat(2, 1), torch.tensor([[4.0, 4.0, 2.0, 2.0]] * 2)], dim=1)
    yield {
        "hidden_states": torch.randn(1, 4, 2, 4, 4, generator=generator),
        "timestep": torch.tensor([[[300.0, 800.0]]]),
        "encoder_hidden_states": torch.randn(1, 8, 20, generator=generator),
        "encoder_attention_mask": torch.tensor([[1] * 6 + [0] * 2]),
        "plucker": torch.randn(1, 6, 2, 4, 4, generator=generator),
        "raymap": raymap,
    }
    yield {
        "hidden_states": torch.randn(2, 4, 2, 4, 4, generator=generator),
        "timestep": torch.tensor([300.0, 800.0]),
        "encoder_hidden_states": torch.randn(2, 8, 20, generator=generator),
    }
