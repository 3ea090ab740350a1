"""What the launch script says about memory, against peaks that were measured on a GPU."""

from __future__ import annotations

import pytest

from scaffold.render.gpu_memory import GIB, TrainingStep, memory_settings
from scaffold.spec import IntegrationSpec

# Peaks in GiB of `benchmarks/train_step.py` on one H200, less the 25.82 that were allocated before the step:
# samples, layers recomputed whole, peak. 512x512, 64 text tokens.
MEASURED = [
    (4, 28, 2.70),
    (4, 0, 29.26),
    (16, 28, 10.78),
    (16, 21, 35.88),
    (16, 14, 62.96),
    (16, 7, 90.09),
]


@pytest.mark.parametrize(("samples", "layers", "gib"), MEASURED)
def test_activations_are_those_of_a_gpu(samples: int, layers: int, gib: float, reference_spec: IntegrationSpec) -> None:
    step = TrainingStep(reference_spec.sections["architecture"], (samples * (1024 + 66), samples * (1024 + 2)))
    assert step.activations(layers) / GIB == pytest.approx(gib, rel=0.02)


def settings(spec: IntegrationSpec, **recipe: object) -> dict:
    sections = spec.context()
    return memory_settings(sections["architecture"], {**sections, "recipe": {**sections["recipe"], **recipe}})


def test_a_card_bears_what_leaves_a_tenth_free(reference_spec: IntegrationSpec) -> None:
    found = settings(reference_spec)
    architecture = reference_spec.sections["architecture"]
    step = TrainingStep(architecture, (16 * (1024 + 258), 16 * (1024 + 2)), padded=16 * (1024 + 258))
    for card, layers in found["fits"].items():
        held = step.static_bytes(4, 64)
        assert held + step.activations(layers) <= 0.9 * card * GIB < held + step.activations(layers - 1)
    assert settings(reference_spec, micro_batch_size=256)["fits"][80] is None
    assert settings(reference_spec, gpus=1)["fits"][80] > found["fits"][80]


def test_a_size_that_is_not_known_says_nothing(reference_spec: IntegrationSpec) -> None:
    sections = reference_spec.context()
    assert memory_settings({**sections["architecture"], "vocab_size": None}, sections) is None


def test_the_fewest_layers_are_those_of_a_search(reference_spec: IntegrationSpec) -> None:
    architecture = reference_spec.sections["architecture"]
    for layers in (1, 28):
        step = TrainingStep({**architecture, "num_hidden_layers": layers}, (16 * 1282, 16 * 1026), padded=16 * 1282)
        for room in (
            0,
            *(step.activations(0) - k * step.kept(1) + more for k in range(layers + 1) for more in (-1, 0)),
        ):
            tried = (n for n in range(1, layers + 1) if step.activations(n) <= room)
            assert step.fewest_checkpointed(room) == next(tried, None)


def test_a_count_of_layers_that_nobody_has_ends_at_once(reference_spec: IntegrationSpec) -> None:
    sections = reference_spec.context()
    architecture = {**sections["architecture"], "num_hidden_layers": 2**63}
    assert set(memory_settings(architecture, sections)["fits"].values()) == {None}
