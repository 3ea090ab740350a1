"""A training that is killed while it saves, or whose disk is full, goes on; its result is exported and makes images.

The package is a project of its own and the runtime an installed distribution: verl-omni is as it was cloned.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from test_train import MISTAKES, pytestmark, request  # noqa: F401  # the marks skip where nothing can be run

from scaffold.verify.train import level
from scaffold.verify.train.exported import VALIDATIONS, exported, released
from scaffold.verify.train.level import NO_SAVES, opened
from scaffold.verify.train.record import LOG_PROB, RunRecord
from scaffold.verify.train.run import RunPlan, train
from scaffold.verify.train.variants import VARIANTS

STEPS = 2
LIMIT = 1e-6


@pytest.fixture
def project(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> Path:
    """BAGEL as a user has it, outside of verl-omni."""
    command = ("new", "bagel", "--pipeline", "BagelPipeline", "--vllm-omni", "0.27.0rc1")
    scaffold_cli(*command, "--out", tmp_path / "project").success()
    return tmp_path / "project" / "src" / "bagel_flow_grpo"


@pytest.fixture
def setting(project: Path) -> Iterator[level.Setting]:
    with opened(project, request(steps=STEPS), print) as found:
        yield found


def saving(setting: level.Setting, place: Path) -> RunPlan:
    """A run that saves each of its steps into a folder."""
    plan = level._plan(setting, VARIANTS[0], STEPS, "lora")
    changes = {**plan.changes, "trainer.save_freq": "1", "trainer.default_local_dir": str(place)}
    return replace(plan, changes=changes)


def again(setting: level.Setting, plan: RunPlan, steps: int) -> RunRecord:
    """The same command, by a new process."""
    changes = {**plan.changes, **NO_SAVES, "trainer.resume_mode": "auto"}
    folder = level._folder(setting, "again")
    return train(replace(plan, folder=folder, steps=steps, changes=changes))


@pytest.mark.train_table
def test_a_training_killed_in_a_save_goes_on_and_its_export_makes_images(
    setting: level.Setting, tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    place, stopping = tmp_path / "checkpoints", Event()
    half = place / "global_step_2" / "actor" / "model_world_size_1_rank_0.pt"

    def kill() -> None:
        while not half.is_file() and not stopping.is_set():
            time.sleep(0.2)
        time.sleep(2.0)
        stopping.set()

    plan = replace(saving(setting, place), mistake=MISTAKES / "slow_save.py")
    watcher = Thread(target=kill)
    watcher.start()
    killed = train(plan, stopping=stopping)
    stopping.set()
    watcher.join()
    assert half.is_file(), killed.problem
    assert (place / "latest_checkpointed_iteration.txt").read_text() == "1"

    resumed = again(setting, replace(plan, mistake=None), STEPS)
    assert resumed.problem is None, resumed.problem
    assert [step.number for step in resumed.steps] == [2]
    assert resumed.steps[0].metric(LOG_PROB) <= LIMIT
    printed = (resumed.log or Path()).read_text(errors="replace")
    assert "note: global_step_2 is incomplete" in printed
    assert f"note: training goes on from {place / 'global_step_1'}" in printed

    out = tmp_path / "release"
    command = ("export", setting.package.folder, "--from", place, "--base", plan.model, "--out", out)
    assert " moved, " in scaffold_cli(*command).success()
    release = released(setting.package, plan, place, level._folder(setting, "exported"))
    run = train(release.plan)
    assert run.problem is None, run.problem
    assert run.steps[0].metric(LOG_PROB) <= LIMIT
    assert len(list((release.plan.folder / VALIDATIONS / "0").glob("*.jpg"))) == 4
    assert exported(plan, release, run).moved > 0


@pytest.mark.train_table
def test_a_full_disk_ends_a_training_in_words_and_it_goes_on_from_the_last_whole_save(
    setting: level.Setting, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoints"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        plan = saving(setting, place)
        stopping = Event()

        def fill() -> None:
            """Leave no room once the first step is saved whole."""
            while not (place / "latest_checkpointed_iteration.txt").is_file() and not stopping.is_set():
                time.sleep(0.05)
            with suppress(OSError), (place / "other").open("wb", buffering=0) as file:
                while not stopping.is_set():
                    file.write(b"0" * 4096)

        filler = Thread(target=fill)
        filler.start()
        full = train(plan, stopping=stopping)
        stopping.set()
        filler.join()
        assert full.problem is not None
        assert (place / "latest_checkpointed_iteration.txt").read_text() == "1"
        (place / "other").unlink()
        resumed = again(setting, plan, STEPS)
        assert resumed.problem is None, resumed.problem
        assert [step.number for step in resumed.steps] == [2]
        assert resumed.steps[0].metric(LOG_PROB) <= LIMIT
    finally:
        subprocess.run(["umount", str(place)], check=False)
