"""MingZImageTransformer2DModel, two images of different sizes."""

import torch

MODULE = "vllm_omni.diffusion.models.ming_flash_omni.ming_zimage_transformer"
CLASS = "MingZImageTransformer2DModel"


def arguments(side):
    return (), {
        "in_channels": 4, "dim": 48, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 4, "n_kv_heads": 4,
        "cap_feat_dim": 24, "axes_dims": [4, 4, 4], "axes_lens": [128, 64, 64],
    }  # fmt: skip


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    yield {
        "x": [torch.randn(4, 1, 8, 8, generator=generator), torch.randn(4, 1, 12, 8, generator=generator)],
        "t": torch.tensor([0.3, 0.8]),
        "cap_feats": [torch.randn(9, 24, generator=generator), torch.randn(40, 24, generator=generator)],
    }
