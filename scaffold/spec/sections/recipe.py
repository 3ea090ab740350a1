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


def fill(section: Section) -> None:
    """Put every value of the recipe; a picture is no larger than the positions of the model."""
    for key, value in DEFAULTS.items():
        section.preset(key, value)
    latents = section.before.get("latents", {})
    side = section.before.get("architecture", {}).get("position_table_side")
    for key in ("height", "width") if side else ():
        most = side * latents["downsample"] * latents["patch"]
        if section.values[key] > most:
            section.put(key, most, "positions of the model")
