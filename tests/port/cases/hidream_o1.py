"""HiDreamO1ImageModel: a decoder that sees text causally and the image in full."""

from types import SimpleNamespace

import torch

MODULE = "vllm_omni.diffusion.models.hidream_o1_image.hidream_o1_image_transformer"
CLASS = "HiDreamO1ImageModel"
VERSIONS = ("0.30.0",)


def arguments(side):
    text = SimpleNamespace(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=24, attention_bias=False,
        rms_norm_eps=1e-6, intermediate_size=96, hidden_act="silu", vocab_size=151680, num_hidden_layers=2,
        rope_parameters={"rope_theta": 5e6, "mrope_section": [4, 4, 4]},
    )  # fmt: skip
    return (SimpleNamespace(text_config=text),), {}


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    text, image = 6, 4
    ids = torch.randint(0, 1000, (1, text), generator=generator)
    ids[:, -1] = 151673
    total = text + image
    mask = torch.full((total, total), float("-inf")).triu(1)
    mask[text - 1 :] = 0
    yield {
        "input_ids": ids,
        "position_ids": torch.arange(total).expand(3, 1, -1) + torch.arange(3)[:, None, None],
        "vinputs": torch.randn(1, image, 3072, generator=generator),
        "timestep": torch.tensor([0.4]),
        "attention_mask": mask[None, None],
        "full_attn_spans": [[(text - 1, total)]],
    }
