"""An adapter outlasts its way: through a file into another module, as weights into the rollout."""

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
from scaffold.verify.rollout.engine_side.sources import pipelines_above
from scaffold.verify.subject.checkpoint import checkpoint_writer
from scaffold.verify.subject.lora import ALPHA, RANK, adapted, layers, limit_for, noise_floor
from scaffold.verify.subject.rollout import drive

HOOK = "map_lora_update_to_engine"


class SaveLoad:
    """An adapter survives being saved, in each form that its file may have."""

    ID = "lora-save-load"
    TITLE = (
        "a saved LoRA adapter, loaded into fresh base weights, sits on the same layers, trains and gives the same "
        "velocity; so does one that verl-omni exports from a checkpoint, and the package's own"
    )

    @staticmethod
    def run(subject: Any) -> Measured:
        """Save in each form, load through ``load_lora_adapter``, compare."""
        if subject.loaded:
            raise NotDrivableError(
                "VeRL-Omni has diffusers load an adapter (lora_adapter_path), which reads pytorch_lora_weights.bin "
                "alone"
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


class Update:
    """The adapter's update is LoRA's."""

    ID = "lora-update"
    TITLE = "the adapted velocity is that of the weights W + (alpha / r) B A, which is what the rollout makes of them"
    PITFALLS = (18,)

    @staticmethod
    def run(subject: Any) -> Measured:
        """Put the sum into a module without adapters and compare: the rollout scales by alpha / r."""
        module, merged = adapted(subject, zero=False), subject.new_module()
        inputs, _ = subject.inputs(merged)
        floor = noise_floor(subject, merged)
        with torch.no_grad():
            for name, layer in layers(module).items():
                down, up = (next(iter(part.values())).weight.double() for part in (layer.lora_A, layer.lora_B))
                weight = merged.get_submodule(name).weight
                weight.copy_(weight.double() + ALPHA / RANK * up @ down)
            value = relative(subject.velocity(module, inputs), subject.velocity(merged, inputs))
        problems = _lost_by_hook(subject, module)
        return Measured(
            f"{value:.1e} relative from the merged weights", problems, value, limit_for(floor), "relative", floor
        )


def _lost_by_hook(subject: Any, module: Any) -> list[str]:
    """Return what the rollout adapter's hook loses of an update, if it has one and can be called here.

    A hook that needs more of the engine than the stand-in has is left to level rollout.
    """
    captured: list[str] = []

    def load_weights(pipeline: Any, weights: Any) -> set[str]:
        names = {name for name, _ in weights}
        captured.extend(names)
        return names

    try:
        if not hasattr(subject.rollout, HOOK):
            return []
        pipeline = drive(subject).pipeline
        upstream = pipelines_above(subject.rollout)[0]
        pipeline.add_module("omni_scaffold_spare", torch.nn.Linear(5, 7))  # a parameter, whose device hooks ask for
        # A rendered hook leaves the manager an adapter of zeros on a layer of the engine's, of which there is none.
        pipeline._placeholder_adapter = lambda config, rank: ({"spare.lora_B.weight": torch.zeros(1)}, config)
        tensors = {
            f"transformer.{name}.lora_{side}.weight": next(iter(part.values())).weight.detach().clone()
            for name, layer in layers(module).items()
            for side, part in (("A", layer.lora_A), ("B", layer.lora_B))
        }
        with tempfile.TemporaryDirectory() as name, with_attribute(upstream, "load_weights", load_weights):
            writer = checkpoint_writer(subject, Path(name, "trial"))
            writer.write(Path(name, "model"), subject.new_module().state_dict())
            pipeline.od_config.model = str(Path(name, "model"))
            targets = subject.declared("target_modules")
            left, _ = getattr(pipeline, HOOK)(tensors, {"r": RANK, "lora_alpha": ALPHA, "target_modules": targets})
    except Exception:
        return []
    if captured or any(bool(tensor.any()) for tensor in left.values()):
        return []
    return [f"{HOOK} loses the update: it loads no weight, and leaves nothing but zeros for the engine's LoRA manager"]
