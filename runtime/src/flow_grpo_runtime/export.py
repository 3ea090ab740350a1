"""What training made of a released checkpoint, in its own layout: files, names and fused layers; or the adapter alone.

``python3 -m verl_omni.pipelines.flow_grpo_runtime.export --package NAME --from CHECKPOINT --base RELEASE --out DIR``
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from .trained import TrainedWeights

Tell = Callable[[str], None]
LENGTH = 8  # bytes that say how long the header of a file of weights is


class Piece(NamedTuple):
    """Where a part of a released tensor is in the training module.

    Attributes:
        parameter: of the training module.
        axis: along which a part is taken; None for the whole.
        start: where the part begins in the parameter.
        length: of the part.
        at: where it begins in the released tensor.
    """

    parameter: str
    axis: int | None = None
    start: int = 0
    length: int = 0
    at: int = 0


Pieces = Mapping[tuple[str, str], Sequence[Piece]]


class Moved(NamedTuple):
    """How far training moved a released tensor: ``|new - old| / |old|`` in float32, and the largest single change."""

    file: str
    key: str
    relative: float
    largest: float


def class_of_release(package: str) -> Any:
    """The class of a package that knows where its weights come from.

    It is the training module, or the training adapter where diffusers loads the module.

    Raises:
        ValueError: there is none, or several.
    """
    folder = importlib.import_module(package)
    classes = set()
    for entry in pkgutil.iter_modules(folder.__path__):
        if entry.name.endswith(("_model", "_training_adapter")):
            module = importlib.import_module(f"{package}.{entry.name}")
            kinds = (kind for kind in vars(module).values() if isinstance(kind, type))
            classes |= {
                kind for kind in kinds if hasattr(kind, "released_pieces") and kind.__module__ == module.__name__
            }
    classes -= {kind for kind in classes if classes & set(kind.__mro__[1:])}  # of a further algorithm
    if len(classes) != 1:
        raise ValueError(f"{package} has {len(classes)} classes that say where their weights come from")
    return classes.pop()


def export_weights(module: Any, weights: TrainedWeights, base: str, out: str) -> list[Moved]:
    """Write a released checkpoint with what training made of it.

    Everything is copied; then each tensor that is trained takes its place in the copy, one at a time.

    Args:
        module: see :func:`class_of_release`.
        weights: of the trainer's checkpoint.
        base: folder of the release, or its one file.
        out: a folder that is not there yet.

    Returns:
        How far each tensor was moved that training holds.

    Raises:
        ValueError: the two do not fit, or nothing was moved.
    """
    base = os.path.abspath(base)
    root = base if os.path.isdir(base) else os.path.dirname(base)
    pieces = module.released_pieces(base)
    known = {piece.parameter for group in pieces.values() for piece in group}
    unknown = sorted({f"{layer}.weight" for layer in weights.adapted} - known)
    if not weights.adapted:
        unknown = sorted(module.unplaced_parameters(base, weights.names))
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} and {len(unknown) - 1} more of the checkpoint have no tensor in the release as they are"
        )
    outside = sorted(path for path, _ in pieces if os.path.isabs(path) or ".." in path.split(os.sep))
    if outside:
        raise ValueError(f"the pipeline reads {outside[0]}, which does not lie in the release")
    partial = f"{out}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(root, partial, symlinks=False)
    try:
        moved = [
            entry for path in sorted({path for path, _ in pieces}) for entry in _file(partial, path, pieces, weights)
        ]
        if not any(entry.largest for entry in moved):
            raise ValueError(
                f"none of {len(moved)} tensors differs from the release: nothing was trained, or {weights.folder} is of"
                " another run, or no change is as large as the spacing of the released dtype"
            )
        os.rename(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return moved


def _file(folder: str, path: str, pieces: Pieces, weights: TrainedWeights) -> Iterator[Moved]:
    """Replace tensors of one file of the copy by the trained ones."""
    with open(os.path.join(folder, path), "r+b") as file:
        size = int.from_bytes(file.read(LENGTH), "little")
        header = json.loads(file.read(size))
        for key, entry in sorted(header.items()):
            group = pieces.get((path, key))
            if key == "__metadata__" or not group or not _in_training(group, weights):
                continue
            first, last = (LENGTH + size + offset for offset in entry["data_offsets"])
            file.seek(first)
            old = _tensor(file.read(last - first), entry)
            new = _trained(old, group, weights, f"{path}: {key}")
            file.seek(first)
            file.write(new.contiguous().reshape(-1).view(torch.uint8).numpy().data)
            apart = new.float() - old.float()
            norm = float(old.float().norm())
            yield Moved(
                path, key, float(apart.norm()) / norm if norm else float(apart.norm()), float(apart.abs().max())
            )


def _in_training(group: Sequence[Piece], weights: TrainedWeights) -> bool:
    """Whether training holds a released tensor, or LoRA on it."""
    if weights.adapted:
        return any(piece.parameter.removesuffix(".weight") in weights.adapted for piece in group)
    return any(piece.parameter in weights.names for piece in group)


def _trained(old: Tensor, group: Sequence[Piece], weights: TrainedWeights, where: str) -> Tensor:
    """What training made of a released tensor, in its dtype.

    Raises:
        ValueError: a shape differs, or the adapter was trained on another release.
    """
    if not old.is_floating_point():
        raise ValueError(f"{where} is {old.dtype}, which cannot hold what was trained")
    new = old.clone()
    for piece in group:
        part = new if piece.axis is None else new.narrow(piece.axis, piece.at, piece.length)
        layer = piece.parameter.removesuffix(".weight")
        if piece.parameter in weights.names:
            saved = _cut(weights.tensor(piece.parameter), piece)
            if saved.shape != part.shape:
                raise ValueError(
                    f"{where} is {tuple(part.shape)}, the checkpoint's {piece.parameter} {tuple(saved.shape)}"
                )
            if weights.adapted and not torch.equal(saved.to(part.dtype), part.to(saved.dtype).to(part.dtype)):
                raise ValueError(f"{where} is not what the adapter was trained on: --base is another release")
            # What was not trained keeps the release's own digits, whatever the trainer held it in.
            if not weights.adapted and not torch.equal(saved, part.to(saved.dtype)):
                part.copy_(saved)
        if layer in weights.adapted and piece.parameter.endswith(".weight"):
            down, up = weights.matrices(layer)
            update = _cut((up.float() @ down.float()) * weights.scaling, piece)
            if update.shape != part.shape:
                raise ValueError(f"{where} is {tuple(part.shape)}, LoRA on {layer} is for {tuple(update.shape)}")
            part.copy_(part.float() + update)
    return new


def _cut(tensor: Tensor, piece: Piece) -> Tensor:
    return tensor if piece.axis is None else tensor.narrow(piece.axis, piece.start, piece.length)


DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


def _tensor(data: bytes, entry: Mapping[str, Any]) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])


def export_adapter(weights: TrainedWeights, base: str, out: str, component: str | None = None) -> dict[str, float]:
    """Write the LoRA adapter in PEFT's format, and in that of a diffusers pipeline.

    Args:
        weights: of the trainer's checkpoint.
        base: the release that it is for.
        out: a folder that is not there yet.
        component: of the diffusers pipeline that has the module; None where diffusers has no such class.

    Returns:
        Norm of the second matrix of each layer, ``lora_B``, which begins as zeros.

    Raises:
        ValueError: there is no adapter, or nothing was trained.
    """
    if weights.lora is None:
        raise ValueError(f"{weights.folder} has no adapter: all parameters were trained, leave --adapter out")
    tensors: dict[str, Tensor] = {}
    norms: dict[str, float] = {}
    for layer in sorted(weights.adapted):
        down, up = weights.matrices(layer)
        norms[layer] = float(up.float().norm())
        for side, matrix in (("A", down), ("B", up)):
            tensors[f"{layer}.lora_{side}.weight"] = matrix.clone().contiguous()
    if not any(norms.values()):
        raise ValueError(f"lora_B is zero in all {len(norms)} layers of {weights.folder}: nothing was trained")
    settings = {
        "peft_type": "LORA",
        "r": int(weights.lora["r"]),
        "lora_alpha": int(weights.lora["lora_alpha"]),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        # Whole names: an ending such as to_q may be that of layers without LoRA, too.
        "target_modules": sorted(weights.adapted),
        "base_model_name_or_path": base,
    }
    os.makedirs(out)
    with open(os.path.join(out, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file, indent=2)
    named = {f"base_model.model.{name}": tensor for name, tensor in tensors.items()}
    save_file(named, os.path.join(out, "adapter_model.safetensors"), metadata={"format": "pt"})
    if component is not None:
        named = {f"{component}.{name}": tensor for name, tensor in tensors.items()}
        # diffusers makes its LoraConfig of these, and guesses a scaling of 1 without.
        told = {f"{component}.{name}": settings[name] for name in ("r", "lora_alpha", "target_modules")}
        metadata = {"format": "pt", "lora_adapter_metadata": json.dumps(told)}
        save_file(named, os.path.join(out, "pytorch_lora_weights.safetensors"), metadata=metadata)
    return norms


def run(package: str, source: str, base: str, out: str, adapter: bool) -> dict[str, Any]:
    """Export, and say what was written.

    Raises:
        FileExistsError: ``out`` is there already.
        FileNotFoundError, ValueError: the checkpoint or the release does not fit; the message says what.
    """
    for path, what in ((source, "checkpoint"), (base, "release")):
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is no {what} {path}")
    out = os.path.abspath(out)
    if os.path.exists(out):
        raise FileExistsError(f"{out} is there already: name a new folder")
    release = os.path.abspath(base) + os.sep
    if os.path.isdir(base) and f"{out}{os.sep}".startswith(release):
        raise ValueError(f"{out} lies in the release itself, which is copied")
    weights = TrainedWeights(source)
    told: dict[str, Any] = {"from": weights.folder, "out": out, "lora": weights.lora}
    kind = class_of_release(package)
    if adapter:
        norms = export_adapter(weights, base, out, getattr(kind, "component", None))
        return {**told, "adapter": True, "tensors": [{"layer": name, "norm": norm} for name, norm in norms.items()]}
    moved = export_weights(kind, weights, base, out)
    return {**told, "adapter": False, "tensors": [entry._asdict() for entry in moved]}


def lines(told: Mapping[str, Any], most: int = 10) -> Iterator[str]:
    """What was written, for a person: the tensors that were moved furthest, and how many were not."""
    tensors = told["tensors"]
    by = "norm" if told["adapter"] else "relative"
    ranked = sorted(tensors, key=lambda entry: -entry[by])
    for entry in ranked[:most]:
        if told["adapter"]:
            yield f"{entry['layer']}: lora_B has norm {entry['norm']:.2e}"
        else:
            far = f"moved by {entry['relative']:.2e} of its norm, at most {entry['largest']:.2e}"
            yield f"{entry['file']}: {entry['key']} {far}"
    still = sum(not entry[by] for entry in tensors)
    kind = "layers with LoRA" if told["adapter"] else "tensors that training holds"
    yield f"{len(tensors)} {kind}, {len(tensors) - still} moved, {still} not; written to {told['out']}"


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the command line; 2 where it cannot be done, with a line that says why."""
    parser = argparse.ArgumentParser(description="Write what training made of a release, in the release's own layout.")
    parser.add_argument("--package", required=True, help="dotted name, such as verl_omni.pipelines.foo_flow_grpo")
    parser.add_argument("--from", dest="source", required=True, help="checkpoint of the trainer")
    parser.add_argument("--base", required=True, help="released checkpoint that was trained")
    parser.add_argument("--out", required=True, help="new folder")
    parser.add_argument("--adapter", action="store_true", help="the LoRA adapter alone, in PEFT's format")
    parser.add_argument("--json", action="store_true", help="print every tensor, as JSON")
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        told = run(options.package, options.source, options.base, options.out, options.adapter)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(told) if options.json else "\n".join(lines(told)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
