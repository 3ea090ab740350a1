"""What is read of a request before the pipeline gets it, by the function that the registry names for that."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from scaffold.errors import ScaffoldError
from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program, once
from scaffold.upstream.registry import REGISTRY_FILE

_TABLE = "_DIFFUSION_PRE_PROCESS_FUNCS"
Key = tuple[str, str]


@dataclass(frozen=True)
class PreProcess:
    """Fields and keys of a request, by root.

    Attributes:
        reads: what the function reads, with the places.
        own: what it puts into every request by itself.
        followed: whether it was executed to its end; it may read more where not.
        demands: what it refuses a request without.
    """

    reads: dict[Key, Evidence | None] = field(default_factory=dict)
    own: frozenset[Key] = frozenset()
    followed: bool = True
    demands: dict[tuple[Key, ...], Evidence | None] = field(default_factory=dict)


@once
def pre_process(program: Program) -> PreProcess:
    """What the pre-process function of the pipeline does; nothing where none is registered. Executed once."""
    name = _registered(program)
    if name is None:
        return PreProcess()
    done = program.run_ready_maker(name)
    if done is None:
        return PreProcess(followed=False)
    trace, ended = done
    return PreProcess(dict(trace.reads), frozenset(trace.own), ended, dict(trace.demands))


def _registered(program: Program) -> str | None:
    """The name of the function for the key that the pipeline is looked at under."""
    keys = (
        [program.execution.model_name]
        if program.execution.model_name is not None
        else list(program.target.registry_keys)
    )
    try:
        tree = program.source.tree(REGISTRY_FILE)
    except ScaffoldError:
        return None
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not any(isinstance(target, ast.Name) and target.id == _TABLE for target in targets):
            continue
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in keys and isinstance(value, ast.Constant):
                return str(value.value)
    return None
