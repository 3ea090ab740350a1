"""Queries and keys are rotated otherwise than the model does it.

Where the heads of queries and keys are normalised, the norm comes first: its weights differ from channel to channel, and a
rotation mixes channels. The norm behind the rotation, a rotation of the queries alone, tables of another stream for the
keys, or values that are rotated: attention is finite and wrong, and every shape fits.

    q = self.q_norm(apply_rotary(q, tables))

Instead: normalise, then rotate, queries and keys of a stream with the same tables, and values not at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.attention_roles import role_of
from scaffold.check.model.calls import resolve
from scaffold.check.model.dataflow import reaching
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.streams import root_name, self_call
from scaffold.check.model.submodules import submodules
from scaffold.check.model.sums import kept
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC147"
NAME = "wrongly-rotated-heads"
SEVERITY = "error"
CHECKLIST = ("M8", "pitfall 23")
APPLIES = Applies(non_diffusers=True)
HELP = "normalise queries and keys, then rotate both with the same tables"


def check(package: Package) -> Hits:
    """Look at the calls of functions that rotate in the forward code."""
    functions = [f for f in package.forward_functions if f.file in package.files and f.cls is not None]
    normalised = recorded(package, "architecture", "qk_norm") == "true"
    for function in functions:
        turns = list(_turns(function))
        if not turns:
            continue
        if normalised:
            yield from _norms(function, [call for call, _, _ in turns])
        yield from _alone(function, turns)


def _turns(function: FunctionModel) -> Iterator[tuple[ast.Call, str, str]]:
    """Yield calls that rotate one of queries, keys and values, with which and with the rest of its name."""
    for call in function.calls:
        called = resolve(function.file, call, function.cls)
        if not isinstance(called, FunctionModel) or not call.args:
            continue
        name = called.name.lower()
        if not ("rot" in name or "rope" in name) or any(isinstance(i.value, ast.Tuple) for i in called.returns):
            continue
        # Of a joined tensor, or of a list, nothing is known.
        root = _target(function, call) or root_name(call.args[0])
        role = role_of(root) if root is not None else None
        if root is not None and role is not None:
            yield call, role, "_".join(part for part in root.lower().split("_") if role_of(part) is None)


def _target(function: FunctionModel, call: ast.Call) -> str | None:
    """Return the name that the result of a call, converted perhaps, is assigned to."""
    index = function.file.index
    for outer in index.ancestors(call):
        if isinstance(outer, ast.Assign):
            single = outer.targets[0]
            return single.id if isinstance(single, ast.Name) and kept(outer.value) is call else None
        if isinstance(outer, ast.stmt):
            return None
    return None


def _norms(function: FunctionModel, turns: list[ast.Call]) -> Hits:
    """Look for norms of queries or keys that are given what was rotated."""
    built = {part.name for part in submodules(function.cls)} if function.cls is not None else set()
    for call in function.calls:
        name = self_call(call)
        if name not in built or name is None or "norm" not in name or role_of(name) is None or not call.args:
            continue
        value = kept(call.args[0])
        for _ in range(5):
            if not isinstance(value, ast.Name):
                break
            bindings = reaching(function, value)
            if len(bindings) != 1 or bindings[0].value is None:
                break
            value = kept(bindings[0].value)
        if value in turns:
            yield Hit(function.file, call.func, f"{name}() normalises what is rotated already")


def _alone(function: FunctionModel, turns: list[tuple[ast.Call, str, str]]) -> Hits:
    """Look for values that are rotated, and for queries and keys of a stream that are rotated differently."""
    streams: dict[str, dict[str, list[ast.Call]]] = {}
    for call, role, stream in turns:
        if role == "value":
            yield Hit(function.file, call, "values are rotated; only queries and keys are")
        else:
            streams.setdefault(stream, {}).setdefault(role, []).append(call)
    both = [roles for roles in streams.values() if len(roles) == 2]
    for stream, roles in streams.items():
        if len(roles) == 1:
            role, calls = next(iter(roles.items()))
            other = "key" if role == "query" else "query"
            # Rotated in another way, both at once perhaps: only beside a stream in which each is rotated by itself.
            if (both or _there(function, other, stream)) and len(calls) == 1 and not _mixed(function, calls[0]):
                whose = f" of {stream}" if stream else ""
                yield Hit(function.file, calls[0], f"the {role} heads{whose} are rotated, the {other} heads are not")
            continue
        one, two = (roles[role] for role in ("query", "key"))
        if len(one) == len(two) == 1 and len(one[0].args) == len(two[0].args):
            for first, second in zip(one[0].args[1:], two[0].args[1:], strict=True):
                if ast.dump(first) != ast.dump(second) and _same_kind(first, second):
                    text = f"keys are rotated with {ast.unparse(second)}, queries with {ast.unparse(first)}"
                    yield Hit(function.file, second, text)
                    break


def _there(function: FunctionModel, role: str, stream: str) -> bool:
    """Whether heads of the other kind go on from here under a name of their own, each assigned by itself."""
    for name, value in function.assignments:
        rest = "_".join(part for part in name.lower().split("_") if role_of(part) is None)
        if role_of(name) == role and rest == stream and isinstance(kept(value), ast.Call):
            return True
    return False


def _mixed(function: FunctionModel, call: ast.Call) -> bool:
    """Whether a call stands in a loop or comprehension, or is given several tensors."""
    index = function.file.index
    looped = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.Lambda, ast.If, ast.IfExp)
    for outer in index.ancestors(call):
        if outer is function.node:
            break
        if isinstance(outer, looped):
            return True
    roles = {role_of(node.id) for part in call.args for node in index.nodes(ast.Name, part)} - {None}
    return len(roles) > 1


def _same_kind(first: ast.expr, second: ast.expr) -> bool:
    """Whether two arguments are both plain names or attributes: tables that are kept somewhere."""
    return all(isinstance(part, (ast.Name, ast.Attribute)) for part in (first, second))


_BODY = """        q = torch.cat((self.q_proj(context), self.q_proj_gen(latents)), dim=1)
        k = torch.cat((self.k_proj(context), self.k_proj_gen(latents)), dim=1)
        v = torch.cat((self.v_proj(context), self.v_proj_gen(latents)), dim=1)
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))
"""
_OWN = """        q_text, k_text = self.q_proj(context), self.k_proj(context)
        places = torch.arange(context.shape[1], device=context.device)
        others = places + 1
        q_text = {query}
        k_text = {key}
        v_text = {value}
        q = torch.cat((q_text, self.q_proj_gen(latents)), dim=1)
        k = torch.cat((k_text, self.k_proj_gen(latents)), dim=1)
        v = torch.cat((v_text, self.v_proj_gen(latents)), dim=1)
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))
"""
_RIGHT = {
    "query": "apply_rotary(self.q_norm(q_text), places)",
    "key": "apply_rotary(self.k_norm(k_text), places)",
    "value": "self.v_proj(context)",
}
_HELPER = """def apply_rotary(x: Tensor, places: Tensor) -> Tensor:
    angles = places.float()[None, :, None]
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


class ToyAttention("""
_BUILT = "        self.o_proj_gen = nn.Linear(hidden, hidden, bias=False)\n"


def _example(title: str, spec: str = "[architecture]\nqk_norm = true\n", **parts: str) -> Example:
    changes = [
        (_BODY, _OWN.format(**{**_RIGHT, **parts})),
        ("class ToyAttention(", _HELPER),
        (_BUILT, _BUILT + "        self.q_norm = RMSNorm(hidden)\n        self.k_norm = RMSNorm(hidden)\n"),
    ]
    return Example(title, {"model": changes, "spec": spec})


FAILING = (
    _example(
        "the norms behind the rotation",
        query="«self.q_norm»(apply_rotary(q_text, places))",
        key="«self.k_norm»(apply_rotary(k_text, places))",
    ),
    _example(
        "behind it, under a name",
        key="apply_rotary(k_text, places)\n        k_text = «self.k_norm»(k_text.float())",
    ),
    _example("queries alone", query="«apply_rotary(self.q_norm(q_text), places)»", key="self.k_norm(k_text)"),
    _example("keys alone", key="«apply_rotary(self.k_norm(k_text), places)»", query="self.q_norm(q_text)"),
    _example("other tables for the keys", key="apply_rotary(self.k_norm(k_text), «others»)"),
    _example("values, too", value="«apply_rotary(self.v_proj(context), places)»"),
)
PASSING = (
    _example("normalised, then rotated"),
    _example(
        "normalised behind it, in a model of which nothing is recorded",
        spec="",
        query="self.q_norm(apply_rotary(q_text, places))",
        key="self.k_norm(apply_rotary(k_text, places))",
    ),
    Example("no rotation"),
)
