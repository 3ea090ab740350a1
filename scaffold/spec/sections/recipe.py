"""[recipe]: values of the example scripts; where a preset is silent, those of the published FlowGRPO image recipes."""

from scaffold.spec.section import Section

DEFAULTS = {
    "num_inference_steps": 15,
    "noise_level": 0.7,
    "sde_type": "sde",
    "sde_window_size": 2,
    "sde_window_range": [0, 7],
    "max_prompt_length": 256,
    "height": 512,
    "width": 512,
    "gpus": 4,
    "reward_model": "Qwen/Qwen3-VL-8B-Instruct",
    "reward_gpus": 4,
    "train_batch_size": 32,
    "group_size": 16,
    "mini_batch_size": 16,
    "micro_batch_size": 16,
    "learning_rate": 1e-4,
    "weight_decay": 1e-4,
    "clip_ratio": 1e-5,
    "model_dtype": "bfloat16",
    "lora_dtype": "float32",
    "validation_steps": 50,
    "total_steps": 300,
    "epochs": 15,
    "save_every": 30,
}


# Bytes that the weights of one engine may take of an 80 GB card, and those of the engine and of training together.
OF_ENGINE, OF_BOTH = 32 * 10**9, 56 * 10**9
SIZES = (1, 2, 4, 8)


def fit(section: Section, weights: int | None, origin: str) -> None:
    """Put GPUs, tensor parallel size and offload that fit the weights; the preset goes first.

    Args:
        section: the recipe.
        weights: bytes of the trained model in 16 bits; None where that is not known.
        origin: where the number is from.
    """
    given = section.sources.preset
    size = weights or 0
    parallel = next((n for n in SIZES if size / n <= OF_ENGINE), SIZES[-1])
    gpus = section.values["gpus"]
    most = max(gpus, SIZES[-1])
    fitting = next((n for n in (gpus, most) if n % parallel == 0 and size / parallel + size / n <= OF_BOTH), most)
    values = {"tensor_parallel": parallel, "offload": weights is None or size > OF_ENGINE, "gpus": fitting}
    for key, value in values.items():
        if given.value(section.name, key) is not None:
            section.preset(key)
        elif key != "gpus" or value != gpus:
            section.put(key, value, origin if weights is not None else "default of omni-scaffold")


def fill_recipe(section: Section) -> None:
    """Put every value of the recipe; a picture is no larger than the positions of the model."""
    for key, value in DEFAULTS.items():
        section.preset(key, value)
    latents = section.before.get("latents", {})
    side = section.before.get("architecture", {}).get("position_table_side")
    for key in ("height", "width") if side else ():
        most = side * latents["downsample"] * latents["patch"]
        if section.values[key] > most:
            section.put(key, most, "positions of the model")
    checkpoint = section.before.get("checkpoint", {})
    fit(section, checkpoint.get("bytes"), section.sources.headers_origin)
