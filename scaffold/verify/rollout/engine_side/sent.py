"""What a request brings as the package's own agent loop sends it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def sent_by_loop(package: str) -> Callable[[dict[str, Any], tuple[int, int]], dict[str, Any]] | None:
    """What makes of a request's images those that the loop sends, for a width and height asked for.

    None where the package has no loop, or one that does not follow the size that is asked for.

    Args:
        package: dotted name of the package.
    """
    if importlib.util.find_spec(f"{package}.agent_loop") is None:
        return None
    own = vars(importlib.import_module(f"{package}.agent_loop"))
    edits = next((kind for kind in own.values() if getattr(kind, "edits", False)), None)
    read = own.get("read_media") if edits is None else edits.read_media
    if read is None or "size" not in inspect.signature(read).parameters:
        return None

    def bring(files: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            paths = {kind: str(Path(folder, f"{kind}.png")) for kind in files if kind == "image"}
            for kind, path in paths.items():
                files[kind].save(path)
            sent: dict[str, Any] = read({"inputs": json.dumps({**files, **paths})}, size=size)
        return sent

    return bring
