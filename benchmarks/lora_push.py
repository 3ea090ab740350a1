"""Time one push of LoRA to the rollout engine: folding every target into the checkpoint's weights, and loading them.

    python benchmarks/lora_push.py --folder /fast/disk/bagel     # writes a random checkpoint there if it is empty

The rollout adapter is the rendered one. The engine cannot be had here: a stand-in has the engine's parameters of the
generation pathway (queries, keys and values in one, gate and up in one) in bf16, and copies what it is given into them.
The file was read just before, so that its pages are in memory. ``copy`` is the targets' weights to the device and
nothing else, the floor of any push that keeps no second copy of them there.

Then, for updates of several sizes: what of the update is lost where bf16 rounds the sum, as the relative distance of
the engine's change from the update, over all targets.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import types
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from flow_grpo_runtime.composed_rollout import sent_name
from flow_grpo_runtime.lora_updates import LoraFold

sys.path.insert(0, str(Path(__file__).resolve().parent))
from load import write_checkpoint
from train_step import PACKAGE, ROOT, SIZES, TARGETS, implementations, load_file

RANK, ALPHA = 64, 128
FUSED = {"q_proj_moe_gen": "qkv", "k_proj_moe_gen": "qkv", "v_proj_moe_gen": "qkv", "gate_proj": "in", "up_proj": "in"}
RATIOS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)


class Linear(nn.Module):
    """A module of the engine that generation does not use, for the adapter manager to bind to."""

    input_size = output_size = 8


class Engine(nn.Module):
    """Stands for the pipeline: fused parameters under the engine's rules, filled by slices."""

    def __init__(self, shapes: dict[str, tuple[int, int]], device: torch.device):
        super().__init__()
        self.slices: dict[str, Tensor] = {}
        groups: dict[str, list[str]] = {}
        for name in shapes:
            owner, _, last = name.removesuffix(".weight").rpartition(".")
            groups.setdefault(f"{owner}.{FUSED.get(last, last)}", []).append(name)
        self.fused = nn.ParameterList()
        for names in groups.values():
            rows = [shapes[name][0] for name in names]
            weight = nn.Parameter(torch.empty(sum(rows), shapes[names[0]][1], dtype=torch.bfloat16, device=device))
            self.fused.append(weight.requires_grad_(False))
            self.slices.update(zip(names, weight.data.split(rows), strict=True))
        self.connector = Linear()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Copy each into its slice, which rounds it to the engine's dtype."""
        loaded = set()
        for name, tensor in weights:
            self.slices[name].copy_(tensor)
            loaded.add(name)
        return loaded


def rollout_adapter(engine: type[nn.Module]) -> type[nn.Module]:
    """Import the rendered rollout adapter over ``engine``; what a push does not use is empty modules."""
    Linear.__name__ = "LinearBase"  # the engine's class, which the adapter knows by name

    def register(*names: str, **options: str):
        return lambda cls: cls

    needed = {
        "vllm_omni.diffusion.data": {"DiffusionOutput": object, "OmniDiffusionConfig": object},
        "vllm_omni.diffusion.models.bagel.pipeline_bagel": {"BagelPipeline": engine},
        "vllm_omni.diffusion.worker.request_batch": {"DiffusionRequestBatch": object},
        "verl_omni.pipelines.diffusion_rollout_output": {"rollout_output": None},
        "verl_omni.pipelines.model_base": {"VllmOmniPipelineBase": SimpleNamespace(register=register)},
        "verl_omni.pipelines.schedulers": {"FlowMatchSDEDiscreteScheduler": object},
        "verl_omni.pipelines.bagel_flow_grpo": {"__path__": []},
    }
    for name, values in needed.items():
        for part in range(1, name.count(".") + 1):
            sys.modules.setdefault(name.rsplit(".", part)[0], types.ModuleType(name.rsplit(".", part)[0]))
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    for file in ("bagel_model", "common", "vllm_omni_rollout_adapter"):
        last = load_file(
            ROOT / "reference_bagel" / PACKAGE / f"{file}.py", f"verl_omni.pipelines.bagel_flow_grpo.{file}"
        )
    return last.BagelPipelineWithLogProb


def seconds(action, device: torch.device, repeats: int) -> float:
    """Median over ``repeats`` runs after one that is not counted."""
    found = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


def updates(shapes: dict[str, tuple[int, int]], device: torch.device) -> dict[str, Tensor]:
    """Random LoRA matrices in float32, as the actor sends them; the product has a standard deviation of about one."""
    generator = torch.Generator(device).manual_seed(0)
    made = {}
    for name, (rows, columns) in shapes.items():
        module = f"transformer.{name.removesuffix('.weight')}"
        for side, shape in (("A", (RANK, columns)), ("B", (rows, RANK))):
            noise = torch.randn(shape, generator=generator, device=device)
            made[f"{module}.lora_{side}.weight"] = noise * (RANK / ALPHA / RANK**0.5 if side == "B" else 1.0)
    return made


def main() -> None:
    """Parse the command line, run, print one line of JSON for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--size", choices=sorted(SIZES), default="full" if cuda else "tiny")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    device = torch.device(args.device)
    if not (args.folder / "ema.safetensors").is_file():
        write_checkpoint(args.folder, SIZES[args.size])
    model = implementations()["rendered"]
    adapter = rollout_adapter(Engine)
    base = model.WEIGHTS.open(str(args.folder))
    shapes = {n: tuple(t.shape) for n, t in base.items() if any(n.endswith(f"{t}.weight") for t in TARGETS)}
    # The stand-in takes checkpoint names, as the engine does.
    pipeline = adapter.__new__(adapter)
    keys = {name: model.WEIGHTS.checkpoint_keys(name)[0] for name in shapes}
    Engine.__init__(pipeline, {keys[name]: shape for name, shape in shapes.items()}, device)
    pipeline.od_config = SimpleNamespace(model=str(args.folder))
    pipeline._lora_fold = LoraFold(pipeline._mapped_checkpoint, sent_name)
    lora, config = updates(shapes, device), {"r": RANK, "lora_alpha": ALPHA}

    def copy() -> None:
        for name in shapes:
            base[name].to(device)

    bytes_read = sum(base[name].nbytes for name in shapes)
    print(json.dumps({"targets": len(shapes), "gib": round(bytes_read / 2**30, 2)}), flush=True)
    print(json.dumps({"copy_seconds": seconds(copy, device, args.repeats)}), flush=True)
    push = seconds(lambda: pipeline.map_lora_update_to_engine(lora, dict(config)), device, args.repeats)
    print(json.dumps({"push_seconds": push}), flush=True)

    for ratio in RATIOS:
        error = update = torch.zeros((), dtype=torch.float64, device=device)
        for name in list(shapes)[: 2 * len(TARGETS)]:
            module = f"transformer.{name.removesuffix('.weight')}"
            weight = torch.empty(shapes[name], device=device).normal_(0, 0.02).bfloat16().float()
            delta = (lora[f"{module}.lora_B.weight"] @ lora[f"{module}.lora_A.weight"]) * (ALPHA / RANK)
            delta *= ratio * weight.norm() / delta.norm()
            change = (weight + delta).bfloat16().float() - weight
            error = error + (change - delta).double().square().sum()
            update = update + delta.double().square().sum()
        print(json.dumps({"update_over_weight": ratio, "lost": float((error / update).sqrt())}), flush=True)


if __name__ == "__main__":
    main()
