"""An adapter survives being saved."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured
from scaffold.verify.subject.lora import adapted
from scaffold.verify.subject.noise_floor import limit_for, noise_floor

ID = "lora-save-load"
TITLE = "a saved LoRA adapter, loaded into fresh base weights, gives the same velocity"


def run(subject: Any) -> Measured:
    """Save as PEFT does, load through ``load_lora_adapter``, compare."""
    from peft import get_peft_model_state_dict

    module = adapted(subject, zero=False)
    fresh = subject.new_module()
    inputs, _ = subject.inputs(fresh)
    with tempfile.TemporaryDirectory() as folder:
        state = get_peft_model_state_dict(module)
        config = module.peft_config["default"]
        config.save_pretrained(folder)
        save_file({n: t.detach().contiguous() for n, t in state.items()}, Path(folder, "adapter_model.safetensors"))
        note = _load(subject, fresh, folder)
    with torch.no_grad():
        expected, found = subject.velocity(module, inputs), subject.velocity(fresh, inputs)
    floor = noise_floor(subject, subject.new_module())
    value = relative(found, expected)
    line = f"{len(state)} matrices, velocity differs by {value:.1e}{note}"
    return Measured(line, (), value, limit_for(floor), "relative", floor)


def _load(subject: Any, module: Any, folder: str) -> str:
    """Load as the engine does; through PEFT where verl-omni cannot, which is not the package's fault."""
    from peft import LoraConfig, set_peft_model_state_dict
    from safetensors.torch import load_file

    try:
        module.load_lora_adapter(folder)
    except AttributeError as error:
        if type(module).load_lora_adapter.__module__.startswith(subject.name):
            raise
        if not hasattr(module, "peft_config") or "default" not in module.peft_config:
            module.add_adapter(LoraConfig.from_pretrained(folder))
        set_peft_model_state_dict(module, load_file(Path(folder, "adapter_model.safetensors")))
        return f"; loaded through PEFT, because load_lora_adapter of this verl-omni raises {error}"
    return ""
