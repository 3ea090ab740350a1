"""A mistake in the reference integration, with the rules that are right to find it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from mutants.edit import AnchorError, Edit

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
INIT = f"{PACKAGE}/__init__.py"
MODEL = f"{PACKAGE}/bagel_model.py"
TRAINING = f"{PACKAGE}/diffusers_training_adapter.py"
ROLLOUT = f"{PACKAGE}/vllm_omni_rollout_adapter.py"
COMMON = f"{PACKAGE}/common.py"
SPEC = f"{PACKAGE}/scaffold.toml"
PATCH = "verl_omni.patch"
DATA = "examples/flowgrpo_trainer/data_process/bagel_ocr.py"
LAUNCH = "examples/flowgrpo_trainer/bagel/run_bagel_ocr_lora.sh"
DEPLOY = "examples/flowgrpo_trainer/bagel/bagel_deploy_config.yaml"
E2E = "tests/special_e2e/run_flowgrpo_bagel.sh"
DUMMY = "tests/special_e2e/create_dummy_bagel_data.py"
TINY = "tests/special_e2e/build_bagel_tiny_random.py"
CPU_TEST = "tests/pipelines/test_bagel_flow_grpo_on_cpu.py"
DOCS_LINK = "docs/examples/bagel/flowgrpo_trainer_bagel.md"


@dataclass(frozen=True)
class Mutant:
    """A mistake.

    Args:
        name: what was done, a few words.
        items: items of the checklist (``M1``) and numbers of pitfalls (``36``) that it breaks.
        rules: any of these is a right answer.
        edits: how it is made.
    """

    name: str
    items: tuple[str | int, ...]
    rules: tuple[str, ...]
    edits: tuple[Edit, ...]

    def tree(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return the files with the mistake.

        Raises:
            AnchorError: what it changes is not there, or the change is none, or it is no Python any more.
        """
        changed = dict(files)
        for edit in self.edits:
            path, _, target = edit.path.partition(" -> ")
            if path not in files:
                raise AnchorError(f"{self.name}: there is no {path}")
            if target:
                changed[target] = files[path]
                continue
            try:
                new = edit.apply(changed[path])
            except AnchorError as error:
                raise AnchorError(f"{self.name}: {path}: {error}") from None
            if new is None:
                del changed[path]
                continue
            if new == changed[path]:
                raise AnchorError(f"{self.name}: {path}: the text stays the same")
            if path.endswith(".py"):
                ast.parse(new)
            changed[path] = new
        return changed


def mutant(name: str, items: tuple[str | int, ...], rules: str, *edits: Edit | tuple[Edit, ...]) -> Mutant:
    """Return a mutant; ``rules`` holds the identifiers' numbers, separated by spaces."""
    flat = [one for edit in edits for one in (edit if isinstance(edit, tuple) else (edit,))]
    return Mutant(name, items, tuple(f"OSC{number}" for number in rules.split()), tuple(flat))
