"""A README or a comment tells the reader to run a file that is not there.

Scripts and data files are renamed, and what people copy their commands from is not: the README of the example, the
head of the deploy configuration, a comment of the launch script. The first command that a new user types fails.

    bash examples/flowgrpo_trainer/toy/run_toy_lora.sh       # it is called run_toy_ocr_lora.sh

Instead: after a rename look for the old name in READMEs, comments and docs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.source import SourceFile, UndecodableError
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC521"
NAME = "dead-path-in-text"
SEVERITY = "warning"
CHECKLIST = ("W3",)
APPLIES = Applies()
HELP = "write the path as it is now"
_PATH = re.compile(r"(?<![\w./{$-])(?:examples|tests|verl_omni)/[\w./-]*\w\.(?:sh|py|ya?ml)\b(?![\w*{/-])")


def check(package: Package) -> Hits:
    """Look for each file that READMEs and comments name from the root of the tree."""
    project = package.project
    for source, number, line in _lines(package):
        for found in _PATH.finditer(line):
            path = found[0]
            folder = path.rpartition("/")[0]
            seen = project.complete or (not project.alone and project.files(folder))
            if seen and not project.tree.exists(path):
                span = Span(number, found.start() + 1, number, found.end() + 1)
                yield Hit(source, span, f"{path} is not there")


def _lines(package: Package) -> Iterator[tuple[SourceFile, int, str]]:
    """Yield the lines of READMEs beside the scripts, and the comments of scripts and deploy configurations."""
    scripts = (*package.launch_scripts, *package.e2e_scripts)
    readmes = dict.fromkeys(f"{script.folder}/README.md" for script in package.launch_scripts)
    for path in readmes:
        source = package.project.source(path)
        if source is not None:
            yield from ((source, number, line) for number, line in _numbered(source))
    for source in (*scripts, *package.deploy_configs):
        for number, line in _numbered(source):
            if line.lstrip().startswith("#") or "  #" in line or " # " in line:
                at = line.index("#")
                yield source, number, " " * at + line[at:]


def _numbered(source: SourceFile) -> list[tuple[int, str]]:
    try:
        return list(enumerate(source.plain_text.splitlines(), 1))
    except UndecodableError:
        return []


_RUN = "bash examples/flowgrpo_trainer/toy/run_toy_lora.sh"
_DATA = "# Data: python3 examples/flowgrpo_trainer/data_process/toy_ocr.py"
FAILING = (
    Example(
        "the script was renamed",
        {"readme": [(_RUN, "bash «examples/flowgrpo_trainer/toy/run_toy_ocr_lora.sh»")]},
    ),
    Example(
        "the data script was renamed",
        {"launch": [(_DATA, "# Data: python3 «examples/flowgrpo_trainer/data_process/toy.py»")]},
    ),
    Example(
        "named in the deploy configuration",
        {
            "deploy": [
                ("pipeline: toy", "# For «examples/flowgrpo_trainer/toy/run_toy.sh».\npipeline: toy"),
            ]
        },
    ),
    Example(
        "in a link",
        {"readme": [(_RUN, _RUN + "\n\nThe stage is in [its file](«examples/flowgrpo_trainer/toy/deploy.yaml»).")]},
    ),
    Example(
        "in a moved folder",
        {"readme": [(_RUN, "bash «examples/flowgrpo_trainer/toys/run_toy_lora.sh»")]},
    ),
)
PASSING = (
    Example("as they are called"),
    Example("a pattern", {"readme": [(_RUN, _RUN + "\n\nLikewise examples/flowgrpo_trainer/*/run_*.sh.")]}),
    Example("with a placeholder", {"readme": [(_RUN, _RUN + "\n\nAnd examples/flowgrpo_trainer/<model>/run_toy.sh.")]}),
    Example("of another repository", {"readme": [(_RUN, _RUN + "\n\nSee https://x.org/a/examples/other/run.sh.")]}),
    Example("with its folder's variable", {"readme": [(_RUN, _RUN + "\n\nSee $ROOT/examples/other/run.sh.")]}),
)
