"""What the registry's pre-process function reads of a request before the pipeline gets it."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaffold.errors import ScaffoldError
from scaffold.inspect.facts import Evidence
from scaffold.inspect.program import Program, once
from scaffold.upstream.registry import read_functions

_TABLE = "_DIFFUSION_PRE_PROCESS_FUNCS"
Key = tuple[str, str]


@dataclass(frozen=True)
class PreProcess:
    """Fields and keys of a request, by root.

    Attributes:
        reads: what the function reads, with the places.
        own: what it puts into every request by itself.
        put: what it puts into some, such as those with media.
        followed: whether it was executed to its end; if not, it may read more.
        demands: what it refuses a request without.
    """

    reads: dict[Key, Evidence | None] = field(default_factory=dict)
    own: frozenset[Key] = frozenset()
    put: frozenset[Key] = frozenset()
    followed: bool = True
    demands: dict[tuple[Key, ...], Evidence | None] = field(default_factory=dict)


@once
def pre_process(program: Program) -> PreProcess:
    """What the pre-process function of the pipeline does; nothing where none is registered. Executed once."""
    found = registered(program, _TABLE)
    if found is None:
        return PreProcess()
    done = program.run_ready_maker(found[0])
    if done is None:
        return PreProcess(followed=False)
    trace, ended = done
    return PreProcess(dict(trace.reads), frozenset(trace.own), frozenset(trace.put), ended, dict(trace.demands))


def registered(program: Program, table: str) -> tuple[str, int] | None:
    """The function that a table of the registry names for the key under which the pipeline is looked at, and its line.

    Args:
        program: of the pipeline.
        table: such as ``_DIFFUSION_PRE_PROCESS_FUNCS``.
    """
    name = program.execution.model_name
    try:
        functions = read_functions(program.source, table)
    except ScaffoldError:
        return None
    return next(
        (functions[key] for key in ([name] if name else program.target.registry_keys) if key in functions), None
    )
