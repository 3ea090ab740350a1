"""Read by every interpreter of a training run, through PYTHONPATH: driver, Ray's workers, the engine's processes."""

import os
import runpy
from pathlib import Path

if os.environ.get("OMNI_SCAFFOLD_TRAIN"):
    scaffold = Path(__file__).resolve().parents[4]
    boot = runpy.run_path(str(scaffold / "verify" / "rollout" / "engine_side" / "boot.py"))
    boot["introduce"]("scaffold", scaffold)
    from scaffold.verify.train.trainer_side.hooks import install

    install(os.environ["OMNI_SCAFFOLD_TRAIN"].split(","))
