"""Time one training step of rendered packages at the sizes of their releases: two branches, forward and backward.

    omni-scaffold new omni_gen2 --pipeline OmniGen2Pipeline --vllm-omni 0.30.0 --out omni_gen2
    python benchmarks/rendered_step.py omni_gen2 boogu_image            # full size on a GPU, tiny on a CPU

PACKAGE is a folder that `new` wrote. Each runs in a process of its own and prints a line for every batch as it ends.
Random weights; LoRA of the package's rank on its targets, gradient checkpointing, bf16, 512x512, 64 text tokens. The
calls of a ported denoiser, or one of diffusers, go through the package's recorder, so reading them and bringing them
to the device is part of the step; ``--alone`` also times one call for each sample, ``--ragged`` texts of unequal
length.

Counted operations are three times those of the forward pass, which is run, run again for the backward pass and
followed by the gradients of the activations: ``2 * inputs * outputs * tokens`` for each linear layer that the tokens
go through and ``4 * heads * channels * queries * keys`` for each attention. LoRA, norms and convolutions are not
counted, padding is.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scaffold.render.gpu_memory import GIB, TrainingStep
from scaffold.spec.defaults import DEFAULTS
from scaffold.verify.executed_text import upstream_for
from scaffold.verify.package import open_package

KIT = Path(__file__).resolve().parents[1] / "scaffold/verify/kit"
PEAK_TFLOPS = 790.0  # measured bf16 matrix rate of an H200, the scale of the printed fraction
NEGATIVE_TOKENS = 9  # of the unconditional branch

# What the released checkpoints of ported denoisers say in transformer/config.json.
RELEASES: dict[str, dict[str, Any]] = {
    "OmniGen2Pipeline": {
        "patch_size": 2,
        "in_channels": 16,
        "hidden_size": 2520,
        "num_layers": 32,
        "num_refiner_layers": 2,
        "num_attention_heads": 21,
        "num_kv_heads": 7,
        "multiple_of": 256,
        "norm_eps": 1e-5,
        "axes_dim_rope": [40, 40, 40],
        "axes_lens": [1024, 1664, 1664],
        "text_feat_dim": 2048,
        "timestep_scale": 1000.0,
    },
    "BooguImagePipeline": {
        "patch_size": 2,
        "in_channels": 16,
        "hidden_size": 3360,
        "num_layers": 40,
        "num_double_stream_layers": 8,
        "num_refiner_layers": 2,
        "num_attention_heads": 28,
        "num_kv_heads": 7,
        "multiple_of": 256,
        "norm_eps": 1e-5,
        "axes_dim_rope": [40, 40, 40],
        "axes_lens": [2048, 1664, 1664],
        "instruction_feature_configs": {
            "instruction_feat_dim": 4096,
            "reduce_type": "mean",
            "num_instruction_feature_layers": 1,
        },
        "timestep_scale": 1000.0,
    },
    "FluxPipeline": {
        "patch_size": 1,
        "in_channels": 64,
        "num_layers": 19,
        "num_single_layers": 38,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "guidance_embeds": True,
        "axes_dims_rope": [16, 56, 56],
    },
}
TINY_PORTED = {"hidden_size": 48, "num_layers": 3, "num_double_stream_layers": 1, "num_attention_heads": 2}
TINY_PORTED |= {"num_single_layers": 2}
TINY_PORTED |= {"num_kv_heads": 1, "multiple_of": 16, "axes_dim_rope": [8, 8, 8]}
TINY = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4}
TINY |= {"num_key_value_heads": 2, "vocab_size": 1024, "rope_sections": (12, 10, 10), "bottleneck_size": 64}
TINY |= {"patch_hidden_size": 64, "head_intermediate_size": 64, "timestep_token_id": 3}
AUTOCAST = {"OmniGen2Pipeline"}  # pipelines that call their denoiser under autocast on a GPU


class Package:
    """A rendered package, imported without its adapters, which need vllm-omni."""

    def __init__(self, out: Path) -> None:
        package = open_package(out)
        self.folder, self.spec = package.folder, package.spec
        self.executed = tempfile.TemporaryDirectory()  # of vllm-omni's text, where it is not installed
        os.environ |= upstream_for(package, Path(self.executed.name))
        sys.path.insert(0, str(KIT))
        for name in ("verl_omni", "verl_omni.pipelines"):
            module = types.ModuleType(name)
            module.__path__ = [str(root / name.replace(".", "/")) for root in (KIT, package.root)]
            sys.modules[name] = module
        self.name = f"verl_omni.pipelines.{self.folder.name}"
        sys.modules[self.name] = types.ModuleType(self.name)
        sys.modules[self.name].__path__ = [str(self.folder)]
        port = self.spec.get("port", {})
        self.loaded = port.get("form") == "diffusers"  # whose denoiser diffusers has
        self.ported = bool(port.get("entry")) or self.loaded

    def module(self, name: str) -> types.ModuleType:
        """One file of it."""
        return importlib.import_module(f"{self.name}.{name}")

    def runtime(self, name: str) -> Any:
        """One file of the runtime beside it."""
        return importlib.import_module(f"verl_omni.pipelines.flow_grpo_runtime.{name}")

    def build(self, tiny: bool, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """Its training module with seeded random weights on the device, with LoRA and gradient checkpointing."""
        from peft import LoraConfig

        names, lora = self.spec["names"], self.spec["lora"]
        torch.manual_seed(0)
        if self.loaded:
            model = self._diffusers(tiny, device, dtype)
        elif self.ported:
            owner = getattr(self.module(f"{names['model']}_model"), names["module_class"])
            model = self._ported(owner, tiny, device, dtype)
        else:
            file = self.module(f"{names['model']}_model")
            owner = getattr(file, names["module_class"])
            config = getattr(file, names["config_class"])
            known = config.__dataclass_fields__
            with torch.device("meta"):
                model = owner(config(**{n: v for n, v in TINY.items() if n in known} if tiny else {})).to(dtype)
            model = filled(model, device)
        model.requires_grad_(False)
        model.add_adapter(LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], target_modules=list(lora["targets"])))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=1e-3)
            parameter.requires_grad_("lora_" in name)
        model.enable_gradient_checkpointing()
        if self.loaded:
            getattr(self.module("diffusers_training_adapter"), names["training_adapter"]).adopt(model)
        return model.to(device).train()

    def _released(self, tiny: bool) -> dict[str, Any]:
        pipeline = self.spec["upstream"]["registry_key"]
        if pipeline not in RELEASES:
            raise SystemExit(f"{pipeline}: the sizes of the release are not known here")
        config = dict(RELEASES[pipeline])
        return config | ({name: value for name, value in TINY_PORTED.items() if name in config} if tiny else {})

    def _diffusers(self, tiny: bool, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """The class that diffusers loads, of the release's configuration."""
        import diffusers

        self.config = self._released(tiny)
        with torch.device("meta"):
            model = getattr(diffusers, self.spec["port"]["class"]).from_config(self.config).to(dtype)
        return filled(model, device)

    def _ported(self, owner: Any, tiny: bool, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """What ``from_pretrained`` makes of the release's configuration, its weights random ones on the device."""
        config = self._released(tiny)

        def read(module: nn.Module, *_: Any) -> types.SimpleNamespace:
            state = {name: random(name, tensor, device).to(dtype) for name, tensor in module.named_parameters()}
            return types.SimpleNamespace(state=state, given=None, tie=lambda module: None, keys={}, texts={})

        self.runtime("module").read_checkpoint = read
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "transformer").mkdir()
            (Path(folder) / "transformer/config.json").write_text(json.dumps(config), encoding="utf-8")
            (Path(folder) / "model_index.json").write_text("{}", encoding="utf-8")
            self.config = config
            return owner.from_pretrained(folder, torch_dtype=dtype)

    def activations(self, model: Any, batch: int, args: argparse.Namespace) -> int:
        """Bytes that the launch script counts on for a micro-batch."""
        known = {**DEFAULTS["architecture"], **self.spec["architecture"], **vars(model.config)}
        sizes, tokens = {**known, "head_dim": model.config.head_dim}, (args.side // model.config.pixels_per_token) ** 2
        counted = TrainingStep(sizes, (batch * (tokens + args.text), batch * (tokens + NEGATIVE_TOKENS)))
        whole = model.checkpointed_layers
        return counted.activations(sizes["num_hidden_layers"] if whole is None else whole)

    def step(self, model: nn.Module, lengths: list[int], side: int, device: torch.device) -> Callable[[], Tensor]:
        """The guided velocity of one micro-batch, text lengths of each sample given: from its columns to it."""
        if self.ported:
            return self._calls(model, lengths, side, device)
        branches = self._tensors(model, lengths, side, device)

        def velocity() -> Tensor:
            conditional, unconditional = (model(**arguments)[0].float() for arguments in branches())
            return unconditional + 4.0 * (conditional - unconditional)

        return velocity

    def _tensors(self, model: Any, lengths: list[int], side: int, device: torch.device) -> Callable[[], Any]:
        config, batch = model.config, len(lengths)
        tokens = side // config.pixels_per_token
        grid = torch.cartesian_prod(torch.arange(tokens), torch.arange(tokens)).to(device)
        shared = {
            "hidden_states": torch.randn(batch, tokens**2, config.patch_latent_dim, device=device),
            "timestep": torch.rand(batch, device=device),
            "latent_positions": grid.expand(batch, -1, -1),
        }
        texts = [torch.randint(5, 1000, (batch, length), device=device) for length in (max(lengths), NEGATIVE_TOKENS)]
        mask = torch.arange(max(lengths), device=device) < torch.tensor(lengths, device=device)[:, None]
        first = {"text_token_ids": texts[0], "text_attention_mask": None if len(set(lengths)) == 1 else mask}
        return lambda: ({**shared, **first}, {**shared, "text_token_ids": texts[1]})

    def _calls(self, model: nn.Module, lengths: list[int], side: int, device: torch.device) -> Callable[[], Tensor]:
        replay, config = self.runtime("replay"), self.config
        shape = ((side // 16) ** 2, config["in_channels"]) if self.loaded else (config["in_channels"], *2 * [side // 8])
        latents = torch.randn(len(lengths), *shape, device=device)
        file = f"{self.spec['names']['model']}_denoiser"
        tables = {} if self.loaded else self.module(file).constant_tables(model)
        pairs = zip(latents.split(1), lengths, strict=True)
        recorded = [self._recorded(tables, row, length, device) for row, length in pairs]
        self.trajectory = len(recorded[0])
        column = nn.utils.rnn.pad_sequence(recorded, batch_first=True)

        def velocity() -> Tensor:
            read = replay.read_calls({replay.COLUMN: column.to(device, copy=True)})
            calls = replay.DenoiserCalls(self.plan, read, latents, 0)
            made: Tensor = calls.velocity(model(calls=calls)[0].float())
            return made

        return velocity

    def _recorded(self, tables: dict[str, Any], latents: Tensor, length: int, device: torch.device) -> Tensor:
        """The calls of one step as the rollout records them, of a stand-in that predicts nothing."""
        stand_in, recorder = StandIn(device), self.runtime("calls").CallRecorder(self.plan)
        recorder.watch(stand_in, tables=tables)
        recorder.begin(active=True)
        under = self.spec["upstream"]["registry_key"] in AUTOCAST and device.type == "cuda"
        calls = self._packed(latents, length, device) if self.loaded else self._branches(latents, length, device)
        made = []
        for arguments in calls:
            with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=under):
                made.append(stand_in(**arguments, **tables))
        guided = made[0] if len(made) == 1 else made[1] + 4.0 * (made[0] - made[1])
        recorder.step(latents.to(torch.bfloat16).float(), guided, keep=True)
        return recorder.finish({})

    def _branches(self, latents: Tensor, length: int, device: torch.device) -> Iterator[dict[str, Any]]:
        """What a pipeline gives a ported denoiser in one step: with the text, and without."""
        feature = self.config.get("text_feat_dim") or self.config["instruction_feature_configs"]["instruction_feat_dim"]
        text = "text" if "text_feat_dim" in self.config else "instruction"
        for tokens in (length, NEGATIVE_TOKENS):
            yield {
                "hidden_states": latents.to(torch.bfloat16),
                "timestep": torch.rand(1, device=device),
                "ref_image_hidden_states": None,
                f"{text}_hidden_states": torch.randn(1, tokens, feature, dtype=torch.bfloat16, device=device),
                f"{text}_attention_mask": torch.ones(1, tokens, dtype=torch.int64, device=device),
            }

    def _packed(self, latents: Tensor, length: int, device: torch.device) -> Iterator[dict[str, Any]]:
        """What FLUX.1's gives its own, whose guidance is an argument: one call."""
        side, half = int(latents.shape[1] ** 0.5), {"dtype": torch.bfloat16, "device": device}
        places = torch.cartesian_prod(torch.arange(1), torch.arange(side), torch.arange(side))
        yield {
            "hidden_states": latents.to(torch.bfloat16),
            "encoder_hidden_states": torch.randn(1, length, self.config["joint_attention_dim"], **half),
            "pooled_projections": torch.randn(1, self.config["pooled_projection_dim"], **half),
            "timestep": torch.rand(1, **half),
            "img_ids": places.to(**half),
            "txt_ids": torch.zeros(length, 3, **half),
            "guidance": torch.full((1,), 3.5, device=device),
            "joint_attention_kwargs": None,
            "return_dict": False,
        }


def filled(model: nn.Module, device: torch.device) -> nn.Module:
    """A module of the meta device with seeded weights on another."""
    model = model.to_empty(device=device)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(random(name, tensor, device))
    return model


class StandIn(nn.Module):
    """Takes what a denoiser takes and predicts zeros."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16, device=device))

    def forward(self, hidden_states: Tensor, **_: Any) -> Tensor:
        """Zeros in the shape of the latents."""
        return torch.zeros_like(hidden_states)


def random(name: str, tensor: Tensor, device: torch.device) -> Tensor:
    """Seeded values in the shape of a parameter: about one for norms, small for all else."""
    noise = torch.randn(tensor.shape, device=device, dtype=torch.float32)
    return 1 + 0.1 * noise if "norm" in name and tensor.ndim == 1 else 0.02 * noise


@contextmanager
def counted(model: nn.Module) -> Iterator[list[float]]:
    """Operations of the linear layers and attentions that run inside."""
    found: list[float] = []
    attend = nn.functional.scaled_dot_product_attention

    def attention(query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found.append(4.0 * query.numel() * key.shape[-2])
        return attend(query, key, *args, **kwargs)

    def linear(layer: nn.Linear, args: tuple[Tensor, ...], _: Any) -> None:
        found.append(2.0 * args[0].numel() * layer.out_features)

    # A layer with LoRA is asked itself: it may multiply with the weight of the one inside, which then is not called.
    inside = {id(child) for layer in model.modules() if hasattr(layer, "base_layer") for child in layer.modules()}
    inside -= {id(layer) for layer in model.modules() if hasattr(layer, "base_layer")}
    layers = [layer for layer in model.modules() if hasattr(layer, "out_features") and id(layer) not in inside]
    handles = [layer.register_forward_hook(linear) for layer in layers]
    nn.functional.scaled_dot_product_attention = attention
    try:
        yield found
    finally:
        nn.functional.scaled_dot_product_attention = attend
        for handle in handles:
            handle.remove()


def measure(model: nn.Module, velocity: Callable[[], Tensor], args: argparse.Namespace) -> dict[str, float]:
    """Median seconds of a step, the share of the peak and memory in GiB."""
    cuda = args.device == "cuda"
    with torch.no_grad(), counted(model) as operations:
        velocity()
    held = 0.0
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated() / GIB
    seconds = []
    for repeat in range(args.warmup + args.repeats):
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        velocity().square().mean().backward()
        if cuda:
            torch.cuda.synchronize()
        if repeat >= args.warmup:
            seconds.append(time.perf_counter() - start)
        model.zero_grad(set_to_none=True)
    median = statistics.median(seconds)
    total = 3 * sum(operations) / 1e12
    memory = torch.cuda.max_memory_allocated() / GIB if cuda else 0.0
    figures = {"seconds": median, "of_peak": total / median / PEAK_TFLOPS, "peak_gib": memory, "held_gib": held}
    return {**figures, "tflop": total}


def run(out: Path, args: argparse.Namespace) -> None:
    """Time one package and print its lines."""
    device, dtype = torch.device(args.device), torch.bfloat16 if args.device == "cuda" else torch.float32
    if device.type == "cpu":
        torch.set_num_threads(1)
    package = Package(out)
    model = package.build(args.size == "tiny", device, dtype)
    count = sum(parameter.numel() for name, parameter in model.named_parameters() if "lora_" not in name)
    print(f"{package.folder.name}: {count / 1e9:.3f} billion parameters", flush=True)
    if args.checkpointed is not None and not package.ported:
        model.checkpointed_layers = args.checkpointed
    texts = {"even": lambda i: args.text}
    if args.ragged:
        texts["ragged"] = lambda i: args.text - (i * 7) % (args.text // 2)
    ways = ("together", "alone") if args.alone and package.ported else ("together",)
    for batch, (kind, length), way in ((b, t, w) for b in args.batch for t in texts.items() for w in ways):
        if package.ported:
            shown = package.spec["port"].get("batches", "none") if way == "together" else "none"
            plan = package.module("common").CALLS
            package.plan = replace(plan, stacked=shown != "none", padded=shown == "padded")
        try:
            figures = measure(model, package.step(model, [length(i) for i in range(batch)], args.side, device), args)
        except torch.OutOfMemoryError:
            print(f"{package.folder.name} batch {batch} {kind} {way}: out of memory", flush=True)
            continue
        finally:
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
        if package.ported:
            figures["trajectory_mb"] = package.trajectory / 1e6
        else:
            figures["predicted_gib"] = figures["held_gib"] + package.activations(model, batch, args) / GIB
        row = {"package": package.folder.name, "batch": batch, "text": kind, "calls": way, **figures}
        told = "  ".join(f"{key} {value:.3f}" for key, value in figures.items())
        print(f"{package.folder.name:24s} batch {batch:3d} {kind:6s} {way:8s}  {told}", flush=True)
        if args.json:
            with args.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def main() -> None:
    """Parse the command line, run each package, exit 1 where one failed; ``--json FILE`` gets a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("packages", type=Path, nargs="+", metavar="PACKAGE")
    parser.add_argument("--device", default=device)
    parser.add_argument("--size", choices=("full", "tiny"), default="full" if device == "cuda" else "tiny")
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16] if device == "cuda" else [2])
    parser.add_argument("--side", type=int, default=512 if device == "cuda" else 64, help="pixels")
    parser.add_argument("--text", type=int, default=64, help="text tokens of a sample")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ragged", action="store_true", help="also time batches with text of unequal length")
    parser.add_argument("--alone", action="store_true", help="also time one call for each sample")
    parser.add_argument("--checkpointed", type=int, metavar="N", help="layers recomputed whole, of a composed module")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if len(args.packages) == 1:
        run(args.packages[0], args)
        return
    options = [word for word in sys.argv[1:] if Path(word) not in args.packages]
    failed = [str(p) for p in args.packages if subprocess.run([sys.executable, __file__, str(p), *options]).returncode]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
