"""An adapter survives being saved, in each form that its file may have."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from scaffold.attributes import with_attribute
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.lora import adapted, layers
from scaffold.verify.subject.noise_floor import limit_for, noise_floor

ID = "lora-save-load"
TITLE = (
    "a saved LoRA adapter, loaded into fresh base weights, sits on the same layers, trains and gives the same velocity;"
    " so does one that verl-omni exports from a checkpoint, and the package's own"
)


def run(subject: Any) -> Measured:
    """Save in each form, load through ``load_lora_adapter``, compare."""
    if subject.loaded:
        raise NotDrivableError(
            "VeRL-Omni has diffusers load an adapter (lora_adapter_path), which reads pytorch_lora_weights.bin alone"
        )
    module = adapted(subject, zero=False)
    inputs, _ = subject.inputs(module)
    with torch.no_grad():
        expected = subject.velocity(module, inputs)
    own = type(module).load_lora_adapter.__module__.startswith(subject.name)
    forms: dict[str, Callable[[Any, Path], None]] = {"PEFT's": _as_peft}
    if own:
        # verl-omni's loader reads neither: where the package keeps it, that is not a fault of the package.
        forms["verl-omni's export"] = _as_exported
        if hasattr(module, "save_lora_adapter"):
            forms["the package's"] = lambda module, folder: module.save_lora_adapter(str(folder))
    problems, worst, note = [], 0.0, ""
    for form, write in forms.items():
        fresh = subject.new_module()
        with tempfile.TemporaryDirectory() as folder:
            write(module, Path(folder))
            note = _load(subject, fresh, folder) or note
        if layers(fresh).keys() != layers(module).keys():
            extra = sorted(layers(fresh).keys() ^ layers(module).keys())
            problems.append(f"{form} file puts LoRA on {len(extra)} other layers, such as {extra[0]}")
            continue
        frozen = [name for name, value in fresh.named_parameters() if ".lora_" in name and not value.requires_grad]
        if frozen:
            problems.append(f"after {form} file {frozen[0]} is not trained")
        with torch.no_grad():
            found = relative(subject.velocity(fresh, inputs), expected)
        worst = max(worst, found) if found == found else found
    floor = noise_floor(subject, subject.new_module())
    line = f"{', '.join(forms)} file: velocity differs by {worst:.1e}{note}"
    return Measured(line, problems, worst, limit_for(floor), "relative", floor)


def _state(module: Any) -> dict[str, Tensor]:
    from peft import get_peft_model_state_dict

    return {name: value.detach().contiguous() for name, value in get_peft_model_state_dict(module).items()}


def _as_peft(module: Any, folder: Path) -> None:
    """As ``PeftModel.save_pretrained`` does, which marks the adapter as one for inference."""
    config = module.peft_config["default"]
    with with_attribute(config, "inference_mode", True):
        config.save_pretrained(folder)
    save_file(_state(module), folder / "adapter_model.safetensors")


def _as_exported(module: Any, folder: Path) -> None:
    """By ``export_fsdp_lora_adapter`` where verl-omni is installed; else the same, which it has since v0.2.0."""
    config = module.peft_config["default"]
    try:
        export = import_module("verl_omni.utils.fsdp_utils").export_fsdp_lora_adapter
    except (ImportError, AttributeError):
        names = {name.partition(".lora_")[0].rpartition(".")[2] for name in _state(module)}
        plain = {"peft_type": "LORA", "r": config.r, "lora_alpha": config.lora_alpha, "target_modules": sorted(names)}
        (folder / "adapter_config.json").write_text(json.dumps(plain))
        tensors = {f"base_model.model.{name}": value for name, value in _state(module).items()}
        save_file(tensors, folder / "adapter_model.safetensors")
        return
    with tempfile.TemporaryDirectory() as checkpoint:
        place = Path(checkpoint)
        (place / "fsdp_config.json").write_text(json.dumps({"world_size": 1}))
        (place / "lora_train_meta.json").write_text(json.dumps({"r": config.r, "lora_alpha": config.lora_alpha}))
        torch.save(module.state_dict(), place / "model_world_size_1_rank_0.pt")
        export(place, folder)


def _load(subject: Any, module: Any, folder: str) -> str:
    """Load and make the adapter the active one, as the engine does.

    Through PEFT where verl-omni cannot load, which is not the package's fault.
    """
    from peft import LoraConfig, set_peft_model_state_dict
    from safetensors.torch import load_file

    try:
        module.load_lora_adapter(folder)
    except AttributeError as error:
        if type(module).load_lora_adapter.__module__.startswith(subject.name):
            raise
        if not hasattr(module, "peft_config") or "default" not in module.peft_config:
            config = LoraConfig.from_pretrained(folder)
            config.inference_mode = False
            module.add_adapter(config)
        set_peft_model_state_dict(module, load_file(Path(folder, "adapter_model.safetensors")))
        return f"; loaded through PEFT, because load_lora_adapter of this verl-omni raises {error}"
    module.set_adapter("default")  # PEFT's file says that it is for inference: this is what makes it train
    return ""
