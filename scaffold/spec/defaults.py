"""Values that a spec leaves out: those of most models, which templates see where nothing else is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PORT = "port"
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "target": {
        "logprob_difference": True,
        "peft_below": None,
        "entry_point": "verl_omni.trainer.main_diffusion",
        "v1_entry_point": None,
        "use_v1": False,
        "io_spec": None,
        "lora_merge": False,
    },
    "upstream": {
        "time": "sigma",
        "output_sign": 1,
        "ported": None,
        "pinned": {},
        "replaced": [],
        "default_seed": None,
        "input_module": None,
        "checkout_pin": None,
        "post_process": None,
        "task": None,
    },
    "architecture": {
        "rotary": "plain",
        "rotary_float32": True,
        "latent_input": "linear",
        "latent_output": "linear",
        "prediction": "velocity",
        "velocity_floor": None,
        "noise_scale": 1.0,
        "noise_rule": None,
        "time": "sigma",
        "timestep_token": None,
        "norm_parts": [""],
        "position_embedding": None,
        "position_table_side": None,
        "references": None,
    },
    "schedule": {"kind": "linear", "parts": None, "highest_level": 1.0},
    "loading": {"attribute": "", "established": False},
    PORT: {
        "checkpointed": [],
        "builder": None,
        "loader": False,
        "handed": False,
        "reads": False,
        "file": False,
        "constant": False,
        "shared": False,
        "structures": False,
        "own": False,
        "output": None,
        "first": None,
        "tokenizer": None,
        "tables": False,
        "batches": "none",
        "alone": None,
    },
    "cfg": {"declared": []},
    "names": {"folder": None, "tokenizer": None},
    "prompt": {
        "prefix": None,
        "suffix": None,
        "requested": False,
        "negative_text": None,
        "behind": "",
        "template_holder": None,
    },
    "latents": {"sizes": []},
    "lora": {"placeholder": "unused", "merge": False},
    "recipe": {"tensor_parallel": 1, "offload": True, "algorithms": ["flow_grpo"]},
    "tiny": {},
    "docs": {"memory": None, "step": None},
    "checkpoint": {
        "bytes": None,
        "index": None,
        "loader_prefix": "",
        "second_prefix": "",
        "computed": [],
        "fields": [],
        "fixed_config": [],
    },
}


def completed(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return sections as templates see them, every key of ``DEFAULTS`` in place.

    That there is a section ``PORT`` says that the denoiser is ported, so no other spec gets one.
    """
    found = {name: dict(values) for name, values in sections.items()}
    for name, values in DEFAULTS.items():
        if name == PORT and name not in found:
            continue
        found[name] = {**values, **found.get(name, {})}
    return found
