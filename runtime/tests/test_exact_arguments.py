"""Layers keep the dtype of what they are given and of their tables, and a name for what FSDP1 takes from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flow_grpo_runtime.layers import ExactArguments, computed_in, exact_tables, name_parameters  # noqa: E402

nn = torch.nn


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[Any]:
    """A mesh of this process alone."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


class Layer(nn.Module):
    """Turns its input by the tables."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seen: list[Any] = []

    def forward(self, x: Any, tables: Any, *, others: Any = None) -> Any:
        self.seen = [x.dtype, *(table.dtype for table in tables), *(value.dtype for value in (others or {}).values())]
        learned = (others or {})["learned"]
        return (self.linear(x).float() * tables[0] * learned + tables[1]).to(x.dtype)


class Model(nn.Module):
    """One layer behind a linear one."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.layer, self.modulation = nn.Linear(4, 4), Layer(), nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        tables = (torch.linspace(0, 1, 4).cos(), torch.linspace(0, 1, 4).sin())
        others = {"scale": torch.ones(4), "learned": self.modulation.float()}
        return self.layer(self.before(x), tables, others=others)


@pytest.mark.parametrize("exact", ["before", "after", None])
def test_tables_and_modulation_keep_float32_under_fsdp2(exact: str | None, one_rank: Any) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.manual_seed(0)
    model = Model()
    names = [name for name, _ in model.named_parameters()]
    if exact == "before":
        ExactArguments.of(model, ["Layer"])
    assert type(model.layer).__name__ == "Layer"
    assert isinstance(model.layer, Layer)
    assert [name for name, _ in model.named_parameters()] == names
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)
    for unit in (model.layer, model):
        fully_shard(unit, mesh=one_rank, mp_policy=policy)
    if exact == "after":  # a module that a library loads is known at its first micro-batch alone
        ExactArguments.of(model, ["Layer"])
    model(torch.randn(2, 4)).sum().backward()
    kept = torch.float32 if exact else torch.bfloat16
    assert model.layer.seen == [torch.bfloat16, kept, kept, kept, kept]
    assert all(parameter.grad is not None for parameter in model.parameters())


class Turned(nn.Module):
    """Has a table that it computes, one that a checkpoint has, and one that depends on more than its configuration."""

    def __init__(self, more: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("computed", torch.linspace(0, 1, 7).cos(), persistent=False)
        self.register_buffer("kept", torch.linspace(0, 1, 7).cos())
        self.register_buffer("other", torch.linspace(0, 1, 7) + more, persistent=False)


def test_only_tables_that_the_class_computes_get_back_what_loading_rounded() -> None:
    module, exact = nn.Sequential(Turned(1.0)).to(torch.bfloat16), Turned()
    built: list[Any] = []
    exact_tables(module, lambda inner: built.append(inner) or nn.Sequential(Turned()))
    assert built == [module]
    assert torch.equal(module[0].computed, exact.computed)
    assert [module[0].kept.dtype, module[0].other.dtype] == [torch.bfloat16] * 2
    exact_tables(module, lambda inner: built.append(inner) or nn.Sequential(Turned()))  # every step asks for it
    exact_tables(Turned(), lambda inner: built.append(inner) or Turned())
    assert len(built) == 1


def test_a_layer_that_fsdp1_has_flattened_names_what_it_computes_with(one_rank: Any) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    class Asking(nn.Sequential):
        def forward(self, x: Any) -> Any:
            seen.append([parameter.dtype for parameter in self[0].parameters()])
            return super().forward(x.to(seen[-1][0]))

    seen: list[Any] = []
    module = FullyShardedDataParallel(
        Asking(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))),
        mixed_precision=MixedPrecision(torch.bfloat16),
        device_mesh=one_rank,
        device_id=torch.device("cpu"),
    )
    names = [name for name, _ in module.named_parameters()]
    name_parameters(module)
    name_parameters(module)
    module(torch.ones(1, 4)).sum().backward()
    assert seen == [[torch.bfloat16] * 4]
    assert [name for name, _ in module.named_parameters()] == names


def test_a_module_computes_in_the_dtype_of_what_it_holds_itself_not_of_layers_that_are_sharded_apart() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).bfloat16())
    assert computed_in(module) is torch.float32
    for parameter in module[0].parameters():
        parameter.placements = ()  # type: ignore[attr-defined]  # as a DTensor has them
    assert computed_in(module) is torch.bfloat16
    for parameter in module[1].parameters():
        parameter.placements = ()  # type: ignore[attr-defined]
    assert computed_in(module) is torch.float32
