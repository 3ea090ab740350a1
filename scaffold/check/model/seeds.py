"""What random numbers are seeded with: the rank of the process, the request."""

from __future__ import annotations

import ast

from scaffold.check.model.dataflow import Origin

# What differs from request to request.
_REQUEST = {"seed", "request_id", "request_ids", "req_id", "generator", "prompt", "prompts", "prompt_token_ids"}
# What differs from rank to rank, and from step to step of a training not at all.
_RANKS = {"LOCAL_RANK", "RANK", "get_rank", "local_rank", "rank", "get_local_rank", "get_tensor_model_parallel_rank"}
_CHANGING = {"hash", "id", "time.time", "time.time_ns", "time.monotonic", "uuid.uuid4", "os.getpid", "os.urandom"}


def of_request(found: Origin) -> bool:
    """Whether something that differs from request to request goes into a value."""
    # Upstream keeps a request's generator under a key that it has a constant for.
    if any(name.isupper() and "GENERATOR" in name for name in found.names):
        return True
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
    return bool(found.words & _RANKS)
