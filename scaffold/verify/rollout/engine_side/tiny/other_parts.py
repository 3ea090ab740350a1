"""Other parts of a pipeline whose weights lie in the denoiser's files, and the configuration of one that is its own."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

FILE = "other_parts.safetensors"
_MISSING, _NONE = "were not initialized from checkpoint", "model weights"
SCALE = 0.05


def write_other_parts(error: Exception, folder: Path, dtype: torch.dtype) -> bool:
    """Write what the engine misses of the pipeline's own parameters, beside the denoiser's; tells whether it did."""
    model = _model(error)
    if model is None or _MISSING not in str(error) or (folder / FILE).exists():
        return False
    from safetensors.torch import save_file

    modules, made = dict(model.named_modules()), {}
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if f"'{name}'" not in str(error):
            continue
        owner, _, kind = name.rpartition(".")
        for key, rows in _in_files(owner, modules[owner]):
            shape = parameter.shape if rows is None else (rows, *parameter.shape[1:])
            values = torch.randn(shape, generator=generator) * SCALE
            norm = parameter.ndim == 1 and kind == "weight"
            made[f"{key}.{kind}"] = (values + norm).to(dtype)
    save_file(made, folder / FILE)
    return bool(made)


def know_configuration(pipeline: Any, settings: dict[str, Any]) -> None:
    """Make transformers know the kind of configuration that a released checkpoint brings the code of.

    It is read by the class that the pipeline names, of which the checkpoint's own is another copy.
    """
    library: Any = importlib.import_module("transformers")
    kind, own = settings.get("model_type"), getattr(pipeline, "config_class", None)
    if own is None or kind is None or kind in library.CONFIG_MAPPING:
        return

    def construct(self: Any, **values: Any) -> None:
        own.__init__(self, **values)

    library.AutoConfig.register(kind, type(own.__name__, (own,), {"model_type": kind, "__init__": construct}))


def _in_files(owner: str, module: Any) -> list[tuple[str, int | None]]:
    """Names of a layer in files, which have its parts where the engine fuses them, with their rows."""
    if type(module).__name__ != "QKVParallelLinear":
        return [(owner, None)]
    path, _, _ = owner.rpartition(".")
    widths = [module.num_heads * module.head_size, *[module.num_kv_heads * module.head_size] * 2]
    return [(f"{path}.{letter}_proj", width) for letter, width in zip("qkv", widths, strict=True)]


def _model(error: Exception) -> Any:
    """The pipeline whose weights were being loaded."""
    trace, found = error.__traceback__, None
    while trace is not None:
        held = trace.tb_frame.f_locals.get("model")
        found = held if isinstance(held, torch.nn.Module) else found
        trace = trace.tb_next
    return found
