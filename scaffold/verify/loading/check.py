"""The checkpoint that was given to ``verify``, as one result beside the contracts."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from scaffold.checkpoint import read_checkpoint
from scaffold.errors import ScaffoldError
from scaffold.verify.loading.run import load_headers
from scaffold.verify.loading.text import finding_lines
from scaffold.verify.result import CheckResult, Status

ID = "checkpoint"
TITLE = "the package loads the checkpoint that was given: nothing stays empty, nothing is left out"
PITFALLS = (20, 22, 49)
LIMIT = 0.0  # a parameter that nothing filled is random


def checked(package: Path, checkpoint: Path, shown: str) -> CheckResult:
    """Let the package load the headers.

    Args:
        package: its folder.
        checkpoint: a folder; one of configuration alone is skipped.
        shown: the checkpoint as the user named it.

    Raises:
        ScaffoldError: the checkpoint is damaged.
    """
    began = time.monotonic()
    if not any(checkpoint.glob("**/*.safetensors")):
        return _result("skip", None, f"{shown} holds configuration and no weights", began)
    read_checkpoint(checkpoint)
    try:
        proof = load_headers(package, checkpoint)
    except ScaffoldError as error:
        return _result("skip", None, error.message, began)
    found = "; ".join(finding_lines(proof))
    command = f"`omni-scaffold remap {package.name} --checkpoint {shlex.quote(shown)}` shows all"
    reason = proof.summary if proof.holds else f"{found[:800]}; {command}"
    return _result("pass" if proof.holds else "fail", float(len(proof.findings)), reason, began)


def _result(status: Status, value: float | None, reason: str, began: float) -> CheckResult:
    limit, unit = (None, None) if value is None else (LIMIT, "findings")
    seconds = time.monotonic() - began
    return CheckResult(
        ID,
        "contract",
        TITLE,
        status,
        value,
        limit,
        unit,
        reason,
        seconds=seconds,
        pitfalls=PITFALLS,
    )
