"""LingBotVideoTransformer3DModel, one request and two packed ones, with routed experts."""

import torch

MODULE = "vllm_omni.diffusion.models.lingbot_video.lingbot_video_transformer"
CLASS = "LingBotVideoTransformer3DModel"


def arguments(side):
    return (), {
        "in_channels": 4, "out_channels": 4, "hidden_size": 48, "num_attention_heads": 2, "depth": 2,
        "intermediate_size": 64, "text_dim": 20, "axes_dims": (8, 8, 8), "axes_lens": (64, 32, 32),
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "mlp_only_layers": (0,),
    }  # fmt: skip


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    video = torch.randn(2, 4, 2, 4, 4, generator=generator)
    text = torch.randn(2, 6, 20, generator=generator)
    yield {
        "hidden_states": video[:1],
        "timestep": torch.tensor([300.0]),
        "encoder_hidden_states": text[:1],
        "encoder_attention_mask": mask[:1],
        "return_dict": False,
    }
    yield {
        "hidden_states": video,
        "timestep": torch.tensor([300.0, 800.0]),
        "encoder_hidden_states": text,
        "encoder_attention_mask": mask,
        "return_dict": False,
    }
