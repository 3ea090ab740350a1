"""Whether and how the pipeline can be integrated."""

from __future__ import annotations

from scaffold.inspect.diffusers_path import Loaded, handed_over, lacking, later_release, loads_through_diffusers
from scaffold.inspect.facts import Confidence, Evidence, Fact, fact
from scaffold.inspect.hidden_loops import hidden_loops
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import walk
from scaffold.inspect.program.trace import LoopRecord
from scaffold.inspect.program.updates import is_step, is_update, walks_a_schedule
from scaffold.inspect.program.values import Call, Carried, Obj, Op
from scaffold.inspect.refusals import find_refusal
from scaffold.inspect.report import IMPOSSIBLE, LATER
from scaffold.inspect.weight_sources import weight_sources
from scaffold.source.values import ClassRef, Value

ORDER = 0
KEYS = ("verdict.path", "verdict.reason", IMPOSSIBLE, LATER)


def answers(program: Program) -> dict[str, Fact]:
    """``refused`` where a step has no log-prob of its own, ``diffusers`` where diffusers loads the denoiser,
    ``non_diffusers`` otherwise."""
    loop = program.denoising
    loaded = loads_through_diffusers(program) or (handed_over(program) if loop is None else None)
    sure: Confidence = "likely" if program.alone else "certain"
    refusal = find_refusal(program)
    if loaded is not None and refusal is None and loop is None:
        return _loaded(loaded)
    neither, pinned_at = lacking(program)
    neither = f"{neither} this pipeline nor the class that its weights are loaded into"
    later = later_release(program)
    if loop is None and refusal is None:
        path, reason, places, confidence = _unfollowed(program)
        return _with_later(_verdict(path, f"{reason}; {neither}", [*places, pinned_at], confidence), later)
    if refusal is not None and not (loaded is not None and refusal.on_this_path_only):
        reason, places = refusal.reason, refusal.places
        if refusal.on_this_path_only:
            reason, places = f"{reason}; {neither}", [*places, pinned_at]
        facts = _verdict("refused", reason, places, sure)
        facts[IMPOSSIBLE] = fact(refusal.impossible, refusal.places, sure)
        return _with_later(facts, later if refusal.on_this_path_only else None)
    if loaded is not None:
        return _loaded(loaded, "" if refusal is None else f"; {refusal.reason}")
    assert loop is not None
    place = loop.step.at if loop.step is not None else loop.loop.at
    sources = [o.at for _, o in weight_sources(program)]
    reason = f"{neither}, and each denoising step can be replaced"
    return _with_later(_verdict("non_diffusers", reason, [place, *sources, pinned_at], sure), later)


def _with_later(facts: dict[str, Fact], later: tuple[str, Evidence | None] | None) -> dict[str, Fact]:
    """Add what a later release of diffusers has to a verdict and its reason."""
    if later is None:
        return facts
    said, at = later
    reason = facts["verdict.reason"]
    facts["verdict.reason"] = fact(f"{reason.value}; {said}", [*reason.evidence, at], reason.confidence)
    facts[LATER] = fact(said, [at], reason.confidence)
    return facts


def _loaded(loaded: Loaded, more: str = "") -> dict[str, Fact]:
    return _verdict("diffusers", loaded.reason + more, loaded.places, loaded.confidence)


def _unfollowed(program: Program) -> tuple[str, str, list[Evidence | None], Confidence]:
    """Path, reason, places and confidence where no loop was followed that updates a sample."""
    hidden = hidden_loops(program.source, program.target)
    if hidden:
        reason = "a loop over a schedule is there, but what it does to a sample was not established"
        return "non_diffusers", reason, [loop.at for loop in hidden[:1]], "likely"
    called = _called_in_a_helper(program)
    if called is not None:
        reason = "a loop that calls a model is there, but what it does to a sample was not established"
        return "non_diffusers", reason, [called], "likely"
    changed = changed_after(program)
    if changed is not None:
        return "refused", *changed, "certain"
    place = program.place(*program.entry) if program.entry else program.place(program.cls)
    reason = "no denoising loop: nothing the pipeline runs updates a sample from a model's output"
    return "refused", reason, [place], "certain"


def _called_in_a_helper(program: Program) -> Evidence | None:
    """Where a loop of a function or of an object that is not a module calls a module that it was handed."""
    for record in program.trace.calls:
        held = record.receiver if record.receiver is not None else record.func
        if not (record.loops and record.at is not None and isinstance(held, Obj) and held.cls.is_module):
            continue
        loop = program.trace.loops.get(record.loops[-1])
        if loop is None or held is program.pipeline:
            continue
        module = program.scopes.graph.find(loop.at.file.removesuffix(".py").replace("/", "."))
        owner = program.scopes.lookup(module, loop.owner) if module is not None and loop.owner is not None else None
        if not (isinstance(owner, ClassRef) and owner.cls.is_module):
            return record.at
    return None


def _verdict(
    path: str, reason: str, places: list[Evidence | None], confidence: Confidence = "certain"
) -> dict[str, Fact]:
    return {"verdict.path": fact(path, places, confidence), "verdict.reason": fact(reason, places, confidence)}


# Loops that change the sample once more after its update: a clamp, or a part that is given and put back.

REASON = (
    "after its update the loop changes the sample once more, of which the log-prob of a step knows nothing: do it "
    "behind the loop, or before the denoiser is called"
)


def changed_after(program: Program) -> tuple[str, list[Evidence | None]] | None:
    """Return reason and places where the update stands inside of what a turn leaves, and the turn leaves another."""
    for loop in program.trace.loops.values():
        for variable in loop.carried.values():
            if variable.final is not None and (update := _inside(variable.final, loop, variable)) is not None:
                return REASON, [variable.final.at, update.at, loop.at]
    return None


def _inside(final: Value, loop: LoopRecord, variable: Carried) -> Value | None:
    for node in walk(final):
        if node is final:
            continue
        if isinstance(node, Call) and is_step(node, variable):
            return node
        if isinstance(node, Op) and is_update(node, variable) and walks_a_schedule(node, loop, variable):
            return node
    return None
