"""SDE sampling as the adapters write it: scheduler steps, options, the window, seeds, lists that record the steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.model.dataflow import Origin, arguments, origin, reaching
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sides import Side

_DEEPEST = 8
_OPTIONS = {"noise_level", "sde_type", "return_logprobs", "prev_sample", "return_sqrt_dt", "include_logprob_normalizer"}
# Positions of the arguments in FlowMatchSDEDiscreteScheduler.
STEP = ("model_output", "timestep", "sample")
SAMPLE_PREVIOUS_STEP = ("sample", "model_output", "timestep", "generator", "per_token_timesteps", "noise_level")


class Option(NamedTuple):
    """A value that code gives to a named option: keyword argument, key of a dictionary, ``d["name"] = …``.

    Attributes:
        function: where.
        node: the keyword's or the key's node.
        value: what is given.
        call: the call whose keyword it is; None for dictionaries.
    """

    function: FunctionModel
    node: ast.AST
    value: ast.expr
    call: ast.Call | None = None


def sampling_calls(side: Side) -> Iterator[tuple[FunctionModel, ast.Call]]:
    """Yield the calls of the SDE scheduler's ``step`` and ``sample_previous_step``."""
    for function, call in side.calls("step", "sample_previous_step"):
        target = call.func
        if not isinstance(target, ast.Attribute):
            continue
        if isinstance(target.value, ast.Call) and isinstance(target.value.func, ast.Name):
            if target.value.func.id == "super":
                continue
        names = {item.arg for item in call.keywords}
        if target.attr == "sample_previous_step" or names & _OPTIONS or "model_output" in names or None in names:
            yield function, call


def sampling_argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return an argument of one of the `sampling_calls`, by keyword or position."""
    for item in call.keywords:
        if item.arg == name:
            return item.value
    target = call.func
    places = STEP if isinstance(target, ast.Attribute) and target.attr == "step" else SAMPLE_PREVIOUS_STEP
    at = places.index(name) if name in places else len(call.args)
    if at < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args[: at + 1]):
        return call.args[at]
    return None


def options(side: Side, name: str) -> list[Option]:
    """Return every value that a side gives to an option."""
    if "options" not in side.answers:
        every: dict[str, list[Option]] = {}
        for found in _every_option(side):
            every.setdefault(found[0], []).append(found[1])
        side.answers["options"] = every
    return list(side.answers["options"].get(name, []))


def _every_option(side: Side) -> Iterator[tuple[str, Option]]:
    for function in side.functions:
        index = function.file.index
        for call in function.calls:
            for item in call.keywords:
                if item.arg is not None:
                    yield item.arg, Option(function, item, item.value, call)
        for node in index.nodes(ast.Dict, function.node):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, Option(function, key, value)
        for statement in index.nodes(ast.Assign, function.node):
            for target in statement.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                    if isinstance(target.slice.value, str):
                        yield target.slice.value, Option(function, target.slice, statement.value)


def of_window(words: set[str]) -> bool:
    """Whether names and strings mention the SDE window."""
    return any("window" in word.lower() for word in words)


def gated(side: Side, function: FunctionModel, node: ast.AST) -> bool:
    """Whether a node is only reached inside the SDE window: an ``if`` around it compares with the window."""
    key = ("gated", function, node)
    if key not in side.answers:
        side.answers[key] = _gated(side, function, node)
    return bool(side.answers[key])


def _gated(side: Side, function: FunctionModel, node: ast.AST) -> bool:
    index = function.file.index
    inner = node
    for outer in index.ancestors(node):
        if outer is function.node:
            return False
        if isinstance(outer, (ast.If, ast.IfExp)) and not index.contains(outer.test, inner):
            if asks_for_window(side, function, outer.test):
                return True
        inner = outer
    return False


def asks_for_window(side: Side, function: FunctionModel, test: ast.expr, depth: int = 0) -> bool:
    """Whether a test compares the step with the SDE window; names and predicates are followed."""
    if depth > _DEEPEST:
        return False

    def of(expr: ast.expr, around: FunctionModel = function) -> bool:
        return asks_for_window(side, around, expr, depth + 1)

    if isinstance(test, ast.Compare):
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in test.ops):
            return False
        return any(of_window(origin(side, function, part).words) for part in (test.left, *test.comparators))
    if isinstance(test, ast.BoolOp):
        return any(of(value) for value in test.values)
    if isinstance(test, ast.UnaryOp):
        return of(test.operand)
    if isinstance(test, ast.IfExp):
        return of(test.test)
    if isinstance(test, ast.Name):
        values = [binding.value for binding in reaching(function, test)]
        found = [value for value in values if value is not None]
        if any(binding.kind == "parameter" for binding in reaching(function, test)):
            return any(of(value, caller) for caller, value in arguments(side, function, test.id))
        return bool(found) and any(of(value) for value in found)
    if isinstance(test, ast.Attribute):
        cls = side.receiver(function)
        if cls is not None and isinstance(test.value, ast.Name) and test.value.id == function.bound:
            assigned = cls.instance_attributes(test.attr)
            return any(of(a.value, a.method) for a in assigned if a.value is not None and a.method is not None)
        return False
    if isinstance(test, ast.Call):
        if function.file.qualified(test.func) in ("bool", "int", "float") and test.args:
            return of(test.args[0])
        called = side.called(function, test)
        return called is not None and any(of(r.value, called) for r in called.returns if r.value is not None)
    return False


def log_probs_gated(side: Side) -> bool:
    """Whether the scheduler is asked for log-probs only inside the window."""
    for option in options(side, "return_logprobs"):
        plain = isinstance(option.value, ast.Constant)
        if not plain and asks_for_window(side, option.function, option.value):
            return True
        if plain and option.value.value is False and gated(side, option.function, option.value):  # type: ignore[attr-defined]
            return True
    return False


def appended(side: Side, function: FunctionModel, node: ast.AST) -> list[tuple[FunctionModel, ast.Call]]:
    """Return the ``append`` calls of the list that a name or ``self.name`` in a function is."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == function.bound
    if not own and not isinstance(node, ast.Name):
        return []
    assert isinstance(node, (ast.Name, ast.Attribute))
    name = node.attr if isinstance(node, ast.Attribute) else node.id
    cls = side.receiver(function) if own else None
    return [
        (other, call)
        for other, call in _appends(side).get((own, name), [])
        if (cls is not None and other.cls in cls.mro if own else other == function)
    ]


def _appends(side: Side) -> dict[tuple[bool, str], list[tuple[FunctionModel, ast.Call]]]:
    """Return (whether an attribute of ``self``, name) -> the ``append`` calls of what has that name."""
    if "appends" not in side.answers:
        found: dict[tuple[bool, str], list[tuple[FunctionModel, ast.Call]]] = {}
        for function, call in side.calls("append"):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Subscript):
                owner = owner.value  # one list a sample: ``log_probs[at].append(…)``
            if isinstance(owner, ast.Name):
                found.setdefault((False, owner.id), []).append((function, call))
            elif isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name):
                if owner.value.id == function.bound:
                    found.setdefault((True, owner.attr), []).append((function, call))
        side.answers["appends"] = found
    answer: dict[tuple[bool, str], list[tuple[FunctionModel, ast.Call]]] = side.answers["appends"]
    return answer


# Values that differ between requests.
_REQUEST = {"seed", "request_id", "request_ids", "req_id", "generator", "prompt", "prompts", "prompt_token_ids"}
# Values that differ between ranks and stay the same over training steps.
_RANKS = {"LOCAL_RANK", "RANK", "get_rank", "local_rank", "rank", "get_local_rank", "get_tensor_model_parallel_rank"}
_CHANGING = {"hash", "id", "time.time", "time.time_ns", "time.monotonic", "uuid.uuid4", "os.getpid", "os.urandom"}


def of_request(found: Origin) -> bool:
    """Whether a value depends on something that differs between requests."""
    # Upstream names the key of a request's generator by a constant.
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
    """Whether a value depends on the rank of the process."""
    return bool(found.words & _RANKS)
