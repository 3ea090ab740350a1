"""Velocities of several requests: who is computed with whom, and how many at once."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from flow_grpo_runtime.encoded import IDS, MASK
from flow_grpo_runtime.joint_forward import JointForward, Row


class Module:
    @classmethod
    def over(cls, folder: str, dtype: torch.dtype, device: torch.device) -> Module:
        return cls()


class Training:
    """Its velocity is the latents times guidance, plus the prompt's length and the noise level."""

    module_class = Module
    passes: ClassVar[list[int]] = []
    room = 100

    @classmethod
    def prepare_model_inputs(cls, micro_batch: Any, latents: Tensor, **rest: Any) -> tuple[Any, None]:
        mask = micro_batch[MASK]
        assert micro_batch[IDS].shape == mask.shape
        assert int(mask.sum(dim=1).max()) == mask.shape[1]
        return {"latents": latents[:, 0], "lengths": mask.sum(dim=1), "asked": rest["model_config"].pipeline}, None

    @classmethod
    def guided_velocity(cls, module: Any, model_config: Any, inputs: Any, negative: None, sigma: Tensor) -> Tensor:
        cls.passes.append(len(sigma))
        if len(sigma) > cls.room:
            raise torch.OutOfMemoryError
        add = inputs["lengths"] + sigma
        velocity: Tensor = inputs["latents"] * inputs["asked"].scale + add.view(-1, 1, 1)
        return velocity


@pytest.fixture
def joint(monkeypatch: pytest.MonkeyPatch) -> JointForward:
    monkeypatch.setattr(Training, "passes", [])
    return JointForward(f"{__name__}.Training", "", None, torch.float32, torch.device("cpu"))  # type: ignore[arg-type]


def row(length: int = 3, scale: float = 2.0, level: float = 0.5, side: int = 4, engine: Tensor | None = None) -> Row:
    columns = {IDS: torch.ones(1, 8, dtype=torch.long), MASK: torch.arange(8)[None] < length}
    return Row(torch.ones(1, side, 2), level, columns, {"scale": scale}, (side, side), engine)


def expected(one: Row) -> float:
    return float(one.guidance["scale"]) + one.prompt_length + one.level


def test_each_request_keeps_its_own_settings(joint: JointForward) -> None:
    rows = [row(), row(length=5), row(scale=1.0), row(level=0.25), row(side=6)]
    found = joint.velocities(rows)
    assert [velocity.shape for velocity in found] == [one.latents.shape for one in rows]
    assert [float(velocity[0, 0, 0]) for velocity in found] == [expected(one) for one in rows]
    assert sorted(Training.passes) == [1, 1, 3]


def test_prompts_of_one_length_are_apart_where_there_are_many(joint: JointForward) -> None:
    joint.velocities([row(length=3 + index % 2) for index in range(8)])
    assert Training.passes == [4, 4]
    Training.passes.clear()
    joint.velocities([row(length=3 + index % 2) for index in range(7)])
    assert Training.passes == [7]


def test_more_than_fit_go_in_turns(joint: JointForward, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(level=index / 8) for index in range(7)]
    joint.passes.most = 3
    assert [float(v[0, 0, 0]) for v in joint.velocities(rows)] == [expected(one) for one in rows]
    assert Training.passes == [3, 3, 1]
    joint.passes.most = None
    monkeypatch.setattr(Training, "room", 2)
    Training.passes.clear()
    assert [float(v[0, 0, 0]) for v in joint.velocities(rows)] == [expected(one) for one in rows]
    assert Training.passes == [7, 3, 1, 1, 1, 1, 1, 1, 1]


def test_other_velocities_than_the_engines_stop_the_batch(joint: JointForward) -> None:
    right = row()
    right.engine = torch.full_like(right.latents, expected(right))
    joint.velocities([right, row()])
    assert joint.compared
    wrong = row(engine=torch.zeros(1, 4, 2))
    with pytest.raises(RuntimeError, match="engine's own layers"):
        joint.velocities([wrong, row()])
