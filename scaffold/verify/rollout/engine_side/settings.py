"""Settings that must precede the import of the engine; docs/rollout.md gives each reason."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.rollout.engine_side import absent

_kept: list[Any] = []


@functools.cache
def before_imports() -> None:
    """Call before vllm, transformers or the package are imported; a fork has it done."""
    absent.stand_in()
    declare_torchvision_operators()
    keep_plain_linear_layers()
    keep_plain_experts()


def declare_torchvision_operators() -> None:
    """Declare the two operators that torchvision's import registers shapes for, where its binary cannot be loaded."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    binaries = sorted(Path(spec.origin).parent.glob("_C*.so"))
    with contextlib.suppress(OSError):
        for binary in binaries:
            ctypes.CDLL(str(binary))
            return
    define_torchvision_operators()


def define_torchvision_operators() -> None:
    """Define them without a kernel."""
    import torch

    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)  # the declarations live as long as this object


def withhold_kernels(package: str) -> None:
    """Make modules of triton kernels fail to import where triton is not installed, as they do without vllm's stand-in.

    Only those whose every import in the model's folder is prepared for that: the source then takes its plain path.

    Args:
        package: dotted name of the model's folder.
    """
    if importlib.util.find_spec("triton") is not None:
        return
    spec = importlib.util.find_spec(package)
    folder = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    if folder is None:
        return
    sources = {path.stem: read_text(path) for path in sorted(folder.glob("*.py"))}
    kernels = [name for name, text in sources.items() if "triton.jit" in text]
    trees = [ast.parse(text) for text in sources.values()]
    for name in kernels:
        if all(_guards(tree, name) for tree in trees):
            sys.modules[f"{package}.{name}"] = None  # type: ignore[assignment]


def _guards(tree: ast.Module, name: str) -> bool:
    """Whether every import of a module is in a ``try`` that catches ``ImportError``."""
    guarded: set[int] = set()
    for node in ast.walk(tree):
        caught = [ast.unparse(h.type) for h in node.handlers if h.type] if isinstance(node, ast.Try) else []
        if isinstance(node, ast.Try) and any("ImportError" in text or "Exception" in text for text in caught):
            guarded |= {id(inner) for part in node.body for inner in ast.walk(part)}
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and ((node.module or "").rpartition(".")[2] == name or any(alias.name == name for alias in node.names))
    ]
    return all(id(node) in guarded for node in imports)


def keep_plain_linear_layers() -> None:
    """Turn off kernels for which vllm packs weights: packed layers have no ``weight`` to load an update into.

    oneDNN's abort on mixed dtypes, and the kernels for processors with AMX refuse inputs in float32.
    """
    custom_ops: Any = importlib.import_module("vllm._custom_ops")
    custom_ops._supports_onednn = False
    layers: Any = importlib.import_module("vllm.model_executor.layers.utils")
    layers.check_cpu_sgl_kernel = lambda *_: False


def keep_plain_experts() -> None:
    """Compute experts with torch, of weights as they were loaded: vllm's kernels for CPUs pack them when it starts.

    Routing, and what all tokens go through besides, stay vllm's. Releases that have no such kernels are left alone.
    """
    name = "vllm.model_executor.layers.fused_moe.experts.cpu_moe"
    if importlib.util.find_spec("vllm") is None:
        return
    try:
        kernels: Any = importlib.import_module(name)
        experts = kernels.CPUUnquantizedExperts
    except (ImportError, AttributeError):
        return
    experts.process_weights_after_loading = lambda self, layer: None
    experts.apply = _plain_experts


def _plain_experts(
    self: Any,
    output: Any,
    hidden_states: Any,
    w1: Any,
    w2: Any,
    topk_weights: Any,
    topk_ids: Any,
    activation: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Gated experts on tokens ``(T, D)``: ``w1`` ``(E, 2 I, D)`` has gate and up, ``w2`` is ``(E, D, I)``."""
    import torch.nn.functional as functional

    if activation.value != "silu":
        raise NotImplementedError(f"experts with {activation.value}")
    output.zero_()
    for index in range(w1.shape[0]):
        tokens, places = (topk_ids == index).nonzero(as_tuple=True)
        if len(tokens):
            gate, up = functional.linear(hidden_states[tokens], w1[index]).chunk(2, dim=-1)
            made = functional.linear(functional.silu(gate) * up, w2[index])
            output.index_add_(0, tokens, (made * topk_weights[tokens, places, None].to(made.dtype)).to(output.dtype))
