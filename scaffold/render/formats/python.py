"""Rendered Python: imports sorted and code formatted by ruff under the target's settings, then parsed."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.limits import child_process
from scaffold.render.long_lines import break_long_lines
from scaffold.render.rendered import RenderedFile
from scaffold.scratch import scratch_folder

SUFFIXES = (".py",)

# verl-omni's own settings; the rules it selects on top (E, UP, B, G) concern style that templates answer for. A comma
# behind the last entry comes from a loop of a template, and is not a wish for a line an entry.
SETTINGS = """\
line-length = 120
target-version = "py310"
exclude = []
respect-gitignore = false
[lint]
ignore = ["F405", "F403", "E731", "B007", "UP032", "G004", "UP045", "UP035"]
[lint.isort]
known-first-party = ["verl_omni"]
split-on-trailing-comma = false
[format]
skip-magic-trailing-comma = true
"""
# Unsorted and unused imports are mended; an undefined or doubly defined name would be a broken package.
MENDED = "I,F401"
# The target's rules for text that is upstream's own: mended where ruff can, else the line says that it is as it was.
RULES = "E,F,UP,B,I,G"
LEFT_OUT = "F405,F403,E731,B007,UP032,G004,UP045,UP035"
UPSTREAMS = ("_model__loop.ported.py.jinja", "_model__denoiser.ported.py.jinja")
FATAL = "F811,F821,F822,F823"
WIDTH = 120
MOST_KEPT = 256
"""Files whose result is kept: `drift` and `update` render a package many times, and most of it stays the same."""
_FINISHED: dict[tuple[bytes, str, str], str] = {}


def finish(files: Mapping[str, RenderedFile], notes: list[str]) -> dict[str, RenderedFile]:
    """Return the files formatted.

    Raises:
        ScaffoldError: one does not parse, uses an undefined name, or ruff is not installed.
    """
    ruff_binary()
    # Which imports are a file's own may depend on what lies beside it, on nothing else of the others.
    beside = hashlib.sha256("\0".join(sorted(files)).encode()).digest()
    keys = {path: (beside, path, file.content) for path, file in files.items()}
    fresh = {path: file for path, file in files.items() if keys[path] not in _FINISHED}
    made = _formatted(fresh, files) if fresh else {}
    texts = {path: made[path] if path in made else _FINISHED[keys[path]] for path in files}
    for path, text in texts.items():
        _FINISHED.pop(keys[path], None)
        _FINISHED[keys[path]] = text
    while len(_FINISHED) > MOST_KEPT:
        del _FINISHED[next(iter(_FINISHED))]
    return {path: replace(file, content=texts[path]) for path, file in files.items()}


def _formatted(fresh: Mapping[str, RenderedFile], files: Mapping[str, RenderedFile]) -> dict[str, str]:
    """Return the texts of the ``fresh`` among the files."""
    for path, file in fresh.items():
        _parse(path, file)
    with scratch_folder("render") as root:
        for path, file in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(file.content, encoding="utf-8", newline="\n")
        settings = root / "ruff.toml"
        settings.write_text(SETTINGS, encoding="utf-8")
        common = ["--no-cache", "--config", str(settings)]
        mend = ["--select", f"{MENDED},{FATAL}", "--fix", "--fixable", MENDED, "--output-format", "json"]
        places = [str(root / path) for path in sorted(fresh)]
        _raise_on_findings(run_ruff(["check", *common, *mend, *places]), files, root)
        run_ruff(["format", *common, "--quiet", *places])
        if broken := _break_long_lines(sorted(fresh), root):
            run_ruff(["format", *common, "--quiet", *(str(root / path) for path in broken)])
        for path in (path for path, file in fresh.items() if str(file.template).endswith(UPSTREAMS)):
            rules = ["--select", RULES, "--ignore", LEFT_OUT, "--quiet", str(root / path)]
            run_ruff(["check", *common, "--fix", "--unsafe-fixes", "--fixable", "F841,UP,B905", "--exit-zero", *rules])
            run_ruff(["format", *common, "--quiet", str(root / path)])
            run_ruff(["check", *common, "--add-noqa", *rules])
        made = {path: read_text(root / path) for path in fresh}
    for path, text in made.items():
        _parse(path, replace(fresh[path], content=text))
    return made


def _break_long_lines(paths: Sequence[str], root: Path) -> list[str]:
    """Break what the formatter leaves too long; return what was changed."""
    changed = []
    for path in paths:
        text = read_text(root / path)
        broken = break_long_lines(text, WIDTH)
        if broken != text:
            (root / path).write_text(broken, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def ruff_binary() -> str:
    """Return the path of ruff: the one installed beside this tool, else the one on ``PATH``."""
    name = "ruff" + (sysconfig.get_config_var("EXE") or "")
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / name).is_file():
            return str(folder / name)
    found = child_process.program("ruff")
    if found is None:
        hint = "install it with pip install ruff"
        raise ScaffoldError("ruff, which formats what is rendered, was not found", hint=hint)
    return found


def run_ruff(arguments: Sequence[str]) -> str:
    """Run ruff and return what it prints.

    Raises:
        ScaffoldError: it is not installed, or fails otherwise than by finding something.
    """
    result = child_process.run_text([ruff_binary(), *arguments], seconds=None)
    if result.returncode not in ((0, 1) if arguments[0] == "check" else (0,)):
        raise ScaffoldError(f"ruff {arguments[0]} failed: {result.stderr.strip()[:500]}")
    return result.stdout


def _raise_on_findings(output: str, files: Mapping[str, RenderedFile], root: Path) -> None:
    for finding in json.loads(output or "[]"):
        if finding["code"] not in FATAL.split(","):
            continue
        path = Path(finding["filename"]).resolve().relative_to(root.resolve()).as_posix()
        row = finding["location"]["row"]
        raise ScaffoldError(f"template {files[path].template}, line {row} of its output: {finding['message']}")


def _parse(path: str, file: RenderedFile) -> None:
    try:
        ast.parse(file.content, filename=path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line} of its output" if line else ""
        text = (getattr(error, "text", None) or "").strip()[:80]
        problem = f"{getattr(error, 'msg', error)}" + (f": {text}" if text else "")
        raise ScaffoldError(f"template {file.template}{where}: not Python: {problem}") from error
