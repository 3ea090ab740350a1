"""Records a tiny checkpoint that the real vllm-omni has loaded, so that a smoke test can build it again.

``python benchmarks/tiny_checkpoint.py FOLDER KEY HEIGHT WIDTH``, with a folder as ``verify --level rollout`` makes one,
writes ``scaffold/presets/tiny/KEY.json``: the text files, and the shape of every tensor.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from safetensors import safe_open

OUT = Path(__file__).resolve().parents[1] / "scaffold/presets/tiny"


def recorded(folder: Path) -> dict[str, Any]:
    """Text files as JSON values where they are JSON, and shapes by weight file and key."""
    texts: dict[str, Any] = {}
    weights: dict[str, dict[str, list[int]]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                weights[name] = {key: list(file.get_slice(key).get_shape()) for key in sorted(file.keys())}
        else:
            text = path.read_text(encoding="utf-8")
            texts[name] = json.loads(text) if path.suffix == ".json" else text
    return {"texts": texts, "weights": weights}


def lines_of(value: Any, depth: int) -> str:
    """JSON with a line for each entry of the outer tables."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value)
    entries = ",\n".join(f"{json.dumps(name)}: {lines_of(entry, depth - 1)}" for name, entry in value.items())
    return f"{{\n{entries}\n}}"


if __name__ == "__main__":
    source, key, height, width = sys.argv[1:]
    content = {"height": int(height), "width": int(width), **recorded(Path(source))}
    (OUT / f"{key}.json").write_text(f"{lines_of(content, 3)}\n", encoding="utf-8")
