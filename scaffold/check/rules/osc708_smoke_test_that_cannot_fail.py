"""A smoke test passes whatever the run does.

The runner sees the exit code of the script. Without ``set -e`` that is the code of its last command, an ``echo``
perhaps; ``|| true``, an early ``exit 0``, a ``&`` behind the trainer's command, and a pipe without ``pipefail`` hide it
for good. The integration may be broken for weeks.

    python3 -m verl_omni.trainer.main_diffusion … || true

Instead: ``set -xeuo pipefail`` at the top, and no way around the trainer's exit code.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.shell import ShellScript
from scaffold.check.rule import Hit, Hits

ID = "OSC708"
NAME = "smoke-test-that-cannot-fail"
SEVERITY = "error"
CHECKLIST = ("S1", "S2")
HELP = "begin with `set -xeuo pipefail`, and let the last command decide"


_SET = r"(?m)^[ \t]*set[ \t]+(-\w*e\w*|-o\s+errexit)"
_HIDES = r"\|\|\s*(true|:|exit\s+0|echo\b)"


def check(package: Package) -> Hits:
    """Look at what decides over the exit code of each end-to-end script."""
    for script in package.e2e_scripts:
        if not script.overrides or not any(word.text.startswith("verl_omni.trainer") for word in script.words):
            continue
        yield from _of_script(script)


def _of_script(script: ShellScript) -> Hits:
    code = "\n".join(line for line in script.lines if not line.lstrip().startswith("#"))
    start = next(word.span.line for word in script.words if word.text.startswith("verl_omni.trainer"))
    last = max(word.span.line for word in script.words)
    end = start
    while end < len(script.lines) and script.lines[end - 1].rstrip().endswith("\\"):
        end += 1
    if not re.search(_SET, code) and "exec " not in code and last > end:
        yield Hit(
            script, Span(1, 1, 1, 1), f"{script.name} goes on after a command that failed", "write set -xeuo pipefail"
        )
    if re.search(r"^[ \t]*set[ \t]+\+e", code, re.MULTILINE) and "$?" not in code:
        yield Hit(script, Span(1, 1, 1, 1), f"{script.name} switches off that a failure ends it")
    for number, line in enumerate(script.lines, start=1):
        if line.lstrip().startswith("#"):
            continue
        found = re.search(_HIDES, line)
        if found and number >= start and "$@" in line:
            yield Hit(script, script.find(found[0]) or Span(number, 1, number, 1), "the trainer's failure is hidden")
        if number < start and re.match(r"exit(\s+0)?\s*$", line):
            yield Hit(
                script, Span(number, 1, number, len(line) + 1), "the script ends here, before anything is trained"
            )


FAILING = (Example("hidden", e2e=('    "$@"\n', '    "$@" «|| true»\n')),)
PASSING = (
    Example("its output in a log", e2e=('    "$@"\n', '    "$@" 2>&1 | tee train.log\n')),
    Example("its output in a file", e2e=('    "$@"\n', '    "$@" &> train.log\n')),
)
