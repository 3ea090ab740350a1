"""Finds the function that predicts, and its arguments."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import class_name, options
from scaffold.inspect.program.denoising import Denoising
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.turns import is_sample, is_turn
from scaffold.inspect.program.values import Attr, Call, Obj, Slot
from scaffold.source.values import Func, Value

# The engine's context of a call, and how functions of it begin that put one value there.
_CONTEXT, _SETS = "vllm_omni.diffusion.forward_context", "set_forward_context_"
ORDER = 2
KEYS = (
    "answers.denoiser.class",
    "answers.denoiser.method",
    "answers.denoiser.params",
    "detail.denoiser.location",
    "detail.denoiser.module",
)


_FORWARDS = ("forward", "__call__")


@dataclass(frozen=True)
class Denoiser:
    """The call of the loop that takes both the sample and its time; the innermost model that does."""

    record: CallRecord
    receiver: Value | None
    time_name: str | None


def answers(program: Program) -> dict[str, Fact]:
    found = find_denoiser(program)
    if found is None or not (_is_model(found) or found.receiver is program.pipeline):
        # A helper that takes sample and time is not itself the model.
        return {}
    record = found.record
    at = record.at
    func = record.func
    facts: dict[str, Fact] = {}
    # The value of an attribute that is never set is unknown.
    unset = isinstance(func, Attr) and isinstance(func.base, Obj) and record.method not in _FORWARDS
    if not unset:
        method = fact(record.method, [at]) if record.method else fact("forward", [at], "likely")
        facts["answers.denoiser.method"] = method
    if len(_classes(program, record)) > 1:
        return facts
    if isinstance(func, Func) and not isinstance(func.node, ast.Lambda):
        spec = func.node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]]
        names = names[1:] if func.bound is not None else names
        place = Evidence(func.module.file, func.node.lineno)
        facts["answers.denoiser.params"] = fact(names, [place])
        facts["detail.denoiser.location"] = fact(f"{place.file}:{place.line}", [place])
        facts["detail.denoiser.module"] = fact(func.module.name, [place])
        at = place
    elif record.kwargs:
        facts["answers.denoiser.params"] = fact([k for k in record.kwargs if k != "**"], [at], "likely")
    if unset:
        return facts
    name = next((n for o in options(found.receiver) if (n := class_name(o)) is not None), None)
    if name is None and isinstance(func, Func) and func.owner is not None:
        name = func.owner.name
    if name is not None:
        receiver_at = found.receiver.at if found.receiver is not None else None
        facts["answers.denoiser.class"] = fact(name, [record.at, receiver_at, at])
    return facts


def _classes(program: Program, call: CallRecord) -> set[str]:
    """The classes of the models that one call reaches; more than one do not tell which of them is there."""
    records = (r for r in program.trace.calls if r.at == call.at and r.method == call.method)
    return {name for r in records if r.receiver is not None and (name := class_name(r.receiver)) is not None}


@once
def find_denoiser(program: Program) -> Denoiser | None:
    """Return the denoiser of the denoising loop, computed once."""
    loop = program.denoising
    if loop is None:
        return None
    best: Denoiser | None = None
    for record in program.trace.calls:
        if loop.number not in record.loops or record.result is loop.step or record.method == "step":
            continue
        candidate = _candidate(record, loop)
        if candidate is None:
            continue
        if best is None or _better(candidate, best, loop, program):
            best = candidate
    return best


def is_own_model(program: Program, found: Denoiser) -> bool:
    """Whether the pipeline handed itself to the object that has the loop, which calls it as its model."""
    loop = program.denoising
    owners = {cls.name for cls in program.pipeline.cls.mro}
    return loop is not None and found.receiver is program.pipeline and loop.loop.owner not in owners


def _better(found: Denoiser, best: Denoiser, loop: Denoising, program: Program) -> bool:
    """Models beat helpers of the pipeline and a model's ``forward`` its other methods.

    Of a pipeline that is the model itself, the last of its methods that the loop calls predicts: those before it make
    what it is given.

    Otherwise the innermost call wins, but among methods of one model the outermost, and so where it is not known
    which argument is the sample.
    """
    if is_own_model(program, found) and is_own_model(program, best):
        return len(found.record.callers) <= len(best.record.callers)
    kinds = [(_is_model(d), d.record.method in _FORWARDS) for d in (found, best)]
    if kinds[0] != kinds[1]:
        return kinds[0] > kinds[1]
    if loop.sample is None and kinds[0][0]:
        return False
    same_model = kinds[0][0] and found.receiver is best.receiver
    return not same_model and len(found.record.callers) > len(best.record.callers)


def _is_model(found: Denoiser) -> bool:
    forward = found.record.method in _FORWARDS
    return any(
        (isinstance(o, Obj) and o.root is None and (o.cls.is_module or (forward and _is_derived(o))))
        or isinstance(o, (Call, Slot))
        for o in options(found.receiver)
    )


def _is_derived(obj: Obj) -> bool:
    """Whether a class of another library stands behind the object's class, as behind a language model's."""
    return any(c.external_bases for c in obj.cls.mro)


def _candidate(record: CallRecord, loop: Denoising) -> Denoiser | None:
    if not isinstance(record.func, (Func, Attr, Obj, Call, Slot)):
        return None
    given = record.bound or {str(i): v for i, v in enumerate(record.args)} | record.kwargs
    if loop.model_output is not None and any(v is loop.model_output for v in given.values()):
        # A wrapper of the step.
        return None
    times = [n for n, v in given.items() if is_turn(v, loop.number)]
    if loop.sample is None:
        samples = [n for n in given if n not in times][:1]
    else:
        samples = [n for n, v in given.items() if is_sample(v, loop.sample)]
    if not times or not samples:
        return None
    receiver = record.held_by
    if receiver is None and isinstance(record.func, (Obj, Call, Slot)):
        receiver = record.func
    if isinstance(record.func, Attr) and not isinstance(record.func.base, (Obj, Call, Slot, Attr)):
        return None
    return Denoiser(record, receiver, times[0] if not times[0].isdigit() else None)


def given_beside(program: Program) -> Evidence | None:
    """Where a pipeline hands its denoiser something beside its arguments, through the engine's context of a call."""
    for cls in program.cls.mro:
        setters = {
            name for name, bound in cls.module.imports.items() if bound.module == _CONTEXT and name.startswith(_SETS)
        }
        for node in ast.walk(cls.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in setters:
                return program.place(cls, node)
    return None
