"""Guidance: off on both sides, of another scale, and away from each request's own negative prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.verify.rollout.check import Check, Measurement, NotApplicable, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest


class GuidanceOff:
    """No guidance on either side."""

    ORDER = 20
    DTYPE = "float32"
    CHECKS = equality("guidance-off", "Guidance switched off on both sides", (29,))

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """The scale that is not guidance."""
        recipe = bench.unguided
        yield from bench.equal(GuidanceOff.CHECKS, bench.compare(bench.roll_out(recipe), recipe))


class GuidanceGiven:
    """Guidance that the configuration gives, in place of the package's own."""

    ORDER = 25
    DTYPE = "float32"
    CHECKS = equality("guidance-given", "Another guidance scale on both sides", (29,))

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Half the package's own scale, and a half; other scales are the package's own."""
        scale = bench.task.facts["guidance"]["scale"]
        if scale is None:
            yield from (
                Measurement(check.id, None, "no scale of guidance is known", skipped=True)
                for check in GuidanceGiven.CHECKS
            )
            return
        recipe = bench.guided(scale / 2 + 0.5)
        others = bench.task.facts["guidance"].get("others") or {}
        recipe = replace(
            recipe, guidance={name: value for name, value in recipe.guidance.items() if name not in others}
        )
        yield from bench.equal(GuidanceGiven.CHECKS, bench.compare(bench.roll_out(recipe), recipe))


class NegativePrompt:
    """Two requests that differ in their negative prompts alone, one after the other."""

    ORDER = 62
    DTYPE = "float32"
    CHECK = Check(
        "rollout-negative-prompt",
        "A request is guided away from its own negative prompt, whatever the requests before it brought",
        0,
        "requests",
    )
    CHECKS = (CHECK,)

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """One prompt and seed three times: a negative prompt, another one, and the first again.

        Raises:
            NotApplicable: the data script writes no negative prompt, or nothing guides.
        """
        import torch

        text = bench.texts[0]
        first, other = (bench.prompts.negative(found) for found in bench.texts[:2])
        scales = [value for value in bench.recipe.guidance.values() if isinstance(value, int | float)]
        if first is None or other is None:
            raise NotApplicable("requests of this package bring no negative prompt")
        if first == other:  # that of every request, where the data script writes none
            other = bench.prompts.chat(bench.texts[1])
        if not any(scale > bench.neutral for scale in scales):
            raise NotApplicable("the launch script does not guide")
        seen = []
        for negative in (first, other, first):
            with bench.engine.negative_prompt(negative):
                velocity = bench.roll_out(bench.recipe, [text])[0].velocities[0]
            if velocity is None:
                raise NotApplicable("no velocity of the rollout was seen at its SDE step")
            seen.append(velocity)
        wrong = []
        if torch.equal(seen[0], seen[1]):
            wrong.append("another negative prompt gives the same first velocity: the rollout takes no notice of it")
        elif not torch.equal(seen[0], seen[2]):
            wrong.append("the first velocity of a request depends on the negative prompt of the one before it")
        yield Measurement(
            NegativePrompt.CHECK.id,
            float(len(wrong)),
            "; ".join(wrong) or "three requests, two negative prompts",
            floor=0,
        )
