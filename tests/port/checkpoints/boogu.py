"""BooguImage: attention projections below a processor, outputs in a list, a tensor that nobody uses."""

import torch

PIPELINE = "BooguImagePipeline"
CASE = "boogu"
STREAMED = "transformer"
UNUSED = ("left.over",)
JOINT = (
    "img_to_q",
    "img_to_k",
    "img_to_v",
    "instruct_to_q",
    "instruct_to_k",
    "instruct_to_v",
    "img_out",
    "instruct_out",
)


def files(real, sizes):
    rows = {(target, part): shard for target, part, shard in real.stacked_params_mapping}
    state = {"left.over": torch.zeros(1)}
    for name, tensor in real.state_dict().items():
        parts = [(t, p, s) for (t, p), s in rows.items() if t in name]
        if parts:
            sizes_of = [48, 24, 24] if len(parts) == 3 else [tensor.shape[0] // 2] * 2
            order = sorted(parts, key=lambda entry: {"q": 0, "k": 1, "v": 2}.get(entry[2], entry[2]))
            for (target, part, _), piece in zip(order, tensor.split(sizes_of), strict=True):
                state[saved(name.replace(target, part))] = piece
        else:
            state[saved(name)] = tensor
    yield "model_index.json", {"_class_name": PIPELINE}
    yield "transformer/config.json", sizes
    yield "transformer/diffusion_pytorch_model.safetensors", state


def saved(name):
    name = name.replace(".to_out.", ".to_out.0.")
    if any(f".{part}." in name for part in JOINT):
        name = name.replace(".img_instruct_attn.", ".img_instruct_attn.processor.")
    return name


def build(folder, upstream, config, weights):
    from types import SimpleNamespace

    real = upstream.BooguImageTransformer2DModel(SimpleNamespace(tf_model_config=config("transformer/config.json")))
    real.load_weights(weights("transformer"))
    return real
