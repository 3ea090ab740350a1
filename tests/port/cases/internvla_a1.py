"""InternVLAA1: one step of the action expert behind the keys and values of a prefix; no tokenizer of images."""

from types import SimpleNamespace

import torch
from transformers.models.qwen3_vl import modeling_qwen3_vl

# A decorator that the transformers of this environment no longer has, and a base of frequencies that it asks for.
modeling_qwen3_vl.check_model_inputs = lambda function: function
_original = modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding.compute_default_rope_parameters


def _frequencies(config=None, *args, **kwargs):
    config.rope_parameters.setdefault("rope_theta", 10000.0)
    return _original(config, *args, **kwargs)


modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding.compute_default_rope_parameters = staticmethod(_frequencies)

MODULE = "vllm_omni.diffusion.models.internvla_a1.model_internvla_a1"
CLASS = "InternVLAA1"
VERSIONS = ("0.30.0",)
ALSO = ("denoise_step",)
METHOD = "denoise_step"
CHUNK, WIDTH, STATE, PREFIX = 4, 6, 5, 5


def prepare(module):
    sizes = module.QwenConfig
    module.get_qwen_config = lambda _: sizes(16, 32, 48, 2, 2, 1)
    module.ImageTokenizer = lambda **_: torch.nn.Identity()
    module.resolve_cosmos_checkpoint_paths = lambda **_: (None, None)


def arguments(side):
    config = SimpleNamespace(
        qwen3_vl_variant="", action_expert_variant="", dtype="float32", device="cpu", scale_factor=2, chunk_size=CHUNK,
        max_action_dim=WIDTH, max_state_dim=STATE, min_period=4e-3, max_period=4.0, compile_model=False,
        attn_implementation="eager",
    )  # fmt: skip
    return (config,), {}


def call(model, **given):
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer, (keys, values) in enumerate(given["cache"]):
        cache.update(keys, values, layer)
    return model.denoise_step(given["state"], given["pads"], cache, given["position"], given["x_t"], given["timestep"])


def inputs(model):
    generator = torch.Generator().manual_seed(1)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator)

    yield {
        "state": tensor(1, STATE),
        "pads": torch.tensor([[True] * (PREFIX - 1) + [False]]),
        "cache": [(tensor(1, 1, PREFIX, 16), tensor(1, 1, PREFIX, 16)) for _ in range(2)],
        "position": torch.full((3, 1, 1), PREFIX),
        "x_t": tensor(1, CHUNK, WIDTH),
        "timestep": torch.tensor([0.4]),
    }
