"""Examples of rules: a small integration that is right, with one change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from scaffold.check.engine import check_targets
from scaffold.check.finding import Finding, Span
from scaffold.check.model.project import Project
from scaffold.check.model.tree import MemoryTree
from scaffold.check.targets import Target
from scaffold.files.reading import read_text

OPEN, CLOSE = "«", "»"
Change = str | tuple[str, str] | list[tuple[str, str]] | None
PACKAGE = "verl_omni/pipelines/toy_flow_grpo"
# Short names of the base's files.
FILES = {
    "init": f"{PACKAGE}/__init__.py",
    "model": f"{PACKAGE}/toy_model.py",
    "training": f"{PACKAGE}/diffusers_training_adapter.py",
    "rollout": f"{PACKAGE}/vllm_omni_rollout_adapter.py",
    "common": f"{PACKAGE}/common.py",
    "spec": f"{PACKAGE}/scaffold.toml",
    "registry": "verl_omni/pipelines/__init__.py",
    "launch": "examples/flowgrpo_trainer/toy/run_toy_lora.sh",
    "deploy": "examples/flowgrpo_trainer/toy/toy_deploy_config.yaml",
    "readme": "examples/flowgrpo_trainer/toy/README.md",
    "data": "examples/flowgrpo_trainer/data_process/toy_ocr.py",
    "e2e": "tests/special_e2e/run_flowgrpo_toy.sh",
    "dummy": "tests/special_e2e/create_dummy_toy_data.py",
    "runner": "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh",
    "test": "tests/pipelines/test_toy_flow_grpo_on_cpu.py",
    "docs_link": "docs/examples/toy/flowgrpo_trainer_toy.md",
    "docs_index": "docs/index.md",
    "pyproject": "pyproject.toml",
}


BASE = "non_diffusers"  # the tree in ``bases/`` that examples change


class Example:
    """A tree of files with what a rule finds in it: ``Example("says what", model=("old", "new"))``.

    Args:
        title: what it shows, a few words.
        files: path -> change, for files that have no short name.
        also: identifiers of other rules that are right to report something here too, separated by spaces.
        changes: short name of `FILES` -> the file's whole text, None to leave it out, a replacement ``(old, new)``, or
            a list of them; each must fit exactly once. «…» in a new text marks what the rule finds.
    """

    def __init__(
        self, title: str, files: Mapping[str, Change] | None = None, /, *, also: str = "", **changes: Change
    ) -> None:
        self.title, self.also = title, tuple(also.split())
        self.changes = {**{FILES[name]: change for name, change in changes.items()}, **(files or {})}

    def tree(self) -> tuple[dict[str, str], list[tuple[str, Span]]]:
        """Return the files without marks, and the marked places.

        Raises:
            ValueError: a replacement does not fit exactly once, or a file to leave out is not there.
        """
        files = dict(base_tree(BASE))
        for path, change in self.changes.items():
            if change is None:
                if files.pop(path, None) is None:
                    raise ValueError(f"{self.title}: the base has no {path}")
            elif isinstance(change, str):
                files[path] = change
            else:
                text = files.get(path, "")
                for old, new in [change] if isinstance(change, tuple) else change:
                    if text.count(old) != 1:
                        raise ValueError(f"{self.title}: {old!r} stands {text.count(old)} times in {path}")
                    text = text.replace(old, new)
                files[path] = text
        marks: list[tuple[str, Span]] = []
        for path in self.changes:
            if OPEN in files.get(path, ""):
                files[path], found = _unmarked(files[path])
                marks += [(path, span) for span in found]
        return files, sorted(marks)


def _unmarked(text: str) -> tuple[str, list[Span]]:
    spans: list[Span] = []
    opened: list[tuple[int, int]] = []
    line = column = 1
    out = []
    for c in text:
        if c == OPEN:
            opened.append((line, column))
            continue
        if c == CLOSE:
            start = opened.pop()
            spans.append(Span(*start, line, column))
            continue
        out.append(c)
        line, column = (line + 1, 1) if c == "\n" else (line, column + 1)
    if opened:
        raise ValueError(f"{OPEN} without {CLOSE}")
    return "".join(out), sorted(spans)


@lru_cache(maxsize=8)
def base_tree(name: str) -> Mapping[str, str]:
    """Return the files of a base: path -> text."""
    text = read_text(Path(__file__).parent / "bases" / f"{name}.txt")
    files: dict[str, str] = {}
    for part in text.split("\n==> ")[1:] if not text.startswith("==> ") else ("\n" + text).split("\n==> ")[1:]:
        path, _, body = part.partition(" <==\n")
        files[path] = body if body.endswith("\n") else body + "\n"
    return files


def check_files(files: Mapping[str, str | bytes], rules: Sequence[str] = ()) -> list[Finding]:
    """Return what rules (all by default) find in a tree of files: path -> text."""
    project = Project(MemoryTree(files), alone=not any(not path.startswith(PACKAGE) for path in files))
    return list(check_targets([Target(project, project.packages, whole=True)], select=rules).findings)
