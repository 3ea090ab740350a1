"""A file of the integration cannot be read or does not parse.

A Python file with a syntax error, in another encoding than it names, without permission, too large or nested too deeply
cannot be imported or judged. The other rules stay silent about the package, because what they do not find may stand in
that file. Without ``scaffold.toml`` and ``scaffold.lock.toml`` nothing is compared with the pipeline; a later version's
facts and a lock that was edited, is missing or belongs to another package count too.

Instead: repair the line that is named (``python -m py_compile FILE`` shows the same error), and save source as UTF-8.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.model.python_text import UnparsableError
from scaffold.check.model.source import SourceFile, UndecodableError
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC001"
NAME = "unreadable-file"
SEVERITY = "error"
CHECKLIST = ()
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "repair the line; the other rules look at this package once all of its files parse"
_ENCODING = "save the file as UTF-8, or name ASCII or Latin-1 in a coding comment on the first line"
_SIZE = "make it a readable source file of ordinary size and nesting"


def check(package: Package) -> Hits:
    """Find files that Python cannot read, decode or parse, and facts that cannot be read."""
    for path, reason in package.project.unreadable.items():
        if path.startswith(package.path + "/"):
            yield Hit(SourceFile(path, b""), Span(1, 1, 1, 1), f"the file cannot be read: {reason}", _SIZE)
    related = [file for file in package.related if isinstance(file, PythonFile)]
    for file in dict.fromkeys([*package.files, *related]):
        problem = file.problem
        if isinstance(problem, UndecodableError):
            at = Span(problem.line, 1, problem.line, 1)
            yield Hit(file, at, f"the file cannot be read as text: {problem.reason}", _ENCODING)
        elif isinstance(problem, UnparsableError) and problem.kind == "deep":
            yield Hit(file, Span(1, 1, 1, 1), f"the file {problem.reason}", _SIZE)
        elif isinstance(problem, UnparsableError) and problem.kind == "syntax" and not file.partial:
            column = max(1, min(problem.column, len(file.line(problem.line)) + 1))
            yield Hit(file, Span(problem.line, column, problem.line, column + 1), f"syntax error: {problem.reason}")
    facts = package.facts.unusable()
    if facts is not None:
        source, line, text = facts
        help_text = "repair or restore it; nothing is compared with its facts until then"
        yield Hit(source, source.span_of_line(line), text, help_text)


FAILING = (
    Example(
        "an unfinished parameter list", init="from .diffusers_training_adapter import ToyDiffusion\n\ndef broken«(»\n"
    ),
    Example("in the script that makes the data", data="import os\nif True«»\n    pass\n"),
    Example("a NUL byte", init="x = 1\n«»\x00\n"),
    Example("a codec that is no table of letters", common="«»# coding: punycode\nx = 1\n"),
    Example("a sum of forty thousand terms", common=f"«»x = {'+'.join(['1'] * 40_000)}\n"),
    Example("in the recorded facts", spec='[upstream]\nversion = "0.27.0rc1"\n«class =» \n'),
    Example("facts of a later version of the tool", spec='«schema = 99»\n\n[upstream]\nversion = "0.27.0rc1"\n'),
)
PASSING = (
    Example("facts that can be read", spec='[upstream]\nversion = "0.27.0rc1"\n'),
    Example("letters outside of ASCII", common=("What rollout and training agree on", "σ, für beide")),
)
