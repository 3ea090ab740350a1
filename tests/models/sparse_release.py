"""The released files of a complete pipeline, at their full size on no space: headers, and nothing behind them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from scaffold.checkpoint import TensorHeader
from scaffold.grade.layout import Layout

# Weights of other components: one tensor that no denoiser has.
OTHER = {"other.component.weight": {"dtype": "BF16", "shape": [8, 8], "data_offsets": [0, 128]}}
ADDED = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<img>", "</img>")


def write_release(folder: Path, layout: Layout, *, without: Collection[str] = ()) -> None:
    """Write every file that the release is known to have.

    Which of several weight files has which tensor is not known: they are filled one after the other.

    Args:
        folder: made where it is not there.
        layout: what is known.
        without: tensors to leave out.
    """
    left = [entry for entry in layout.headers().entries if entry.name not in without]
    weight_map, size = {}, sum(entry.nbytes for entry in left)
    for number, path in enumerate(layout.weight_files, 1):
        held: list[TensorHeader] = []
        while left and (number == layout.parts or sum(entry.nbytes for entry in held) < size / layout.parts):
            held.append(left.pop(0))
        write_sparse(folder / path, held, layout.metadata)
        weight_map |= {entry.name: Path(path).name for entry in held}
    for file in layout.files:
        write_other(folder / file, layout.configs.get(file, {}))
        if file.endswith(".safetensors") and "/" not in file:
            weight_map |= dict.fromkeys(OTHER, file)
    if layout.index_file is not None:
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        (folder / layout.index_file).write_text(json.dumps(index), encoding="utf-8")


def write_sparse(path: Path, entries: list[TensorHeader], metadata: Mapping[str, str]) -> None:
    """Write a weight file as safetensors lays it out: wide dtypes first, as tensors are aligned."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for entry in sorted(entries, key=lambda entry: (entry.dtype != "F32", entry.name)):
        start, end = end, end + entry.nbytes
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [start, end]}
    write_header(path, header, end)


def write_header(path: Path, header: dict[str, Any], size: int) -> None:
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + size)


def write_other(path: Path, values: Any) -> None:
    """Write a file beside the weights: configuration, a tokenizer that can be opened, another component's weights."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        write_header(path, OTHER, 128)
    elif path.name == "tokenizer.json":
        added = [
            {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False}
            for i, text in enumerate(ADDED)
        ]
        model = {"type": "WordLevel", "vocab": {text: i for i, text in enumerate(ADDED)}, "unk_token": ADDED[0]}
        parts = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts, "model": model}
        path.write_text(json.dumps(whole), encoding="utf-8")
    elif path.name == "tokenizer_config.json":
        path.write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(values), encoding="utf-8")
    else:
        path.write_bytes(b"")
