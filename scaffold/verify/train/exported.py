"""What was trained, exported as a release, and trained on from there: the level's proof that a result can be used."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from scaffold.limits import child_process
from scaffold.verify.child.contained import run_contained
from scaffold.verify.export import can_export, export
from scaffold.verify.package import Package
from scaffold.verify.train.record import ROLLOUTS, VALIDATED, RunRecord
from scaffold.verify.train.run import RunPlan

COMPARE = Path(__file__).resolve().parent / "trainer_side" / "same_images.py"
VALIDATIONS = "validations"
SECONDS = 120.0


@dataclass(frozen=True)
class Exported:
    """An export and the run that began with it.

    Attributes:
        problem: why there is none, or None.
        moved: tensors of the release that training moved.
        held: tensors of the release that training holds.
        run: validation and one step of training with the export as the release.
        apart: mean distance of what its validation makes from what the last made, in levels of 255; None where no row
            of the data says that it is of the test split.
        untrained: the same of the images before training.
    """

    problem: str | None
    moved: int = 0
    held: int = 0
    run: RunRecord | None = None
    apart: float | None = None
    untrained: float | None = None


def images(package: Package, folder: Path) -> dict[str, str]:
    """Overrides with which a run keeps the images of rollouts and validations; none for films and sound."""
    if package.spec.get("media", {}).get("kind", "image") != "image":
        return {}
    (folder / ROLLOUTS).mkdir(exist_ok=True)
    return {
        "trainer.validation_data_dir": str(folder / VALIDATIONS),
        "trainer.rollout_data_dir": str(folder / ROLLOUTS),
    }


@dataclass(frozen=True)
class Release:
    """A checkpoint of the trainer, exported as a release.

    Attributes:
        plan: the run that validates it and takes one step from there.
        moved: tensors that training moved.
        held: tensors that training holds.
    """

    plan: RunPlan
    moved: int
    held: int


def released(package: Package, plan: RunPlan, checkpoints: Path, folder: Path) -> Release:
    """Export the last checkpoint of a run.

    Args:
        package: that was trained.
        plan: of the run.
        checkpoints: where it saved.
        folder: an empty one.

    Raises:
        ScaffoldError: it cannot be exported.
    """
    out = folder / "release"
    # As a user does, with this Python; else with the engine's.
    python = None if can_export() else str(plan.environment.python)
    told = export(package.folder, checkpoints, plan.model, out, python=python)["told"]
    changes = {
        **plan.changes,
        "trainer.save_freq": "-1",
        "trainer.test_freq": "-1",
        "trainer.val_before_train": "True",
        "trainer.resume_mode": "disable",
        # Two images of each prompt are enough for one step's log-probs.
        "actor_rollout_ref.rollout.n": "2",
        **images(package, folder),
    }
    moved = sum(bool(entry["largest"]) for entry in told["tensors"])
    return Release(replace(plan, model=out, folder=folder, steps=1, changes=changes), moved, len(told["tensors"]))


def exported(plan: RunPlan, release: Release, run: RunRecord) -> Exported:
    """Hold what an export makes against what the last validation made.

    Args:
        plan: of the run that was exported.
        release: what came of it.
        run: validation and one step from there.
    """
    found = Exported(None, release.moved, release.held, run)
    if run.problem is not None:
        return found
    folders = [place.folder / VALIDATED for place in (plan, release.plan)]
    command = [str(plan.environment.python), str(COMPARE), *map(str, folders)]
    done = run_contained(command, seconds=SECONDS, variables=child_process.environment())
    if done.returncode:
        return replace(
            found, problem=f"the images cannot be compared: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
        )
    apart = json.loads(done.stdout)
    return replace(found, apart=apart["exported"], untrained=apart["untrained"])
