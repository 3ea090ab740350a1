"""What random numbers are seeded with: the process, the request, a literal, nothing."""

from __future__ import annotations

import ast
from typing import Literal

from scaffold.check.model.dataflow import Origin, origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.sides import Side

Seeding = Literal["unseeded", "request", "shared", "unknown"]
# What differs from request to request.
_REQUEST = {"seed", "request_id", "request_ids", "req_id", "generator", "prompt", "prompts", "prompt_token_ids"}
# What differs from rank to rank, and from step to step of a training not at all.
RANKS = {"LOCAL_RANK", "RANK", "get_rank", "local_rank", "rank", "get_local_rank", "get_tensor_model_parallel_rank"}
_CHANGING = {
    "hash",
    "id",
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.perf_counter",
    "time.perf_counter_ns",
    "uuid.uuid4",
    "uuid.uuid1",
    "os.getpid",
    "os.urandom",
    "threading.get_ident",
    "secrets.randbits",
    "secrets.randbelow",
    "torch.seed",
    "torch.initial_seed",
}
_STATEFUL = {
    "next",
    "random.random",
    "random.randint",
    "random.randrange",
    "random.getrandbits",
    "numpy.random.randint",
    "numpy.random.rand",
    "torch.randint",
    "torch.rand",
    "datetime.datetime.now",
    "time.process_time",
}
MAKERS = {"random.Random", "random.SystemRandom", "numpy.random.default_rng", "numpy.random.RandomState"}


def of_request(found: Origin) -> bool:
    """Whether something that differs from request to request goes into a value."""
    if found.strings & _REQUEST or found.attributes & (_REQUEST - {"seed"}):
        return True
    # ``params.seed`` is the request's; ``random.seed`` and ``rng.seed`` are functions.
    reads = [node for _, _, node in found.nodes if isinstance(node, ast.Attribute) and node.attr == "seed"]
    called = [call.func for _, call in found.calls()]
    if any(node not in called for node in reads):
        return True
    return any(file.qualified(call.func) in _CHANGING for file, call in found.calls())


def of_rank(found: Origin) -> bool:
    """Whether the rank of the process goes into a value."""
    return bool(found.words & RANKS)


def is_constant(found: Origin) -> bool:
    """Whether a value is made of nothing but literals."""
    read = [node for _, _, node in found.nodes if isinstance(node, (ast.Attribute, ast.Subscript))]
    called = {call.func.id for _, call in found.calls() if isinstance(call.func, ast.Name)}
    return found.complete and not found.open and not read and called <= {"int", "float", "abs"}


def _counts_up(found: Origin) -> bool:
    """Whether a state that changes with every call goes into a value: ``next(…)``, a counter that code adds to."""
    for around, file, node in found.nodes:
        if isinstance(node, ast.Call) and file.qualified(node.func) in _STATEFUL:
            return True
        if isinstance(node, ast.Attribute) and around is not None and isinstance(node.value, ast.Name):
            added = [n.target for n in file.index.nodes(ast.AugAssign) if isinstance(n.target, ast.Attribute)]
            if node.value.id == around.bound and any(target.attr == node.attr for target in added):
                return True
        if isinstance(node, ast.Name) and node.id in {n for g in file.index.nodes(ast.Global) for n in g.names}:
            return True
    return False


def seeding(side: Side, function: FunctionModel, generator: ast.expr) -> tuple[Seeding, Origin]:
    """Say what a random number generator is seeded with.

    Returns:
        ``unseeded``; ``request`` where something goes in that differs from request to request; ``shared`` where
        certainly nothing does; ``unknown``. And what the seed is made of.
    """
    found = origin(side, function, generator)
    seeds: list[tuple[FunctionModel | None, ast.expr | None]] = []
    for around, file, node in found.nodes:
        if not isinstance(node, ast.Call):
            continue
        if file.qualified(node.func) in MAKERS:
            seeds.append((around, node.args[0] if node.args else None))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("manual_seed", "seed") and node.args:
            seeds.append((around, node.args[0]))
    if not seeds:
        return ("request" if of_request(found) else "unknown"), found
    judged: list[tuple[Seeding, Origin]] = []
    for around, seed in seeds:
        if seed is None or (isinstance(seed, ast.Constant) and seed.value is None):
            judged.append(("unseeded", found))
            continue
        made = origin(side, around or function, seed)
        if of_request(made) or _counts_up(made):
            judged.append(("request", made))
        else:
            judged.append(("unknown" if made.open or not made.complete else "shared", made))
    order = ("unseeded", "request", "unknown", "shared")
    return min(judged, key=lambda item: order.index(item[0]))
