"""What stops a training before its first rollout, where its settings cannot work or its last save is not whole.

``python3 verl_omni/pipelines/flow_grpo_runtime/before_start.py [--…] OVERRIDES`` takes the overrides of the trainer.
Each fault is a line; the last line of the output is an override that a launch script hands on, or empty. It is run as a
file: as a module of ``verl_omni`` it would import every pipeline first, which takes as long as a trainer's start.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

TRACKER = "latest_checkpointed_iteration.txt"
STEP = "global_step_"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CHECKPOINT = f"{ACTOR}.checkpoint"
# Loggers of VeRL that need a library, and its name.
LOGGERS = {
    **{name: name for name in ("wandb", "mlflow", "swanlab", "clearml", "trackio", "tensorboard")},
    "vemlp_wandb": "volcengine_ml_platform",
}
VERSIONS = {1: "fsdp", 2: "fsdp2"}
SDE_TYPES = ("sde", "cps", "dance_sde")
# By which an autoencoder's configuration says how many pixels a latent's side stands for.
FACTORS = ("scale_factor_spatial", "spatial_compression_ratio", "downsample")


def faults(
    config: Any,
    *,
    side: int | None = None,
    most: int | None = None,
    denoiser: str | None = None,
    more_steps: int | None = None,
    partly: bool = False,
) -> Iterator[str]:
    """What is wrong with the trainer's settings, a line for each fault.

    Args:
        config: of the trainer, composed and resolved.
        side: pixels that height and width have to be multiples of, where the package knows them.
        most: pixels beyond which the model has no positions.
        denoiser: folder of the denoiser in a release; its configuration says ``side`` where that is None.
        more_steps: steps that the pipeline takes beyond those that are asked for, where that is known.
        partly: whether training without LoRA leaves parameters frozen, in another dtype than those that it trains.
    """
    wrong = list(value_faults(config))
    yield from wrong
    if not wrong:
        yield from batch_faults(config)
        yield from window_faults(config, more_steps)
        if side is None and denoiser is not None:
            side = side_of(str(look_up(config, "actor_rollout_ref.model.path")), denoiser)
        yield from size_faults(config, side, most)
    yield from algorithm_faults(config)
    yield from data_faults(config)
    for logger in look_up(config, "trainer.logger") or ():
        library = LOGGERS.get(str(logger))
        if library is not None and importlib.util.find_spec(library) is None:
            yield f"trainer.logger names {logger}, and {library} is not installed: install it or leave it out"
    yield from reward_faults(config)
    strategy, rank = (
        look_up(config, "actor_rollout_ref.actor.strategy"),
        look_up(config, "actor_rollout_ref.model.lora_rank"),
    )
    if (
        strategy == "fsdp"
        and not rank
        and partly
        and not look_up(config, "actor_rollout_ref.actor.fsdp_config.use_orig_params")
    ):
        yield (
            "FSDP1 shards no layer of which a part is trained: set actor_rollout_ref.actor.strategy=fsdp2, or"
            " actor_rollout_ref.actor.fsdp_config.use_orig_params=True"
        )


def _is_count(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


COUNT, NUMBER = (_is_count, "a positive whole number"), (_number, "a number from 0")
# What `scaffold.toml` may hold, by the trainer's names; a setting that is not there, or null, is the trainer's own.
VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **{f"data.{name}": COUNT for name in ("train_batch_size", "max_prompt_length")},
    **{f"trainer.{name}": COUNT for name in ("n_gpus_per_node", "nnodes", "total_epochs", "total_training_steps")},
    **{f"{ACTOR}.{name}": COUNT for name in ("ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu")},
    **{f"{ROLLOUT}.pipeline.{name}": COUNT for name in ("height", "width", "num_frames", "num_inference_steps")},
    **{f"{ROLLOUT}.val_kwargs.pipeline.{name}": COUNT for name in ("height", "width", "num_inference_steps")},
    **{f"{ROLLOUT}.{name}": COUNT for name in ("tensor_model_parallel_size", "algo.sde_window_size")},
    **{f"{ACTOR}.optim.{name}": NUMBER for name in ("lr", "weight_decay")},
    f"{ROLLOUT}.n": (lambda value: _is_count(value, 2), "a whole number from 2: images are compared"),
    "actor_rollout_ref.model.lora_rank": (lambda value: _is_count(value, 0), "a whole number, 0 for no adapter"),
    f"{ACTOR}.diffusion_loss.clip_ratio": (lambda value: _number(value) and 0 < value < 1, "between 0 and 1"),
    f"{ROLLOUT}.algo.noise_level": NUMBER,
    f"{ROLLOUT}.algo.sde_type": (lambda value: value in SDE_TYPES, f"one of {', '.join(SDE_TYPES)}"),
}


def value_faults(config: Any) -> Iterator[str]:
    """Settings whose value is not allowed, each by itself."""
    for name, (fits, wanted) in VALUES.items():
        value = look_up(config, name)
        if value is not None and not fits(value):
            yield f"{name}={value}: it must be {wanted}"


def window_faults(config: Any, more_steps: int | None) -> Iterator[str]:
    """A window of noised steps that does not lie within the rollout."""
    asked, size = (
        look_up(config, f"{ROLLOUT}.pipeline.num_inference_steps"),
        look_up(config, f"{ROLLOUT}.algo.sde_window_size"),
    )
    span = look_up(config, f"{ROLLOUT}.algo.sde_window_range")
    if size is None or not span:
        return
    if len(span) != 2 or not all(_is_count(step, 0) for step in span) or span[0] >= span[1]:
        yield f"{ROLLOUT}.algo.sde_window_range={span}: it must be two whole numbers, the second the larger one"
    elif asked is not None and more_steps is not None and span[1] > asked + more_steps:
        yield f"{ROLLOUT}.algo.sde_window_range={span} is not within the {asked + more_steps} steps of a rollout"
    elif (
        look_up(config, f"{ROLLOUT}.algo.sde_type") == "cps"
        and more_steps is not None
        and span[1] == (asked or 0) + more_steps
    ):
        yield f"{ROLLOUT}.algo.sde_window_range={span}: the last step has no noise and no gradient under cps"
    elif size > span[1] - span[0]:
        yield f"{ROLLOUT}.algo.sde_window_size={size} is more than the {span[1] - span[0]} steps of sde_window_range"


def size_faults(config: Any, side: int | None, most: int | None) -> Iterator[str]:
    """Sizes of pictures that the denoiser cannot divide, or has no positions for."""
    for name in ("pipeline", "val_kwargs.pipeline"):
        for pixels in ("height", "width"):
            value = look_up(config, f"actor_rollout_ref.rollout.{name}.{pixels}")
            if not isinstance(value, int):
                continue
            if side and value % side:
                yield f"rollout.{name}.{pixels}={value} is not a multiple of {side}, the pixels of a token"
            if most and value > most:
                yield f"rollout.{name}.{pixels}={value}: the model has no positions beyond {most}"


def side_of(release: str, denoiser: str) -> int | None:
    """Pixels of a token's side, a patch times the autoencoder's factor, where a release states both; else None.

    Args:
        release: its folder.
        denoiser: folder of the denoiser in it.
    """
    own, autoencoder = (_stated(os.path.join(release, folder, "config.json")) for folder in (denoiser, "vae"))
    patch = own.get("patch_size")
    patch = max(patch[-2:], default=None) if isinstance(patch, list) and all(map(_is_count, patch)) else patch
    factor = next((autoencoder[name] for name in FACTORS if _is_count(autoencoder.get(name))), None)
    blocks = autoencoder.get("block_out_channels")
    if factor is None and autoencoder.get("_class_name") == "AutoencoderKL" and isinstance(blocks, list) and blocks:
        factor = 2 ** (len(blocks) - 1)
    return patch * factor if factor is not None and _is_count(patch) else None


def _stated(path: str) -> dict[str, Any]:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def batch_faults(config: Any) -> Iterator[str]:
    """Sizes of batches that do not divide one another."""
    processes = _processes(config)
    prompts, group = look_up(config, "data.train_batch_size"), look_up(config, f"{ROLLOUT}.n")
    mini = look_up(config, f"{ACTOR}.ppo_mini_batch_size")
    if not all(isinstance(size, int) for size in (prompts, group, mini, processes)):
        return
    paired = bool(look_up(config, "algorithm.paired_preference"))
    if paired:
        yield from pair_faults(config)
        group = 2
    if prompts % mini:
        yield f"data.train_batch_size={prompts} is not a multiple of {ACTOR}.ppo_mini_batch_size={mini}"
    parallel = look_up(config, f"{ROLLOUT}.tensor_model_parallel_size")
    if parallel is not None and processes % parallel:
        yield f"{ROLLOUT}.tensor_model_parallel_size={parallel} does not divide the {processes} processes"
    shared, what = (mini, "pairs") if paired else (mini * group, "images")
    if shared % processes:
        yield f"{processes} processes do not share the {shared} {what} of an update equally"
        return
    micro = look_up(config, f"{ACTOR}.ppo_micro_batch_size_per_gpu")
    if isinstance(micro, int) and micro and (mini * group // processes) % micro:
        yield (
            f"{ACTOR}.ppo_micro_batch_size_per_gpu={micro} does not divide the {mini * group // processes} images"
            " that a process has of an update"
        )


def pair_faults(config: Any) -> Iterator[str]:
    """Passes that would tear a pair of images apart."""
    for name in (f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"):
        size = look_up(config, name)
        if isinstance(size, int) and size % 2:
            yield f"{name}={size} tears pairs apart: give an even number"


# What algorithms rest on that score no step.
UNSCORED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "diffusion_nft": (
        "DiffusionNFT",
        {
            "actor_rollout_ref.model.model_type": "diffusion_nft_model",
            "actor_rollout_ref.rollout.rollout_adapter": "old",
            "algorithm.trainer_type": "direct_preference",
        },
    ),
    "dpo": (
        "DPO",
        {
            "actor_rollout_ref.model.model_type": "diffusion_dpo_model",
            "actor_rollout_ref.actor.diffusion_loss.loss_mode": "dpo",
            "algorithm.trainer_type": "direct_preference",
            "algorithm.paired_preference": True,
        },
    ),
}


def algorithm_faults(config: Any) -> Iterator[str]:
    """Settings that do not fit the algorithm: its loss would mean something else, and say nothing."""
    algorithm = look_up(config, "actor_rollout_ref.model.algorithm")
    loss = look_up(config, "actor_rollout_ref.actor.diffusion_loss.loss_mode")
    kind = look_up(config, "actor_rollout_ref.rollout.algo.sde_type")
    noise = look_up(config, "actor_rollout_ref.rollout.algo.noise_level")
    if loss in ("flow_dppo", "grpo_guard") and kind not in (None, "sde"):
        yield f"rollout.algo.sde_type={kind}: the loss {loss} takes the deviation of a step as sde alone has it"
    if algorithm == "dance_grpo" and kind not in (None, "dance_sde"):
        yield f"rollout.algo.sde_type={kind}: DanceGRPO steps by dance_sde"
    if algorithm not in UNSCORED:
        if noise is not None and not noise:
            yield f"rollout.algo.noise_level={noise}: no step would be noised, and none has a log-prob to train on"
        return
    title, settings = UNSCORED[algorithm]
    if noise:
        yield f"rollout.algo.noise_level={noise}: {title} samples without noise"
    if not look_up(config, "actor_rollout_ref.model.lora_rank"):
        yield f"actor_rollout_ref.model.lora_rank=0: {title} compares an adapter with the policy that it began at"
    if algorithm == "diffusion_nft" and "old" not in (
        look_up(config, "actor_rollout_ref.model.policy_state_adapters") or ()
    ):
        yield f'actor_rollout_ref.model.policy_state_adapters has no "old", by which {title} samples'
    for name, wanted in settings.items():
        if look_up(config, name) != wanted:
            yield f"{name}={look_up(config, name)}: {title} asks for {wanted}"


def data_faults(config: Any) -> Iterator[str]:
    """Data that is not there, or less than a step takes."""
    rows = 0
    for name in ("train_files", "val_files"):
        files = look_up(config, f"data.{name}")
        for path in [files] if isinstance(files, str) else list(files or ()):
            place = os.path.expanduser(str(path))
            if "://" in place:
                return
            if not os.path.isfile(place):
                yield f"data.{name} names {path}, which is not there: the data script makes it"
            elif place.endswith(".parquet"):
                yield from row_faults(place, config)
                if name == "train_files":
                    from pyarrow.parquet import read_metadata

                    rows += read_metadata(place).num_rows
    size = look_up(config, "data.train_batch_size")
    if isinstance(size, int) and 0 < rows < size:
        yield f"the data has {rows} rows, fewer than data.train_batch_size={size}: no step could be taken"


def row_faults(path: str, config: Any) -> Iterator[str]:
    """Rows whose request the rollout would refuse, so that their group is lost: without text, or with too much of it.

    Args:
        path: of a parquet file.
        config: of the trainer.
    """
    from pyarrow.parquet import ParquetFile

    key, most = look_up(config, "data.prompt_key") or "prompt", look_up(config, "data.max_prompt_length")
    with ParquetFile(path) as file:
        names = file.schema_arrow.names
        if key not in names:
            yield f"{path} has no column {key}: the data script makes it"
            return
        ids = [name for name in names if name.endswith("token_ids")] if isinstance(most, int) else []
        empty: list[int] = []
        long: list[int] = []
        number = 0
        for batch in file.iter_batches(columns=[key, *ids]):
            for row in batch.to_pylist():
                number += 1
                if not _has_text(row[key]):
                    empty.append(number)
                if any(len(row[name] or ()) > most for name in ids):
                    long.append(number)
    for rows, what in ((empty, f"no text under {key}"), (long, f"more than data.max_prompt_length={most} tokens")):
        if rows:
            more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
            yield f"{path}: row {rows[0]}{more} has {what}: no image could be made for it"


def _has_text(prompt: Any) -> bool:
    """Whether a prompt, a text or a list of messages, says something; pictures do."""
    if isinstance(prompt, list | tuple):
        return any(_has_text(message) for message in prompt)
    if isinstance(prompt, dict):
        said = [prompt.get(name) for name in ("content", "text", "image", "video")]
        return prompt.get("role") in (None, "user") and any(map(_has_text, said))
    return bool(prompt.strip()) if isinstance(prompt, str) else prompt is not None


def reward_faults(config: Any) -> Iterator[str]:
    """A reward function that is not there."""
    path = look_up(config, "reward.custom_reward_function.path")
    name = look_up(config, "reward.custom_reward_function.name")
    if not path or "://" in str(path):
        return
    told = "reward.custom_reward_function"
    if not os.path.isfile(os.path.expanduser(str(path))):
        yield f"{told}.path={path} is not there"
        return
    with open(os.path.expanduser(str(path)), encoding="utf-8") as file:
        text = file.read()
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield f"{told}.path={path} is no Python: line {error.lineno}: {error.msg}"
        return
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    if name not in bound and "*" not in bound:
        yield f"{path} has no function {name}"


def resume_faults(config: Any, say: list[str]) -> Iterator[str]:
    """A checkpoint that training would go on from, and cannot; what it goes on from is told in ``say``."""
    mode = look_up(config, "trainer.resume_mode")
    place = os.path.abspath(str(look_up(config, "trainer.default_local_dir")))
    if mode == "resume_path":
        path = str(look_up(config, "trainer.resume_from_path"))
        yield from _unfit(os.path.abspath(path), config)
        return
    if mode != "auto":
        return
    steps = sorted(_steps(place))
    complete = [step for step in steps if not list(lacking(os.path.join(place, f"{STEP}{step}")))]
    help = (
        f"write {complete[-1]} into it, which is complete"
        if complete
        else f"no step is complete: remove {place} to start anew"
    )
    tracker = os.path.join(place, TRACKER)
    if not os.path.isfile(tracker):
        if complete:
            last = complete[-1]
            yield f"{tracker} is missing, and {STEP}{last} is complete: write {last} into it to go on from there"
        elif steps:
            say.append(f"{STEP}{steps[-1]} in {place} is incomplete, and no other step is saved: training begins anew")
        return
    with open(tracker, encoding="ascii", errors="replace") as file:
        named = file.read().strip()
    if not named.isdigit():
        yield f"{tracker} names no step: {help}"
        return
    folder = os.path.join(place, f"{STEP}{named}")
    if not os.path.isdir(folder):
        yield f"{tracker} names step {named}, and {folder} is gone: {help}"
        return
    problems = list(_unfit(folder, config))
    if problems:
        yield from problems
        return
    later = [step for step in steps if step > int(named)]
    if later:
        say.append(f"{STEP}{later[-1]} is incomplete")
    say.append(f"training goes on from {folder}")


def lacking(folder: str) -> Iterator[str]:
    """What a saved step lacks: nothing, where it is complete."""
    actor = os.path.join(folder, "actor")
    try:
        with open(os.path.join(actor, "fsdp_config.json"), encoding="utf-8") as file:
            size = int(json.load(file)["world_size"])
    except (OSError, ValueError, KeyError, TypeError):
        yield "actor/fsdp_config.json"
        return
    names = [
        f"actor/{kind}_world_size_{size}_rank_{rank}.pt" for rank in range(size) for kind in ("model", "extra_state")
    ]
    # The optimizer's state may be left out of a save on purpose.
    if any(name.startswith("optim_") for name in os.listdir(actor)):
        names += [f"actor/optim_world_size_{size}_rank_{rank}.pt" for rank in range(size)]
    for name in [*names, "data.pt"]:
        # A file that is cut short has no directory at its end.
        if not zipfile.is_zipfile(os.path.join(folder, name)):
            yield name


def _unfit(folder: str, config: Any) -> Iterator[str]:
    missing = list(lacking(folder))
    if missing:
        yield f"{folder} is incomplete: {missing[0]} is missing or cut short"
        return
    with open(os.path.join(folder, "actor", "fsdp_config.json"), encoding="utf-8") as file:
        saved = json.load(file)
    processes, strategy = _processes(config), look_up(config, "actor_rollout_ref.actor.strategy")
    if saved["world_size"] != processes:
        yield (
            f"{folder} was saved by {saved['world_size']} processes, and this training has {processes}: set"
            f" trainer.n_gpus_per_node times trainer.nnodes to {saved['world_size']}, or begin with an export of it"
        )
    known = VERSIONS.get(saved.get("FSDP_version"))
    if known is not None and strategy in VERSIONS.values() and known != strategy:
        yield f"{folder} was saved under {known}, and this training is under {strategy}: set actor.strategy={known}"


def _steps(place: str) -> Iterator[int]:
    for name in os.listdir(place) if os.path.isdir(place) else ():
        if name.startswith(STEP) and name.removeprefix(STEP).isdigit():
            yield int(name.removeprefix(STEP))


def _processes(config: Any) -> Any:
    per_node, nodes = look_up(config, "trainer.n_gpus_per_node"), look_up(config, "trainer.nnodes")
    return per_node * nodes if isinstance(per_node, int) and isinstance(nodes, int) else None


def look_up(config: Any, path: str) -> Any:
    """A setting by its dotted name; None where there is none."""
    for name in path.split("."):
        config = config.get(name) if hasattr(config, "get") else None
    return config


def lora_alone(config: Any, overrides: Sequence[str]) -> str:
    """The override with which a save holds the adapter and not the base, where VeRL can do that; else empty."""
    if not look_up(config, "actor_rollout_ref.model.lora_rank") or any(
        f"{CHECKPOINT}.save_lora_only=" in o for o in overrides
    ):
        return ""
    spec = importlib.util.find_spec("verl")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(place, "trainer", "config", "config.py")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                if "save_lora_only" in file.read():
                    return f"++{CHECKPOINT}.save_lora_only=True"
    return ""


def composed(overrides: Sequence[str]) -> Any:
    """The trainer's configuration under these overrides.

    Raises:
        ValueError: VeRL-Omni is not installed, or an override is wrong.
    """
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    spec = importlib.util.find_spec("verl_omni")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise ValueError("verl_omni is not installed")
    try:
        with initialize_config_dir(os.path.abspath(os.path.join(places[0], "trainer", "config")), version_base=None):
            config = compose("diffusion_trainer", overrides=list(overrides))
        return OmegaConf.to_container(config, resolve=True)
    except Exception as error:
        raise ValueError(f"the trainer takes no such settings: {' '.join(str(error).split())[:300]}") from None


def main(arguments: Iterable[str] | None = None) -> int:
    """Look at the settings of a training; 2 where it cannot work."""
    parser = argparse.ArgumentParser(description="Look at the settings of a training before it starts.")
    parser.add_argument("--side", type=int, help="pixels that height and width are multiples of")
    parser.add_argument("--most", type=int, help="pixels beyond which the model has no positions")
    parser.add_argument("--denoiser", help="folder of the denoiser in a release, whose configuration says --side")
    parser.add_argument("--more-steps", type=int, help="steps that the pipeline takes beyond those asked for")
    parser.add_argument("--partly", action="store_true", help="full training leaves parameters frozen")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args(None if arguments is None else list(arguments))
    say: list[str] = []
    try:
        # What begins with a dash is for Hydra itself.
        options.overrides = [override for override in options.overrides if not override.startswith("-")]
        config = composed(options.overrides)
        known = {name: value for name, value in vars(options).items() if name != "overrides"}
        messages = [*faults(config, **known), *resume_faults(config, say)]
        more = lora_alone(config, options.overrides)
    except (OSError, ValueError) as error:
        messages, more = [str(error)], ""
    for line in messages:
        print(f"error: {line}", file=sys.stderr)
    if messages:
        return 2
    for line in say:
        print(f"note: {line}", file=sys.stderr)
    print(more)
    return 0


if __name__ == "__main__":
    if not __package__:  # this folder holds modules of the runtime, not libraries
        sys.path[0] = os.getcwd()
    sys.exit(main())
