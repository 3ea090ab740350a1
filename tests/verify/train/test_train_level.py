"""Level train before anything runs: what it needs, what it says where that is missing, the tree it works in."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.files.resources import installed_runtime
from scaffold.scratch import scratch_folder
from scaffold.terminal.interrupt import line
from scaffold.verify.package import open_package
from scaffold.verify.rollout.environment import Environment
from scaffold.verify.train import level
from scaffold.verify.train.devices import DEVICES, card, find_device, on_device, rooms
from scaffold.verify.train.run import REWARD, RunPlan, command, train, variables
from scaffold.verify.train.sources import find_sources
from scaffold.verify.train.trainer_side.hooks import marked
from scaffold.verify.train.trainers import SYNC, Trainer
from scaffold.verify.train.variants import VARIANTS, variants
from scaffold.verify.train.workshop import build_workshop, smoke_script, workshop_sources

REGISTRY = '''"""Pipelines."""

from . import other_flow_grpo
from .other_flow_grpo import *  # noqa: F401, F403

__all__ = []
__all__ += list(other_flow_grpo.__all__)
'''


@pytest.fixture
def checkout(tmp_path: Path, write_tree: Callable[[Path, Mapping[str, Any]], Path]) -> Path:
    """A folder with as much of verl-omni as the tool looks at, which pins vllm-omni 0.27.0rc1."""
    root = tmp_path / "checkout"
    files = {
        "pyproject.toml": '[project.optional-dependencies]\nvllm-omni = ["vllm-omni==0.27.0rc1"]\n',
        "verl_omni/__init__.py": "",
        "verl_omni/pipelines/__init__.py": REGISTRY,
        "verl_omni/pipelines/model_base.py": "class DiffusionModelBase:\n    pass\n",
        "verl_omni/pipelines/non_diffusers_model_base.py": "class NonDiffusersModelBase:\n    pass\n",
        "verl_omni/pipelines/bagel_flow_grpo/__init__.py": "raise ImportError('written by hand')\n",
        "tests/special_e2e/other.sh": "",
        "docs/index.md": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_package_is_laid_over_a_copy_and_registered(tmp_path: Path, checkout: Path, reference: Path) -> None:
    package = open_package(reference)
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    workshop = build_workshop(tmp_path / "workshop", checkout, [package])
    assert (workshop / "verl_omni/pipelines" / package.name / "scaffold.toml").is_file()
    assert "written by hand" not in (workshop / "verl_omni/pipelines" / package.name / "__init__.py").read_text()
    assert f"__all__ += list({package.name}.__all__)" in (workshop / "verl_omni/pipelines/__init__.py").read_text()
    assert smoke_script(workshop, package, "bagel").is_file()
    assert not (workshop / "docs").exists()
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "place", ["verl_omni/pipelines", "verl_omni/pipelines/__init__.py", "examples/flowgrpo_trainer"]
)
def test_nothing_is_written_through_a_link(tmp_path: Path, checkout: Path, reference: Path, place: str) -> None:
    outside = tmp_path / "outside"
    (checkout / place).parent.mkdir(parents=True, exist_ok=True)
    if (checkout / place).exists():
        (checkout / place).rename(outside)
    else:
        outside.mkdir()
    (checkout / place).symlink_to(outside)
    before = {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}
    with pytest.raises(ScaffoldError, match="cannot be copied: is a link"):
        build_workshop(tmp_path / "workshop", checkout, [open_package(reference)])
    assert {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()} == before


@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
def test_what_cannot_be_copied_is_one_line(tmp_path: Path, checkout: Path, reference: Path, kind: str) -> None:
    strange = checkout / "verl_omni/pipelines/mine/strange.py"
    strange.parent.mkdir()
    (strange.parent / "__init__.py").write_text("")
    if kind == "pipe":
        os.mkfifo(strange)
    else:
        strange.symlink_to("/dev/zero" if kind == "device" else ".")
    with pytest.raises(ScaffoldError, match=r"strange\.py cannot be copied: is "):
        build_workshop(tmp_path / "workshop", checkout, [open_package(reference)])


def test_a_project_is_laid_beside_a_checkout_that_does_not_know_it(
    tmp_path: Path, checkout: Path, reference: Path, scaffold_cli: Callable[..., Any]
) -> None:
    scaffold_cli("move", reference, "--out", tmp_path / "project").success()
    package = open_package(tmp_path / "project")
    before = (checkout / "verl_omni/pipelines/__init__.py").read_bytes()
    workshop = build_workshop(tmp_path / "workshop", checkout, [package])
    assert (workshop / "verl_omni/pipelines/__init__.py").read_bytes() == before
    assert (workshop / "src" / package.name / "scaffold.toml").is_file()
    assert smoke_script(workshop, package, "bagel") == workshop / "tests/smoke/run_flowgrpo_bagel.sh"
    # What is installed beside the runtime stays out of the run.
    assert workshop_sources(workshop, [package]) == [workshop / "src", workshop / "runtime"]
    assert [place.name for place in (workshop / "runtime").iterdir()] == ["flow_grpo_runtime"]
    assert (workshop / "runtime/flow_grpo_runtime/tape.py").read_bytes() == (
        installed_runtime() / "tape.py"
    ).read_bytes()


def test_package_without_a_smoke_script_is_refused(tmp_path: Path, reference: Path) -> None:
    with pytest.raises(ScaffoldError, match="no tests/special_e2e/run_flowgrpo_foo.sh"):
        smoke_script(tmp_path, open_package(reference), "foo")


def test_what_is_missing_is_said_at_once(
    scaffold_cli: Callable[..., Any], reference: Path, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VERL_OMNI_SRC", raising=False)
    monkeypatch.delenv("OMNI_SCAFFOLD_ROLLOUT_ENV", raising=False)
    train = ["verify", str(reference), "--level", "train"]
    there = ["--verl-omni", str(checkout)]
    assert "give --verl-omni CHECKOUT" in scaffold_cli(*train).refusal()
    assert "omni-scaffold env train --vllm-omni 0.27.0rc1" in scaffold_cli(*train, *there).refusal()
    assert (
        "there is no variant 'lara'; there are lora, v0, async, fsdp1"
        in scaffold_cli(*train, *there, "--variant", "lara").refusal()
    )
    assert "nearest is train-log-prob" in scaffold_cli(*train, *there, "--select", "train-lag-prob").refusal()
    assert "belong to --level train" in scaffold_cli("verify", str(reference), *there).refusal()
    assert "belong to --level train" in scaffold_cli("verify", str(reference), "--steps", "3").refusal()
    monkeypatch.setenv("VERL_SRC", str(tmp_path))
    assert "holds no verl/" in scaffold_cli(*train, *there).refusal()


def test_a_package_of_another_release_is_refused(reference: Path, checkout: Path) -> None:
    package = open_package(reference)
    target = {**package.spec["target"], "profile": "v0.3.0", "io_spec": "verl_omni.pipelines.rollout_media"}
    newer = replace(package, spec={**package.spec, "target": target})
    with pytest.raises(
        ScaffoldError, match=r"was made for verl-omni v0.3.0, and .* has no verl_omni.pipelines.rollout"
    ):
        find_sources(newer, checkout)
    (checkout / "verl_omni/pipelines/rollout_media.py").write_text("")
    assert find_sources(newer, checkout).verl_omni.root == checkout.resolve()


SCRIPT = """
set -e
[ "$1" != fail ] || exit 3
printf '{"step": 1, "data": {"training/global_step": 1, "critic/rewards/mean": 0.5}}\\n' > "$VERL_FILE_LOGGER_PATH"
printf '%s\\n' "$@"
"""


def plan(tmp_path: Path, script: str, **values: Any) -> RunPlan:
    path = tmp_path / "smoke.sh"
    path.write_text(script)
    (tmp_path / "runs").mkdir()
    known: dict[str, Any] = {
        "environment": Environment(tmp_path / "environment", "0.27.0rc1"),
        "workshop": tmp_path,
        "verl": None,
        "script": path,
        "model": tmp_path / "model",
        "folder": tmp_path / "runs",
        "variant": VARIANTS[0],
        "trainer": Trainer(SYNC, "verl_omni.trainer.main_diffusion_v1"),
        "steps": 1,
        "sources": ("vllm_omni.diffusion.models.foo",),
        "package": "verl_omni.pipelines.foo_flow_grpo",
    }
    return RunPlan(**{**known, **values})


def test_run_follows_steps_and_keeps_what_was_printed(tmp_path: Path) -> None:
    followed: list[int] = []
    found = train(plan(tmp_path, SCRIPT), lambda number, _: followed.append(number))
    assert (found.problem, [step.number for step in found.steps]) == (None, [1])
    printed = (found.log or Path()).read_text().splitlines()
    assert f"reward.custom_reward_function.path={REWARD}" in printed
    assert "reward.custom_reward_function.name=brightness" in printed
    assert "trainer.total_training_steps=1" in printed


def test_run_that_prints_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaffold.verify.train.run.MOST_PRINTED", 100_000)
    found = train(plan(tmp_path, "while true; do printf '%01000d\\n' 0; sleep 0.001; done"))
    assert "stopped: it printed more than" in str(found.problem)


@pytest.mark.parametrize("demands", ["{'CPU': 1.0} * 8 (PACK): 1+ pending placement groups", "(no resource demands)"])
def test_run_for_which_ray_has_no_room_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demands: str
) -> None:
    monkeypatch.setattr("scaffold.verify.train.run.ROOM_SECONDS", 0.5)
    monkeypatch.setattr("scaffold.verify.train.run.LOOK_SECONDS", 0.1)
    (tmp_path / "monitor.log").write_text(
        f"Pending Demands:\n {{'CPU': 9.0}}: 1+\n\nPending Demands:\n {demands}\n\nend\n"
    )
    logs = '"$RAY_TMPDIR/ray/session_latest/logs"'
    waits = "sleep 300" if "CPU" in demands else "sleep 3"
    found = train(plan(tmp_path, f'mkdir -p {logs}; cp "$PWD/monitor.log" {logs}; {waits}'))
    told = f"the run was stopped: Ray has no room for {demands}"
    assert (found.problem or "").partition("; its last line")[0] == (told if "CPU" in demands else "")


def test_run_that_fails_says_how_it_ended_and_its_last_line(tmp_path: Path) -> None:
    found = train(plan(tmp_path, "echo 'one thing'; echo 'another'; exit 3"))
    assert found.problem == "the run was over with exit code 3; its last line: another"
    assert not found.steps


def test_run_that_fails_names_what_was_raised_and_not_what_others_said_later(tmp_path: Path) -> None:
    found = train(plan(tmp_path, "echo 'ValueError: no'; echo 'torch.Error: that'; echo '(pid=1) import this'; exit 3"))
    assert found.problem == "the run was over with exit code 3; it raised torch.Error: that"


def test_a_report_names_the_cards_that_a_run_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text('#!/bin/sh\necho H100; case "$*" in *"-i 1") ;; *) echo H100;; esac\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert card(find_device("cuda")) == "2 x H100"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert card(find_device("cuda")) == "1 x H100"


@pytest.mark.parametrize("told", ["RaySystemError: late", "DistNetworkError: port: 24000, name: EADDRINUSE"])
def test_a_start_that_had_bad_luck_is_tried_again(tmp_path: Path, told: str) -> None:
    script = f'echo again >> "$PWD/count"; [ "$(wc -l < "$PWD/count")" = 3 ] || {{ echo "{told}"; exit 1; }}'
    found = train(plan(tmp_path, script))
    assert found.problem is None
    assert (tmp_path / "count").read_text().count("again") == 3


def test_runs_beside_one_another_have_ports_of_their_own(tmp_path: Path) -> None:
    logs = [train(plan(tmp_path / name, 'printf "%s\\n" "$@"')).log or Path() for name in _folders(tmp_path)]
    ports = [re.findall(r"ray_master_port_range=\[(\d+),(\d+)\]", log.read_text())[0] for log in logs]
    (first, last), (other, _) = sorted((int(low), int(high)) for low, high in ports)
    assert first < last < other


def test_a_floor_has_a_step_for_the_resumed_one_and_saves_no_checkpoint_that_it_would_take(tmp_path: Path) -> None:
    resume = on_device(VARIANTS[0], find_device("cuda"))
    saving = {"trainer.save_freq": "3"}
    found = level.floor_plan(plan(tmp_path, "", variant=resume, steps=3, changes=saving), tmp_path / "floor")
    assert (found.steps, found.changes["trainer.save_freq"]) == (4, "-1")
    assert found.changes["actor_rollout_ref.actor.optim.lr"] == "0.0"


def test_a_run_says_where_it_is_before_its_first_step_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaffold.verify.train.run.TELL_SECONDS", 0.4)
    told: list[tuple[float, str]] = []
    train(plan(tmp_path, "echo loading; sleep 3"), wait=lambda *word: told.append(word))
    assert told[-1][1] == "loading"


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_what_a_run_printed_is_kept_where_it_is_interrupted(tmp_path: Path, ending: type[BaseException]) -> None:
    with scratch_folder("train", tmp_path) as scratch:
        for name in ("lora", "lora-on"):
            (scratch / "runs" / name / "try0" / "checkpoints").mkdir(parents=True)
            (scratch / "runs" / name / "try0" / "log").write_text(name)
        (scratch / "workshop").mkdir()
        with pytest.raises(ending) as raised, level._logs_kept(scratch):
            raise ending
    assert {path.name: path.read_text() for path in scratch.glob("*.log")} == {
        "lora-try0.log": "lora",
        "lora-on-try0.log": "lora-on",
    }
    assert not [path for path in scratch.iterdir() if path.is_dir()]
    if ending is KeyboardInterrupt:
        assert str(scratch) in line("verify", raised.value)


def test_run_leaves_no_process_behind(tmp_path: Path) -> None:
    """Not even one in another session whose environment tells nothing of the run."""
    train(plan(tmp_path, 'env -i setsid sleep 300 & echo $! > "$PWD/pid"; exit 0'))
    assert _ends(int((tmp_path / "pid").read_text()))


ENDED = """
import sys
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
from test_train_level import plan
from scaffold.verify.run import _orderly_end
from scaffold.verify.train import level
from scaffold.verify.train.devices import find_device
from scaffold.verify.train.variants import VARIANTS
with _orderly_end():
    script = 'env -i setsid sleep 300 & echo $! > "$PWD/pid.tmp"; mv "$PWD/pid.tmp" "$PWD/pid"; wait'
    plan = plan(Path(sys.argv[2]), script)
    level._run_all(SimpleNamespace(tell=print), VARIANTS[0], {"run": plan})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_a_run_at_once_and_not_the_one_beside_it(number: signal.Signals, tmp_path: Path) -> None:
    """Also where the tool has no time to end anything itself."""
    import subprocess
    import sys
    import time

    folders = [tmp_path / name for name in _folders(tmp_path)]
    runs = [subprocess.Popen([sys.executable, "-c", ENDED, str(Path(__file__).parent), str(at)]) for at in folders]
    try:
        while not all((folder / "pid").exists() for folder in folders):
            assert [run.poll() for run in runs] == [None, None]
            time.sleep(0.1)
        first, second = (int((folder / "pid").read_text()) for folder in folders)
        runs[0].send_signal(number)
        assert runs[0].wait(timeout=60) == (-number if number == signal.SIGKILL else 128 + number)
        assert _ends(first) if number == signal.SIGKILL else not _alive(first)
        assert _alive(second)
        assert runs[1].poll() is None
    finally:
        for run in runs:
            run.terminate()
            run.wait(timeout=60)


def _ends(pid: int) -> bool:
    import time

    for _ in range(600):
        if not _alive(pid):
            return True
        time.sleep(0.1)
    return False


def _alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split(")")[-1].split()[0] != "Z"


def test_a_run_sees_no_token_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    monkeypatch.setenv("LANG", "seen")
    given = variables(plan(tmp_path, ""), tmp_path, "ab", tmp_path)
    assert given["LANG"] == "seen"
    assert "hf_of_the_user" not in given.values()


def test_on_a_gpu_a_run_keeps_what_says_which_cards_and_how_they_talk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"CUDA_VISIBLE_DEVICES": "1", "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    given = plan(tmp_path, "")
    on_gpu = variables(replace(given, device=find_device("cuda")), tmp_path, "ab", tmp_path)
    assert {name: on_gpu.get(name) for name in said} == said
    assert not said.keys() & variables(given, tmp_path, "ab", tmp_path).keys()


def test_two_runs_share_no_name_on_the_host(tmp_path: Path) -> None:
    first, second = (variables(plan(tmp_path / n, ""), tmp_path, n, tmp_path / n) for n in _folders(tmp_path))
    assert first["OMNI_SCAFFOLD_TRAIN_RUN"] != second["OMNI_SCAFFOLD_TRAIN_RUN"]


def _folders(tmp_path: Path) -> list[str]:
    for name in ("aa", "bb"):
        (tmp_path / name).mkdir()
    return ["aa", "bb"]


@pytest.mark.parametrize("name", variants())
def test_overrides_of_a_variant_win(tmp_path: Path, name: str) -> None:
    variant = variants()[name]
    given = command(plan(tmp_path, SCRIPT, variant=variant))[2:]
    for key, value in variant.overrides.items():
        assert f"{key}={value}" in given
    assert len({entry.partition("=")[0] for entry in given}) == len(given)
    json.dumps(given)


def test_a_package_is_trained_by_the_algorithms_that_it_is_made_for(reference: Path) -> None:
    package = open_package(reference)
    with pytest.raises(ScaffoldError, match="not made for mix_grpo"):
        level.wanted_variants(("mix_grpo",), package)
    spec = {**package.spec, "recipe": {**package.spec["recipe"], "algorithms": ["flow_grpo", "mix_grpo"]}}
    both = replace(package, spec=spec)
    (found,) = level.wanted_variants(("mix_grpo",), both)
    assert (found.algorithm, found.trainer) == ("mix_grpo", None)
    names = [{v.algorithm for v in level.wanted_variants(("all",), given)} for given in (package, both)]
    assert names == [{None}, {None, "flow_grpo", "mix_grpo"}]


def test_a_package_of_full_parameters_has_one_variant(reference: Path) -> None:
    package = open_package(reference)
    full = replace(package, spec={**package.spec, "lora": {**package.spec["lora"], "rank": 0}})
    names = {given: [variant.name for variant in level.wanted_variants(given, full)] for given in ((), ("all",))}
    assert names == {(): ["full"], ("all",): ["full"]}
    assert [variant.name for variant in level.wanted_variants((), package)] == ["lora"]
    with pytest.raises(ScaffoldError, match="trains full parameters, which is not a variant 'kl'"):
        level.wanted_variants(("full", "kl"), full)


def test_what_the_trainer_merges_is_measured_against_a_run_without_updates(reference: Path) -> None:
    package = open_package(reference)
    spec = {**package.spec, "lora": {**package.spec["lora"], "merge": True}}
    found = {v.name: v for v in level.wanted_variants(("lora", "bf16"), replace(package, spec=spec))}
    assert found["lora"].floor == {"actor_rollout_ref.actor.optim.lr": "0.0"}
    assert found["bf16"] == variants()["bf16"]
    assert level.wanted_variants(("lora",), package) == [variants()["lora"]]


def test_architecture_of_a_package_written_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "verl_omni" / "pipelines" / "foo_flow_grpo"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "adapter.py").write_text('@DiffusionModelBase.register("OmniFoo", algorithm="flow_grpo")\nclass A: ...\n')
    assert level.architecture(open_package(folder)) == "OmniFoo"
    (folder / "second.py").write_text('@DiffusionModelBase.register("OmniBar", algorithm="flow_grpo")\nclass B: ...\n')
    with pytest.raises(ScaffoldError, match="registers 2 training adapters"):
        level.architecture(open_package(folder))


def test_literal_precisions_follow_in_folders_that_a_pipeline_inherits_from(tmp_path: Path) -> None:
    models = "vllm_omni.diffusion.models"
    imports = f"from {models}.mixin import Mixin\nfrom {models}.other import Net\n"
    for name, text in {
        "child": f"from {models}.parent.pipeline import Parent\n\nclass Child(Parent):\n    pass\n",
        "parent": f"{imports}\nclass Parent(Mixin):\n    pass\n",
        "other": "class Net:\n    pass\n",
    }.items():
        folder = tmp_path.joinpath("lib/python3.11/site-packages", *models.split("."), name)
        folder.mkdir(parents=True)
        (folder / "pipeline.py").write_text(text)
    found = level.model_folders((f"{models}.child.pipeline", "Child"), tmp_path)
    assert found == [f"{models}.{name}" for name in ("child", "parent", "mixin")]
    assert level.model_folders(None, tmp_path) == []


def test_a_later_verl_than_the_pinned_one_is_filled_in_on_a_card_too() -> None:
    rooms_of = [rooms(find_device("cuda"), "bfloat16", pinned_verl=pinned) for pinned in (True, False)]
    assert set(rooms_of[1]) - set(rooms_of[0]) == {"patches.newer_verl"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_room_that_a_run_arms_has_something_that_acts(device: str, dtype: str) -> None:
    for room in rooms(find_device(device), dtype, pinned_verl=False):
        assert marked([room]), room
