"""Mistakes in an integration: the rows of ``mutants.toml``, and trees of files made of them.

The integration is the reference with a package that has everything itself, as one has that a person writes after the
guide; what rendered packages share is checked as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tomli

REFERENCE = Path(__file__).parents[2] / "reference_bagel"
SELF_CONTAINED = Path(__file__).parents[1] / "self_contained"
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
SHARED = "verl_omni/pipelines/flow_grpo_runtime"
FILES = {
    "init": f"{PACKAGE}/__init__.py",
    "model": f"{PACKAGE}/bagel_model.py",
    "training": f"{PACKAGE}/diffusers_training_adapter.py",
    "rollout": f"{PACKAGE}/vllm_omni_rollout_adapter.py",
    "common": f"{PACKAGE}/common.py",
    "spec": f"{PACKAGE}/scaffold.toml",
    "patch": "verl_omni.patch",
    "data": "examples/flowgrpo_trainer/data_process/bagel_ocr.py",
    "launch": "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh",
    "deploy": "examples/flowgrpo_trainer/bagel/bagel_deploy_config.yaml",
    "e2e": "tests/special_e2e/run_flowgrpo_bagel.sh",
    "dummy": "tests/special_e2e/create_dummy_bagel_data.py",
    "tiny": "tests/special_e2e/build_bagel_tiny_random.py",
    "test": "tests/pipelines/test_bagel_flow_grpo_on_cpu.py",
    "link": "docs/examples/bagel/flowgrpo_trainer_bagel.md",
}


class AnchorError(AssertionError):
    """The text that a mutant changes is not there once: a mutant that changes nothing must not count."""


@dataclass(frozen=True)
class Mutant:
    """A row of ``mutants.toml``; the columns are explained there."""

    name: str
    breaks: tuple[str, ...]
    edits: tuple[tuple[str, ...], ...]
    rules: tuple[str, ...] = ()
    contracts: tuple[str, ...] = ()

    def tree(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return the files with the mistake.

        Raises:
            AnchorError: what it changes is not there, or is not Python any more.
        """
        changed = dict(files)
        for short, *texts in self.edits:
            path = FILES.get(short, short)
            if not texts:
                del changed[path]
            elif len(texts) == 1 and texts[0].startswith("-> "):
                changed[texts[0][3:]] = changed.pop(path)
            elif len(texts) == 1:
                changed[path] = texts[0]
            else:
                old, new = texts
                if changed.get(path, "").count(old) != 1:
                    raise AnchorError(f"{self.name}: {old!r} does not stand once in {path}")
                changed[path] = changed[path].replace(old, new)
                if path.endswith(".py"):
                    ast.parse(changed[path])
        return changed


@lru_cache(maxsize=1)
def mutants() -> tuple[Mutant, ...]:
    """Return all rows."""
    rows = tomli.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["mutant"]
    frozen = ({key: _tuple(value) for key, value in row.items()} for row in rows)
    return tuple(Mutant(**row) for row in frozen)  # type: ignore[arg-type]


def _tuple(value: object) -> object:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


@lru_cache(maxsize=1)
def reference_files() -> dict[str, str]:
    """Return the integration without a mistake: path -> text, links as `MemoryTree` takes them."""
    files = {}
    for path in sorted(REFERENCE.rglob("*")):
        name = path.relative_to(REFERENCE).as_posix()
        if path.is_symlink():
            files[name] = f"-> {path.readlink()}"
        elif path.is_file():
            files[name] = path.read_text(encoding="utf-8")
    own = {f"{PACKAGE}/{path.name}": path.read_text(encoding="utf-8") for path in SELF_CONTAINED.glob("*.py")}
    return {**{name: text for name, text in files.items() if not name.startswith(f"{SHARED}/")}, **own}
