"""WanS2V as it was published: everything at the root, under names of its own."""

import re

PIPELINE = "WanS2VPipeline"
CASE = "wan_s2v"
STREAMED = ""
NAMES = (
    (r"^proj_out\.", "head.head."),
    (r"^output_scale_shift_prepare\.scale_shift_table$", "head.modulation"),
    (r"^condition_embedder\.time_embedder\.linear_1\.", "time_embedding.0."),
    (r"^condition_embedder\.time_embedder\.linear_2\.", "time_embedding.2."),
    (r"^condition_embedder\.time_proj\.", "time_projection.1."),
    (r"^condition_embedder\.text_embedder\.linear_1\.", "text_embedding.0."),
    (r"^condition_embedder\.text_embedder\.linear_2\.", "text_embedding.2."),
    (r"^(blocks\.\d+\.self_attn)\.to_out\.", r"\1.o."),
    (r"^(blocks\.\d+\.cross_attn)\.to_out\.", r"\1.o."),
    (r"^(blocks\.\d+\.cross_attn)\.to_([qkv])\.", r"\1.\2."),
    (r"^(blocks\.\d+\.ffn)\.net_0\.proj\.", r"\1.0."),
    (r"^(blocks\.\d+\.ffn)\.net_2\.", r"\1.2."),
    (r"^(audio_injector\.injector\.\d+)\.to_out\.", r"\1.o."),
    (r"^(audio_injector\.injector\.\d+)\.to_([qkv])\.", r"\1.\2."),
)


def files(real, sizes):
    state = {}
    for name, tensor in real.named_parameters():
        if re.match(r"blocks\.\d+\.self_attn\.to_qkv\.", name):
            state |= {name.replace("to_qkv", p): t for p, t in zip("qkv", tensor.chunk(3), strict=True)}
            continue
        for pattern, text in NAMES:
            name = re.sub(pattern, text, name)
        state[name] = tensor
    yield "config.json", {"model_type": "s2v", **sizes}
    yield "diffusion_pytorch_model.safetensors", state


def build(folder, upstream, config, weights):
    real = upstream.create_s2v_transformer_from_config(config("config.json"))
    real.load_weights(weights(""))
    return real
