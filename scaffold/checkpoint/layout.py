"""Finds the checkpoint's files in a listing, and assembles their contents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from scaffold.checkpoint.headers import INDEX_SUFFIX, CheckpointFile, CheckpointHeaders, TensorHeader, check_index
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.files.reading import is_relative

WEIGHTS = ".safetensors"
_ADAPTER = re.compile(r"(^|\.)(lora_([AB]|embedding_[AB]|magnitude_vector)|hada_w\d_[ab])(\.|$)")
# Other formats of weights: what they are, and the way from there.
OTHERS = {
    ".gguf": ("GGUF, weights quantised for inference", "training needs the released weights, as safetensors"),
    ".distcp": (
        "a distributed checkpoint of torch, in parts",
        "`python -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR FILE.pt` joins them; save that as"
        " safetensors",
    ),
    ".onnx": ("an exported graph", "training needs the released weights, as safetensors"),
}
# How names begin where somebody has packed a model into one file.
_PREFIXES = {"model.diffusion_model.": "single files for ComfyUI have them"}
_VARIANT = re.compile(r"\.(fp16|bf16|fp8)\.safetensors$")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def weight_names(names: Iterable[str]) -> list[str]:
    """Return the weight files and indexes of a listing: those at the top, or where it has none, one folder down."""
    found = sorted(name for name in names if name.endswith((WEIGHTS, INDEX_SUFFIX)))
    top = [name for name in found if "/" not in name]
    return top or [name for name in found if name.count("/") == 1]


def no_weights(where: str, names: Iterable[str]) -> ScaffoldError:
    """Return the error for a listing without weights; it names pickles, which are never loaded."""
    names = list(names)
    pickles = sorted(name for name in names if name.endswith(PICKLES))
    if pickles:
        shown = ", ".join(pickles[:3]) + (f" and {len(pickles) - 3} more" if len(pickles) > 3 else "")
        return ScaffoldError(
            f"{where} has pickled weights only ({shown}), which are never loaded", hint="convert them to safetensors"
        )
    for name in sorted(names):
        what, remedy = OTHERS.get(PurePosixPath(name).suffix.lower(), ("", ""))
        if what:
            return ScaffoldError(f"{where} holds {quoted(name)}, {what}, and no .safetensors file", hint=remedy)
    return ScaffoldError(f"{where} holds no .safetensors file", hint="give the folder with the model's weights")


def other_form(headers: CheckpointHeaders) -> str | None:
    """Return in which other form than that of a release a checkpoint is, and the way from there; None of a release."""
    names = [entry.name for entry in headers.entries]
    for prefix, whose in _PREFIXES.items():
        if names and all(name.startswith(prefix) for name in names):
            return (
                f"all of its names begin with {prefix}, as {whose}: give the folder that the model's authors released"
            )
    variant = next((found for file in headers.files if (found := _VARIANT.search(file.name))), None)
    if variant is not None:
        plain = variant.string.replace(f".{variant[1]}.", ".")
        return f"{quoted(variant.string)} is the {variant[1]} variant of the weights: give the release's own, {plain}"
    return None


def check_inside(name: str, origin: str) -> None:
    """Require a POSIX path relative to the checkpoint that stays in it; ``origin`` begins the error, ``X has``.

    Raises:
        ScaffoldError: absolute, with ``..``, with a drive or backslash, or empty.
    """
    if not is_relative(name):
        raise ScaffoldError(f"{origin} the file {quoted(name)}, which is not a path inside the checkpoint")


def placed(index: str, weight_map: Mapping[str, str]) -> dict[str, str]:
    """Return an index's map with shards relative to the checkpoint instead of the index's folder.

    Raises:
        ScaffoldError: a shard's path leads out of the checkpoint.
    """
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        check_inside(shard, f"{index} names")
    paths = {shard: str(PurePosixPath(index).parent / shard) for shard in shards}
    return {tensor: paths[shard] for tensor, shard in weight_map.items()}


def assemble(
    source: str,
    read: Mapping[str, tuple[list[TensorHeader], int]],
    indexes: Mapping[str, Mapping[str, str]],
    configs: Mapping[str, dict[str, Any]],
    skipped: Mapping[str, str],
    labels: Mapping[str, str],
) -> CheckpointHeaders:
    """Return the checkpoint of all files.

    Args:
        source: label of the checkpoint.
        read: tensors and data bytes of each weight file.
        indexes: shard of each tensor, by index file.
        configs: JSON objects by file name.
        skipped: reasons by name of JSON files left out.
        labels: how errors name each index.

    Raises:
        ScaffoldError: an index and its shards disagree, or there are no tensors at all.
    """
    for name, weight_map in indexes.items():
        members = sorted(set(weight_map.values()))
        check_index(weight_map, (entry for shard in members for entry in read[shard][0]), labels[name])
    names = [entry.name for tensors, _ in read.values() for entry in tensors]
    if names and all(_ADAPTER.search(name) for name in names):
        raise ScaffoldError(
            f"{source} is a PEFT adapter of {len(names)} tensors, {quoted(names[0])} first, not the weights of a model",
            hint="merge it into its base model and give that, or give the base model",
        )
    if not names:
        raise ScaffoldError(f"{', '.join(sorted(read)[:3])} of {source} holds no tensors")
    return CheckpointHeaders(
        source=source,
        files=tuple(CheckpointFile(name, len(read[name][0]), read[name][1]) for name in sorted(read)),
        entries=tuple(entry for name in sorted(read) for entry in read[name][0]),
        configs=dict(configs),
        skipped=dict(skipped),
    )
