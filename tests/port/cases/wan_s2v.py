"""WanS2VTransformer3DModel, driven by audio, without motion frames."""

import torch

MODULE = "vllm_omni.diffusion.models.wan2_2.wan2_2_s2v_transformer"
CLASS = "WanS2VTransformer3DModel"


def arguments(side):
    return (), {
        "cond_dim": 4, "audio_dim": 16, "num_audio_token": 2, "enable_adain": True, "adain_mode": "attn_norm",
        "audio_inject_layers": [0, 1], "zero_timestep": True, "enable_motioner": False, "enable_framepack": True,
        "text_len": 8, "in_dim": 16, "dim": 64, "ffn_dim": 96, "freq_dim": 32, "text_dim": 20, "out_dim": 16,
        "num_heads": 2, "num_layers": 2,
    }  # fmt: skip


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    yield {
        "hidden_states": torch.randn(1, 16, 2, 8, 8, generator=generator),
        "timestep": torch.tensor([400.0]),
        "encoder_hidden_states": torch.randn(1, 8, 20, generator=generator),
        "ref_latents": torch.randn(1, 16, 1, 8, 8, generator=generator),
        "motion_latents": torch.randn(1, 16, 19, 8, 8, generator=generator),
        "cond_states": torch.randn(1, 4, 2, 8, 8, generator=generator),
        "encoder_hidden_states_audio": {
            "audio_emb": torch.randn(1, 2, 3, 64, generator=generator),
            "audio_emb_global": torch.randn(1, 2, 1, 64, generator=generator),
        },
    }
