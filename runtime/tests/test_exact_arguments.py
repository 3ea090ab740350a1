"""Layers of ported packages keep the dtype of what they are given, whatever FSDP2 rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flow_grpo_runtime.layers import ExactArguments  # noqa: E402

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
