"""Pi0 as LeRobot publishes it: the pipeline reads one file, its module renames keys; the head is a tied embedding."""

import copy

PIPELINE = "Pi0Pipeline"
CASE = "pi0"
INNER = "paligemma_with_expert.paligemma.model."
HEAD = "paligemma_with_expert.paligemma.lm_head.weight"


def published(name):
    if name == f"{INNER}language_model.embed_tokens.weight":
        return f"model.{HEAD}"
    if name.startswith(f"{INNER}vision_tower.") and ".vision_model." not in name:
        name = name.replace("vision_tower.", "vision_tower.vision_model.")
    return "model." + name.replace(INNER, "paligemma_with_expert.paligemma.")


def files(real, sizes):
    yield "config.json", {"max_action_dim": 6, "max_state_dim": 5, "chunk_size": 4, "push_to_hub": False}
    yield "model.safetensors", {published(name): tensor for name, tensor in real.named_parameters()}


def build(folder, upstream, config, weights):
    from vllm_omni.diffusion.models.pi0.config import Pi0Config

    real = upstream.Pi0ForActionPrediction(Pi0Config.from_pretrained(folder))
    real.load_weights(list(weights("")))
    return real


def call(model, real, **given):
    """One step behind the real module's prefix; a step may add to its cache."""
    import torch

    embeddings, pads, _ = real.embed_prefix(given["images"], given["image_masks"], given["tokens"], given["masks"])
    mask = torch.where((pads[:, None, :] & pads[:, :, None])[:, None], 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad():
        _, cache = real.paligemma_with_expert.forward(
            attention_mask=mask, position_ids=torch.cumsum(pads, dim=1) - 1, past_key_values=None,
            inputs_embeds=[embeddings.detach(), None], use_cache=True,
        )  # fmt: skip
    state = [given["state"]] if "state" in given else []
    return model.denoise_step(*state, pads, copy.deepcopy(cache), given["x_t"], given["timestep"])
