"""What a known bug is, and the files of a package that it is put into."""

from __future__ import annotations

from dataclasses import dataclass

MODEL, COMMON = "{model}_model.py", "common.py"
TRAINING, ROLLOUT = "diffusers_training_adapter.py", "vllm_omni_rollout_adapter.py"
DATA = "../../../examples/flowgrpo_trainer/data_process/{model}_ocr.py"
BEFORE_OUTPUT = "        return (self.llm2vae("
# Asked in every case beside those that must fail, so that a contract that fails on everything shows.
OTHERS = ("determinism", "config-round-trip")


@dataclass(frozen=True)
class Bug:
    """An edit that puts a bug in.

    Attributes:
        pitfall: number in the list of known bugs; None for a mistake that is not on it.
        edits: file, anchor, new text.
        fails: contracts that must fail.
        consequences: contracts that may fail or skip too.
    """

    pitfall: int | None
    name: str
    edits: tuple[tuple[str, str, str], ...]
    fails: tuple[str, ...]
    consequences: tuple[str, ...] = ()
    spec_edits: tuple[tuple[str, str], ...] = ()
