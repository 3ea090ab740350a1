"""Parameters of the schedulers of diffusers, read from wheels: writes ``scheduler_signatures.json``.

    python -m scaffold.inspect.scheduler_signatures 0.38.0 0.40.0 > scaffold/inspect/scheduler_signatures.json

Give the releases that versions of vllm-omni pin: what is not the same in all of them is left out.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping, Sequence

from scaffold.upstream.fetch import fetch_wheel
from scaffold.upstream.source import UpstreamSource, WheelSource

FOLDER = "diffusers/schedulers/"
METHODS = ("set_timesteps", "step")

Signatures = dict[str, dict[str, list[str]]]


def read_signatures(source: UpstreamSource) -> Signatures:
    """Return class -> method -> names of parameters without ``self``; methods that take any keyword are left out."""
    found: Signatures = {}
    for path in source.files(FOLDER):
        for node in source.tree(path).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Scheduler"):
                methods = {item.name: item.args for item in node.body if isinstance(item, ast.FunctionDef)}
                found[node.name] = {
                    name: [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)][1:]
                    for name in METHODS
                    if (given := methods.get(name)) is not None and given.kwarg is None
                }
    return found


def agreed(releases: Sequence[Mapping[str, Mapping[str, list[str]]]]) -> Signatures:
    """Return what all releases say alike, classes without any such method left out."""
    first, *others = releases
    same = {
        cls: {
            method: names
            for method, names in methods.items()
            if all(other.get(cls, {}).get(method) == names for other in others)
        }
        for cls, methods in sorted(first.items())
    }
    return {cls: methods for cls, methods in same.items() if methods}


def main(versions: Sequence[str]) -> None:
    """Print the table of the named releases, fetching their wheels where the cache lacks them."""
    wheels = [WheelSource(fetch_wheel("diffusers", version), version, version) for version in versions]
    table = agreed([read_signatures(wheel) for wheel in wheels])
    rows = [f" {json.dumps(cls)}: {json.dumps(methods)}" for cls, methods in table.items()]
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
