"""Markers around a prompt: those that the rollout adapter takes off, and those that a tokenizer calls its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.recorded_facts import recorded, recorded_table

MARKER = re.compile(r"<[^<>\s]{1,40}>")
_OWN = {"begin": ("bos_token_id", "cls_token_id"), "end": ("eos_token_id", "sep_token_id")}


def own_tokens(package: Package, ids: ast.List) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield ``tokenizer.bos_token_id`` and the like at an end of a list, where the pipeline's token has a text.

    Yields:
        the element, the attribute's name, and the text of the token that ``scaffold.toml`` records.
    """
    for end, item in (("begin", ids.elts[0]), ("end", ids.elts[-1])):
        role = recorded(package, "prompt", end)
        text = recorded_table(package, "tokens", role).get("text") if role is not None else None
        if isinstance(item, ast.Attribute) and item.attr in _OWN[end] and isinstance(text, str):
            if "tokenizer" in ast.unparse(item.value).lower():
                yield item, item.attr, text


def taken_at_both_ends(package: Package) -> str:
    """Return the markers that the rollout adapter takes off at both ends."""
    found = [
        sorted({m for adapter in package.rollout_adapters for m in taken_off(adapter.file, method)})
        for method in ("removeprefix", "removesuffix")
    ]
    return " and ".join(repr(marker) for one in found for marker in one) if all(found) else ""


def taken_off(file: PythonFile, method: str) -> Iterator[str]:
    """Yield the markers that a file gives to a method of strings: ``removeprefix``, ``removesuffix``."""
    for call in file.index.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == method and len(call.args) == 1:
            value = file.value(call.args[0])
            if isinstance(value, str) and MARKER.fullmatch(value):
                yield value


def rollout_markers(package: Package) -> Iterator[str]:
    """Yield the markers that the code of rollout adapters which decode prompts names."""
    for adapter in package.rollout_adapters:
        decodes = any(
            isinstance(call.func, ast.Attribute) and call.func.attr in ("decode", "batch_decode")
            for function in adapter.file.all_functions
            for call in function.calls
        )
        if not decodes:
            continue
        for node in adapter.file.index.nodes(ast.Constant):
            if isinstance(node.value, str) and not _is_docstring(adapter.file, node):
                yield from MARKER.findall(node.value.replace("\\", ""))


def _is_docstring(file: PythonFile, node: ast.Constant) -> bool:
    return any(expression.value is node for expression in file.index.nodes(ast.Expr))
