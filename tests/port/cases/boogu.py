"""BooguImageTransformer2DModel: double and single streams, with and without a reference image."""

from types import SimpleNamespace

import torch

MODULE = "vllm_omni.diffusion.models.boogu_image.boogu_image_transformer"
CLASS = "BooguImageTransformer2DModel"
VERSIONS = ("0.30.0",)


def arguments(side):
    config = {
        "patch_size": 2, "in_channels": 4, "hidden_size": 48, "num_layers": 3, "num_double_stream_layers": 1,
        "num_refiner_layers": 1, "num_attention_heads": 4, "num_kv_heads": 2, "multiple_of": 16,
        "axes_dim_rope": (4, 4, 4), "axes_lens": (64, 32, 32),
        "instruction_feature_configs": {
            "instruction_feat_dim": 24, "reduce_type": "mean", "num_instruction_feature_layers": 1,
        },
    }  # fmt: skip
    return (SimpleNamespace(tf_model_config=config),), {}


def inputs(model):
    tables = type(model.rope_embedder).get_freqs_real((4, 4, 4), (64, 32, 32), 10000)
    generator = torch.Generator().manual_seed(1)
    common = {
        "hidden_states": torch.randn(2, 4, 8, 8, generator=generator),
        "timestep": torch.tensor([0.3, 0.8]),
        "instruction_hidden_states": torch.randn(2, 7, 24, generator=generator),
        "freqs_real": tables,
        "instruction_attention_mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2], dtype=torch.bool),
    }
    yield {**common, "ref_image_hidden_states": [[torch.randn(4, 4, 8, generator=generator)] for _ in range(2)]}
    yield common
