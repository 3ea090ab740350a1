"""Time one training step of the generation module: two guidance branches, forward and backward.

    python benchmarks/train_step.py                       # full size on a GPU, tiny on a CPU
    VERL_OMNI_SRC=~/verl-omni python benchmarks/train_step.py --batch 4 16
    python benchmarks/train_step.py --checkpointed all 21 14 0 off --gradients

LoRA of rank 64 on the generation pathway, gradient checkpointing, bf16, 512x512, 64 text tokens. With
``VERL_OMNI_SRC`` naming a checkout of verl-omni, its hand-written module runs in the same process and the ratio is
printed. ``--ragged`` gives every sample its own text length. ``--accuracy`` compares both with float32.
``--checkpointed`` times the rendered module with so many layers recomputed whole, ``--gradients`` compares the LoRA
gradients of each with those of ``all``. ``--compile`` compiles the layers of the rendered module as well, and counts
compilations over 50 batches of other text lengths.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import statistics
import sys
import time
import types
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scaffold.render.gpu_memory import GIB, TrainingStep

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("verl_omni/pipelines/bagel_flow_grpo")
PEAK_TFLOPS = 790.0  # measured bf16 matrix rate of an H200, the scale of the printed fraction


def load_file(path: Path, name: str) -> types.ModuleType:
    """Import one file under ``name`` without its package, whose adapters need vllm-omni.

    No bytecode is left beside it: the golden's folder is compared with what the tool writes.
    """
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def implementations() -> dict[str, types.ModuleType]:
    """Return the rendered module, and the hand-written one where ``VERL_OMNI_SRC`` gives it.

    What the rendered package shares with others is found beside it.
    """
    for name in ("verl_omni", "verl_omni.pipelines"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(ROOT / "reference_bagel" / name.replace(".", "/"))]
    source = os.environ.get("VERL_OMNI_SRC")
    base = Path(source) if source else ROOT / "scaffold/verify/kit"
    load_file(base / "verl_omni/pipelines/non_diffusers_model_base.py", "verl_omni.pipelines.non_diffusers_model_base")
    found = {"rendered": load_file(ROOT / "reference_bagel" / PACKAGE / "bagel_model.py", "rendered_model")}
    if source:
        found["hand-written"] = load_file(Path(source) / PACKAGE / "bagel_model.py", "hand_written_model")
    return found


SIZES = {
    "full": {},
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1024,
        "start_of_image_id": 3,
        "end_of_image_id": 4,
    },
}
TARGETS = ["q_proj_moe_gen", "k_proj_moe_gen", "v_proj_moe_gen", "o_proj_moe_gen"]
TARGETS += ["mlp_moe_gen.gate_proj", "mlp_moe_gen.up_proj", "mlp_moe_gen.down_proj"]


def build(
    module: types.ModuleType, size: dict, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> torch.nn.Module:
    """Build the model with seeded random weights directly on the device."""
    config = module.BagelTrainingConfig(**{**size, "max_latent_size": 64})
    with torch.device("meta"):
        model = module.BagelForTraining(config).to(dtype)
    model = model.to_empty(device=device)
    generator = torch.Generator(device).manual_seed(seed)
    for name, tensor in sorted(model.state_dict().items()):
        noise = torch.randn(tensor.shape, generator=generator, device=device, dtype=torch.float32)
        tensor.copy_(1 + 0.1 * noise if "norm" in name else 0.02 * noise)
    for layer in model.layers:  # the hand-written module keeps a buffer per layer, lost on the meta device
        rotary = getattr(layer, "rotary_emb", None)
        if rotary is not None:
            steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device)
            rotary.inv_freq = 1.0 / config.rope_theta ** (steps / config.head_dim)
    return model.requires_grad_(False)


def inputs(
    model, batch: int, side: int, text: int, ragged: bool, device: torch.device, dtype: torch.dtype, seed: int = 1
):
    """Return the keyword arguments of the conditional and the unconditional branch."""
    generator = torch.Generator().manual_seed(seed)
    tokens = side // model.config.latent_patch_size // model.config.vae_downsample
    rows, columns = torch.meshgrid(torch.arange(tokens), torch.arange(tokens), indexing="ij")
    positions = (rows * model.config.max_latent_size + columns).flatten().to(device).expand(batch, -1)
    common = {
        "hidden_states": torch.randn(batch, tokens**2, 64, generator=generator).to(device, dtype),
        "timestep": torch.rand(batch, generator=generator).to(device),
        "latent_pos_ids": positions,
    }
    ids = torch.randint(5, 1000, (batch, text), generator=generator).to(device)
    mask = None
    if ragged:
        lengths = torch.randint(text // 4, text + 1, (batch,), generator=generator)
        lengths[0] = text
        mask = (torch.arange(text)[None] < lengths[:, None]).to(device)
    conditional = {**common, "text_token_ids": ids, "text_attention_mask": mask}
    return conditional, {**common, "text_token_ids": None}


def velocity(model, conditional: dict, unconditional: dict) -> torch.Tensor:
    """Run both branches and combine them with the recipe's guidance."""
    guided, free = model(**conditional)[0].float(), model(**unconditional)[0].float()
    combined = free + 4.0 * (guided - free)
    norms = [torch.linalg.vector_norm(v, dim=(1, 2), keepdim=True) for v in (guided, combined)]
    return combined * (norms[0] / (norms[1] + 1e-8)).clamp(0.0, 1.0)


def flops(model, batch: int, tokens: int, text: int) -> float:
    """Matrix operations of the step: forward, recomputation and the gradient of the activations."""
    config = model.config
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    weights = 2 * hidden * q_size + 2 * hidden * kv_size + 3 * hidden * inner
    total = 0.0
    for context in (text + 2, 2):
        dense = 2 * weights * (tokens + context)
        attention = 4 * q_size * tokens * (tokens + context)
        total += config.num_hidden_layers * batch * 3 * (dense + attention)
    return total


def predicted(model, batch: int, tokens: int, text: int, ragged: bool) -> float:
    """Peak in GiB that the launch script counts on: what is allocated before the step, and the step's activations."""
    sizes = {**vars(model.config), "head_dim": model.config.head_dim, "mlp": "swiglu", "qk_norm": True}
    sizes |= {"experts": True, "image_position": "text_length"}
    branches = (batch * (tokens + text + 2), batch * (tokens + 2))
    step = TrainingStep(sizes, branches, padded=branches[0] if ragged else 0)
    whole = getattr(model, "checkpointed_layers", None)
    layers = model.config.num_hidden_layers if whole is None else whole
    return (torch.cuda.memory_allocated() + step.activations(layers)) / GIB


def measure(model, batch: int, args, device: torch.device, dtype: torch.dtype, ragged: bool) -> dict[str, float]:
    """Median seconds of a step, peak memory in GiB, and the peak that was predicted."""
    conditional, unconditional = inputs(model, batch, args.side, args.text, ragged, device, dtype)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        counted = predicted(model, batch, conditional["hidden_states"].shape[1], args.text, ragged)
    seconds = []
    for repeat in range(args.warmup + args.repeats):
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        velocity(model, conditional, unconditional).square().mean().backward()
        if cuda:
            torch.cuda.synchronize()
        if repeat >= args.warmup:
            seconds.append(time.perf_counter() - start)
        model.zero_grad(set_to_none=True)
    tokens = conditional["hidden_states"].shape[1]
    median = statistics.median(seconds)
    rate = flops(model, batch, tokens, args.text) / median / 1e12
    figures = {"seconds": median, "tflops": rate, "of_peak": rate / PEAK_TFLOPS, "peak_gib": 0.0}
    if cuda:
        figures["peak_gib"] = torch.cuda.max_memory_allocated() / GIB
        if getattr(model, "gradient_checkpointing", False):
            figures["predicted_gib"] = counted
    return figures


def add_lora(model) -> None:
    """Inject the recipe's adapter with a non-zero B, so that both of its matrices have gradients."""
    from peft import LoraConfig

    model.add_adapter(LoraConfig(r=64, lora_alpha=128, target_modules=TARGETS, init_lora_weights="gaussian"))
    generator = torch.Generator(next(model.parameters()).device).manual_seed(2)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, 1e-3, generator=generator)
        parameter.requires_grad_("lora_" in name)


def checkpoint_layers(model, setting: str) -> None:
    """Recompute ``all`` layers whole, a number of them, or nothing at all (``off``)."""
    model.enable_gradient_checkpointing()
    model.gradient_checkpointing = setting != "off"
    if setting.isdecimal():
        model.checkpointed_layers = int(setting)
    elif hasattr(model, "checkpointed_layers"):
        model.checkpointed_layers = None


def gradients(model, args, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """LoRA gradients of one step of the first batch size, as one float32 vector."""
    model.zero_grad(set_to_none=True)
    velocity(
        model, *inputs(model, args.batch[0], args.side, args.text, False, device, dtype)
    ).square().mean().backward()
    found = torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return found


def compilations(model, args, device: torch.device, dtype: torch.dtype) -> int:
    """Graphs compiled while 50 ragged batches, each of another text length, take a step; the first two are warm-up."""
    from torch._dynamo.utils import counters

    for number in range(52):
        if number == 2:
            counters.clear()
        branches = inputs(model, args.batch[0], args.side, args.text - number // 2, True, device, dtype, seed=number)
        velocity(model, *branches).square().mean().backward()
        model.zero_grad(set_to_none=True)
    return counters["stats"]["unique_graphs"]


def main() -> None:
    """Parse the command line, run, print a table; ``--json FILE`` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default_device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default_device)
    parser.add_argument("--size", choices=sorted(SIZES), default="full" if default_device == "cuda" else "tiny")
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16] if default_device == "cuda" else [2])
    parser.add_argument("--side", type=int, default=512 if default_device == "cuda" else 128, help="pixels")
    parser.add_argument("--text", type=int, default=64, help="text tokens of a sample")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ragged", action="store_true", help="also time batches with text of unequal length")
    parser.add_argument("--accuracy", action="store_true", help="also compare bf16 velocities with float32")
    parser.add_argument("--checkpointed", nargs="+", default=["all"], metavar="all|N|off")
    parser.add_argument("--gradients", action="store_true", help="also compare gradients with those of 'all'")
    parser.add_argument("--compile", action="store_true", help="also compile the layers")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device, dtype = torch.device(args.device), torch.bfloat16 if args.device == "cuda" else torch.float32
    found = implementations()
    rows = []
    for name, module in found.items():
        model = build(module, SIZES[args.size], device, dtype)
        row: dict[str, object] = {"implementation": name}
        if args.accuracy:
            branches = inputs(model, 1, args.side, args.text, False, device, dtype)
            with torch.no_grad():
                row["outputs"] = {"conditional": model(**branches[0])[0].float(), "guided": velocity(model, *branches)}
        add_lora(model)
        whole = None
        for compiled in (False, True) if args.compile and name == "rendered" else (False,):
            if compiled:
                for layer in model.layers:
                    layer.compile(dynamic=True)
            for setting in args.checkpointed if name == "rendered" else ["all"]:
                checkpoint_layers(model, setting)
                kind = {"implementation": name, "checkpointed": setting, "compiled": compiled}
                if args.gradients and name == "rendered":
                    found_gradients = gradients(model, args, device, dtype)
                    whole = gradients(model, args, device, dtype) if whole is None else whole
                    kind["gradients_from_all"] = float((found_gradients - whole).norm() / whole.norm())
                for batch in args.batch:
                    for ragged in (False, True) if args.ragged else (False,):
                        try:
                            figures = measure(model, batch, args, device, dtype, ragged)
                        except torch.OutOfMemoryError:
                            figures = {"peak_gib": float("inf")}
                            torch.cuda.empty_cache()
                        rows.append({**kind, "batch": batch, "ragged": ragged, **figures})
                        print(
                            "  ".join(
                                f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in rows[-1].items()
                            ),
                            flush=True,
                        )
            if compiled:
                print(f"compiled in 50 ragged batches: {compilations(model, args, device, dtype)}", flush=True)
        if args.accuracy:
            rows.append(row)
        del model
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if args.accuracy:
        model = build(found["rendered"], SIZES[args.size], device, torch.float32)
        branches = inputs(model, 1, args.side, args.text, False, device, dtype)
        branches = tuple({**b, "hidden_states": b["hidden_states"].float()} for b in branches)
        with torch.no_grad():
            reference = {"conditional": model(**branches[0])[0], "guided": velocity(model, *branches)}
        for row in rows:
            for kind, output in row.pop("outputs", {}).items():
                error = float((output - reference[kind]).norm() / reference[kind].norm())
                row[f"{kind}_relative_error"] = error
                print(f"{row['implementation']:13s} {kind} velocity against float32: {error:.2e} relative")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
