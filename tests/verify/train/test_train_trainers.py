"""Which trainer a checkout trains with: v1, also where that is switched off, and v0 where there is no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.target import Checkout
from scaffold.target.capabilities import TRAINER_CONFIG
from scaffold.verify.rollout.environment import Environment
from scaffold.verify.train.run import RunPlan, variables
from scaffold.verify.train.settings import overrides
from scaffold.verify.train.trainers import ASYNC, SYNC, V0, Trainer, find_trainer, start_with
from scaffold.verify.train.variants import VARIANTS, Variant, variants

V1 = "verl_omni.trainer.main_diffusion_v1"


@pytest.fixture
def checkout(tmp_path: Path, python_file: Callable[[Path, str], Any]) -> Callable[..., Checkout]:
    """A small folder of the shape of a release."""
    module = python_file(Path(__file__).parents[2] / "target" / "test_target.py", "stand_in_checkout")

    def make(release: str, config: str | None = None) -> Checkout:
        root: Path = module.standin(tmp_path / "verl-omni", release)
        if config is not None:
            (root / TRAINER_CONFIG).parent.mkdir(parents=True, exist_ok=True)
            (root / TRAINER_CONFIG).write_text(config)
            (root / f"{V1.replace('.', '/')}.py").write_text("")
        return Checkout.open(root)

    return make


@pytest.mark.parametrize("on", [False, True])
def test_v1_is_taken_whatever_the_configuration_says(checkout: Callable[..., Checkout], on: bool) -> None:
    there = checkout("main", f"trainer:\n  use_v1: {str(on).lower()}\n")
    assert find_trainer(there) == Trainer(SYNC, V1, True, on)
    assert find_trainer(there, V0) == Trainer(V0, V1, True, on)
    assert find_trainer(there, ASYNC) == Trainer(ASYNC, V1, True, on)
    assert ("not the checkout's default" in find_trainer(there).title) == (not on)


def test_release_without_v1_has_no_asynchronous_run(checkout: Callable[..., Checkout]) -> None:
    there = checkout("v0.1.0")
    assert find_trainer(there) == Trainer(V0, "verl_omni.trainer.main_diffusion", False)
    with pytest.raises(ScaffoldError, match="has no v1 trainer"):
        find_trainer(there, ASYNC)


def test_what_is_chosen_is_given_explicitly_and_ray_has_a_cpu_for_every_actor() -> None:
    assert Trainer(V0, V1, False).overrides(1) == {}
    assert Trainer(V0, V1).overrides(1) == {"trainer.use_v1": "false"}
    given = Trainer(SYNC, V1).overrides(1)
    assert (given["trainer.use_v1"], given["trainer.v1.trainer_mode"]) == ("true", "sync")
    units = next(int(value) for name, value in given.items() if name.endswith("num_data_storage_units"))
    older, newer = (
        int(overrides("float32", 1, 1, cpus=Trainer(name, V1).cpus)["ray_kwargs.ray_init.num_cpus"])
        for name in (V0, SYNC)
    )
    assert newer == older + units + 1, "the controller takes one, and each unit"
    assert Trainer(ASYNC, V1).overrides(2)["actor_rollout_ref.rollout.n_gpus_per_node"] == "2"


def test_script_judges_no_step_whose_limit_another_run_measures(tmp_path: Path) -> None:
    """Log-probs of images that older weights made are apart, and level train looks at the run without updates."""
    plan = RunPlan(Environment(tmp_path, "0"), tmp_path, None, tmp_path, tmp_path, tmp_path, *_ordinary(), 1, (), "foo")
    assert "LOGPROB_LIMIT" not in variables(plan, tmp_path, "token", tmp_path), (
        "the script's own limit judges an ordinary run"
    )
    late = replace(plan, variant=variants()["async"])
    assert float(variables(late, tmp_path, "token", tmp_path)["LOGPROB_LIMIT"]) >= 0.1


def _ordinary() -> tuple[Variant, Trainer]:
    return VARIANTS[0], Trainer(SYNC, V1)


@pytest.mark.parametrize("entry", ["main_diffusion", "main_diffusion_v1"])
def test_script_starts_the_module_of_the_trainer(tmp_path: Path, entry: str) -> None:
    script = tmp_path / "smoke.sh"
    script.write_text(f'python3 -m verl_omni.trainer.{entry} \\\n    "$@"\n')
    start_with(script, Trainer(SYNC, V1))
    assert script.read_text() == f'python3 -m {V1} \\\n    "$@"\n'
    start_with(script, Trainer(V0, "verl_omni.trainer.main_diffusion", False))
    assert script.read_text() == 'python3 -m verl_omni.trainer.main_diffusion \\\n    "$@"\n'
    script.write_text("python3 -m other\n")
    with pytest.raises(ScaffoldError, match=r"smoke\.sh starts no trainer of verl-omni"):
        start_with(script, Trainer(SYNC, V1))
