"""A token whose embedding the denoiser replaces by the embedding of the time."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.values import Call, Elem, Obj, Op, Param
from scaffold.inspect.questions import timestep
from scaffold.inspect.questions.denoiser import find_denoiser
from scaffold.source.values import Func, Value

ORDER = 14
KEYS = ("detail.timestep_token.id",)


def answers(program: Program) -> dict[str, Fact]:
    """The token's id, and the features that its embedder makes of the time where no other question found them.

    Established where the denoiser's ``forward`` chooses between two embeddings by ``ids == id`` and one of them is
    what a module of its own makes of the time.
    """
    denoiser = find_denoiser(program)
    if denoiser is None or denoiser.time_name is None:
        return {}
    for receiver in options(denoiser.receiver):
        if not isinstance(receiver, Obj):
            continue
        before = len(program.trace.calls)
        program.invoke(receiver, denoiser.record.method, {})
        for record in program.trace.calls[before:]:
            if record.method == "where" and isinstance(record.result, Call) and len(record.args) == 3:
                found = _chosen(record.result, denoiser.time_name)
                if found is not None:
                    token, at, embedder, method = found
                    facts = {KEYS[0]: fact(token, [record.at, at])}
                    held = {
                        name for name, value in receiver.attrs.items() if any(o is embedder for o in options(value))
                    }
                    if len(held) == 1:
                        facts["detail.timestep.attribute"] = fact(held.pop(), [embedder.at])
                    # The time itself goes in; how it follows from the noise level is another question.
                    return facts | timestep.features(program, embedder, method, Elem(receiver, -1))
    return {}


def _chosen(where: Call, time: str) -> tuple[int, Evidence | None, Obj, str] | None:
    """Id and embedder of ``where(ids == id, embedder(time), …)``."""
    for node in walk(where.args[0]):
        if isinstance(node, Op) and node.op == "==" and isinstance(node.args[0], Param):
            token = default_of(node.args[1])
            embedded = next((c for c in walk(where.args[1]) if _is_embedding(c, time)), None)
            if type(token) is int and isinstance(embedded, Call) and isinstance(embedded.func, Func):
                embedder = embedded.func.bound
                if isinstance(embedder, Obj):
                    return token, node.args[1].at, embedder, embedded.func.name
    return None


def _is_embedding(value: Value, time: str) -> bool:
    """A call of a module on the denoiser's time."""
    if not (isinstance(value, Call) and isinstance(value.func, Func) and isinstance(value.func.bound, Obj)):
        return False
    return any(isinstance(n, Param) and n.key == time for a in [*value.args, *value.kwargs.values()] for n in walk(a))
