"""The engine's processing of a request and of a result, by the functions in the registry."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.pre_process import registered
from scaffold.inspect.program import Program
from scaffold.source.syntax import is_docstring, walk_tree
from scaffold.source.values import Func
from scaffold.upstream.registry import REGISTRY_FILE

KEYS = ("detail.post_process", "detail.pre_process")
_TABLE, _BEFORE = "_DIFFUSION_POST_PROCESS_FUNCS", "_DIFFUSION_PRE_PROCESS_FUNCS"


def answers(program: Program) -> dict[str, Fact]:
    """The functions' names; an empty one where a result stays as the pipeline returns it, or a request as it came."""
    if program.execution.model_name is None and not program.target.registry_keys:
        return {}  # the package that registers it decides how its results are processed
    before = registered(program, _BEFORE)
    place = program.place(program.cls) if before is None else Evidence(REGISTRY_FILE, before[1])
    facts = {KEYS[1]: fact("" if before is None else before[0], [place])}
    found = registered(program, _TABLE)
    if found is None:
        return {**facts, KEYS[0]: fact("", [program.place(program.cls)])}
    name, line = found
    places = [Evidence(REGISTRY_FILE, line)]
    maker = program.scopes.lookup(program.cls.module, name)
    if isinstance(maker, Func):
        places.append(Evidence(maker.module.file, maker.node.lineno))
        if _gives_back(maker.node):
            name = ""
    return {**facts, KEYS[0]: fact(name, places)}


def _gives_back(maker: ast.AST) -> bool:
    """Whether the function that ``maker`` returns does nothing but return what it is given."""
    whole = getattr(maker, "body", [])
    body = [node for node in whole if not isinstance(node, (ast.Assign, ast.Delete, ast.Expr))]
    if len(body) != 2 or not isinstance(body[0], ast.FunctionDef) or not isinstance(body[1], ast.Return):
        return False
    inner, made = body[0], body[1].value
    bound = {node.id for other in whole for node in walk_tree(other) if isinstance(node, ast.Name) and _is_bound(node)}
    if inner.name in bound or inner.decorator_list:
        return False
    says = [node for node in inner.body if not is_docstring(node)]
    first = next(iter([*inner.args.posonlyargs, *inner.args.args]), None)
    return (
        isinstance(made, ast.Name)
        and made.id == inner.name
        and first is not None
        and len(says) == 1
        and isinstance(says[0], ast.Return)
        and isinstance(says[0].value, ast.Name)
        and says[0].value.id == first.arg
    )


def _is_bound(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)
