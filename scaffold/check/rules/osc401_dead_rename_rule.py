"""A row of the key table matches no key of the checkpoint, or the table is not applied.

A rename that fits nothing was written for another release of the checkpoint, or with a typing error. The keys that it
was meant for go another way: a more general row takes them to a wrong name, or they are left over. A table is as dead
where nothing calls the function that applies it, and where tensors are kept under the old name beside the new one.

    ("languge_model.model.", "")        # the checkpoint's keys begin with language_model.model.

Instead: remove the row, or correct it; map every key with the table. ``omni-scaffold remap`` shows which keys each row
takes.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.key_tables import (
    folded,
    key_tables,
    loading_functions,
    recorded_keys,
    renamed,
    renaming_functions,
)
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC401"
NAME = "dead-rename-rule"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 20")
APPLIES = Applies(non_diffusers=True)


def _unused(package: Package) -> Hits:
    """Look for tensors that are kept under the checkpoint's name, beside the name that the table gives."""
    names = renaming_functions(key_tables(package))
    for function in loading_functions(package):
        index = function.file.index
        for loop in function.nodes(ast.For) if function.file in package.files else ():
            made = {
                node.targets[0].id: node.value.args[0].id
                for node in index.nodes(ast.Assign, loop)
                if isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Call)
                and function.file.qualified(node.value.func) in names
                and node.value.args
                and isinstance(node.value.args[0], ast.Name)
            }
            kept = [node for node in index.nodes(ast.Subscript, loop) if isinstance(node.ctx, ast.Store)]
            used = {node.slice.id: node.slice for node in kept if isinstance(node.slice, ast.Name)}
            for target, source in made.items():
                held = used.get(source)
                statement = index.parent(index.parent(held)) if held is not None else None  # type: ignore[arg-type]
                if held is None or target in used or not isinstance(statement, ast.Assign):
                    continue
                if source != target and isinstance(statement.value, (ast.Call, ast.Subscript)):
                    yield Hit(function.file, held, f"the tensor is kept under {source}, and {target} is its name here")


def check(package: Package) -> Hits:
    """Compare the rows with the keys that ``scaffold.toml`` records; without it nothing is known of the checkpoint."""
    yield from _uncalled(package)
    yield from _unused(package)
    keys = recorded_keys(package)
    if keys is None:
        return
    tables = key_tables(package)
    names = [folded(key) for key in (*keys.kept, *keys.dropped)]
    deciding = [renamed(tables, key) for key in keys.kept]
    for table in tables:
        for row in table.rows:
            source = folded(row.source)
            fits = [name for name in names if name.startswith(source) or source.startswith(name)]
            if not fits:
                starts = sorted({_start(name, row.source) for name in names})
                near = get_close_matches(row.source, starts, n=1)
                help = f"did you mean {near[0]!r}?" if near else "remove the row"
                yield Hit(table.file, row.source_node, f"no key of the checkpoint begins with {row.source!r}", help)
            elif not table.ignores and row not in deciding and all(name in keys.kept for name in fits):
                text = f"every key that begins with {row.source!r} is taken by a longer row"
                yield Hit(table.file, row.source_node, text, "remove the row")


def _uncalled(package: Package) -> Hits:
    """Look for a function that maps one key by the tables, and that no code of the package mentions."""
    tables = key_tables(package)
    ignored = {table.name for table in tables if table.ignores}
    renaming = {table.name for table in tables if not table.ignores}
    for file in package.files:
        for function in file.functions:
            name = function.name
            read = {node.id for node in function.nodes(ast.Name) if isinstance(node, ast.Name)}
            # Only the way to the training names asks which keys are ignored.
            if not (read & ignored and read & renaming) or len(function.positional) != 1:
                continue
            if not any(_mentions(other, name, function.node) for other in package.files):
                text = f"{name}() maps keys by the table, and nothing calls it: keys keep the checkpoint's names"
                yield Hit(file, function.node, text, "map every key of the checkpoint with it")


def _mentions(file: PythonFile, name: str, definition: ast.AST) -> bool:
    named = (node for node in file.index.nodes(ast.Name) if node.id == name)
    reached = (node for node in file.index.nodes(ast.Attribute) if node.attr == name)
    return any(not file.index.contains(definition, node) for node in named) or any(True for _ in reached)


def _start(name: str, like: str) -> str:
    count = like.count(".")
    return ".".join(name.split(".")[:count]) + ("." if like.endswith(".") else "")


SPEC = recorded_spec()
FAILING: tuple[Example, ...] = (
    Example(
        "renamed for nothing",
        {"model": [("state[target] = file.get_tensor", "state[«source»] = file.get_tensor")]},
    ),
    Example(
        "a typing error",
        {"spec": SPEC, "model": [('("language_model.model.", "")', '(«"languge_model.model."», "")')]},
        also=("OSC403",),
    ),
    Example(
        "another release's name",
        {"spec": SPEC, "model": [('    ("vae2llm.", "vae2llm."),\n', '    («"vae_proj."», "vae2llm."),\n')]},
        also=("OSC403",),
    ),
    Example(
        "an ignored key that is not there",
        {
            "spec": SPEC,
            "model": [('(("language_model.lm_head.", "predicts text"),)', '((«"lm_head."», "predicts text"),)')],
        },
    ),
    Example(
        "a row that a longer one empties",
        {
            "spec": SPEC,
            "model": [
                (
                    '    ("vae2llm.", "vae2llm."),\n',
                    '    («"vae2llm."», "in."),\n    ("vae2llm.weight", "vae2llm.weight"),\n'
                    '    ("vae2llm.bias", "vae2llm.bias"),\n',
                )
            ],
        },
    ),
)
_CALL = "                target = to_training_key(source)\n"
FAILING += (
    Example(
        "the table is there, and loading does not use it",
        {
            "model": [
                (_CALL, "                target = source\n"),
                ("def to_training_key(", "def «to_training_key»("),
            ]
        },
    ),
)
PASSING = (
    Example("every row has its keys", {"spec": SPEC}),
    Example(
        "nothing is known of the checkpoint", {"model": [('("language_model.model.", "")', '("language.model.", "")')]}
    ),
)
