"""A file of the runtime that packages share is not as it was released.

Every package of the checkout runs it, and no test of the package looks at it: a wrong factor in the step there moves
each log-prob of rollout and training alike. `omni-scaffold update` keeps such an edit.

    VELOCITY_FACTOR = 2.0   # in flow_grpo_runtime/stepped_training.py

Instead: take the released file back, or name a version of your own with ``LOCAL`` in its ``__init__.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.source import UndecodableError
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.files.digest import sha256_hex
from scaffold.files.documents import MalformedError, parse_toml
from scaffold.files.layout import CHECKOUT
from scaffold.files.resources import RUNTIME
from scaffold.files.runtime import edited_installed, local_in
from scaffold.spec.lock import LOCK_NAME

ID = "OSC540"
NAME = "edited-runtime"
SEVERITY = "warning"
CHECKLIST = ("R5",)
APPLIES = Applies(diffusion=None, resolved=False)
HELP = 'take the released file back, or name the version of your own: LOCAL = "lab.1" in __init__.py'
_FOLDER = CHECKOUT.package_folder(RUNTIME)


def check(package: Package) -> Hits:
    """Compare the runtime with what its packages recorded, or an installed one with what was released."""
    project = package.project
    start = project.source(f"{_FOLDER}/__init__.py")
    if start is None or local_in(start.readable) is not None:
        return
    if RUNTIME in project.outside:
        uses = package is project.packages[0] and any(RUNTIME in file.readable for file in package.files)
        wrong = [f"{_FOLDER}/{name}" for name in edited_installed()] if uses else []
    else:
        wrong = list(_edited(package))
    for path in wrong:
        file = project.source(path)
        if file is not None:
            yield Hit(file, Span(1, 1, 1, 1), f"{file.name} of {RUNTIME} is not as it was released")


def _edited(package: Package) -> Iterator[str]:
    """Yield the files that no package recorded like this; of those that several have, each once."""
    recorded: dict[str, set[str]] = {}
    first: dict[str, str] = {}
    for other in package.project.packages:
        try:
            files = parse_toml(package.project.text(f"{other.path}/{LOCK_NAME}")).get("files")
        except MalformedError:
            continue
        for path, digest in files.items() if isinstance(files, dict) else ():
            if path.startswith(f"{_FOLDER}/"):
                recorded.setdefault(path, set()).add(str(digest))
                first.setdefault(path, other.name)
    for path, digests in recorded.items():
        file = package.project.source(path)
        if file is None or first[path] != package.name:
            continue
        try:
            text = file.plain_text
        except UndecodableError:
            continue
        if sha256_hex(text) not in digests:
            yield path


_LOCK = "verl_omni/pipelines/toy_flow_grpo/scaffold.lock.toml"
_TEXT = "STEPS = 1\n"
_RECORDED = f'[files]\n"{_FOLDER}/levels.py" = "{sha256_hex(_TEXT)}"\n'
_START = {f"{_FOLDER}/__init__.py": "VERSION = 5\n", _LOCK: _RECORDED}
FAILING = (Example("a line was changed", {**_START, f"{_FOLDER}/levels.py": "«»STEPS = 2\n"}),)
PASSING = (
    Example("as it was rendered", {**_START, f"{_FOLDER}/levels.py": _TEXT}),
    Example(
        "a version of one's own",
        {**_START, f"{_FOLDER}/__init__.py": 'VERSION = 5\nLOCAL = "lab.1"\n', f"{_FOLDER}/levels.py": "STEPS = 2\n"},
    ),
)
