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
from scaffold.verify.declared import FILE, TABLE, UNKNOWN, told_of
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
        table = f"{TABLE}.files.{json.dumps(file.value)}"
        told = f"  # {file.place}; {told_of('files')}"
        for above in sorted({path[:-1] for path in fields} or {()}):
            lines += ["", f"[{'.'.join((table, *map(_key, above)))}]{told}"]
            told = ""
            here = {path[-1]: field for path, field in fields.items() if path[:-1] == above}
            lines += [f'{_key(name)} = "{UNKNOWN}"  # {field.value} at {field.place}' for name, field in here.items()]
            lines += [] if here else [f'"{UNKNOWN}" = "{UNKNOWN}"']
    lines += ["", f"[{TABLE}.columns]  # {told_of('columns')}"]
    for name, place in _columns(sources).items():
        shape = [UNKNOWN] if name.endswith("mask") else [UNKNOWN, UNKNOWN]
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


def _files(sources: list[tuple[str, ast.Module]]) -> Iterator[tuple[_Found, dict[tuple[str, ...], _Found]]]:
    """JSON files that the code reads, each with the keys below which it reads them, and the sizes of its classes."""
    sizes = _sizes(sources)
    classes = [n.name for _, tree in sources for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and _is_read(n)]
    plain: dict[tuple[str, ...], _Found] = {
        (name,): field for kind in classes or list(sizes) for name, field in sizes.get(kind, {}).items()
    }
    names: dict[str, tuple[_Found, dict[tuple[str, ...], _Found]]] = {}
    for file, tree in sources:
        readers = [(node, keys) for node in ast.walk(tree) if (keys := _keys_read(node, file, sizes)) is not None]
        for path, number in _paths(tree):
            if not re.fullmatch(r"[\w./-]+\.json", path) or path.endswith(("scheduler_config.json", "index.json")):
                continue
            around = [keys for node, keys in readers if _holds(node, number)]
            if around or not any(_writes(node, number) for node in ast.walk(tree)):
                names.setdefault(path, (_Found(path, f"{file}:{number}"), around[-1] if around else {}))
        for path, number in _of_libraries(tree):
            names.setdefault(path, (_Found(path, f"{file}:{number}"), {}))
    for place, (name, keys) in enumerate(names.values()):
        yield name, keys or (plain if place == 0 else {})


def _holds(node: ast.AST, number: int) -> bool:
    """Whether a line is one of a function."""
    return isinstance(node, ast.FunctionDef) and node.lineno <= number <= (node.end_lineno or 0)


def _writes(node: ast.AST, number: int) -> bool:
    """Whether a line is one of a function that writes files."""
    calls = (ast.unparse(call.func).rpartition(".")[2] for call in ast.walk(node) if isinstance(call, ast.Call))
    return _holds(node, number) and bool({"dump", "dumps", "write_text"} & set(calls))


def _sizes(sources: list[tuple[str, ast.Module]]) -> dict[str, dict[str, _Found]]:
    """Sizes that the package's dataclasses hold, by class."""
    found: dict[str, dict[str, _Found]] = {}
    for file, tree in sources:
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or not _is_dataclass(node):
                continue
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and _is_size(line):
                    default = "no default" if line.value is None else ast.unparse(line.value)
                    field = _Found(default, f"{file}:{line.lineno}")
                    found.setdefault(node.name, {})[line.target.id] = field
    return found


def _keys_read(node: ast.AST, file: str, sizes: dict[str, dict[str, _Found]]) -> dict[tuple[str, ...], _Found] | None:
    """Keys of a JSON file that a function reads, with the sizes of a class that gets all below one; None without any.

    A class that gets the whole file, or a part that is chosen while it runs, has its sizes at the top.
    """
    if not isinstance(node, ast.FunctionDef):
        return None
    paths: dict[str, tuple[str, ...]] = {}

    def path_of(value: ast.expr) -> tuple[str, ...] | None:
        if isinstance(value, ast.Name):
            return paths.get(value.id)
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            inner, name = path_of(value.value), value.slice.value
            return None if inner is None or not isinstance(name, str) else (*inner, name)
        if isinstance(value, ast.Call) and ast.unparse(value.func) in ("json.load", "json.loads"):
            return ()
        return None

    nodes = sorted((n for n in ast.walk(node) if hasattr(n, "lineno")), key=lambda n: n.lineno)
    for one in nodes:
        if isinstance(one, ast.Assign) and (path := path_of(one.value)) is not None:
            paths.update({target.id: path for target in one.targets if isinstance(target, ast.Name)})
    if not any(path_of(one) == () for one in nodes if isinstance(one, ast.Call)):
        return None
    found: dict[tuple[str, ...], _Found] = {}
    for one in nodes:
        if isinstance(one, ast.Subscript) and (path := path_of(one)):
            found.setdefault(path, _Found("read", f"{file}:{one.lineno}"))
        for keyword in one.keywords if isinstance(one, ast.Call) else ():
            path = path_of(keyword.value) if keyword.arg is None else None
            fields = sizes.get(ast.unparse(one.func).rpartition(".")[2], {}) if isinstance(one, ast.Call) else {}
            found |= {(*path, name): field for name, field in fields.items()} if path is not None else {}
    longer = {path[:end] for path in found for end in range(len(path))}
    return {path: field for path, field in found.items() if path not in longer}


def _of_libraries(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Files that a library's configuration class reads: ``XConfig.from_pretrained`` and ``load_config``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value).rpartition(".")[2]
        configures = node.func.attr == "from_pretrained" and owner.endswith("Config")
        if configures or node.func.attr == "load_config":
            folders = [
                k.value.value for k in node.keywords if k.arg == "subfolder" and isinstance(k.value, ast.Constant)
            ]
            yield "/".join([*map(str, folders), "config.json"]), node.lineno


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


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


def _is_read(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass with a classmethod that builds it, such as from a file."""
    builders = (part for part in node.body if isinstance(part, ast.FunctionDef) and part.name.startswith("from_"))
    return _is_dataclass(node) and any(builders)


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
