"""SanaWm: a dataclass read from JSON, one weight file of a fixed name, names as they are."""

import torch

PIPELINE = "SanaWmPipeline"
CASE = "sana_wm"
STREAMED = "transformer"
FILES = "diffusion_pytorch_model.safetensors"
BESIDE = ("vae/diffusion_pytorch_model.safetensors",)  # the pipeline insists that it is there


def arguments(case):
    return (case.arguments("real")[0][0],), {}  # the pipeline leaves the channels at their defaults


def inputs(case, model):
    generator = torch.Generator().manual_seed(2)
    for given in case.inputs(model):
        frames = given["hidden_states"]
        text = torch.randn(*given["encoder_hidden_states"].shape[:2], 2304, generator=generator)
        latents = torch.randn(frames.shape[0], 128, *frames.shape[2:], generator=generator)
        yield {**given, "hidden_states": latents, "encoder_hidden_states": text}


def files(real, sizes):
    yield "transformer/config.json", {**real.config.__dict__, "unknown": 1}
    yield "transformer/diffusion_pytorch_model.safetensors", real.state_dict()
    yield "transformer/other.safetensors", {"not.ours": torch.zeros(1)}
    yield "vae/config.json", {}
    yield "vae/diffusion_pytorch_model.safetensors", {"x": torch.zeros(1)}


def build(folder, upstream, config, weights):
    from vllm_omni.diffusion.models.sana_wm.config import SanaWmConfig

    real = upstream.SanaWmTransformer3DModel(SanaWmConfig.from_json(f"{folder}/transformer/config.json"))
    real.load_weights((name, t) for name, t in weights("transformer") if name != "not.ours")
    return real
