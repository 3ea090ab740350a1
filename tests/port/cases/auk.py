"""AuKTransformer with a reference prompt and padding."""

import torch

MODULE = "vllm_omni.diffusion.models.auk.auk_transformer"
CLASS = "AuKTransformer"
VERSIONS = ("0.30.0",)


def arguments(side):
    return (), {
        "dim": 48, "heads": 4, "dim_head": 12, "ff_mult": 2.0, "latent_dim": 6, "text_hidden_dim": 20,
        "num_layers": 2, "num_single_layers": 2,
    }  # fmt: skip


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1] * 9, [1] * 6 + [0] * 3], dtype=torch.bool)
    yield {
        "x": torch.randn(2, 9, 6, generator=generator),
        "text": torch.randn(2, 5, 20, generator=generator),
        "time": torch.tensor([0.3, 0.8]),
        "mask": mask,
        "ref": torch.randn(2, 4, 6, generator=generator),
        "ref_mask": torch.ones(2, 4, dtype=torch.bool),
    }
    yield {
        "x": torch.randn(2, 9, 6, generator=generator),
        "text": torch.randn(2, 5, 20, generator=generator),
        "time": torch.tensor(0.5),
        "cfg_infer": True,
    }
