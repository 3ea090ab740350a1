"""Anima as it was published: one file of both modules under names of the training code, sizes beside it."""

import re

import torch

PIPELINE = "AnimaPipeline"
CASE = "anima"
LOADED = True  # the pipeline would load its encoders, too
OTHERS = ("net.llm_adapter.x", "net.pos_embedder.seq", "net.accum_iteration")
NAMES = (
    (r"^time_embed\.t_embedder\.", "t_embedder.1."),
    (r"^time_embed\.norm\.", "t_embedding_norm."),
    (r"^patch_embed\.proj\.", "x_embedder.proj.1."),
    (r"^norm_out\.linear_", "final_layer.adaln_modulation."),
    (r"^proj_out\.", "final_layer.linear."),
    (r"\.norm1\.linear_", ".adaln_modulation_self_attn."),
    (r"\.norm2\.linear_", ".adaln_modulation_cross_attn."),
    (r"\.norm3\.linear_", ".adaln_modulation_mlp."),
    (r"\.attn1\.", ".self_attn."),
    (r"\.attn2\.", ".cross_attn."),
    (r"\.to_([qkv])\.", r".\1_proj."),
    (r"\.to_out\.0\.", ".output_proj."),
    (r"\.norm_([qk])\.", r".\1_norm."),
    (r"\.ff\.net\.0\.proj\.", ".mlp.layer1."),
    (r"\.ff\.net\.2\.", ".mlp.layer2."),
    (r"^transformer_blocks\.", "blocks."),
)


def make(case):
    from vllm_omni.diffusion.models.anima.anima_transformer import ANIMA_TRANSFORMER_CONFIG, AnimaTransformer3DModel

    return AnimaTransformer3DModel(**{**ANIMA_TRANSFORMER_CONFIG, **case.arguments("real")[1]})


def published(name):
    for pattern, text in NAMES:
        name = re.sub(pattern, text, name)
    return f"net.{name}"


def files(real, sizes):
    state = {published(name): tensor for name, tensor in real.state_dict().items()}
    state |= {name: torch.ones(2) for name in OTHERS}
    yield "anima.safetensors", state
    yield "anima.json", {"transformer": sizes}


def build(folder, upstream, config, weights):
    from pathlib import Path
    from types import SimpleNamespace

    import torch
    from vllm_omni.diffusion.models.anima import pipeline_anima

    class TextConditioner(torch.nn.Module):
        def __init__(self, **_):
            super().__init__()
            self.x = torch.nn.Parameter(torch.zeros(2))

    pipeline_anima.AnimaTextConditioner = TextConditioner
    pipeline = SimpleNamespace(
        od_config=SimpleNamespace(model=str(Path(folder) / "anima.safetensors"), dtype=torch.float32),
        device="cpu",
        _split_single_file_state_dict=pipeline_anima.AnimaPipeline._split_single_file_state_dict,
        _convert_original_transformer_state_dict=(
            pipeline_anima.AnimaPipeline._convert_original_transformer_state_dict
        ),
    )
    return pipeline_anima.AnimaPipeline._load_native_denoiser_components(pipeline)[0]
