"""What child processes that are started with a file of their job do before they answer."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.child.leftovers import die_with_parent


def answer(outcome_of: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Read the job that the command line names, set what a package reads of the environment, write the outcome."""
    die_with_parent()
    job = json.loads(read_text(sys.argv[1]))
    os.environ.update({"LOCAL_RANK": "0", "TOKENIZERS_PARALLELISM": "0"})
    os.environ.setdefault("OMNI_SCAFFOLD_KIT_PROFILE", job["profile"])
    if job["executed"]:
        os.environ["FLOW_GRPO_UPSTREAM"] = job["executed"]
    os.environ["TMPDIR"] = tempfile.tempdir = job["logs"]
    Path(job["outcome"]).write_text(json.dumps(outcome_of(job)), encoding="utf-8")
