"""Prompts as a package's own data script writes them."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaffold.attributes import with_attribute, with_entries
from scaffold.files.reading import read_text

QUOTED = 'says "OPEN"'  # scripts of the text task take the quoted words for their reward
# Options of scripts for the input and the output folder.
INPUTS, OUTPUTS = ("input_dir", "input-dir"), ("output_dir", "output-dir", "local_save_dir")


def rows_of(script: Path, texts: Sequence[str], scratch: Path) -> dict[str, dict[str, Any]]:
    """Run a data script on texts, in separate folders; return its rows by text.

    Args:
        script: writes ``train.parquet`` of the lines of ``train.txt``.
        texts: one a row.
        scratch: an existing folder.

    Raises:
        RuntimeError: it takes no folders, ends with an error or writes other rows.
    """
    source = read_text(script)
    options = [next((name for name in names if f"--{name}" in source), None) for names in (INPUTS, OUTPUTS)]
    if None in options:
        raise RuntimeError(f"{script.name} takes no --{INPUTS[0]} and --{OUTPUTS[0]}, which a data script is run with")
    given, made = scratch / "texts", scratch / "rows"
    for folder in (given, made):
        folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        (given / f"{split}.txt").write_text("".join(f"{text} {QUOTED}\n" for text in texts), encoding="utf-8")
    command = [str(script), f"--{options[0]}", str(given), f"--{options[1]}", str(made)]
    printed = io.StringIO()
    variables = {"HF_HOME": str(scratch / "hf"), "HF_DATASETS_CACHE": str(scratch / "hf")}
    with (
        with_attribute(sys, "argv", command),
        with_entries(os.environ, variables),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except (Exception, SystemExit) as error:
            raise RuntimeError(f"{script.name} ends with {type(error).__name__}: {error}") from error
    pandas: Any = importlib.import_module("pandas")

    file = made / "train.parquet"
    rows = pandas.read_parquet(file).to_dict("records") if file.is_file() else []
    if len(rows) != len(texts) or not all(_has_messages(row) for row in rows):
        raise RuntimeError(f"{script.name} writes {len(rows)} rows with messages under 'prompt' for {len(texts)} texts")
    return dict(zip(texts, rows, strict=True))


def _has_messages(row: Mapping[str, Any]) -> bool:
    return row.get("prompt") is not None and all(isinstance(turn, Mapping) for turn in row["prompt"])
