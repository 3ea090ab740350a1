"""A Python file of the integration, its ``scaffold.toml`` or its ``scaffold.lock.toml`` does not parse.

Nothing can be said about such a file, and importing the package fails. The other rules stay silent about the package
until it is repaired, because what they do not find may stand in the part that cannot be read. Without the facts of
these files nothing is compared with the pipeline. Facts that a later version of the tool wrote count too, and so does a
``scaffold.lock.toml`` that was edited, is missing or belongs to another package.

Instead: repair the line that is named; ``python -m py_compile FILE`` shows the same error.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile, UnparsableError
from scaffold.check.model.recorded_facts import unreadable_facts
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC001"
NAME = "syntax-error"
SEVERITY = "error"
CHECKLIST = ()
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "repair the line; the other rules look at this package once all of its files parse"


def check(package: Package) -> Hits:
    """Find files that Python cannot parse, and facts that cannot be read."""
    related = [file for file in package.related if isinstance(file, PythonFile) and not file.partial]
    for file in dict.fromkeys([*package.files, *related]):
        problem = file.problem
        if isinstance(problem, UnparsableError) and problem.kind == "syntax":
            column = max(1, min(problem.column, len(file.line(problem.line)) + 1))
            yield Hit(file, Span(problem.line, column, problem.line, column + 1), f"syntax error: {problem.reason}")
    facts = unreadable_facts(package)
    if facts is not None:
        source, line, text = facts
        help_text = "repair or restore it; nothing is compared with its facts until then"
        yield Hit(source, source.span_of_line(line), text, help_text)


FAILING = (
    Example(
        "an unfinished parameter list", init="from .diffusers_training_adapter import ToyDiffusion\n\ndef broken«(»\n"
    ),
    Example("in the script that makes the data", data="import os\nif True«»\n    pass\n"),
    Example("in the recorded facts", spec='[upstream]\nversion = "0.27.0rc1"\n«class =» \n'),
    Example("facts of a later version of the tool", spec='«schema = 99»\n\n[upstream]\nversion = "0.27.0rc1"\n'),
)
PASSING = (Example("facts that can be read", spec='[upstream]\nversion = "0.27.0rc1"\n'),)
