"""A checkpoint of the second invented model: configuration, headers, files with holes."""

from __future__ import annotations

from pathlib import Path

from scaffold.checkpoint import CheckpointHeaders, TensorHeader
from scaffold.checkpoint.headers import CheckpointFile
from scaffold.verify.loading.run import write_headers

CONFIG = {
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "channels": 16,
    "vocab_size": 32000,
    "words_width": 768,
    "notes_width": 1280,
}
FILE = "model.safetensors"


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors."""
    wide, channels = CONFIG["hidden_size"], CONFIG["channels"]
    found: dict[str, tuple[int, ...]] = {}
    linears: dict[str, tuple[int, int]] = {"paint": (192, channels)}
    for name in ("words", "notes"):
        width = CONFIG[f"{name}_width"]
        found[f"{name}.table.weight"] = (CONFIG["vocab_size"], width)
        found |= {f"{name}.norm.weight": (width,), f"{name}.norm.bias": (width,)}
        linears |= {f"{name}.mix": (width, width), f"network.{name}_in": (wide, width)}
    linears |= {"network.enter": (wide, channels), "network.level": (wide, 64), "network.leave": (channels, wide)}
    for block in (f"network.blocks.{i}" for i in range(CONFIG["num_hidden_layers"])):
        linears |= {f"{block}.{name}": (wide, wide) for name in ("to_q", "to_k", "to_v", "to_out")}
        linears |= {f"{block}.up": (4 * wide, wide), f"{block}.down": (wide, 4 * wide)}
        for norm in ("norm", "mlp_norm"):
            found |= {f"{block}.{norm}.weight": (wide,), f"{block}.{norm}.bias": (wide,)}
    for name, shape in linears.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return found


def write_checkpoint(folder: Path) -> Path:
    """Write it; the files take no space."""
    entries = tuple(TensorHeader(name, "BF16", shape, FILE) for name, shape in shapes().items())
    file = CheckpointFile(FILE, sum(entry.nbytes for entry in entries), len(entries))
    write_headers(CheckpointHeaders("ember", (file,), entries, {"config.json": CONFIG}), folder)
    return folder
