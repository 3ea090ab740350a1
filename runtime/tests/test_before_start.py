"""What a launch script is told before a training starts: settings that cannot work, a last save that is not whole."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from flow_grpo_runtime import before_start

Config = dict[str, Any]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings that work, of two processes."""
    for name in ("train", "test"):
        parquet.write_table(pa.table({"prompt": ["a"] * 8}), tmp_path / f"{name}.parquet")
    (tmp_path / "reward.py").write_text("async def score(image):\n    return 1.0\n")
    size = {"height": 64, "width": 96}
    return {
        "data": {
            "train_files": str(tmp_path / "train.parquet"),
            "val_files": [str(tmp_path / "test.parquet")],
            "train_batch_size": 8,
        },
        "actor_rollout_ref": {
            "model": {"lora_rank": 8},
            "actor": {
                "strategy": "fsdp2",
                "ppo_mini_batch_size": 4,
                "ppo_micro_batch_size_per_gpu": 2,
                "fsdp_config": {"use_orig_params": False},
            },
            "rollout": {"n": 4, "pipeline": {**size}, "val_kwargs": {"pipeline": {**size}}},
        },
        "reward": {"custom_reward_function": {"path": str(tmp_path / "reward.py"), "name": "score"}},
        "trainer": {
            "n_gpus_per_node": 2,
            "nnodes": 1,
            "logger": ["console"],
            "resume_mode": "auto",
            "default_local_dir": str(tmp_path / "run"),
        },
    }


def put(config: Config, path: str, value: Any) -> Config:
    *folders, name = path.split(".")
    inner = config
    for folder in folders:
        inner = inner[folder]
    inner[name] = value
    return config


def test_settings_that_work_are_passed(config: Config) -> None:
    say: list[str] = []
    assert list(before_start.faults(config, side=16)) == []
    assert list(before_start.resume_faults(config, say)) == []
    assert say == []


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("data.train_batch_size", 6, "train_batch_size=6 is not a multiple of"),
        ("data.train_batch_size", 16, "the data has 8 rows, fewer than"),
        ("trainer.n_gpus_per_node", 3, "3 processes do not share the 16 images of an update equally"),
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", 3, "does not divide the 8 images that a process has"),
        (f"{ROLLOUT}.pipeline.width", 1032, "pipeline.width=1032 is not a multiple of 16"),
        (f"{ROLLOUT}.val_kwargs.pipeline.height", 72, "val_kwargs.pipeline.height=72 is not"),
        ("trainer.logger", ["console", "vemlp_wandb"], "volcengine_ml_platform is not installed"),
        ("reward.custom_reward_function.name", "scores", "has no function scores"),
        ("reward.custom_reward_function.path", "/nowhere.py", "path=/nowhere.py is not there"),
        ("data.val_files", "/nowhere.parquet", "val_files names /nowhere.parquet, which is not there"),
    ],
)
def test_each_setting_that_cannot_work_is_one_line(config: Config, path: str, value: Any, line: str) -> None:
    found = list(before_start.faults(put(config, path, value), side=16))
    assert len(found) == 1
    assert line in found[0]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (f"{ROLLOUT}.n", 1, "rollout.n=1: it must be a whole number from 2"),
        (f"{ACTOR}.ppo_mini_batch_size", 0, "ppo_mini_batch_size=0: it must be a positive whole number"),
        (f"{ACTOR}.optim", {"lr": -1e-4}, "optim.lr=-0.0001: it must be a number from 0"),
        (f"{ACTOR}.diffusion_loss", {"clip_ratio": 2}, "clip_ratio=2: it must be between 0 and 1"),
        (f"{ROLLOUT}.algo", {"sde_type": "ode"}, "sde_type=ode: it must be one of sde, cps, dance_sde"),
        (f"{ROLLOUT}.algo", {"sde_window_size": 2, "sde_window_range": [0, 5]}, "is not within the 4 steps"),
        (
            f"{ROLLOUT}.algo",
            {"sde_type": "cps", "sde_window_size": 2, "sde_window_range": [0, 4]},
            "[0, 4]: the last step has no noise and no gradient under cps",
        ),
        (f"{ROLLOUT}.algo", {"sde_window_size": 3, "sde_window_range": [0, 2]}, "more than the 2 steps of sde_window_"),
        (f"{ROLLOUT}.algo", {"sde_window_size": 1, "sde_window_range": [2, 2]}, "the second the larger one"),
        (f"{ROLLOUT}.tensor_model_parallel_size", 3, "tensor_model_parallel_size=3 does not divide the 2 processes"),
        (f"{ROLLOUT}.pipeline.width", 160, "pipeline.width=160: the model has no positions beyond 128"),
    ],
)
def test_an_override_is_judged_like_the_same_value_of_scaffold_toml(
    config: Config, path: str, value: Any, line: str
) -> None:
    put(config, f"{ROLLOUT}.pipeline.num_inference_steps", 5)
    (found,) = before_start.faults(put(config, path, value), side=16, most=128, more_steps=-1)
    assert line in found


@pytest.mark.parametrize(
    ("denoiser", "autoencoder", "side"),
    [
        ({"patch_size": 2}, {"scale_factor_spatial": 8}, 16),
        ({"patch_size": [1, 2, 2]}, {"spatial_compression_ratio": 16}, 32),
        ({"patch_size": 2}, {"_class_name": "AutoencoderKL", "block_out_channels": [1, 1, 1, 1]}, 16),
        ({"patch_size": 2}, {"_class_name": "Other", "block_out_channels": [1, 1, 1, 1]}, None),
        ({}, {"scale_factor_spatial": 8}, None),
        ({"patch_size": 2}, None, None),
    ],
)
def test_a_release_says_which_sizes_its_patches_divide(
    config: Config, tmp_path: Path, denoiser: Any, autoencoder: Any, side: int | None
) -> None:
    for folder, content in (("transformer", denoiser), ("vae", autoencoder)):
        (tmp_path / "release" / folder).mkdir(parents=True)
        if content is not None:
            (tmp_path / "release" / folder / "config.json").write_text(json.dumps(content))
    put(config, "actor_rollout_ref.model.path", str(tmp_path / "release"))
    put(config, f"{ROLLOUT}.pipeline.width", 1032)
    found = list(before_start.faults(config, denoiser="transformer"))
    assert found == (
        [] if side is None else [f"rollout.pipeline.width=1032 is not a multiple of {side}, the pixels of a token"]
    )


def test_a_part_of_a_layer_is_not_trained_under_fsdp1(config: Config) -> None:
    put(put(config, f"{ACTOR}.strategy", "fsdp"), "actor_rollout_ref.model.lora_rank", 0)
    assert list(before_start.faults(config)) == []
    (line,) = before_start.faults(config, partly=True)
    assert "set actor_rollout_ref.actor.strategy=fsdp2" in line
    put(config, f"{ACTOR}.fsdp_config.use_orig_params", True)
    assert list(before_start.faults(config, partly=True)) == []


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ({"prompt": ["a", " ", "b", ""]}, "row 2, and 1 more has no text under prompt"),
        ({"prompt": ["a"] * 3 + [None]}, "row 4 has no text"),
        (
            {"prompt": [[{"role": "system", "content": "Draw."}, {"role": "user", "content": ""}]] * 4},
            "row 1, and 3 more",
        ),
        ({"prompt": ["a"] * 4, "prompt_token_ids": [[1], [1], [1] * 9, [1]]}, "row 3 has more than .*=8 tokens"),
        ({"text": ["a"] * 4}, "has no column prompt"),
    ],
)
def test_a_row_that_no_image_can_be_made_for_is_told(
    config: Config, tmp_path: Path, column: dict[str, Any], told: str
) -> None:
    place = tmp_path / "test.parquet"
    parquet.write_table(pa.table(column), place)
    put(config, "data.max_prompt_length", 8)
    (found,) = before_start.data_faults(config)
    assert str(place) in found
    assert re.search(told, found), found


def test_rows_with_text_or_a_picture_pass(config: Config, tmp_path: Path) -> None:
    picture = [{"role": "user", "content": [{"type": "image", "image": "a.png", "text": None}]}]
    words = [{"role": "user", "content": [{"type": "text", "image": None, "text": "a cat"}]}]
    parquet.write_table(pa.table({"prompt": [picture, words]}), tmp_path / "test.parquet")
    assert list(before_start.data_faults(config)) == []


@pytest.mark.parametrize(
    "text",
    ["from mine import score\n", "score = make()\n", "import mine as score\n", "class score:\n    pass\n"],
)
def test_a_reward_function_may_come_from_elsewhere(config: Config, text: str) -> None:
    Path(config["reward"]["custom_reward_function"]["path"]).write_text(text)
    assert list(before_start.faults(config)) == []


def save(folder: Path, step: int, *, ranks: int = 2, version: int = 2) -> Path:
    """A step as the trainer saves it, and the file that names it."""
    place = folder / f"global_step_{step}"
    (place / "actor").mkdir(parents=True)
    for rank in range(ranks):
        for kind in ("model", "optim", "extra_state"):
            torch.save({"a": torch.ones(3)}, place / f"actor/{kind}_world_size_{ranks}_rank_{rank}.pt")
    (place / "actor/fsdp_config.json").write_text(json.dumps({"FSDP_version": version, "world_size": ranks}))
    torch.save({}, place / "data.pt")
    (folder / before_start.TRACKER).write_text(str(step))
    return place


def cut(place: Path) -> None:
    """End a save in the middle of a file."""
    shard = place / "actor/optim_world_size_2_rank_1.pt"
    shard.write_bytes(shard.read_bytes()[:200])
    (place / "data.pt").unlink()


def no_tracker(run: Path) -> None:
    (run / before_start.TRACKER).unlink()


def empty_tracker(run: Path) -> None:
    (run / before_start.TRACKER).write_text("")


def gone(run: Path) -> None:
    (run / before_start.TRACKER).write_text("30")


def other_version(run: Path) -> None:
    save(run, 9, version=1)


def other_number(run: Path) -> None:
    save(run, 9, ranks=1)


def last_is_cut(run: Path) -> None:
    cut(save(run, 9))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (no_tracker, "is missing, and global_step_6 is complete: write 6 into it"),
        (empty_tracker, "names no step: write 6 into it, which is complete"),
        (gone, "names step 30, and .*global_step_30 is gone: write 6 into it"),
        (other_version, "was saved under fsdp, and this training is under fsdp2: set actor.strategy=fsdp"),
        (other_number, "was saved by 1 processes, and this training has 2"),
        (last_is_cut, "global_step_9 is incomplete: actor/optim_world_size_2_rank_1.pt is missing or cut short"),
    ],
)
def test_a_save_that_training_cannot_go_on_from_is_one_line(
    config: Config, tmp_path: Path, change: Callable[[Path], None], line: str
) -> None:
    run = tmp_path / "run"
    save(run, 3)
    save(run, 6)
    change(run)
    found = list(before_start.resume_faults(config, []))
    assert len(found) == 1
    assert re.search(line, found[0]), found


def test_a_save_that_was_ended_is_passed_over_with_a_word(config: Config, tmp_path: Path) -> None:
    """As it is after a kill, or on a full disk: the file that names the last step is written last."""
    run = tmp_path / "run"
    save(run, 3)
    cut(save(run, 6))
    (run / before_start.TRACKER).write_text("3")
    say: list[str] = []
    assert list(before_start.resume_faults(config, say)) == []
    assert say == ["global_step_6 is incomplete", f"training goes on from {run / 'global_step_3'}"]
    put(config, "trainer.resume_mode", "resume_path")
    put(config, "trainer.resume_from_path", str(run / "global_step_6"))
    (line,) = before_start.resume_faults(config, say)
    assert "is incomplete" in line


def test_a_first_save_that_was_ended_is_told(config: Config, tmp_path: Path) -> None:
    cut(save(tmp_path / "run", 3))
    (tmp_path / "run" / before_start.TRACKER).unlink()
    say: list[str] = []
    assert list(before_start.resume_faults(config, say)) == []
    assert "training begins anew" in say[0]


def test_lora_is_saved_alone_where_verl_can(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "packages" / "verl" / "trainer" / "config"
    place.mkdir(parents=True)
    (tmp_path / "packages/verl/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.delitem(sys.modules, "verl", raising=False)
    (place / "config.py").write_text("async_save: bool = False\n")
    assert before_start.lora_alone(config, []) == ""
    (place / "config.py").write_text("save_lora_only: bool = False\n")
    asked = "++actor_rollout_ref.actor.checkpoint.save_lora_only=True"
    assert before_start.lora_alone(config, []) == asked
    assert before_start.lora_alone(config, [asked.replace("True", "False")]) == ""
    assert before_start.lora_alone(put(config, "actor_rollout_ref.model.lora_rank", 0), []) == ""


def trained_by(config: Config, algorithm: str, **changes: Any) -> list[str]:
    """What is said of settings of an algorithm, with changes by the last part of their names."""
    settings: dict[str, Any] = {
        "actor_rollout_ref.model.algorithm": algorithm,
        "actor_rollout_ref.actor.diffusion_loss.loss_mode": algorithm,
        "actor_rollout_ref.rollout.algo.sde_type": "dance_sde" if algorithm == "dance_grpo" else "sde",
        "actor_rollout_ref.rollout.algo.noise_level": 0.7,
    }
    if algorithm == "diffusion_nft":
        adapters = {"actor_rollout_ref.model.policy_state_adapters": ["default", "old"]}
        settings |= adapters
    if algorithm in before_start.UNSCORED:
        _, needed = before_start.UNSCORED[algorithm]
        settings |= {"actor_rollout_ref.rollout.algo.noise_level": 0.0, **needed}
    if algorithm == "dpo":
        passes = ("actor.ppo_micro_batch_size_per_gpu", "rollout.log_prob_micro_batch_size_per_gpu")
        settings |= {f"actor_rollout_ref.{name}": 2 for name in passes} | {"actor_rollout_ref.rollout.n": 4}
        settings |= {"actor_rollout_ref.actor.ppo_mini_batch_size": 4}
    for path, value in settings.items():
        *folders, name = path.split(".")
        inner = config
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[name] = changes.get(name, value)
    config["actor_rollout_ref"]["model"]["lora_rank"] = changes.get("lora_rank", 8)
    return list(before_start.faults(config))


@pytest.mark.parametrize("name", ["flow_grpo", "dance_grpo", "flow_dppo", "grpo_guard", "diffusion_nft", "dpo"])
def test_settings_of_an_algorithm_pass(config: Config, name: str) -> None:
    assert trained_by(config, name) == []


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("flow_dppo", {"sde_type": "dance_sde"}, "the loss flow_dppo takes the deviation of a step"),
        ("grpo_guard", {"sde_type": "cps"}, "the loss grpo_guard takes the deviation of a step"),
        ("dance_grpo", {"sde_type": "sde"}, "DanceGRPO steps by dance_sde"),
        ("flow_grpo", {"noise_level": 0.0}, "no step would be noised"),
        ("diffusion_nft", {"noise_level": 0.7}, "DiffusionNFT samples without noise"),
        ("diffusion_nft", {"lora_rank": 0}, "DiffusionNFT compares an adapter with the policy that it began at"),
        ("diffusion_nft", {"policy_state_adapters": ["default"]}, 'has no "old"'),
        ("diffusion_nft", {"rollout_adapter": "default"}, "rollout_adapter=default: DiffusionNFT asks for old"),
        ("diffusion_nft", {"trainer_type": "policy_gradient"}, "asks for direct_preference"),
        ("diffusion_nft", {"model_type": "diffusion_model"}, "asks for diffusion_nft_model"),
        ("dpo", {"noise_level": 0.7}, "DPO samples without noise"),
        ("dpo", {"lora_rank": 0}, "DPO compares an adapter"),
        ("dpo", {"loss_mode": "flow_grpo"}, "asks for dpo"),
        ("dpo", {"paired_preference": False}, "DPO asks for True"),
        ("dpo", {"ppo_mini_batch_size": 1}, "2 processes do not share the 1 pairs of an update equally"),
        ("dpo", {"ppo_micro_batch_size_per_gpu": 1}, "ppo_micro_batch_size_per_gpu=1 tears pairs apart"),
        ("dpo", {"log_prob_micro_batch_size_per_gpu": 3}, "log_prob_micro_batch_size_per_gpu=3 tears pairs apart"),
    ],
)
def test_settings_that_do_not_fit_the_algorithm(config: Config, name: str, changes: Any, said: str) -> None:
    (found,) = trained_by(config, name, **changes)
    assert said in found


def test_a_launch_script_is_told_in_lines(config: Config, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(before_start, "composed", lambda overrides: asked.append(overrides) or config)
    monkeypatch.setattr(before_start, "lora_alone", lambda *_: "++more=True")
    assert before_start.main(["--side", "16", "a=1", "--", "--config-name=x"]) == 0
    assert asked == [["a=1"]]
    assert capsys.readouterr().out == "++more=True\n"
    save(Path(config["trainer"]["default_local_dir"]), 3)
    assert before_start.main([]) == 0
    assert "note: training goes on from" in capsys.readouterr().err
    put(config, "data.val_files", "/nowhere.parquet")
    assert before_start.main([]) == 2
    assert capsys.readouterr().err.startswith("error: data.val_files names /nowhere.parquet")


def test_settings_that_the_trainer_does_not_take_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def compose(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no key\n  such")

    for name, content in {
        "hydra": {"compose": compose, "initialize_config_dir": lambda *_, **__: contextlib.nullcontext()},
        "omegaconf": {"OmegaConf": None},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    assert before_start.main(["a=1"]) == 2
    assert capsys.readouterr().err == "error: the trainer takes no such settings: no key such\n"
    monkeypatch.setattr(before_start.importlib.util, "find_spec", lambda _: None)
    assert before_start.main(["a=1"]) == 2
    assert capsys.readouterr().err == "error: verl_omni is not installed\n"


def test_places_that_are_no_files_are_not_judged(config: Config, tmp_path: Path) -> None:
    put(put(config, "data.train_files", "hdfs://a"), "reward.custom_reward_function.path", "pkg://b")
    assert list(before_start.faults(config)) == []
    (tmp_path / "broken.py").write_text("def score(:")
    put(config, "reward.custom_reward_function.path", str(tmp_path / "broken.py"))
    (line,) = before_start.faults(config)
    assert "is no Python: line 1" in line
    put(config, "trainer.resume_mode", "disable")
    assert list(before_start.resume_faults(config, [])) == []
