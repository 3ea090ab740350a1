"""What the runtime has in place of the engine's names, read from its text: executing it takes torch."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from scaffold.files.reading import read_text
from scaffold.files.resources import runtime_root
from scaffold.source.modules import ModuleGraph, ModuleInfo
from scaffold.source.syntax import walk_tree

_FILE, _TABLE = "upstream_layers.py", "ANSWERS"
_LINEAR, _FUSED = frozenset({"Linear", "Replicated"}), frozenset({"Merged", "QKV"})


@dataclass(frozen=True)
class Counterparts:
    """The table of answers, and the classes in it.

    Attributes:
        names: of the engine's that are answered; one of a certain module is ``module:name``.
        kinds: the runtime's class of those that are answered by one.
        classes: the runtime's classes.
    """

    names: frozenset[str]
    kinds: dict[str, str]
    classes: dict[str, ast.ClassDef]

    def is_linear(self, name: str) -> bool:
        """Whether a name of the engine's is a linear layer with one weight of the checkpoint's."""
        return self.kinds.get(name) in _LINEAR

    def is_fused(self, name: str) -> bool:
        """Whether it is a linear layer that may have several."""
        return self.kinds.get(name) in _FUSED


@cache
def counterparts() -> Counterparts:
    """Return what stands in the runtime's table."""
    tree = ast.parse(read_text(runtime_root() / _FILE))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    constants = {
        node.targets[0].id: [str(entry.value) for entry in node.value.elts if isinstance(entry, ast.Constant)]
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Tuple)
    }
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == _TABLE
    )
    assert isinstance(table, ast.Dict)
    names, kinds = set[str](), dict[str, str]()
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant):
            names.add(str(key.value))
            kind = next((n.id for n in walk_tree(value) if isinstance(n, ast.Name) and n.id in classes), None)
            if kind is not None:
                kinds[str(key.value)] = kind
        elif key is None and isinstance(value, ast.DictComp):
            names |= set(_made(value, constants))
    return Counterparts(frozenset(names), kinds, classes)


def _made(node: ast.DictComp, constants: dict[str, list[str]]) -> Iterator[str]:
    """Yield the keys of ``{f"get_{x}_rank": … for x in NAMES}``."""
    given = node.generators[0].iter
    values = constants[given.id] if isinstance(given, ast.Name) else ast.literal_eval(given)
    assert isinstance(node.key, ast.JoinedStr)
    for value in values:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else str(value) for part in node.key.values)


# Which modules of vllm-omni a denoiser needs executed, and the digest of each.

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
