"""A device or its communication library is written as text, or as a number.

VeRL-Omni runs on GPUs and NPUs; ``verl.utils.device`` says which. A check of the repository searches every file below
``verl_omni/`` for ``.cuda``, ``"cuda"`` and ``"nccl"``, comments included, and refuses the pull request. A number is a
device as well: ``.to(0)`` sends the tensors of every rank to the first accelerator.

    scheduler.set_timesteps(sigmas=sigmas, device="cuda")

Instead: ``get_device_name()``, or the device of a tensor that is there.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.checked_tree import CheckedTree
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC126"
NAME = "literal-device"
SEVERITY = "error"
CHECKLIST = ("pitfall 38",)
APPLIES = Applies(diffusion=None, resolved=False)
HELP = "use verl.utils.device.get_device_name() or the device of a tensor"
REPOSITORY_CHECK = "tests/special_sanity/check_device_api_usage.py"
_LITERAL = re.compile(r"""\.cuda\b|(["'])(?:cuda:?|nccl)\1|(["'])cuda:(?:\d+|%[sd]|\{[^{}]*\})\2""")


def check(package: Package) -> Hits:
    """Search the text of the package's files."""
    allowed = _allowed(package.project)
    for file in package.files:
        yield from _numbered(file)
        if (b"cuda" not in file.data and b"nccl" not in file.data) or any(part in file.path for part in allowed):
            continue
        for number, line in enumerate(file.lines, start=1):
            for found in _LITERAL.finditer(line):
                span = Span(number, found.start() + 1, number, found.end() + 1)
                yield Hit(file, span, f"{found[0]} names a device that not every machine has")


def _numbered(file: PythonFile) -> Hits:
    """Look for ``.to(0)`` and ``device=0``: numbers of accelerators."""
    for call in file.index.nodes(ast.Call):
        given = [item.value for item in call.keywords if item.arg == "device"]
        given += call.args[:1] if _takes_device(file, call.func) else []
        for value in given:
            number = file.value(value)
            if isinstance(number, int) and not isinstance(number, bool):
                yield Hit(file, value, f"{ast.unparse(value)} is the number of one accelerator, for every rank")


def _takes_device(file: PythonFile, function: ast.expr) -> bool:
    """Whether the first argument of a call is a device: of ``.to`` and of ``torch.device``, under whatever name."""
    if isinstance(function, ast.Attribute) and function.attr != "device":
        return function.attr == "to"
    return file.qualified(function) == "torch.device"


def _allowed(project: CheckedTree) -> set[str]:
    """Return the files and folders that the repository's own check leaves out."""
    check = project.python(REPOSITORY_CHECK)
    found: set[str] = set()
    for name in check.names if check is not None else ():
        for binding in check.names[name] if check is not None and name.endswith("WHITELIST") else ():
            value = check.value(binding.value) if check is not None and binding.value is not None else None
            found |= {part for part in value if isinstance(part, str) and part} if isinstance(value, list) else set()
    return found


FAILING = (
    Example("as text", training=("get_device_name()", '«"cuda"»')),
    Example("as a method", training=(".to(device", "«.cuda»(")),
    Example("by its number", training=(".to(device", ".to(«0»")),
)
PASSING = (
    Example("a word that only contains it", common=("SCHEDULE_SHIFT = 3.0\n", "SCHEDULE_SHIFT = 3.0  # barracuda\n")),
)
