"""LoRA that reaches no rollout is refused, unless the trainer merges it and the package says that this will do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flow_grpo_runtime.stepped_training import SteppedTraining


class Training(SteppedTraining):
    module_class = SimpleNamespace(__name__="Module", from_pretrained=lambda path, torch_dtype: path)
    lora_refused = "the engine drops it"


class Merged(Training):
    lora_merged = True


def config(rank: int, merge: bool) -> Any:
    return SimpleNamespace(lora_rank=rank, lora={"merge": merge}, local_path="checkpoint")


@pytest.mark.parametrize(
    ("adapter", "rank", "merge", "loads"),
    [(Training, 0, False, True), (Training, 8, True, False), (Merged, 8, False, False), (Merged, 8, True, True)],
)
def test_only_a_merged_adapter_is_trained(adapter: type[Training], rank: int, merge: bool, loads: bool) -> None:
    if loads:
        assert adapter.build_module(config(rank, merge), None) == "checkpoint"
    else:
        with pytest.raises(NotImplementedError, match="the engine drops it"):
            adapter.build_module(config(rank, merge), None)
