"""What vllm-omni's LoRA manager of a version walks and matches, read from its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scaffold.source.syntax import walk_tree
from scaffold.source.values import UndecidedError
from scaffold.upstream import UpstreamSource

FILE = "vllm_omni/diffusion/lora/manager.py"
CLASS = "DiffusionLoRAManager"
WRAPPED = frozenset(
    {"ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear", "RowParallelLinear", "ReplicatedLinear"}
)
"""Layers that vLLM's LoRA layers replace; a subclass of one is not replaced."""


@dataclass(frozen=True)
class LoraManager:
    """One version's manager.

    Attributes:
        components: attributes of the pipeline that it walks.
        declared: attributes of the pipeline that name more of them.
        packing: attributes of modules that hold a table of packed layers.
        slices: how many parts a packed layer has, by its class; a subclass counts.
        aliases: attributes of the pipeline that translate names.
    """

    components: tuple[str, ...]
    declared: tuple[str, ...]
    packing: tuple[str, ...]
    slices: Mapping[str, int]
    aliases: tuple[str, ...]


def read_manager(source: UpstreamSource) -> LoraManager:
    """Read the manager.

    Raises:
        UndecidedError: the version has none that is written as known.
    """
    if not source.exists(FILE):
        raise UndecidedError(f"there is no {FILE}")
    tree = source.tree(FILE)
    manager = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == CLASS), None)
    methods = {n.name: n for n in (manager.body if manager else []) if isinstance(n, ast.FunctionDef)}
    walk, packing = methods.get("_replace_layers_with_lora"), methods.get("_compute_packed_modules_mapping")
    slices, lookup = methods.get("_get_packed_modules_list"), methods.get("_get_lora_weights")
    if walk is None or packing is None or slices is None or lookup is None:
        raise UndecidedError(f"{FILE} has no {CLASS} as known")
    components = _components(walk)
    if not components:
        raise UndecidedError(f"{FILE}:{walk.lineno}: which components are walked is not written as a table")
    return LoraManager(
        components, _asked(walk, "pipeline"), _asked(packing, "module"), _slices(slices), _asked(lookup, "pipeline")
    )


def matches(name: str, targets: Sequence[str]) -> bool:
    """Tell whether a module is meant: a target is its name or the end of it behind a dot."""
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _components(walk: ast.FunctionDef) -> tuple[str, ...]:
    """The names in the tuples of text that are looped over, or that are stored for that."""
    for node in walk_tree(walk):
        value = node.iter if isinstance(node, ast.For) else node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Tuple) and value.elts:
            names = [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            if len(names) == len(value.elts):
                return tuple(names)
    return ()


def _asked(node: ast.AST, holder: str) -> tuple[str, ...]:
    """Names that ``getattr`` asks of something called ``holder``."""
    found = []
    for call in walk_tree(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "getattr":
            base, name = call.args[0], call.args[1]
            last = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
            if last == holder and isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.append(name.value)
    return tuple(dict.fromkeys(found))


def _slices(node: ast.FunctionDef) -> dict[str, int]:
    found: dict[str, int] = {}
    for test in walk_tree(node):
        if not isinstance(test, ast.If) or not test.body or not isinstance(test.body[0], ast.Return):
            continue
        value = test.body[0].value
        kinds = re.findall(r"isinstance\(\w+, (\w+)\)", ast.unparse(test.test))
        if isinstance(value, ast.List) and kinds:
            found[kinds[0]] = len(value.elts)
    return found
