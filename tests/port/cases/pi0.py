"""Pi0ForActionPrediction: one step of the action expert behind a prefix of an image and a prompt."""

from types import SimpleNamespace

import torch

MODULE = "vllm_omni.diffusion.models.pi0.modeling_pi0"
CLASS = "Pi0ForActionPrediction"
VERSIONS = ("0.30.0",)
ALSO = ("denoise_step", "embed_prefix")


def prepare(module):
    variant = module.GemmaVariantConfig
    module.get_gemma_config = lambda name: variant(32 if name == "gemma_2b" else 24, 2, 48, 2, 1, 16)
    original = module.PaliGemmaForConditionalGeneration
    if getattr(original, "small", False):
        return

    def small(config):
        config.vision_config.hidden_size = 24
        config.vision_config.intermediate_size = 32
        config.vision_config.num_hidden_layers = 1
        config.vision_config.num_attention_heads = 2
        config.vision_config.projection_dim = 32
        config.projection_dim = 32
        return original(config=config)

    small.small = True
    module.PaliGemmaForConditionalGeneration = small


def arguments(side):
    return (SimpleNamespace(max_action_dim=6, max_state_dim=5, chunk_size=4),), {}


def call(model, **inputs):
    embeddings, pads, _ = model.embed_prefix(inputs["images"], inputs["image_masks"], inputs["tokens"], inputs["masks"])
    mask = (pads[:, None, :] & pads[:, :, None])[:, None]
    mask = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    positions = torch.cumsum(pads, dim=1) - 1
    _, cache = model.paligemma_with_expert.forward(
        attention_mask=mask, position_ids=positions, past_key_values=None, inputs_embeds=[embeddings, None],
        use_cache=True,
    )  # fmt: skip
    return model.denoise_step(inputs["state"], pads, cache, inputs["x_t"], inputs["timestep"])


def inputs(model):
    generator = torch.Generator().manual_seed(1)
    yield {
        "images": [torch.randn(1, 3, 224, 224, generator=generator)],
        "image_masks": [torch.ones(1, dtype=torch.bool)],
        "tokens": torch.randint(0, 1000, (1, 5), generator=generator),
        "masks": torch.tensor([[True, True, True, True, False]]),
        "state": torch.randn(1, 5, generator=generator),
        "x_t": torch.randn(1, 4, 6, generator=generator),
        "timestep": torch.tensor([0.4]),
    }
