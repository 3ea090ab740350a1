"""Euler steps of a flow from noise to data, with a constant shift or one that follows the image."""

from __future__ import annotations

from scaffold.inspect.known_schedulers import KnownScheduler

SCHEDULER = KnownScheduler(
    name="FlowMatchEulerDiscreteScheduler",
    since="0.38.0",
    seen_until="0.40.0",
    source="diffusers/schedulers/scheduling_flow_match_euler_discrete.py",
    direction="descending",
    unit=1000.0,
    sign=1,
    # With a time for each token a step is sigma - next instead of next - sigma.
    opposite=("per_token_timesteps",),
    arguments={
        "num_train_timesteps": 1000,
        "shift": 1.0,
        "use_dynamic_shifting": False,
        "base_shift": 0.5,
        "max_shift": 1.15,
        "base_image_seq_len": 256,
        "max_image_seq_len": 4096,
        "invert_sigmas": False,
        "shift_terminal": None,
        "use_karras_sigmas": False,
        "use_exponential_sigmas": False,
        "use_beta_sigmas": False,
        "time_shift_type": "exponential",
        "stochastic_sampling": False,
    },
    parameters=("num_inference_steps", "device", "sigmas", "mu", "timesteps"),
)
