"""The last pass over a port: unused names dropped, formatted, parsed, and held against what it must not contain."""

from __future__ import annotations

import ast
import json
import subprocess
import tempfile
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.render.formats.python import SETTINGS, ruff_binary

# Rules of the target that are mended; what is left of them is upstream's style, and is named in the text.
_RULES = "E,F,UP,B,I,G"
_LEFT_OUT = "F405,F403,E731,B007,UP032,G004,UP045,UP035"
_FATAL = frozenset({"F821", "F822", "F823", "F811"})


def finish(text: str) -> str:
    """Return the text formatted and clean under the target's rules.

    Raises:
        ScaffoldError: it does not parse or uses a name that it does not bind: a defect of the port.
    """
    with tempfile.TemporaryDirectory(prefix="omni-scaffold-") as folder:
        path, settings = Path(folder) / "port.py", Path(folder) / "ruff.toml"
        path.write_text(text, encoding="utf-8", newline="\n")
        settings.write_text(SETTINGS, encoding="utf-8")
        common = ["--no-cache", "--config", str(settings)]
        rules = ["--select", _RULES, "--ignore", _LEFT_OUT, "--output-format", "json"]
        mended = ["--fix", "--unsafe-fixes", "--fixable", "F401,F841,I,UP"]
        _ruff(["format", *common, "--quiet", str(path)])  # so that only lines that cannot be shorter are too long
        left = _ruff(["check", *common, *rules, *mended, str(path)])
        _ruff(["format", *common, "--quiet", str(path)])
        finished = path.read_text(encoding="utf-8")
    found = json.loads(left or "[]")
    for entry in found:
        if entry["code"] in _FATAL or entry["code"] is None or entry["code"] == "invalid-syntax":
            row = entry["location"]["row"]
            raise ScaffoldError(f"the port has a defect in line {row}: {entry['message']}", hint="please report it")
    codes = sorted({entry["code"] for entry in found})
    if codes:
        finished = f"# ruff: noqa: {', '.join(codes)}\n{finished}"
    ast.parse(finished)
    return finished


def _ruff(arguments: list[str]) -> str:
    result = subprocess.run([ruff_binary(), *arguments], capture_output=True, encoding="utf-8", check=False)
    if result.returncode not in (0, 1):
        raise ScaffoldError(f"ruff {arguments[0]} failed: {result.stderr.strip()[:500]}")
    return result.stdout
