"""Seconds an image of a rendered BAGEL's rollout, one by one and many in one pass, in vllm-omni's own worker.

    PYTHON benchmarks/rollout_batches.py PACKAGE --folder DIR              # one GPU, in the released sizes
    PYTHON benchmarks/rollout_batches.py PACKAGE --folder DIR --tiny       # a CPU, the package's tiny checkpoint

PYTHON is that of an environment with vllm-omni. Weights of the released sizes are random: the file has a header and
nothing behind it, the engine loads it as it loads any other, then every parameter is drawn anew in place.

Prints seconds an image by the number of images in one pass, the most memory, how far velocities lie from those of the
engine's own layers, and seconds of a push of LoRA; ``--profile`` where the time goes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
WORDS = ("a red cube beside a blue ball", "and two grey towers behind a green field")


def engine_of(asked: argparse.Namespace) -> Any:
    """The worker with the package's rollout adapter, loaded."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", LOCAL_RANK="0", RANK="0", WORLD_SIZE="1")
    from scaffold.files.resources import kit_root
    from scaffold.verify.rollout.engine_side import sources
    from scaffold.verify.rollout.engine_side.transport import KitTransport

    package = asked.package.resolve()
    root = package.parents[2]
    name = f"verl_omni.pipelines.{package.name}"
    if asked.tiny:
        os.environ.update(OMNI_SCAFFOLD_ROLLOUT_ON_CPU="1", CUDA_VISIBLE_DEVICES="", VLLM_CPU_KVCACHE_SPACE="1")
        from scaffold.verify.rollout.engine_side import settings

        settings.before_imports()
    sources.install_package(root, name)
    sources.install_kit(kit_root())
    adapters = sources.load_adapters(name)
    builder = next(root.glob("tests/special_e2e/build_*_tiny_random.py"))
    if not (asked.folder / "config.json").exists():
        write_checkpoint(asked, builder)

    import torch

    from scaffold.verify.rollout.engine_side.engine import Engine

    if asked.tiny:
        from scaffold.verify.rollout.engine_side import precision

        for part in adapters.upstream_packages:
            settings.withhold_kernels(part)
        precision.match(adapters, asked.dtype)
    data: Any = importlib.import_module("vllm_omni.diffusion.data")
    original = data.OmniDiffusionConfig.from_kwargs

    def configured(**given: Any) -> Any:
        config = original(**given)
        config.max_num_seqs = max(asked.sizes)
        if not asked.tiny:  # as the scripts say
            config.diffusion_attention_config = data.parse_attention_config(None, attention_backend="TORCH_SDPA")
        return config

    data.OmniDiffusionConfig.from_kwargs = configured
    engine = Engine(adapters, str(asked.folder), getattr(torch, asked.dtype), KitTransport())
    if not asked.tiny:
        draw(engine.pipeline.bagel)
    return engine


def write_checkpoint(asked: argparse.Namespace, builder: Path) -> None:
    """The package's tiny checkpoint, or the released sizes without values."""
    if asked.tiny:
        sys.argv[1:] = ["--output-dir", str(asked.folder)]
        runpy.run_path(str(builder), run_name="__main__")
        return
    import real_checkpoint

    from scaffold.checkpoint import read_manifest

    headers = read_manifest(ROOT / "scaffold/presets/manifests/bagel-7b-mot.ema.json")
    shapes = asked.folder.with_suffix(".json")
    shapes.write_text(json.dumps({entry.name: list(entry.shape) for entry in headers.entries}), encoding="utf-8")
    real_checkpoint.main(asked.folder, shapes, builder, sparse=True)


def draw(module: Any) -> None:
    """Random weights that keep activations finite: norms about 1, all else with a deviation of 0.02."""
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name and parameter.ndim == 1:
                parameter.normal_(1.0, 0.1)
            else:
                parameter.normal_(0.0, 0.02)


class Bench:
    """Requests for images of ``side``, of ``prompts`` prompts, and what they take."""

    def __init__(self, engine: Any, asked: argparse.Namespace) -> None:
        self.engine, self.asked = engine, asked
        self.found: dict[str, Any] = {"device": device(), "dtype": asked.dtype, "side": asked.side}

    def requests(self, count: int, prompts: int) -> list[tuple[list[int], dict[str, Any]]]:
        """``count`` requests as the agent loop sends them, each prompt with a length of its own."""
        asked, tokenizer = self.asked, self.engine.pipeline.tokenizer
        made = []
        for index in range(count):
            which = index * prompts // count
            text = " ".join((" ".join(WORDS).split() * 8)[which : which + asked.words + 3 * which])
            chat = f"<|im_start|>user\n{text}<|im_end|>"
            settings = {
                "height": asked.side,
                "width": asked.side,
                "num_inference_steps": asked.steps,
                "seed": 100 + index,
                "noise_level": 0.7,
                "sde_type": "sde",
                "sde_window_size": 2,
                "sde_window_range": [0, min(7, asked.steps - 1)],
                "global_steps": 1,
                "logprobs": True,
                "max_sequence_length": 2048 if asked.tiny else 256,
            }
            made.append((tokenizer.encode(chat, add_special_tokens=False), settings))
        return made

    def seconds(self, run: Callable[[], Any]) -> float:
        """The shorter of two runs."""
        import torch

        found = []
        for _ in range(self.asked.repeats):
            synchronise(torch)
            begun = time.perf_counter()
            run()
            synchronise(torch)
            found.append(time.perf_counter() - begun)
        return min(found)

    def table(self) -> Iterator[str]:
        """Seconds an image by the number in one pass."""
        import torch

        self.engine.answer(*self.requests(1, 1)[0])  # warms up
        single = self.seconds(lambda: self.engine.answer(*self.requests(1, 1)[0]))
        yield f"| images in one pass | prompts | seconds an image | of one by one | memory, GiB |\n|{'---|' * 5}"
        yield f"| one by one, the engine's layers | 1 | {single:.3f} | 1.00 | {memory(torch):.1f} |"
        self.found["one by one"] = single
        sizes = [size for size in self.asked.sizes if size > 1]
        for count, prompts in ((size, number) for size in sizes for number in ((1, 2) if size > 8 else (1,))):
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            outputs = self.engine.together(self.requests(count, prompts))  # warms up
            failed = [output.error for output in outputs if output.error]
            told = getattr(self.engine.pipeline, "one_by_one", "")
            if failed or told:
                yield f"| {count} | {prompts} | {told or failed[0]} |"
                continue
            took = self.seconds(lambda: self.engine.together(self.requests(count, prompts))) / count  # noqa: B023
            yield f"| {count} | {prompts} | {took:.3f} | {took / single:.2f} | {memory(torch):.1f} |"
            self.found[f"{count} images, {prompts} prompts"] = took
        apart = self.engine.pipeline._joint.apart
        yield f"velocities of the first pass: {apart:.1e} from those of the engine, relative"

    def push(self) -> Iterator[str]:
        """Seconds of a push of LoRA, the first and later ones, by where the checkpoint's weights wait for it."""
        import torch

        pipeline = self.engine.pipeline
        fold = pipeline._lora_fold
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        base = pipeline.rollout_plan.weights.open(pipeline.checkpoint_folder())
        names = [name for name in base if name.endswith("moe_gen.weight") and any(t in name for t in targets)]
        names += [name for name in base if ".mlp_moe_gen." in name]
        rank, lora = 64, {}
        for name in names:
            rows, columns = base[name].shape
            path = f"transformer.{name.removesuffix('.weight')}"
            lora[f"{path}.lora_A.weight"] = 0.01 * torch.randn(rank, columns, device=pipeline.device)
            lora[f"{path}.lora_B.weight"] = torch.zeros(rows, rank, device=pipeline.device)
        size = sum(base[name].nbytes for name in names) / 2**30
        for place in sys.modules[type(fold).__module__].BASES:
            before = held(torch)
            pipeline._lora_fold = type(fold)(pipeline._mapped_checkpoint, fold._plain, place)
            took = []
            for _ in range(3):
                synchronise(torch)
                begun = time.perf_counter()
                with torch.inference_mode():
                    pipeline.map_lora_update_to_engine(lora, {"r": rank, "lora_alpha": 2 * rank})
                synchronise(torch)
                took.append(time.perf_counter() - begun)
            more = held(torch) - before
            pipeline._lora_fold = fold  # what the other one held is free again
            self.found[f"push, {place}"] = {"seconds": took, "card": more}
            told = ", ".join(f"{value:.2f}" for value in took)
            yield f"push of LoRA into {size:.2f} GiB, base {place}: {told} s; {more:.1f} GiB more on the card"

    def profile(self) -> Iterator[str]:
        """Where the time of a batch goes, an image."""
        import torch
        from rollout_profile import kind_of

        for count in (1, min(8, max(self.asked.sizes))):
            requests = self.requests(count, 1)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                self.engine.together(requests) if count > 1 else self.engine.answer(*requests[0])
                synchronise(torch)
            rows = [(event.key, event.self_device_time_total / 1e6, event.count) for event in seen.key_averages()]
            kinds: dict[str, float] = {}
            for name, spent, _ in rows:
                kinds[kind_of(name)] = kinds.get(kind_of(name), 0.0) + spent / count
            busy, kernels = sum(kinds.values()), sum(row[2] for row in rows if row[1] > 0) // count
            yield f"{count} at once: the card works {busy:.3f} s an image in {kernels} kernels"
            yield from (f"  {spent:.3f} s {kind}" for kind, spent in sorted(kinds.items(), key=lambda item: -item[1]))
            self.found[f"profile {count}"] = {"busy": busy, "kernels": kernels, "kinds": kinds}


def synchronise(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def memory(torch: Any) -> float:
    return float(torch.cuda.max_memory_allocated() / 2**30) if torch.cuda.is_available() else 0.0


def held(torch: Any) -> float:
    """GiB that tensors take of the card now."""
    return float(torch.cuda.memory_allocated() / 2**30) if torch.cuda.is_available() else 0.0


def device() -> str:
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path, help="rendered, in its tree")
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoint, made where it is not there")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--side", type=int, default=512, help="of the images, in pixels")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--no-push", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    asked.folder = asked.folder.absolute()
    begun = time.monotonic()
    bench = Bench(engine_of(asked), asked)
    print(
        f"{device()}, {asked.dtype}, {asked.side}x{asked.side}; ready in {time.monotonic() - begun:.0f} s", flush=True
    )
    parts = [bench.table, *([] if asked.no_push else [bench.push]), *([bench.profile] if asked.profile else [])]
    for part in parts:
        for line in part():
            print(line, flush=True)
            if asked.out is not None:
                asked.out.write_text(json.dumps(bench.found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
