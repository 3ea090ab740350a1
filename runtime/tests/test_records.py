"""Records of samples: what is written is read again, through the trainer's own row reader and collation, too."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData, NonTensorStack

from flow_grpo_runtime.calls import COLUMN, CallRecorder
from flow_grpo_runtime.model import CallPlan
from flow_grpo_runtime.records import ALIGNMENT, QUEUED, as_column, read_column, read_record, write_record
from flow_grpo_runtime.replay import DenoiserCalls, read_calls

VALUES: dict[str, Any] = {
    "wide": torch.randn(3, 5),
    "half": torch.randn(7).bfloat16(),
    "complex": torch.randn(2, 3, dtype=torch.complex64),
    "flags": torch.tensor([True, False, True]),
    "none": torch.empty(0, 3),
    "number": torch.tensor(3),
    "one": torch.tensor(1.5).expand(1),
    "rows": torch.arange(12.0).view(3, 4).t(),
    "plain": [None, True, 3, 0.1, float("inf"), "text", torch.bfloat16, ("a", 1)],
    "table": {1: "one", "nested": {"empty": []}},
}


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("zeros", [0, ALIGNMENT, 1000])
def test_values_come_back_whatever_is_padded_behind_them(zeros: int) -> None:
    block = write_record(VALUES)
    assert block.dtype == torch.uint8
    assert len(block) % ALIGNMENT == 0
    assert alike(read_record(torch.nn.functional.pad(block, (0, zeros))), VALUES)


def test_a_tensor_that_is_there_twice_is_written_once_and_read_without_a_copy() -> None:
    tensor = torch.randn(1000)
    block = write_record([tensor, {"again": tensor}])
    assert len(block) < 1.2 * 4000
    found = read_record(block)
    assert found[0].untyped_storage().data_ptr() == block.untyped_storage().data_ptr()


def test_what_is_no_record_is_refused() -> None:
    block = write_record(VALUES)
    for wrong in (block[: len(block) // 2], torch.zeros(64, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8)):
        with pytest.raises(ValueError, match="it was cut, or is none"):
            read_record(wrong)
    with pytest.raises(TypeError, match="a PosixPath cannot be carried"):
        write_record({"path": Path()})


# Two requests with reference images of unlike sizes, through both trainers.


class Editing(torch.nn.Module):
    """A denoiser whose prediction rests on every pixel of the references."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(0.7))

    def forward(self, x: torch.Tensor, time: torch.Tensor, refs: list[list[torch.Tensor]]) -> torch.Tensor:
        seen = torch.stack([sum(ref.mean() for ref in row) / len(row) for row in refs])
        return self.weight * x + time.view(-1, 1, 1) * seen.view(-1, 1, 1)


PLAN = CallPlan(stacked=True)


def rolled_out(seed: int, side: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Record, latents and prediction of one sample."""
    generator = torch.Generator().manual_seed(seed)
    recorder, denoiser = CallRecorder(PLAN), Editing()
    latents = torch.randn(1, 4, 6, generator=generator)
    refs = [[torch.randn(3, side, side, generator=generator).bfloat16()]]
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        made = denoiser(latents, torch.tensor([0.9]), refs)
    recorder.step(latents, made, keep=True)
    record = recorder.finish({})
    assert record is not None
    return record, latents, made


def row_reader() -> Callable[[Any], torch.Tensor]:
    """The function with which the checkout's v1 trainer makes one tensor of a column's rows."""
    checkout = Path(os.environ.get("VERL_OMNI_SRC", "absent"), "verl_omni/trainer/diffusion/v1/tq_utils.py")
    if not checkout.is_file():
        pytest.skip("no checkout of verl-omni with a v1 trainer: set VERL_OMNI_SRC")
    tree = ast.parse(checkout.read_text(encoding="utf-8"))
    (found,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "_stack_field"]
    space: dict[str, Any] = {"torch": torch, "Any": Any}
    exec(ast.unparse(found), space)
    return space["_stack_field"]


def trained(batch: TensorDict, latents: torch.Tensor) -> torch.Tensor:
    return DenoiserCalls(PLAN, read_calls(batch), latents, 0).evaluate(Editing(), torch.float32)


@pytest.mark.parametrize("nested", [False, True])
def test_references_of_unlike_sizes_train_as_alone_under_v1(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(QUEUED, "1")
    read = row_reader()
    samples = [rolled_out(1, 8), rolled_out(2, 20)]
    rows = []
    for record, _, _ in samples:
        column = as_column(record)
        assert isinstance(column, torch.Tensor)
        rows.append(column[0].unsqueeze(0).squeeze(0))  # the server, the agent loop and the row writer
    assert len(rows[0]) != len(rows[1])
    column = read(torch.nested.as_nested_tensor(rows) if nested else rows)
    batch = TensorDict({COLUMN: column}, batch_size=2)
    latents = torch.cat([sample[1] for sample in samples])
    together = trained(batch, latents)
    assert torch.equal(together, torch.cat([sample[2] for sample in samples]))
    for place, sample in enumerate(samples):
        assert torch.equal(trained(batch[place : place + 1], sample[1]), sample[2])


def test_references_of_unlike_sizes_train_as_alone_under_v0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(QUEUED, raising=False)
    samples = [rolled_out(1, 8), rolled_out(2, 20)]
    values = [as_column(record) for record, _, _ in samples]
    assert all(isinstance(value, bytes) for value in values)  # the collation concatenates tensors alone
    batch = TensorDict({COLUMN: NonTensorStack(*map(NonTensorData, values))}, batch_size=2)
    latents = torch.cat([sample[1] for sample in samples])
    assert torch.equal(trained(batch, latents), torch.cat([sample[2] for sample in samples]))


def test_a_micro_batch_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = TensorDict({COLUMN: torch.stack([write_record({"a": 1})] * 2)}, batch_size=2)
    first = read_column(batch, COLUMN)
    monkeypatch.setattr("flow_grpo_runtime.records.read_record", lambda _: pytest.fail("read again"))
    assert read_column(batch, COLUMN) is first
    with pytest.raises(KeyError, match="no column 'other'"):
        read_column(batch, "other")
