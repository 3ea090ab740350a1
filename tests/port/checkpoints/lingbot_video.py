"""LingBotVideo: a model of diffusers' with its own folder, which the pipeline's constructor loads."""

PIPELINE = "LingBotVideoPipeline"
CASE = "lingbot_video"


def files(real, sizes):
    yield "transformer/config.json", {"_class_name": "LingBotVideoTransformer3DModel", **sizes}
    yield "transformer/diffusion_pytorch_model.safetensors", real.state_dict()


def build(folder, upstream, config, weights):
    import torch

    owner = upstream.LingBotVideoTransformer3DModel
    return owner.from_pretrained(folder, subfolder="transformer", torch_dtype=torch.float32)
