"""OmniGen2: components in folders, the denoiser's parts apart and under diffusers' names."""

import re

PIPELINE = "OmniGen2Pipeline"
CASE = "omnigen2"
STREAMED = "transformer"


def files(real, sizes):
    state = {}
    for name, tensor in real.state_dict().items():
        if ".to_qkv." in name:
            heads = tensor.split([48, 24, 24])
            state |= {name.replace("to_qkv", f"to_{part}"): rows for part, rows in zip("qkv", heads, strict=True)}
        elif ".gate_up_proj." in name:
            state |= {
                name.replace("gate_up_proj", f"linear_{n}"): t for n, t in zip((1, 3), tensor.chunk(2), strict=True)
            }
        else:
            state[re.sub(r"feed_forward\.down_proj", "feed_forward.linear_2", name)] = tensor
    config = {"_class_name": "OmniGen2Transformer2DModel", "pooled_projection_dim": 7, **sizes}
    yield "transformer/config.json", config
    yield "model_index.json", {"_class_name": PIPELINE}
    names = sorted(state)
    halves = {
        "transformer/a-00001-of-00002.safetensors": names[::2],
        "transformer/a-00002-of-00002.safetensors": names[1::2],
    }
    for path, keys in halves.items():
        yield path, {key: state[key] for key in keys}
    weight_map = {key: path.partition("/")[2] for path, keys in halves.items() for key in keys}
    yield "transformer/a.safetensors.index.json", {"metadata": {}, "weight_map": weight_map}


def build(folder, upstream, config, weights):
    from vllm_omni.diffusion.data import TransformerConfig
    from vllm_omni.diffusion.utils.tf_utils import get_transformer_config_kwargs

    owner = upstream.OmniGen2Transformer2DModel
    real = owner(**get_transformer_config_kwargs(TransformerConfig.from_dict(config("transformer/config.json")), owner))
    real.load_weights(weights("transformer"))
    return real
