"""A file of the integration cannot be read: no permission, no regular file, too large, or nested too deeply.

Rules would judge a package of which they have seen only a part. They stay silent about it instead.

Instead: make the file readable. Source files have at most a few thousand lines; larger tables are data, and belong
into a data file.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile, UnparsableError
from scaffold.check.model.source import SourceFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC003"
NAME = "unreadable-file"
SEVERITY = "error"
CHECKLIST = ()
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "make it a readable source file of ordinary size and nesting"


def check(package: Package) -> Hits:
    """Find files that cannot be read, and files that Python's parser gives up on."""
    for path, reason in package.project.unreadable.items():
        if path.startswith(package.path + "/"):
            yield Hit(SourceFile(path, b""), Span(1, 1, 1, 1), f"the file cannot be read: {reason}")
    related = [file for file in package.related if isinstance(file, PythonFile)]
    for file in dict.fromkeys([*package.files, *related]):
        problem = file.problem
        if isinstance(problem, UnparsableError) and problem.kind == "deep":
            yield Hit(file, Span(1, 1, 1, 1), f"the file {problem.reason}")


FAILING = (
    Example(
        "a sum of forty thousand terms",
        common=f"«»x = {'+'.join(['1'] * 40_000)}\n",
    ),
)
PASSING = (Example("a file of ordinary nesting"),)
