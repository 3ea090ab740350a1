"""A script of ``tests/special_e2e/`` is called by no runner.

The runners in ``tests/gpu_smoke/`` and ``tests/npu_smoke/`` are what runs on machines with accelerators. A smoke test
that none of them calls, directly or through another script, never runs: it rots until the day somebody needs it. One
that a README tells people to run by hand is meant to be left out of them, unless its package records a runner.

Instead: add a ``run_test`` line to a runner.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.project import Project
from scaffold.check.model.shell import ShellScript
from scaffold.check.model.source import SourceFile
from scaffold.check.rule import Hit, Hits

ID = "OSC701"
NAME = "uncalled-e2e-script"
SEVERITY = "error"
CHECKLIST = ("S2", "pitfall 37")
SCOPE = "project"
HELP = "call it from a runner in tests/gpu_smoke/ or tests/npu_smoke/, or delete it"


def check(project: Project) -> Hits:
    """Follow the runners through the scripts that they call."""
    runners = project.runners
    if not runners:
        yield from _unhooked(project)
        return
    called: set[str] = set()
    pending: list[SourceFile] = list(runners)
    if any(_calls_unknown(runner) for runner in runners if not runner.partial):
        return
    scripts = project.e2e_scripts
    dead = re.compile(r"^[+ \t]*(?:true|echo|:|printf)\s[^\n]*$", re.MULTILINE)
    while pending:
        text = dead.sub("", _code(pending.pop()))
        for script in scripts:
            if script.path not in called and f"special_e2e/{script.name}" in text:
                called.add(script.path)
                pending.append(script)
    by_hand = _by_hand(project) if len(called) < len(scripts) else ""
    hooked = {
        script.path
        for package in project.packages
        if package.facts.text("target", "smoke_runner") is not None
        for script in package.e2e_scripts
    }
    for script in scripts:
        if script.path in called:
            continue
        if script.path in hooked or not re.search(rf"\bbash +(?:\./)?{re.escape(script.path)}\b", by_hand):
            file, place = _place(script, runners)
            yield Hit(file, place, f"no runner calls {script.name}")


def _by_hand(project: Project) -> str:
    """Return the text of all READMEs of recipes and tests."""
    paths = (*project.files("examples", "/README.md"), *project.files("tests", "/README.md"))
    return "\n".join(project.text(path) for path in paths)


def _place(script: ShellScript, runners: list[SourceFile]) -> tuple[SourceFile, Span]:
    """Return where to mend it: the patch of a rendered tree, at the line that names the script; else the script."""
    shown = [runner for runner in runners if runner.partial]
    for runner in shown:
        for number, line in enumerate(runner.lines, start=1):
            if script.name in line:
                return runner, runner.span_of_line(number)
    return (shown[0], Span(1, 1, 1, 1)) if shown else (script, Span(1, 1, 1, 1))


def _unhooked(project: Project) -> Hits:
    """Look at a rendered tree whose patch edits no runner, though the package records the one to edit."""
    for package in project.packages if project.rendered else ():
        runner = package.facts.text("target", "smoke_runner")
        for script in package.e2e_scripts if runner is not None else ():
            yield Hit(script, Span(1, 1, 1, 1), f"no runner calls {script.name}: the patch does not edit {runner}")


def _code(file: SourceFile) -> str:
    """The words of a script, without its comments; the lines of what only a patch shows."""
    if isinstance(file, ShellScript):
        return "\n".join(word.text for word in file.words)
    return "\n".join(line for line in file.lines if not line.lstrip().startswith("#"))


def _calls_unknown(runner: SourceFile) -> bool:
    """Whether a runner calls scripts of the folder whose names it computes."""
    if not isinstance(runner, ShellScript):
        return False
    return any(
        "special_e2e/" in word.text and any(c in word.text.rpartition("special_e2e/")[2] for c in "$*?")
        for word in runner.words
    )


FAILING = (
    Example(
        "no line in a runner",
        runner=("bash tests/special_e2e/run_flowgrpo_toy.sh", "true"),
        e2e=("#!/usr/bin", "«»#!/usr/bin"),
    ),
    Example(
        "only in a comment", runner=("    bash tests", "    true\n#    bash tests"), e2e=("#!/usr/bin", "«»#!/usr/bin")
    ),
)
PASSING = (Example("the runner goes through the folder", runner=("run_flowgrpo_toy", '"$name"')),)
