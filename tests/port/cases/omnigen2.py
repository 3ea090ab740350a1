"""OmniGen2Transformer2DModel, two prompts of different lengths, with and without a reference image."""

import torch

MODULE = "vllm_omni.diffusion.models.omnigen2.omnigen2_transformer"
CLASS = "OmniGen2Transformer2DModel"


def arguments(side):
    return (), {
        "patch_size": 2, "in_channels": 4, "hidden_size": 48, "num_layers": 2, "num_refiner_layers": 1,
        "num_attention_heads": 4, "num_kv_heads": 2, "multiple_of": 16, "axes_dim_rope": (4, 4, 4),
        "axes_lens": (64, 32, 32), "text_feat_dim": 24,
    }  # fmt: skip


def inputs(model):
    tables = type(model.rope_embedder).get_freqs_cis((4, 4, 4), (64, 32, 32), 10000)
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2], dtype=torch.bool)
    common = {
        "hidden_states": torch.randn(2, 4, 8, 8, generator=generator),
        "timestep": torch.tensor([0.3, 0.8]),
        "text_hidden_states": torch.randn(2, 7, 24, generator=generator),
        "freqs_cis": tables,
        "text_attention_mask": mask,
    }
    yield {**common, "ref_image_hidden_states": [[torch.randn(4, 4, 8, generator=generator)] for _ in range(2)]}
    yield common
