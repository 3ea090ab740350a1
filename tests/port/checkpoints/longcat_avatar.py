"""LongCat-Video-Avatar: the denoiser in a folder of its own, beside one in int8 that nobody reads."""

PIPELINE = "LongCatVideoAvatarPipeline"
CASE = "longcat_avatar"
STREAMED = "base_model"


def files(real, sizes):
    state = real.state_dict()
    names = sorted(state)
    halves = {
        "base_model/a-00001-of-00002.safetensors": names[::2],
        "base_model/a-00002-of-00002.safetensors": names[1::2],
    }
    for path, keys in halves.items():
        yield path, {key: state[key] for key in keys}
    weight_map = {key: path.partition("/")[2] for path, keys in halves.items() for key in keys}
    yield "base_model/a.safetensors.index.json", {"metadata": {}, "weight_map": weight_map}
    yield "base_model/config.json", {"_class_name": CASE, "model_max_length": 512, **sizes}
    yield "base_model_int8/config.json", {**sizes, "hidden_size": 1}
    yield "config.json", {"model_name": "LongCat-Video-Avatar-1.5"}


def build(folder, upstream, config, weights):
    real = upstream.create_full_precision_avatar_dit(str(folder), subfolder="base_model", cp_split_hw=[1, 1])
    real.load_weights(weights("base_model"))
    return real
