"""The last pass over a port: unused names dropped, formatted, parsed, and held against what it must not contain."""

from __future__ import annotations

import ast
import json

from scaffold.errors import ScaffoldError
from scaffold.reading import read_text
from scaffold.render.formats.python import SETTINGS, run_ruff
from scaffold.scratch import scratch_folder

# Rules of the target that are mended; what is left of them is upstream's style, and is named in the text.
_RULES = "E,F,UP,B,I,G"
_LEFT_OUT = "F405,F403,E731,B007,UP032,G004,UP045,UP035"
_FATAL = frozenset({"F821", "F822", "F823", "F811", "invalid-syntax", None})


def finish(text: str) -> str:
    """Return the text formatted and clean under the target's rules.

    Raises:
        ScaffoldError: it does not parse or uses a name that it does not bind: a defect of the port.
    """
    with scratch_folder("port") as folder:
        path, settings = folder / "port.py", folder / "ruff.toml"
        path.write_text(text, encoding="utf-8", newline="\n")
        settings.write_text(SETTINGS, encoding="utf-8")
        common = ["--no-cache", "--config", str(settings)]
        rules = ["--select", _RULES, "--ignore", _LEFT_OUT, "--output-format", "json"]
        mended = ["--fix", "--unsafe-fixes", "--fixable", "F401,F841,I,UP"]
        # Formatted first, so that only lines that cannot be shorter are too long.
        run_ruff(["format", *common, "--quiet", str(path)])
        left = run_ruff(["check", *common, *rules, *mended, str(path)])
        run_ruff(["format", *common, "--quiet", str(path)])
        finished = read_text(path)
    found = json.loads(left or "[]")
    for entry in found:
        if entry["code"] in _FATAL:
            row = entry["location"]["row"]
            raise ScaffoldError(f"the port has a defect in line {row}: {entry['message']}", hint="please report it")
    codes = sorted({entry["code"] for entry in found})
    if codes:
        finished = f"# ruff: noqa: {', '.join(codes)}\n{finished}"
    ast.parse(finished)
    return finished
