"""The last pass over a port: unused names dropped, formatted, parsed, and held against what it must not contain."""

from __future__ import annotations

import ast
import json

from scaffold.errors import ScaffoldError
from scaffold.reading import read_text
from scaffold.render.formats.python import LEFT_OUT, RULES, SETTINGS, WIDTH, run_ruff
from scaffold.render.long_lines import break_long_lines
from scaffold.scratch import scratch_folder

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
        rules = ["--select", RULES, "--ignore", LEFT_OUT, "--output-format", "json"]
        mended = ["--fix", "--unsafe-fixes", "--fixable", "F401,F841,I,UP,B905"]
        # Formatted first, so that only lines that cannot be shorter are too long.
        run_ruff(["format", *common, "--quiet", str(path)])
        left = run_ruff(["check", *common, *rules, *mended, str(path)])
        run_ruff(["format", *common, "--quiet", str(path)])
        broken = break_long_lines(read_text(path), WIDTH)
        path.write_text(broken, encoding="utf-8", newline="\n")
        run_ruff(["format", *common, "--quiet", str(path)])
        # What is left is upstream's style; the line that has it says so.
        run_ruff(["check", *common, "--select", RULES, "--ignore", LEFT_OUT, "--add-noqa", "--quiet", str(path)])
        finished = read_text(path)
    found = json.loads(left or "[]")
    for entry in found:
        if entry["code"] in _FATAL:
            row = entry["location"]["row"]
            raise ScaffoldError(f"the port has a defect in line {row}: {entry['message']}", hint="please report it")
    ast.parse(finished)
    return finished
