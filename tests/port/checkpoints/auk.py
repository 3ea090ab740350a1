"""AuK: one file that the pipeline reads by itself, sections of one configuration."""

import torch

PIPELINE = "AuKPipeline"
CASE = "auk"
UNUSED = ("layer_weights",)


def files(real, sizes):
    sizes = dict(sizes)
    vae = {"latent_dim": sizes.pop("latent_dim")}
    yield "config.json", {"dit": sizes, "vae": vae}
    state = {f"transformer.{name}": tensor for name, tensor in real.state_dict().items()}
    yield "auk.safetensors", {**state, "layer_weights": torch.zeros(2)}


def build(folder, upstream, config, weights):
    found = config("config.json")
    real = upstream.AuKTransformer(latent_dim=found["vae"]["latent_dim"], **found["dit"])
    real.load_state_dict({n.removeprefix("transformer."): t for n, t in weights("") if n.startswith("transformer.")})
    return real
