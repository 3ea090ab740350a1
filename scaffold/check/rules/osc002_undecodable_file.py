"""A Python file is no text in its encoding.

Python reads source as UTF-8 unless a byte-order mark or a coding comment says otherwise, and refuses what it cannot
decode. A file in Latin-1 without the comment, in UTF-16, or with NUL bytes cannot be imported.

Instead: save the file as UTF-8.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.source import UndecodableError
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC002"
NAME = "undecodable-file"
SEVERITY = "error"
CHECKLIST = ()
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "save the file as UTF-8, or name its encoding in a coding comment on the first line"


def check(package: Package) -> Hits:
    """Find files that cannot be decoded."""
    related = [file for file in package.related if isinstance(file, PythonFile)]
    for file in dict.fromkeys([*package.files, *related]):
        if isinstance(file.problem, UndecodableError):
            line = file.problem.line
            yield Hit(file, Span(line, 1, line, 1), f"the file cannot be read as text: {file.problem.reason}")


FAILING = (Example("a NUL byte", init="x = 1\n«»\x00\n"),)
PASSING = (Example("letters outside of ASCII", common=("What rollout and training agree on", "σ, für beide")),)
