"""Which trainer a checkout trains with: its own default, v1 where that is switched off, v0 where there is no other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.train.settings import overrides
from scaffold.verify.train.trainers import ASYNC, CONFIG, SYNC, V0, Trainer, find_trainer, start_with

OFF = "trainer:\n  use_v1: false\n  v1:\n    trainer_mode: sync\n"


def checkout(root: Path, config: str | None) -> Any:
    """A folder with the trainers of a release; None for one without v1."""
    for name, text in {CONFIG: config or "", "verl_omni/trainer/main_diffusion_v1.py": config}.items():
        if text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return SimpleNamespace(root=root)


@pytest.mark.parametrize(
    ("config", "asked", "expected"),
    [
        (None, None, Trainer(V0, False, V0)),
        (OFF, None, Trainer(SYNC, True, V0)),
        (OFF, V0, Trainer(V0, True, V0)),
        (OFF, ASYNC, Trainer(ASYNC, True, V0)),
        ("trainer:\n  use_v1: true\n", None, Trainer(SYNC, True, SYNC)),
        ("trainer:\n  use_v1: true\n  v1: {trainer_mode: separate_async}\n", None, Trainer(ASYNC, True, ASYNC)),
        ("{broken", None, Trainer(SYNC, True, V0)),
    ],
)
def test_trainer_of_a_checkout(tmp_path: Path, config: str | None, asked: str | None, expected: Trainer) -> None:
    assert find_trainer(checkout(tmp_path, config), asked) == expected


def test_release_without_v1_has_no_asynchronous_run(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="has no v1 trainer"):
        find_trainer(checkout(tmp_path, None), ASYNC)


def test_what_is_chosen_is_given_explicitly_and_ray_has_a_cpu_for_every_actor() -> None:
    assert Trainer(V0, False, V0).overrides(1) == {}
    assert Trainer(V0, True, SYNC).overrides(1) == {"trainer.use_v1": "false"}
    given = Trainer(SYNC, True, SYNC).overrides(1)
    assert (given["trainer.use_v1"], given["trainer.v1.trainer_mode"]) == ("true", "sync")
    units = next(int(value) for name, value in given.items() if name.endswith("num_data_storage_units"))
    older, newer = (
        int(overrides("float32", 1, 1, cpus=Trainer(name, True, V0).cpus)["ray_kwargs.ray_init.num_cpus"])
        for name in (V0, SYNC)
    )
    assert newer == older + units + 1, "the controller takes one, and each unit"
    assert Trainer(ASYNC, True, V0).overrides(2)["actor_rollout_ref.rollout.n_gpus_per_node"] == "2"


@pytest.mark.parametrize("entry", ["main_diffusion", "main_diffusion_v1"])
def test_script_starts_the_module_that_knows_every_trainer(tmp_path: Path, entry: str) -> None:
    script = tmp_path / "smoke.sh"
    script.write_text(f'python3 -m verl_omni.trainer.{entry} \\\n    "$@"\n')
    start_with(script, Trainer(SYNC, True, V0))
    assert script.read_text() == 'python3 -m verl_omni.trainer.main_diffusion_v1 \\\n    "$@"\n'
    start_with(script, Trainer(V0, False, V0))
    assert script.read_text() == 'python3 -m verl_omni.trainer.main_diffusion \\\n    "$@"\n'
    script.write_text("python3 -m other\n")
    with pytest.raises(ScaffoldError, match=r"smoke\.sh starts no trainer of verl-omni"):
        start_with(script, Trainer(SYNC, True, V0))
