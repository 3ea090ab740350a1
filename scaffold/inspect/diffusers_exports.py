"""Denoisers and pipelines that releases of diffusers export, read from their wheels: writes ``diffusers_exports.json``.

    python -m scaffold.inspect.diffusers_exports 0.38.0 0.40.0 0.42.1 > scaffold/inspect/diffusers_exports.json

Give the releases that versions of vllm-omni pin, and the newest, oldest first; each entry lists what a release adds.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence

from scaffold.source.syntax import walk_tree
from scaffold.upstream.fetch import fetch_wheel
from scaffold.upstream.source import UpstreamSource, WheelSource

DENOISERS = ("transformers.", "unets.")


def read_exports(source: UpstreamSource) -> dict[str, list[str]]:
    """Return ``models``, what the folders of denoisers export, and ``pipelines``; both sorted.

    Raises:
        ScaffoldError: the source lacks one of the two tables.
    """
    models = {
        name
        for module, names in _tables(source.tree("diffusers/models/__init__.py"))
        if module.startswith(DENOISERS)
        for name in names
    }
    exported = {name for _, names in _tables(source.tree("diffusers/__init__.py")) for name in names}
    return {"models": sorted(models), "pipelines": sorted(name for name in exported if name.endswith("Pipeline"))}


def additions(releases: Sequence[tuple[str, dict[str, list[str]]]]) -> dict[str, dict[str, list[str]]]:
    """Return what each release adds to those before it, in the order given."""
    found: dict[str, dict[str, list[str]]] = {}
    seen: dict[str, set[str]] = {"models": set(), "pipelines": set()}
    for version, exports in releases:
        found[version] = {kind: sorted(set(names) - seen[kind]) for kind, names in exports.items()}
        for kind, names in exports.items():
            seen[kind] |= set(names)
    return found


def _tables(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Module and names of each entry of ``_import_structure``: literal, assigned by key, or extended by key."""
    for node in walk_tree(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _is_table(node.targets[0]):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                yield from _entry(key, value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            if _is_table(node.targets[0].value):
                yield from _entry(node.targets[0].slice, node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "extend":
            holder = node.func.value
            if isinstance(holder, ast.Subscript) and _is_table(holder.value) and node.args:
                yield from _entry(holder.slice, node.args[0])


def _entry(key: ast.expr | None, value: ast.expr) -> Iterator[tuple[str, list[str]]]:
    if isinstance(key, ast.Constant) and isinstance(key.value, str) and isinstance(value, ast.List):
        yield key.value, [item.value for item in value.elts if isinstance(item, ast.Constant)]  # type: ignore[misc]


def _is_table(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "_import_structure"


def main(versions: Sequence[str]) -> None:
    """Print the table of the named releases, fetching their wheels where the cache lacks them."""
    wheels = [(version, WheelSource(fetch_wheel("diffusers", version), version, version)) for version in versions]
    table = additions([(version, read_exports(source)) for version, source in wheels])
    sys.stdout.write(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
