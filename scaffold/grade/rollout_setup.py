"""What a pipeline wants of a machine before the engine can load it: a checkpoint that is made ready, more libraries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scaffold.source.syntax import walk_tree
from scaffold.spec.section import Section
from scaffold.upstream import UpstreamSource

INDEX = "model_index.json"  # by which the engine finds a pipeline's class
_WRITES = frozenset({"write_text", "dump"})
_INSTALL = re.compile(r"`(pip install [\w.,/ \[\]'-]+)`", re.ASCII)


def put_rollout_setup(section: Section, source: UpstreamSource) -> None:
    """Put ``prepare``, the function of the pipeline's module that makes a checkpoint ready, and ``installs``.

    ``prepare`` has the function's name, and as ``arguments`` those of the model's own settings that it takes. It is one
    that nothing in the module calls, takes no more than the checkpoint, and writes the index or calls what does.

    Args:
        section: ``deploy``, with the model's own settings where the package fixes some.
        source: the version of vllm-omni.
    """
    file = section.sources.report.upstream.module.replace(".", "/") + ".py"
    tree = source.tree(file)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    writing = {name for name, node in functions.items() if any(_writes_index(functions, name))}
    called = {name for node in tree.body for name in _called(node)}
    ready = [functions[name] for name in sorted(writing - called) if _takes_folder(functions[name])]
    if len(ready) == 1:
        taken = {argument.arg for argument in ready[0].args.args[1:]}
        settings = section.values.get("additional_config") or {}
        arguments = {name: value for name, value in settings.items() if name in taken}
        place = f"{file}:{ready[0].lineno}"
        section.put("prepare", {"function": ready[0].name, "arguments": arguments}, place)
    installs = {
        found: node.lineno
        for node in walk_tree(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and ast.unparse(node.exc.func) == "ImportError"
        for text in walk_tree(node.exc)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        for found in _INSTALL.findall(text.value)
    }
    if installs:
        section.put("installs", sorted(installs), f"{file}:{min(installs.values())}")


def _called(node: ast.AST) -> Iterator[str]:
    for inner in walk_tree(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
            yield inner.func.id


def _writes_index(
    functions: dict[str, ast.FunctionDef], name: str, seen: frozenset[str] = frozenset()
) -> Iterator[bool]:
    """Yield True where a function, or one of the module that it calls, writes a file of that name."""
    node = functions[name]
    texts = {inner.value for inner in walk_tree(node) if isinstance(inner, ast.Constant)}
    methods = {inner.func.attr for inner in walk_tree(node) if isinstance(inner, ast.Call)
               if isinstance(inner.func, ast.Attribute)}  # fmt: skip
    if INDEX in texts and methods & _WRITES:
        yield True
    for other in set(_called(node)) & functions.keys() - seen - {name}:
        yield from _writes_index(functions, other, seen | {name})


def _takes_folder(node: ast.FunctionDef) -> bool:
    """Whether the checkpoint is all that a function has to be given."""
    arguments = node.args
    required = len(arguments.args) - len(arguments.defaults)
    only = any(default is None for default in arguments.kw_defaults)
    return required == 1 and not only and not arguments.posonlyargs
