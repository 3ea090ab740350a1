"""Which modules of vllm-omni a denoiser needs executed, and the digest of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from scaffold.source.modules import ModuleGraph, ModuleInfo

# Models and layers are torch; what else of the engine's is plain code is named.
_PLAIN = (
    "vllm_omni.diffusion.models.",
    "vllm_omni.diffusion.layers.",
    "vllm_omni.diffusion.utils.",
    "vllm_omni.model_executor.layers.timestep_embedding",
    "vllm_omni.model_executor.models.",
    "vllm_omni.transformers_utils.",
)
# Layers that choose among kernels, for which the runtime has counterparts.
_KERNELS = ("vllm_omni.diffusion.layers.fused_moe", "vllm_omni.diffusion.layers.fused_qk_norm_rope")


def executed_files(graph: ModuleGraph, *modules: str) -> dict[str, str]:
    """Return the files of those modules and of all that they import, with the SHA-256 of each.

    Packages' own files (``__init__.py``) are among them only where a name is taken from one.

    Args:
        graph: modules of the source.
        modules: dotted names.
    """
    found: dict[str, str] = {}
    waiting, seen = list(modules), set()
    while waiting:
        name = waiting.pop()
        info = graph.find(name)
        if name in seen or info is None:
            continue
        seen.add(name)
        found[info.file] = hashlib.sha256(graph.source.read(info.file).encode()).hexdigest()
        waiting += _imported(graph, info)
    return dict(sorted(found.items()))


def _imported(graph: ModuleGraph, info: ModuleInfo) -> Iterator[str]:
    for taken in info.imports.values():
        below = f"{taken.module}.{taken.name}"
        module = below if taken.name is not None and graph.find(below) is not None else taken.module
        if is_executed(graph, module):
            yield module


def is_executed(graph: ModuleGraph, module: str) -> bool:
    """Whether the runtime executes a module of the source, in place of answering for it."""
    if module.partition(".")[0] != "vllm_omni":
        return graph.reads(module)  # a pipeline's own package
    return module.startswith(_PLAIN) and not module.startswith(_KERNELS)
