"""The text of vllm-omni that a package executes, for where no vllm-omni is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.upstream.locate import locate_version

if TYPE_CHECKING:
    from scaffold.verify.package import Package

# Before the names of the modules of vllm-omni's that a package executes.
EXECUTED = "flow_grpo_upstream_"


def executed_files() -> list[str]:
    """Files that this process, a package's, has executed so."""
    return [str(made.__file__) for name, made in list(sys.modules.items()) if EXECUTED in name]


def executed_text(package: Package, folder: Path) -> str | None:
    """Write it below a folder and return that; None where the package executes none, or none is there.

    Args:
        package: its spec names the files and the version.
        folder: of the run's own.
    """
    port = package.spec.get("port", {})
    files = [entry["file"] for entry in port.get("executed", ())] if port.get("form") == "imported" else []
    if not files:
        return None
    try:
        source = locate_version(package.spec["upstream"]["version"])
        texts = {file: source.read(file) for file in files}
    except ScaffoldError:
        return None  # importing the package says what is not installed
    for file, text in texts.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return str(folder)


def upstream_for(package: Package, folder: Path) -> dict[str, str]:
    """Write the text below a folder; return the environment in which the package finds it, empty where none is there.

    Args:
        package: its spec names the files and the version.
        folder: kept as long as the package's process runs.
    """
    text = executed_text(package, folder)
    return {} if text is None else {"FLOW_GRPO_UPSTREAM": text}
