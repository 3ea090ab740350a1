"""LongCatVideoAvatarTransformer3DModel, driven by audio."""

import torch

MODULE = "vllm_omni.diffusion.models.longcat_video.longcat_video_avatar_transformer"
CLASS = "LongCatVideoAvatarTransformer3DModel"


def arguments(side):
    return (), {
        "in_channels": 4, "out_channels": 4, "hidden_size": 48, "depth": 2, "num_heads": 2, "caption_channels": 20,
        "mlp_ratio": 2, "adaln_tembed_dim": 16, "frequency_embedding_size": 32, "audio_window": 5, "audio_block": 2,
        "audio_channel": 6, "intermediate_dim": 12, "output_dim": 16, "context_tokens": 3,
    }  # fmt: skip


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    yield {
        "hidden_states": torch.randn(1, 4, 3, 4, 4, generator=generator),
        "timestep": torch.tensor([400.0]),
        "encoder_hidden_states": torch.randn(1, 1, 6, 20, generator=generator),
        "encoder_attention_mask": torch.tensor([[[[1, 1, 1, 1, 0, 0]]]]),
        "audio_embs": torch.randn(1, 9, 5, 2, 6, generator=generator),
    }
