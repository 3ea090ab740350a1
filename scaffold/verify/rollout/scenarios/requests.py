"""Requests of other forms: prompts, shapes, references, and those that are not for training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scaffold.verify.rollout.check import LOG_PROB, Check, Measurement, NotApplicable, equality

if TYPE_CHECKING:
    from scaffold.verify.rollout.engine_side.bench import EngineUnderTest


class Ragged:
    """Prompts of different lengths in one micro-batch."""

    ORDER = 50
    DTYPE = "float32"
    CHECKS = equality("ragged", "Prompts of different lengths in one padded batch", (1, 8, 9, 14))

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """The rollout runs each prompt by itself, training runs them together."""
        yield from bench.equal(Ragged.CHECKS, bench.compare(bench.first, bench.recipe, together=True))


class NativePrompt:
    """A request that carries the data set's token ids, not the chat template's."""

    ORDER = 60
    DTYPE = "float32"
    CHECKS = equality("native-prompt", "A request with the data set's own token ids", (31, 43))

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Both forms must reach the model as the same ids."""
        samples = bench.roll_out(bench.recipe, bench.texts[:2], native=True)
        yield from bench.equal(NativePrompt.CHECKS, bench.compare(samples, bench.recipe))


class Shape:
    """Images that are not square, each way."""

    ORDER = 30
    DTYPE = "float32"
    WIDE = equality("wide", "An image wider than high")
    HIGH = equality("high", "An image higher than wide")
    CHECKS = WIDE + HIGH

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Rows and columns swapped on one side give other positions."""
        longer = bench.recipe.width * 3 // 2
        for pair, recipe in (
            (Shape.WIDE, replace(bench.recipe, width=longer)),
            (Shape.HIGH, replace(bench.recipe, height=longer)),
        ):
            samples = bench.roll_out(recipe, bench.texts[:1])
            yield from bench.equal(pair, bench.compare(samples, recipe))


class References:
    """Requests without the images that the others bring to be edited."""

    ORDER = 27
    DTYPE = "float32"
    SEEN = 100  # times what passes, as for a control
    CHECKS = equality("without-references", "Requests of words alone to a package for edits")

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """The pipeline then runs other branches, and gives its denoiser other arguments.

        Where training reads columns of an image, a rollout with one must not be equal to training without it.
        """
        if not bench.references:
            raise NotApplicable("the package is made for requests of words alone")
        with bench.engine.without_media():
            samples = bench.roll_out(bench.recipe, bench.texts[:2])
        found = bench.compare(samples, bench.recipe)
        if not bench.task.facts.get("ported"):
            blind = bench.compare(
                [replace(sample, extra=_of_words(sample.extra)) for sample in bench.first[:1]], bench.recipe
            )
            if not blind.log_prob > References.SEEN * LOG_PROB:
                told = f"log-probs move by {blind.log_prob:.1e} where training does not see the image of a request"
                found = replace(found, problem=found.problem or told)
        yield from bench.equal(References.CHECKS, found)


def _of_words(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if not name.startswith("reference_")}


class Media:
    """What the engine does with a result between the pipeline and the server that asked for it."""

    ORDER = 46
    DTYPE = "float32"
    CHECK = Check(
        "rollout-media",
        "The engine's last step takes what the adapter returns, and leaves the media and what training needs",
        0,
        "parts lost",
    )
    CHECKS = (CHECK,)

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Take a training request to the end of the engine."""
        output = bench.engine.answer(bench.prompts.chat(bench.texts[0]), bench.recipe.sampling(7))
        before, after = _parts(output.output), _parts(bench.engine.finished(output))
        lost = sorted(before - after)
        told = f"loses {', '.join(lost)}" if lost else f"leaves {', '.join(sorted(after)) or 'nothing'}"
        yield Measurement(Media.CHECK.id, float(len(lost)), told, floor=0.0)


def _parts(result: Any) -> set[str]:
    """``media`` where there is any, and the names of what stands beside it."""
    if not (isinstance(result, Mapping) and isinstance(result.get("payload"), Mapping)):
        return set() if result is None else {"media"}
    metadata = result.get("metadata") or {}
    beside = {
        f"{group}.{name}"
        for group, entries in metadata.items()
        for name in (entries if isinstance(entries, Mapping) else ())
    }
    return beside | ({"media"} if any(value is not None for value in result["payload"].values()) else set())


class Validation:
    """What the agent loop sends for validation."""

    ORDER = 45
    DTYPE = "float32"
    SILENT = Check(
        "rollout-validation",
        "A validation request, at noise level 0 and without a training step, gets its output and no trajectory",
        0,
        "tensors",
    )
    PLAIN = Check(
        "rollout-validation-plain",
        "The latents of a validation request are the plain integration of its velocities: no noise in any step",
        1e-5,  # a step with noise gives 1e-1
        "relative",
    )
    CHECKS = (SILENT, PLAIN)

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Leave the settings of the window in, as verl-omni does."""
        from scaffold.verify.rollout.engine_side.recorder import from_plain

        steps = bench.recipe.num_inference_steps
        recipe = replace(bench.recipe, noise_level=0.0, sde_window_size=2, sde_window_range=(0, max(steps // 2, 2)))
        found, taken = bench.validate(recipe)
        kept = [name for name, value in found.items() if value is not None]
        yield Measurement(
            Validation.SILENT.id, float(len(kept)), f"returns {', '.join(kept) or 'no trajectory'}", floor=0.0
        )
        value = from_plain(taken)
        told = f"after {len(taken)} steps" if taken else "no step of verl-omni's scheduler was seen"
        yield Measurement(Validation.PLAIN.id, value, told, floor=2**-23, skipped=value is None)


class WarmUp:
    """The engine's warm-up request; if it fails, the server does not start."""

    ORDER = 47
    DTYPE = "float32"
    CHECK = Check("rollout-warm-up", "The adapter takes the first request, which is the engine's own", 0, "errors")
    CHECKS = (CHECK,)

    @staticmethod
    def measure(bench: EngineUnderTest) -> Iterator[Measurement]:
        """Let the engine make it: an image where the pipeline can take one, nothing that training sends.

        Raises:
            NotApplicable: this engine makes none for the pipeline.
        """
        recipe = bench.recipe
        output = bench.engine.warm_up(recipe.height, recipe.width, recipe.num_frames)
        if output is None:
            raise NotApplicable("the engine starts without one")
        error = getattr(output, "error", None)
        yield Measurement(WarmUp.CHECK.id, float(bool(error)), str(error or "it goes through"), floor=0.0)
