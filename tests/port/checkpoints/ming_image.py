"""Ming-Image: an index of components, the denoiser's parts apart."""

PIPELINE = "MingImageDiffusionPipeline"
CASE = "ming_image"
STREAMED = "transformer"
COMPONENTS = ("vae", "conditioning")


def files(real, sizes):
    state = {}
    for name, tensor in real.state_dict().items():
        if ".to_qkv." in name:
            state |= {name.replace("to_qkv", f"to_{p}"): t for p, t in zip("qkv", tensor.chunk(3), strict=True)}
        elif ".w13." in name:
            state |= {name.replace("w13", f"w{n}"): t for n, t in zip((1, 3), tensor.chunk(2), strict=True)}
        else:
            state[name] = tensor
    yield "model_index.json", {"_class_name": PIPELINE}
    yield "transformer/config.json", sizes
    yield "transformer/diffusion_pytorch_model.safetensors", state


def build(folder, upstream, config, weights):
    real = upstream.MingImageTransformer2DModel(**config("transformer/config.json"))
    real.load_weights(weights("transformer"))
    return real
