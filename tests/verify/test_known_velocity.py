"""A module that stands for the package's own predicts the velocity that it is to predict, whatever that one learned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flow_grpo_runtime.model import CallPlan  # noqa: E402
from flow_grpo_runtime.replay import DenoiserCalls  # noqa: E402
from scaffold.verify.subject.stand_in_velocity import KnownVelocity, velocity_of  # noqa: E402
from scaffold.verify.subject.subject import Subject  # noqa: E402


def test_the_forward_that_a_module_learned_is_not_that_of_its_stand_in() -> None:
    module: Any = torch.nn.Linear(2, 2)
    module.size = 7
    vars(module)["forward"] = lambda *_: pytest.fail("the module itself was asked")
    subject: Any = SimpleNamespace(new_module=lambda: module)
    attributes = Subject.attributes.func(subject)  # type: ignore[attr-defined]
    assert attributes["size"] == 7
    made = KnownVelocity(SimpleNamespace(attributes=attributes, config=None, geometry=SimpleNamespace(shape=(3,))))
    latents = torch.randn(1, 3)
    assert torch.equal(made(x=latents)[0], velocity_of(latents))


def test_tapes_that_take_several_predictions_make_the_known_velocity() -> None:
    """The method of the calls is looked up before the module runs, as training's step does."""
    carried = {
        "calls": [("dict", {})],
        "predictions": [[2]],
        "free": [None],
        "changed": (),
        "dtype": torch.float32,
        "autocast": None,
        "levels": torch.tensor([1.0, 0.0]),
        "tapes": [(0, ())],
        "programs": [{"program": {}, "leaves": [((0, 0), ((2, 3), 0, 2))], "sign": 1}],
    }
    subject = SimpleNamespace(attributes={}, config=None, geometry=SimpleNamespace(shape=(3,)))
    made, latents = KnownVelocity(subject, dtype=torch.bfloat16), torch.randn(2, 3)
    assert "forward" in vars(made)  # `take_calls` of the runtime leaves such a module as it is
    calls = DenoiserCalls(CallPlan(), [carried] * 2, latents, 0)
    with pytest.raises(ValueError, match="2 predictions were made where the tapes take 4"):
        calls.velocity(latents)
    velocity = calls.velocity(made(calls=calls)[0])
    assert velocity.dtype == torch.float32
    assert torch.equal(velocity, velocity_of(latents).bfloat16().float())
