"""Seconds an image of a recorded package's rollout, one by one and with calls of several in one, at a released size.

    PYTHON benchmarks/recorded_batches.py PACKAGE --recorded DIR               # one GPU
    PYTHON benchmarks/recorded_batches.py PACKAGE --recorded DIR --tiny        # a CPU, the checkpoint as it is

PYTHON is that of an environment with vllm-omni. DIR is what ``scaffold.verify.train.tiny_checkpoint`` leaves: the
pipeline's tiny checkpoint and the task that made it. The denoiser gets the layers of its release, with random weights;
text encoder and autoencoder stay tiny, so that what is timed is the denoiser and what the runtime records of it.
Whether samples may share calls is a proof of another release for some pipelines: here they do, and the trajectories of
one batch are compared with those of each request alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
from rollout_batches import Bench, device, draw, memory  # noqa: E402

# Of transformer/config.json; what text encoders decide stays the tiny checkpoint's.
RELEASED: dict[str, dict[str, Any]] = {
    "OmniGen2Pipeline": {
        "hidden_size": 2520,
        "num_layers": 32,
        "num_refiner_layers": 2,
        "num_attention_heads": 21,
        "num_kv_heads": 7,
        "multiple_of": 256,
        "axes_dim_rope": [40, 40, 40],
    },
    "FluxPipeline": {
        "num_layers": 19,
        "num_single_layers": 38,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "axes_dims_rope": [16, 56, 56],
        "guidance_embeds": True,
    },
}


def checkpoint(asked: argparse.Namespace, task: dict[str, Any]) -> Path:
    """The tiny checkpoint with the denoiser's released sizes; its weights are a header with nothing behind it."""
    import torch
    from real_checkpoint import write_weights

    tiny, folder = Path(asked.recorded, "checkpoint", Path(task["checkpoint"]).name), Path(asked.folder)
    if asked.tiny:
        return tiny
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(tiny, folder)
    file = folder / "transformer" / "config.json"
    config = {**json.loads(file.read_text(encoding="utf-8")), **RELEASED[task["facts"]["ported"]["pipeline"]]}
    file.write_text(json.dumps(config), encoding="utf-8")
    for old in (folder / "transformer").glob("*.safetensors*"):
        old.unlink()
    adapter: Any = asked.adapters.rollout
    if task["facts"]["ported"]["loaded"]:
        kind = getattr(importlib.import_module("diffusers"), config["_class_name"])
        with torch.device("meta"):
            module = kind.from_config(config)
    else:
        module = adapter.rollout_plan.source.built(str(folder), torch.bfloat16)[0]
    shapes = {}
    for name, tensor in module.named_parameters():
        for released, own in () if task["facts"]["ported"]["loaded"] else task["facts"]["ported"]["renames"]:
            name = name.replace(own, released)
        shapes[name] = list(tensor.shape)
    write_weights(folder / "transformer" / "diffusion_pytorch_model.safetensors", shapes, sparse=True)
    return folder


def load_tokenizers_plainly() -> None:
    """Have what a tokenizer's files say: classes build their own from a vocabulary, and the tiny one's is bytes."""
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

    load: Any = PreTrainedTokenizerBase.from_pretrained.__func__  # type: ignore[attr-defined]

    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return load(PreTrainedTokenizerFast, *args, **kwargs)

    PreTrainedTokenizerBase.from_pretrained = classmethod(from_pretrained)  # type: ignore[method-assign,assignment]


class Recorded(Bench):
    """The same for a package that records: its recipe is that of level ``rollout``."""

    def __init__(self, asked: argparse.Namespace) -> None:
        from scaffold.files.resources import kit_root
        from scaffold.verify.rollout.engine_side import settings, sources
        from scaffold.verify.rollout.engine_side.prompts import PromptForm
        from scaffold.verify.rollout.engine_side.recipe import Recipe
        from scaffold.verify.rollout.engine_side.transport import KitTransport

        task = json.loads(Path(asked.recorded, "task.json").read_text(encoding="utf-8"))
        facts = task["facts"]
        if asked.tiny:
            os.environ.update(OMNI_SCAFFOLD_ROLLOUT_ON_CPU="1", CUDA_VISIBLE_DEVICES="", VLLM_CPU_KVCACHE_SPACE="1")
            settings.before_imports()
        package = asked.package.resolve()
        name = f"verl_omni.pipelines.{package.name}"
        sources.install_package(package.parents[2], name)
        sources.install_kit(kit_root())
        asked.adapters = sources.load_adapters(name)
        folder = checkpoint(asked, task)

        import torch

        from scaffold.verify.rollout.engine_side import precision
        from scaffold.verify.rollout.engine_side.engine import Engine

        if asked.tiny:
            for part in asked.adapters.upstream_packages:
                settings.withhold_kernels(part)
            precision.match(asked.adapters, asked.dtype)
        common = asked.adapters.rollout.rollout_plan.common
        common.CALLS = replace(common.CALLS, stacked=True, padded=False)
        asked.adapters.rollout.supports_request_batch = True
        data: Any = importlib.import_module("vllm_omni.diffusion.data")
        original = data.OmniDiffusionConfig.from_kwargs

        def configured(**given: Any) -> Any:
            config = original(**given)
            config.max_num_seqs = max(asked.sizes)
            if not asked.tiny:
                config.diffusion_attention_config = data.parse_attention_config(None, attention_backend="TORCH_SDPA")
            return config

        data.OmniDiffusionConfig.from_kwargs = configured
        ported, dtype = facts["ported"], getattr(torch, asked.dtype)
        load_tokenizers_plainly()
        engine = Engine(asked.adapters, str(folder), dtype, KitTransport(), ported["pipeline"])
        if not asked.tiny:
            draw(engine.pipeline.transformer)
        super().__init__(engine, asked)
        self.found["parameters"] = sum(p.numel() for p in engine.pipeline.transformer.parameters())
        guidance = {**(facts["guidance"]["filled"] or {}), **(facts["guidance"]["others"] or {})}
        self.recipe = Recipe(
            asked.side,
            asked.side,
            num_inference_steps=asked.steps,
            sde_window_size=2,
            sde_window_range=(0, min(7, asked.steps - 1)),
            guidance=guidance,
            brought=json.loads(Path(asked.recorded, "sample.json").read_text(encoding="utf-8"))["values"],
        )
        path = ported["tokenizer"] or ("tokenizer" if hasattr(engine.pipeline, "tokenizer") else "processor.tokenizer")
        prompt, tokenizer = facts["prompt"], attrgetter(path)(engine.pipeline)
        self.form = PromptForm(
            tokenizer, prompt["begin"], prompt["end"], prompt["add_special_tokens"], prompt["chat_template"]
        )

    def requests(self, count: int, prompts: int) -> list[tuple[list[int], dict[str, Any]]]:
        """``count`` requests; two prompts differ by one of their words, so that their texts are equally long."""
        texts = ["a red fox jumps over a frozen river", "a red cat jumps over a frozen river"]
        ids = [self.form.chat(text) for text in texts]
        return [(ids[index * prompts // count], self.recipe.sampling(100 + index)) for index in range(count)]

    def table(self) -> Iterator[str]:
        """Seconds an image by the number in one call."""
        import torch

        billions = self.found["parameters"] / 1e9
        yield f"{type(self.engine.pipeline).__name__}: {billions:.2f} billion parameters in the denoiser"
        alone = [self.engine.answer(*request) for request in self.requests(4, 1)]  # warms up
        single = self.seconds(lambda: self.engine.answer(*self.requests(1, 1)[0]))
        yield f"| images in one call | prompts | seconds an image | of one by one | memory, GiB |\n|{'---|' * 5}"
        yield f"| one by one | 1 | {single:.3f} | 1.00 | {memory(torch):.1f} |"
        self.found["one by one"] = single
        for count in (size for size in self.asked.sizes if size > 1):
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            outputs = self.engine.together(self.requests(count, 1))  # warms up
            failed = [output.error for output in outputs if output.error]
            told = getattr(self.engine.pipeline, "one_by_one", "")
            if failed or told:
                yield f"| {count} | 1 | {told or failed[0]} |"
                continue
            took = self.seconds(lambda: self.engine.together(self.requests(count, 1))) / count  # noqa: B023
            yield f"| {count} | 1 | {took:.3f} | {took / single:.2f} | {memory(torch):.1f} |"
            self.found[f"{count} images"] = took
            if count == len(alone):
                yield from self.apart(alone, outputs)

    def apart(self, alone: list[Any], together: list[Any]) -> Iterator[str]:
        """How far trajectories of a batch lie from those of each request alone."""
        from scaffold.verify.rollout.engine_side.trajectory import trajectory_tensors

        off = {}
        for one, other in zip(map(trajectory_tensors, alone), map(trajectory_tensors, together), strict=True):
            latents = float((one["latents"] - other["latents"]).norm() / one["latents"].norm())
            log_probs = float((one["log_probs"] - other["log_probs"]).abs().max())
            off["latents"] = max(off.get("latents", 0.0), latents)
            off["log_probs"] = max(off.get("log_probs", 0.0), log_probs)
        self.found["apart"] = off
        yield f"of four against each alone: latents {off['latents']:.1e}, log-probs {off['log_probs']:.1e} apart"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path, help="rendered, in its tree")
    parser.add_argument("--recorded", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/released"), help="of the checkpoint, made anew")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", LOCAL_RANK="0", RANK="0", WORLD_SIZE="1")
    begun = time.monotonic()
    bench = Recorded(asked)
    print(
        f"{device()}, {asked.dtype}, {asked.side}x{asked.side}; ready in {time.monotonic() - begun:.0f} s", flush=True
    )
    for part in (bench.table, *([bench.profile] if asked.profile else [])):
        for line in part():
            print(line, flush=True)
            if asked.out is not None:
                asked.out.write_text(json.dumps(bench.found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
