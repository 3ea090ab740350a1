"""``verify PACKAGE --init``: the table ``[verify]``, filled with what the package says, each line with its place."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from scaffold.files.parsing import parse
from scaffold.verify.declared import FILE, PROMPT, TABLE, UNKNOWN, told_of
from scaffold.verify.package import Package, registered, scanned

_SCALE = re.compile(r"rollout\.pipeline\.(\w*(?:cfg_scale|guidance_scale)\w*)=([\d.]+)")
_SCRIPT = re.compile(r"\b((?:examples/[\w./-]*data_process|scripts)/[\w-]+\.py)\b")
_EMBEDDINGS = ("prompt_embeds", "prompt_embeds_mask", "negative_prompt_embeds", "negative_prompt_embeds_mask")


@dataclass(frozen=True)
class _Found:
    value: Any
    place: str


def init_text(package: Package) -> str:
    """Return the file for a package: a value where the text has one, else ``"?"`` and what to write there."""
    sources = list(_sources(package))
    found = {**_of_scripts(package), **_of_code(sources)}
    lines = [f"[{TABLE}]"]
    for name in ("image", "latents", "patch", "time", "guidance", "scale", "data", "weights"):
        known = found.get(name)
        value = UNKNOWN if known is None else known.value
        lines.append(f"{name} = {json.dumps(value)}  # {told_of(name) if known is None else known.place}")
    for file, fields in _files(sources):
        lines += ["", f"[{TABLE}.files.{json.dumps(file.value)}]  # {file.place}; {told_of('files')}"]
        lines += [f'{name} = "{UNKNOWN}"  # {field.value} at {field.place}' for name, field in fields.items()]
        lines += [] if fields else [f'"{UNKNOWN}" = "{UNKNOWN}"']
    lines += ["", f"[{TABLE}.columns]  # {told_of('columns')}"]
    for name, place in _columns(sources).items():
        shape = [PROMPT] if name.endswith("mask") else [PROMPT, UNKNOWN]
        lines.append(f"{name} = {json.dumps(shape)}  # read at {place}")
    return "\n".join(lines) + "\n"


def first_unknown(text: str) -> str:
    """Return the first key in a table of `init_text` that a person must fill in; ``columns`` if all else is known."""
    lines = (line for line in text.splitlines() if f'"{UNKNOWN}"' in line.partition("#")[0])
    return next(lines, "columns").partition(" =")[0]


def init_path(package: Package) -> Path:
    """Where the file belongs."""
    return package.folder / FILE


def _sources(package: Package) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(package.folder.rglob("*.py")):
        try:
            yield file.relative_to(package.folder).as_posix(), parse(scanned(file, package.root))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue


def _of_scripts(package: Package) -> dict[str, _Found]:
    """Return the guidance and the data script in launch scripts of the package's architecture."""
    names = [rf"model\.architecture={name}\b" for name in registered(package.folder)]
    found: dict[str, _Found] = {}
    for script in package.launch_scripts:
        text = scanned(script, package.root)
        if not any(re.search(name, text) for name in names):
            continue
        place = script.relative_to(package.root).as_posix()
        for number, line in enumerate(text.splitlines(), start=1):
            here = f"{place}:{number}"
            if match := _SCALE.search(line):
                found.setdefault("guidance", _Found(match[1], here))
                found.setdefault("scale", _Found(float(match[2]), here))
            if (match := _SCRIPT.search(line)) and (package.root / match[1]).is_file():
                found.setdefault("data", _Found(match[1], here))
    return found


def _of_code(sources: list[tuple[str, ast.Module]]) -> dict[str, _Found]:
    found: dict[str, _Found] = {}
    for file, tree in sources:
        for path, number in _paths(tree):
            if re.fullmatch(r"[\w./-]+\.(safetensors|bin|pth?)", path):
                found.setdefault("weights", _Found(path, f"{file}:{number}"))
    return found


def _files(sources: list[tuple[str, ast.Module]]) -> Iterator[tuple[_Found, dict[str, _Found]]]:
    """JSON files that the code names, the first with the sizes of the classes beside it."""
    classes = [node for _, tree in sources for node in ast.walk(tree) if _is_read_class(node)]
    sizes: dict[str, _Found] = {}
    names: dict[str, _Found] = {}
    for file, tree in sources:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (node in classes if classes else _is_dataclass(node)):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and _is_size(line):
                        default = "no default" if line.value is None else ast.unparse(line.value)
                        sizes.setdefault(line.target.id, _Found(default, f"{file}:{line.lineno}"))
        for path, number in _paths(tree):
            if re.fullmatch(r"[\w./-]+\.json", path) and not path.endswith(("scheduler_config.json", "index.json")):
                names.setdefault(path, _Found(path, f"{file}:{number}"))
    for number, name in enumerate(names.values()):
        yield name, sizes if number == 0 else {}


def _paths(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each string with its line, prefixed with the folders that it is joined to."""
    before: dict[int, str] = {}
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("path.join"):
            parts = node.args
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = [node.right, *parts]
            node = node.left
        texts = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "" for part in parts]
        for at, part in enumerate(parts):
            known = list(takewhile(bool, reversed(texts[:at])))
            if known:
                before.setdefault(id(part), "".join(f"{folder}/" for folder in reversed(known)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield before.get(id(node), "") + node.value, node.lineno


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_read_class(node: ast.AST) -> bool:
    """Whether a class is a dataclass with a classmethod that builds it, such as from a file."""
    return (
        isinstance(node, ast.ClassDef)
        and _is_dataclass(node)
        and any(isinstance(part, ast.FunctionDef) and part.name.startswith("from_") for part in node.body)
    )


def _is_size(line: ast.AnnAssign) -> bool:
    return ast.unparse(line.annotation).startswith(("int", "tuple[int")) or ast.unparse(line.annotation) == "tuple"


def _columns(sources: list[tuple[str, ast.Module]]) -> dict[str, str]:
    """Embeddings that ``prepare_model_inputs`` reads, and where."""
    found: dict[str, str] = {}
    for file, tree in sources:
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or node.name != "prepare_model_inputs":
                continue
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and inner.id in _EMBEDDINGS:
                    found.setdefault(inner.id, f"{file}:{inner.lineno}")
    return {name: found[name] for name in _EMBEDDINGS if name in found}
