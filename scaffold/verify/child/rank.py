"""One rank of a sharded run on an accelerator: a fresh process, because CUDA does not survive a fork."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Import the package as the host did and run the rank that stdin describes."""
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    order = json.loads(sys.stdin.read())
    job = order["job"]
    import torch

    torch.set_num_threads(1)
    from scaffold.verify.child.imports import prepare

    prepare(job["root"], job["sources"], job["checkout"], job["kit"], job["diffusers_path"])
    package = importlib.import_module(job["module"])
    from scaffold.verify.subject import subject_of
    from scaffold.verify.subject.sharded import run_rank

    run_rank(subject_of(job, package), order["backend"], order["strategy"], order["rank"], Path(order["folder"]))


if __name__ == "__main__":
    main()
