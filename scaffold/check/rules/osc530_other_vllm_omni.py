"""A package was made for another vllm-omni than its checkout pins.

Requests, results, step counts and the layers that are subclassed differ from release to release: what was made for one
runs another schedule on the next, or cannot be imported at all, and then no pipeline of the checkout can.

    vllm-omni==0.27.0rc1                    # pyproject.toml
    [upstream] version = "0.30.0"           # scaffold.toml of the package

Instead: carry the package to what is pinned with `omni-scaffold update`, or move the pin to what it was made for.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.pinned_upstream import asked
from scaffold.check.model.source import SourceFile
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.upstream.versions import fits

ID = "OSC530"
NAME = "other-vllm-omni"
SEVERITY = "warning"
CHECKLIST = ("R6", "pitfall 5")
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "move the pin, or carry the package to it"
_VERSION = r"\s*version\s*="


def check(package: Package) -> Hits:
    """Compare what ``scaffold.toml`` was made from with what the tree pins."""
    version, wanted = package.facts.text("upstream", "version"), asked(package.project)
    source = package.project.source(f"{package.path}/scaffold.toml")
    if source is None or fits(wanted, version) is not False:
        return
    one = wanted is not None and wanted[0].isdigit()
    message = f"made for vllm-omni {version}, and the checkout {'pins' if one else 'asks for'} {wanted}"
    target = wanted if one else "VERSION"
    help = f"move the pin, or carry the package with `omni-scaffold update PACKAGE --vllm-omni {target}`"
    yield Hit(source, _place(source), message, help)


def _place(source: SourceFile) -> Span:
    """Return the line of the version in ``[upstream]``; the first line of the file in another spelling."""
    inside = False
    for number, line in enumerate(source.lines, 1):
        if line.lstrip().startswith("["):
            inside = line.strip() == "[upstream]"
        elif inside and re.match(_VERSION, line):
            return source.span_of_line(number)
    return source.span_of_line(1)


FAILING = (
    Example(
        "made for a newer one", spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\n«version = "0.30.0"»\n'
    ),
    Example(
        "a range that leaves it out",
        pyproject=("vllm-omni==0.27.0rc1", "vllm-omni>=0.27.0rc1,<0.28"),
        spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\n«version = "0.30.0"»\n',
    ),
    Example(
        "a pin among the requirements",
        {"requirements.txt": "vllm-omni==0.28.0\n"},
        pyproject=('"vllm-omni==0.27.0rc1"', ""),
        spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\n«version = "0.27.0rc1"»\n',
    ),
)
PASSING = (
    Example(
        "made for what is pinned", spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\nversion = "0.27.0rc1"\n'
    ),
    Example(
        "made for one of a range",
        pyproject=("vllm-omni==0.27.0rc1", "vllm-omni~=0.27.0rc1"),
        spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\nversion = "0.27.1"\n',
    ),
    Example(
        "another spelling of the version",
        spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\nversion = "0.27.rc1"\n',
    ),
    Example(
        "made from a folder without a version",
        spec='schema = 1\n\n[tool]\nversion = "0.1.0"\n\n[upstream]\nversion = "from somewhere"\n',
    ),
)
