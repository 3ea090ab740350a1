"""Rendered BAGEL in verl-omni's own trainer on one GPU: sixteen steps of a tiny model, then steps of the real size.

    python benchmarks/gpu_tables.py --verl-omni CHECKOUT --folder /fast/disk/bagel             # both tables, 10 minutes
    python benchmarks/gpu_tables.py --verl-omni CHECKOUT --folder /fast/disk/bagel --only step --runs offload rendered
    python benchmarks/gpu_tables.py … --only step --runs tuned --tiles DIR --profile
    python benchmarks/gpu_tables.py … --only step --runs awake awake-bypass --checkpointed 10

Takes the environment of ``omni-scaffold env train --device cuda``, or the one that ``$OMNI_SCAFFOLD_CUDA_ENV`` names.

The first table is that of level ``train``: brightness of 4 prompts of 8 images of 64×64. All its runs go beside one
another, so that their seconds say little. The second is the recipe as rendered with brightness for a reward, 2 prompts
of 8 images of 512×512, on random weights of the released names and sizes (29 GB, written into ``--folder`` unless they
are there), one run after another and nothing else on the card; its first step warms up and is left out. When what is
before it was over, is told as the run goes. ``--checkpointed`` has fewer layers recomputed whole.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from learning import rendered

from scaffold.checkpoint import read_manifest
from scaffold.scratch import keep
from scaffold.verify.package import open_package
from scaffold.verify.rollout.facts import model_name
from scaffold.verify.train.devices import CUDA, card, find_device, on_device
from scaffold.verify.train.level import Setting, TrainRequest, opened, run_variant
from scaffold.verify.train.record import LOG_PROB, REWARD, RunRecord
from scaffold.verify.train.run import RunPlan, train
from scaffold.verify.train.trainers import find_trainer, start_with
from scaffold.verify.train.variants import ACTOR, ROLLOUT, VARIANTS, variants

ROOT = Path(__file__).resolve().parents[1]
MEAN = "rollout_corr/logprob_abs_diff_mean"
BYPASS = {"algorithm.rollout_correction.bypass_mode": "True"}
LORA_BASE = {f"+{ROLLOUT}.engine_kwargs.vllm_omni.additional_config.lora_base": "card"}
# The engine keeps its weights on the card, beside those that LoRA is folded into.
AWAKE = {f"{ROLLOUT}.free_cache_engine": "False", f"+{ROLLOUT}.enable_sleep_mode": "False", **LORA_BASE}
CLIPPED = "actor/pg_clipfrac"
# What the log says where a part of the time before the first step is over.
MARKS = {
    "the trainer's first imports, and Ray": "Started a local Ray instance",
    "imports of its task, and the data": "Total diffusion training steps",
    "imports of the worker": "B parameters",
    "the module on the card": "After FSDP",
    "the rewards' imports": "RewardLoopWorker",
    "imports of the engine's server": "vLLMOmniHttpServer",
    "imports of the engine, its weights": "LLMServerManager",
    "imports of a balancer, the first push": "reset_encoder_cache",
}
PHASES = ("gen", "reward", "old_log_prob", "adv", "update_actor", "update_weights", "step")
PROMPTS, IMAGES, SIDE = 2, 8, 512


@dataclass(frozen=True)
class Learning:
    """One run of the first table: the trainer, the dtype, overrides, whether the hand-written package runs too."""

    variant: str
    dtype: str
    changes: Mapping[str, str] = field(default_factory=dict)
    beside: bool = False


# The hand-written package reads a column that v1 does not carry: it runs under v0.
LEARNING = {
    "v1-bfloat16": Learning("lora", "bfloat16"),
    "v1-float32": Learning("lora", "float32"),
    "v1-bfloat16-bypass": Learning("lora", "bfloat16", BYPASS),
    "v0-bfloat16": Learning("v0", "bfloat16", beside=True),
    "v0-float32": Learning("v0", "float32", beside=True),
}
STEP: dict[str, dict[str, str]] = {
    "offload": {f"{ACTOR}.fsdp_config.{what}_offload": "True" for what in ("param", "optimizer")},
    "rendered": {},
    "one-by-one": {f"{ROLLOUT}.max_num_seqs": "1"},
    "card": LORA_BASE,
    "bypass-card": {**BYPASS, **LORA_BASE},
    "awake": AWAKE,
    "awake-bypass": {**BYPASS, **AWAKE},
    "tuned": {},
    "bypass": BYPASS,
}


def learning_table(package: Path, asked: argparse.Namespace) -> Iterator[str]:
    """Every run of the first table beside every other, as lines of the table."""
    hand_written = asked.verl_omni / "verl_omni" / "pipelines" / "bagel_flow_grpo"
    request = TrainRequest(steps=asked.learning_steps, verl_omni=asked.verl_omni, device=CUDA, flat=False)
    with opened(package, request, lambda line: print(line, file=sys.stderr, flush=True)) as setting:
        with ThreadPoolExecutor(len(asked.learning)) as pool:
            found = [pool.submit(_learn, setting, hand_written, *run) for run in enumerate(asked.learning)]
            records = list(zip(asked.learning, [future.result() for future in found], strict=True))
        if any(record is not None and record.problem for _, both in records for record in both):
            keep(setting.scratch)
    yield "| run | reward, first to last quarter | largest log-prob difference | mean of a step |\n|---|---|---|---|"
    for name, (own, other) in records:
        yield f"| rendered, {name} | {_learned(own, asked.learning_steps)} |"
        if other is not None:
            yield f"| hand-written, {name} | {_learned(other, asked.learning_steps)} |"


def _learn(setting: Setting, hand_written: Path, number: int, name: str) -> tuple[RunRecord, RunRecord | None]:
    run = LEARNING[name]
    known = on_device(variants()[run.variant], find_device(CUDA), run.dtype)
    # A name of its own, so that runs of one variant have folders of their own; no second run for the floor.
    variant = replace(known, name=f"{run.variant}-{number}", floor={}, log_prob_limit=1.0)
    request = replace(setting.request, changes=run.changes)
    beside = open_package(hand_written) if run.beside else None
    done = run_variant(replace(setting, request=request, beside=beside), variant)
    return done.run, None if done.beside is None else done.beside[1]


def _learned(record: RunRecord, steps: int) -> str:
    """The cells of a run; in bypass mode the trainer logs no difference, and the smoke script ends with saying so."""
    if len(record.steps) < steps:
        return f"{record.problem} | |"
    rewards, quarter = record.series(REWARD), steps // 4 or 1
    first, last = (sum(part) / len(part) for part in (rewards[:quarter], rewards[-quarter:]))
    means, largest = record.series(MEAN), record.series(LOG_PROB)
    told = f"{first:.4f} to {last:.4f} ({last - first:+.4f})"
    if not all(map(math.isfinite, [*means, *largest])):
        clipped = record.series(CLIPPED)
        return f"{told} | not logged, up to {max(clipped):.0%} of a step clipped |"
    return f"{told} | {max(largest):.1e} | {min(means):.1e} to {max(means):.1e}"


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """The most memory of card and host that was in use meanwhile, in GiB, seen once a second."""
    most: dict[str, float] = {"card": 0.0, "host": 0.0}
    over = threading.Event()

    def watch() -> None:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not over.wait(1.0):
            used = subprocess.run(query, stdout=subprocess.PIPE, text=True).stdout.split()
            rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
            total, free, kept = (int(rows[name].split()[0]) for name in ("MemTotal", "MemAvailable", "Shmem"))
            most["card"] = max([most["card"], *(int(value) / 1024 for value in used)])
            most["host"] = max(most["host"], (total - free) / 2**20, kept / 2**20)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


@contextmanager
def marked(folder: Path) -> Iterator[None]:
    """Tell on stderr when each part of what is before the first step was over, seen twice a second."""
    over, begun = threading.Event(), time.monotonic()
    expected = list(MARKS.items())

    def watch() -> None:
        last = begun
        while expected and not over.wait(0.5):
            logs = sorted(folder.glob("try*/log"))
            text = logs[-1].read_text(encoding="utf-8", errors="replace") if logs else ""
            while expected and expected[0][1] in text:
                now = time.monotonic()
                print(f"{now - begun:.0f} s: {expected.pop(0)[0]}, {now - last:.0f} s", file=sys.stderr, flush=True)
                last = now

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def inside(setting: Setting, *arguments: str) -> None:
    """Run a program of the environment over the tree that is trained in."""
    places = [setting.workshop, *([setting.sources.verl] if setting.sources.verl else [])]
    found = {**os.environ, "PYTHONPATH": ":".join(map(str, places)), "HF_HUB_OFFLINE": "1"}
    subprocess.run([str(setting.environment.python), *arguments], cwd=setting.workshop, env=found, check=True)


def prepare(setting: Setting, model: Path) -> Path:
    """Write the weights unless they are there, and the data; returns the folder of the data."""
    name = model_name(setting.package)
    scripts = setting.workshop / "tests" / "special_e2e"
    if not (model / "made").exists():
        begun = time.monotonic()
        headers = read_manifest(ROOT / "scaffold/presets/manifests/bagel-7b-mot.ema.json")
        shapes = setting.scratch / "shapes.json"
        shapes.write_text(json.dumps({entry.name: list(entry.shape) for entry in headers.entries}), encoding="utf-8")
        maker = ROOT / "benchmarks" / "real_checkpoint.py"
        inside(setting, str(maker), str(model), str(shapes), str(scripts / f"build_{name}_tiny_random.py"))
        (model / "made").touch()
        print(f"made the checkpoint in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    data = setting.scratch / "real_data"
    counts = ["--max_prompt_length", "256", "--train_size", str(PROMPTS * 8), "--val_size", "4"]
    dummy = str(scripts / f"create_dummy_{name}_data.py")
    inside(setting, dummy, "--local_save_dir", str(data), "--model_path", str(model), *counts)
    return data


def step_plan(setting: Setting, model: Path, data: Path, name: str, asked: argparse.Namespace) -> RunPlan:
    """The recipe as rendered, at the size of the table."""
    variant = on_device(variants()[asked.variant], find_device(CUDA))
    script = next((setting.workshop / "examples/flowgrpo_trainer" / model_name(setting.package)).glob("run_*_lora.sh"))
    trainer = find_trainer(setting.sources.verl_omni, variant.trainer)
    start_with(script, trainer)
    micro = str(PROMPTS * IMAGES)
    changes = {
        "data.train_batch_size": str(PROMPTS),
        f"{ROLLOUT}.n": str(IMAGES),
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": micro,
        f"{ROLLOUT}.pipeline.height": str(SIDE),
        f"{ROLLOUT}.pipeline.width": str(SIDE),
        f"{ACTOR}.ppo_mini_batch_size": str(PROMPTS),
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": micro,
        f"{ACTOR}.optim.lr": "0.0001",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": micro,
        "reward.num_workers": "1",
        "reward.reward_model.enable": "False",
        "trainer.log_val_generations": "0",
        "trainer.save_freq": "-1",
        "trainer.test_freq": "-1",
        "trainer.resume_mode": "disable",
        "+ray_kwargs.ray_init.object_store_memory": "4000000000",
        **STEP[name],
    }
    given = {"MODEL_PATH": str(model), "DATA_DIR": str(data)}
    if name == "tuned" or (asked.tiles and name == "bypass"):
        given["VLLM_TUNED_CONFIG_FOLDER"] = str(asked.tiles.absolute())
    folder = setting.scratch / "runs" / f"step-{name}"
    folder.mkdir(parents=True)
    # Observers add up every weight at each push: none of them here.
    device = replace(find_device(CUDA), rooms=("patches.socket_names",))
    return RunPlan(
        environment=setting.environment,
        workshop=setting.workshop,
        verl=setting.sources.verl,
        script=script,
        model=model,
        folder=folder,
        variant=variant,
        trainer=trainer,
        steps=asked.steps,
        sources=(),
        package=setting.package.module,
        device=device,
        mistake=ROOT / "benchmarks" / "rollout_profile.py" if asked.profile else None,
        changes=changes,
        given=given,
    )


def recompute(setting: Setting, layers: int) -> None:
    """Have so many layers recomputed whole in the tree that is trained in."""
    name = model_name(setting.package)
    file = setting.workshop.joinpath(*setting.package.module.split("."), f"{name}_model.py")
    begin = re.compile(r"^(class \w+\(ComposedModule, .*\n)", re.MULTILINE)
    text, count = begin.subn(rf"\1    checkpointed_layers = {layers}\n", file.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f"{file} has {count} training modules")
    file.write_text(text, encoding="utf-8")


def step_table(package: Path, asked: argparse.Namespace) -> Iterator[str]:
    """One run after another, as lines of the table."""
    request = TrainRequest(steps=asked.steps, verl_omni=asked.verl_omni, device=CUDA)

    def follow(number: int, found: Mapping[str, float]) -> None:
        timings = (f"{name[9:]} {value:.2f}" for name, value in found.items() if name.startswith("timing_s/"))
        print(f"step {number}: {', '.join(timings)}", file=sys.stderr, flush=True)

    def wait(seconds: float, line: str) -> None:
        print(f"{seconds:.0f} s, no step yet; it printed: {line[:160]}", file=sys.stderr, flush=True)

    with opened(package, request, lambda line: None) as setting:
        if asked.checkpointed is not None:
            recompute(setting, asked.checkpointed)
        data = prepare(setting, asked.folder)
        yield f"| | {' | '.join(PHASES)} | card, GiB | host, GiB | log-prob difference by step |"
        yield f"|{'---|' * (len(PHASES) + 4)}"
        for name in asked.runs:
            plan = step_plan(setting, asked.folder, data, name, asked)
            try:
                with watched() as most, marked(plan.folder):
                    record = train(plan, follow, wait=wait)
            except KeyboardInterrupt:
                keep(setting.scratch)
                raise SystemExit(f"{name} was interrupted; what it printed is in {plan.folder}") from None
            if record.problem or len(record.steps) < 2:
                keep(setting.scratch)
                yield f"| {name} | {record.problem or 'took one step'} | see {record.log}"
                continue
            timed = [median(step.metric(f"timing_s/{phase}") for step in record.steps[1:]) for phase in PHASES]
            apart = ", ".join(f"{value:.1e}" for value in record.series(LOG_PROB))
            print(f"{name}: {record.seconds:.0f} s in all", file=sys.stderr, flush=True)
            cells = [f"{value:.2f}" for value in timed] + [f"{most['card']:.1f}", f"{most['host']:.1f}", apart]
            yield f"| {name} | {' | '.join(cells)} |"
            for found in sorted(plan.folder.glob("try*/events/profile.json")):
                yield profiled(json.loads(found.read_text(encoding="utf-8")))


def profiled(found: dict[str, Any]) -> str:
    """Where the time of one image goes."""
    worked = f"the card worked {found['busy']:.3f} s in {found['kernels']} kernels"
    lines = [f"one image: {found['seconds']:.3f} s, of which {worked}"]
    lines += [f"  {spent:.3f} s {kind}" for kind, spent in found["kinds"].items()]
    lines += [f"    {spent:.4f} s, {count} times: {name[:100]}" for name, spent, count in found["largest"][:12]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verl-omni", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoint in its real size")
    parser.add_argument("--package", type=Path, help="of another name than the hand-written; rendered by default")
    parser.add_argument("--only", choices=("learning", "step"))
    parser.add_argument("--learning", nargs="+", choices=LEARNING, default=list(LEARNING))
    parser.add_argument("--learning-steps", type=int, default=16)
    parser.add_argument("--runs", nargs="+", choices=STEP, default=["offload", "rendered"])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--variant", default=VARIANTS[0].name, choices=("lora", "v0"))
    parser.add_argument(
        "--checkpointed", type=int, metavar="N", help="layers that are recomputed whole, all by default"
    )
    parser.add_argument("--tiles", type=Path, metavar="DIR", help="of mot_gemm.py, for tuned and bypass")
    parser.add_argument("--profile", action="store_true", help="one image of each run of the second table")
    asked = parser.parse_args()
    if "tuned" in asked.runs and asked.tiles is None:
        parser.error("the run tuned needs --tiles")
    asked.folder = asked.folder.absolute()
    print(card(find_device(CUDA)), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        package = asked.package or rendered(Path(scratch))
        tables = {"learning": learning_table, "step": step_table}
        for name in [asked.only] if asked.only else tables:
            for line in tables[name](package, asked):
                print(line, flush=True)


if __name__ == "__main__":
    main()
