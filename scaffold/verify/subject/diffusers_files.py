"""Files of a checkpoint in the layout of diffusers that training reads beside the denoiser's own."""

from __future__ import annotations

from typing import Any

# A VAE of four levels, eight pixels to a latent one, and a schedule that does not depend on the image's size.
FILES: dict[str, dict[str, Any]] = {
    "vae/config.json": {
        "block_out_channels": [8, 8, 8, 8],
        "latent_channels": 16,
        "scaling_factor": 1.0,
        "shift_factor": 0.0,
    },
    "scheduler/scheduler_config.json": {
        "_class_name": "FlowMatchEulerDiscreteScheduler",
        "num_train_timesteps": 1000,
        "shift": 3.0,
        "use_dynamic_shifting": False,
    },
}
