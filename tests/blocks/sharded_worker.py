"""One rank of `test_sharding`: ``sharded_worker.py RANK WORLD FOLDER GROUP``.

FOLDER holds ``plan.json`` and, under ``verl_omni``, the rendered training module. Every rank writes its findings to
``GROUP-RANK.json``: relative differences from the same module unsharded, and names. A scenario that raises leaves its
traceback there instead.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecision, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy

WRAPPER = "_fsdp_wrapped_module."


class EngineUnderTest:
    """Makes modules and inputs of the plan, and compares sharded modules with unsharded ones."""

    def __init__(self, plan: Mapping[str, Any], rank: int, world: int):
        self.plan, self.rank, self.world = plan, rank, world
        self.module = importlib.import_module("verl_omni.pipelines.rendered_model")

    def config(self) -> Any:
        """Return the sizes."""
        return getattr(self.module, self.plan["config_class"])(**self.plan["config"])

    def model(self, lora: bool, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Return a checkpointing model whose trainable parameters are float32 and whose others have a dtype."""
        model = getattr(self.module, self.plan["model_class"])(self.config())
        generator = torch.Generator().manual_seed(0)
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data.copy_(1 + 0.2 * noise if "norm" in name else 0.3 * noise)
        model.to(dtype).enable_gradient_checkpointing()
        if lora:
            torch.manual_seed(1)
            targets = self.plan["targets"]
            model.add_adapter(LoraConfig(r=3, lora_alpha=7, target_modules=targets, init_lora_weights=False))
        for name, parameter in model.named_parameters():
            trainable = parameter.requires_grad if lora else any(part in name for part in self.plan["trainable"])
            parameter.requires_grad = trainable
            if trainable:
                parameter.data = parameter.data.float()
        for layer in model._adapter_layers():
            layer.cast_input_dtype_enabled = False
        return model

    def inputs(self, rank: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """Return the two samples of a rank; every rank has others, of unequal text."""
        generator = torch.Generator().manual_seed(10 + rank)
        channels = self.config().patch_latent_dim
        return {
            "hidden_states": torch.randn(2, 6, channels, generator=generator).to(dtype),
            "timestep": self.module.timestep_features(torch.rand(2, generator=generator)).to(dtype),
            "text_token_ids": torch.randint(8, 64, (2, 5), generator=generator),
            "text_attention_mask": torch.arange(5) < torch.tensor([[5], [2 + rank]]),
            "latent_pos_ids": torch.arange(6).expand(2, -1),
        }

    def expect(self, model: nn.Module, dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
        """Return, unsharded and wholly in one dtype, this rank's output and the gradients averaged over ranks."""
        model = copy.deepcopy(model).to(dtype)
        outputs = [model(**self.inputs(rank, dtype))[0] for rank in range(self.world)]
        (sum(map(loss, outputs)) / self.world).backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
        return outputs[self.rank].detach(), gradients

    def train(
        self, wrapped: nn.Module, expected: tuple[Tensor, dict[str, Tensor]], gather: Callable[..., dict[str, Tensor]]
    ) -> dict[str, Any]:
        """Run three iterations; return the worst difference of outputs and of gradients, and the latter's names."""
        output, gradients = expected
        found: dict[str, Any] = {"output": 0.0, "gradient": 0.0, "missing": [], "trained": len(gradients)}
        for _ in range(3):
            (velocity,) = wrapped(**self.inputs(self.rank))
            found["output"] = max(found["output"], difference(velocity, output))
            loss(velocity).backward()
            actual = gather(wrapped, gradients)
            found["missing"] += sorted(gradients.keys() ^ actual.keys())
            for name in gradients.keys() & actual.keys():
                found["gradient"] = max(found["gradient"], difference(actual[name], gradients[name]))
            wrapped.zero_grad()
        return found

    def collected(
        self, wrapped: nn.Module, plain: nn.Module, summon: Callable[[nn.Module], Any], wrapper: str = ""
    ) -> dict[str, Any]:
        """Gather the units that stand right below the plan's layer prefixes, the way a weight sync does.

        Returns:
            Which of the layers' parameters were not found, and which of those found have another value.
        """
        kinds = (FSDP, FSDPModule)
        found: dict[str, Tensor] = {}
        for prefix in (wrapper + prefix for prefix in self.plan["layer_prefixes"]):
            for name, unit in wrapped.named_modules():
                if name.startswith(prefix) and "." not in name.removeprefix(prefix) and isinstance(unit, kinds):
                    with summon(unit):
                        for key, value in unit.state_dict().items():
                            found[f"{name}.{key}".replace(WRAPPER, "")] = full(value).clone()
        layers = {name for name, child in plain.named_modules() if type(child).__name__ in plain._no_split_modules}
        state = plain.state_dict()
        expected = {key for key in state if any(key.startswith(f"{layer}.") for layer in layers)}
        return {
            "expected": len(expected),
            "missing": sorted(expected ^ found.keys()),
            "changed": sorted(key for key in expected & found.keys() if not torch.equal(found[key], state[key])),
        }


def loss(velocity: Tensor) -> Tensor:
    """Return a scalar of the output."""
    return velocity.float().square().mean()


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the relative difference of two tensors, in the Euclidean norm."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


def full(tensor: Tensor) -> Tensor:
    """Return a tensor's whole value."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()


def shard_fsdp1(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Wrap as verl does under LoRA: each trainable leaf is a unit, each layer is a unit, parameters are flat."""
    layers = {type(child) for child in model.modules() if type(child).__name__ in model._no_split_modules}
    policies = (
        functools.partial(
            lambda_auto_wrap_policy,
            lambda_fn=lambda leaf: (
                not list(leaf.children())
                and getattr(leaf, "weight", None) is not None
                and bool(leaf.weight.requires_grad)
            ),
        ),
        functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=layers),
    )
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(_or_policy, policies=policies),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32, buffer_dtype=torch.float32),
        use_orig_params=False,
        device_id=torch.device("cpu"),
    )


def gather_fsdp1(wrapped: nn.Module, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put the shards of every flat gradient together; a unit holds one parameter, its weight."""
    gathered = {}
    for name, parameter in wrapped.named_parameters():
        if not parameter.requires_grad or parameter.grad is None:
            continue
        name = name.replace(WRAPPER, "").replace("_flat_param", "weight")
        shards = [torch.empty_like(parameter.grad) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, parameter.grad)
        gathered[name] = torch.cat(shards)[: like[name].numel()].view_as(like[name])
    return gathered


def shard_fsdp2(model: nn.Module, **policy: Any) -> nn.Module:
    """Shard every layer, then the root."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = [child for child in model.modules() if type(child).__name__ in model._no_split_modules]
    for part in (*layers, model):
        fully_shard(part, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    return model


def gather_fsdp2(wrapped: nn.Module, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients whole."""
    return {name: full(p.grad) for name, p in wrapped.named_parameters() if p.grad is not None}


def fsdp1(bench: EngineUnderTest) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield the scenarios of FSDP1."""

    def train(dtype: torch.dtype) -> dict[str, Any]:
        model = bench.model(lora=True, dtype=dtype)
        expected = bench.expect(model, dtype)
        return bench.train(shard_fsdp1(model, dtype), expected, gather_fsdp1)

    def without_grad() -> dict[str, Any]:
        model = bench.model(lora=True)
        expected, _ = bench.expect(model, torch.float32)
        wrapped = shard_fsdp1(model, torch.float32).eval()
        with torch.no_grad():
            return {"outputs": [difference(wrapped(**bench.inputs(bench.rank))[0], expected) for _ in range(2)]}

    def collect() -> dict[str, Any]:
        model = bench.model(lora=True)
        plain = copy.deepcopy(model)
        summon = functools.partial(FSDP.summon_full_params, writeback=False)
        return bench.collected(shard_fsdp1(model, torch.float32), plain, summon, WRAPPER)

    yield "train", lambda: train(torch.float32)
    yield "train in bf16", lambda: train(torch.bfloat16)
    yield "without grad", without_grad
    yield "collect", collect


def fsdp2(bench: EngineUnderTest) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield the scenarios of FSDP2."""

    def train(lora: bool) -> dict[str, Any]:
        model = bench.model(lora=lora)
        expected = bench.expect(model, torch.float32)
        return bench.train(shard_fsdp2(model), expected, gather_fsdp2)

    def collect(lora: bool) -> dict[str, Any]:
        model = bench.model(lora=lora)
        plain = copy.deepcopy(model)
        return bench.collected(shard_fsdp2(model), plain, contextlib.nullcontext)

    def mixed() -> dict[str, Any]:
        half = torch.bfloat16
        model = bench.model(lora=True, dtype=half)
        expected = bench.expect(model, half)
        seen: set[str] = set()
        for child in model.modules():
            if hasattr(child, "head_dim"):
                child.register_forward_pre_hook(lambda _, args: seen.update(dtypes(args)))
        policy = {"param_dtype": half, "reduce_dtype": torch.float32, "cast_forward_inputs": True}
        found = bench.train(shard_fsdp2(model, **policy), expected, gather_fsdp2)
        return {**found, "seen": sorted(seen)}

    yield "train lora", lambda: train(lora=True)
    yield "train in full", lambda: train(lora=False)
    yield "collect lora", lambda: collect(lora=True)
    yield "collect in full", lambda: collect(lora=False)
    yield "mixed precision", mixed


def dtypes(arguments: Iterable[Any]) -> Iterator[str]:
    """Yield what an attention block is given: streams and rotary tables, with their dtypes."""
    for value in arguments:
        if isinstance(value, Tensor):
            yield f"stream {value.dtype}"
        else:
            yield from (f"table {table.dtype}" for table in value.rotary[:2])


def main(rank: int, world: int, folder: Path, group: str) -> None:
    """Run one group of scenarios as one rank."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(folder / f"{group}.store").as_uri(),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=60),
    )
    bench = EngineUnderTest(json.loads((folder / "plan.json").read_text(encoding="utf-8")), rank, world)
    found: dict[str, Any] = {}
    for name, scenario in {"fsdp1": fsdp1, "fsdp2": fsdp2}[group](bench):
        try:
            found[name] = scenario()
        except Exception:  # every scenario has its own test, which shows this
            found[name] = {"error": traceback.format_exc(limit=-3)[:2500]}
        (folder / f"{group}-{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
