"""Contracts that ask a package with a ported denoiser otherwise: a module of a contract's own name takes its place.

Such a package is driven by what the real pipeline was recorded doing, so what these contracts vary is recorded, too.
"""

NOT_DRIVEN = {
    "gradient_paths": "its layers are upstream's own text: lora-learns and gradient-checkpointing look at each of them",
    "prompt_ids": "training takes recorded calls and no token ids; level rollout sends ids to the pipeline",
    "prompt_preprocessor": "the data set keeps prompts as messages, which the pipeline encodes itself",
    "requests_apart": "the pipeline's own constructor and loop are needed: level rollout sends several requests",
    "validation_output": "the loop is the pipeline's own: see rollout-validation and -plain of level rollout",
    "window_alignment": "the loop is the pipeline's own: see rollout-window-alignment of level rollout",
    "window_noise": "the loop is the pipeline's own: see rollout-window-noise of level rollout",
}
"""Contracts that need what no recording holds, and why."""
OF_HAND = {
    "cfg_settings",
    "rollout_log_probs",
    "rollout_noise",
    "schedule_diffusers_0_38",
    "schedule_diffusers_0_40",
    "window_per_step",
}
"""Contracts of a hand-written package that are about its rollout: where its real pipeline was recorded, about that."""
