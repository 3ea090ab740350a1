"""AnimaTransformer3DModel on one frame."""

import torch

MODULE = "vllm_omni.diffusion.models.anima.anima_transformer"
CLASS = "AnimaTransformer3DModel"
VERSIONS = ("0.30.0",)


def arguments(side):
    return (), {
        "in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 24, "num_layers": 2,
        "mlp_ratio": 2.0, "text_embed_dim": 20, "adaln_lora_dim": 8, "max_size": (4, 16, 16),
    }  # fmt: skip


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    yield {
        "hidden_states": torch.randn(2, 4, 1, 8, 8, generator=generator),
        "timestep": torch.tensor([0.3, 0.8]),
        "encoder_hidden_states": torch.randn(2, 5, 20, generator=generator),
        "padding_mask": torch.zeros(1, 1, 8, 8),
        "return_dict": False,
    }
