"""Whether a branch of a loader leaves a weight out for good: not a row of a table, and nothing that is raised later."""

from __future__ import annotations

import ast

from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.trace import Skip
from scaffold.inspect.program.values import Obj
from scaffold.source.syntax import around, walk_tree

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def leaves_out(program: Program, skip: Skip) -> bool:
    """Return whether a ``continue`` or ``return`` skips a weight for good."""
    around_it = list(around(program.source.tree(skip.at.file), skip.at.line))
    loops = [n for n in around_it if isinstance(n, _LOOPS)]
    goes_on = any(isinstance(n, ast.Continue) and n.lineno == skip.at.line for n in around_it)
    if goes_on and loops:
        # A loop whose turns are all known is one over a table's rows; the weights are not.
        unknown = {(record.at.file, record.at.line) for record in program.trace.loops.values()}
        if (skip.at.file, loops[-1].lineno) not in unknown:
            return False
    branches = [n for n in around_it if isinstance(n, ast.If) and n.body[-1].lineno == skip.at.line]
    return not (branches and raises_for(branches[0].body, around_it))


def raises_for(body: list[ast.stmt], around_it: list[ast.AST]) -> bool:
    """Tell whether a branch notes down names, in a loop behind which the function may raise."""
    notes = any(
        isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and getattr(s.value.func, "attr", "") == "append"
        for s in body
    )
    functions = [n for n in around_it if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    loops = [n for n in around_it if isinstance(n, _LOOPS)]
    if not (notes and functions and loops):
        return False
    end = max(loop.end_lineno or 0 for loop in loops)
    return any(isinstance(n, ast.Raise) and n.lineno > end for n in walk_tree(functions[-1]))


def handed_on(program: Program, skip: Skip, loader: str) -> bool:
    """Tell whether a skip stands in the loader of a module that the pipeline hands weights to."""
    found = program.pipeline.cls.find_method(loader)
    own = (found[0].module.file, found[1].lineno) if found is not None else None
    around_it = around(program.source.tree(skip.at.file), skip.at.line)
    loaders = [n.lineno for n in around_it if isinstance(n, ast.FunctionDef) and n.name == loader]
    return any((skip.at.file, line) != own for line in loaders)


def held_names(program: Program) -> set[str]:
    """Return attribute names of the pipeline and its modules: keys with such a prefix belong to them."""
    modules = [program.pipeline]
    for value in program.pipeline.attrs.values():
        modules += [o for o in options(value) if isinstance(o, Obj) and o.root is None and o.cls.is_module]
    return {name for module in modules for name in module.attrs}
