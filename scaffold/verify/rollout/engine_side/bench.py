"""One engine and one training module of the same package, and the comparisons made on them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from scaffold.verify.declared import Declared
from scaffold.verify.rollout.check import Check, Measurement, NotApplicable
from scaffold.verify.rollout.engine_side import precision, real_library, recorder, settings, sizes, sources
from scaffold.verify.rollout.engine_side.comparison import Comparison, compare, join
from scaffold.verify.rollout.engine_side.data_script import rows_of
from scaffold.verify.rollout.engine_side.prompts import SHORT_TEXTS, TEXTS, PromptForm
from scaffold.verify.rollout.engine_side.recipe import Recipe
from scaffold.verify.rollout.engine_side.trajectory import Trajectory, trajectory_tensors
from scaffold.verify.rollout.task import Task

# Latent tokens per side; small, and different from the checkpoint's own grid.
SIDE = 4
# Difference of a request's two seeds: equal seeds would draw equal numbers, which never happens in a real run.
NOISE = 1_000_003
ROOM = 256  # tokens of a prompt alone

Change = Callable[[Sequence[int]], list[int]]


class EngineUnderTest:
    """Loaded once per process and shared by all scenarios, which restore its weights, except the last ones."""

    def __init__(self, task: Task) -> None:
        self.task = task
        settings.before_imports()
        # Before anything of verl_omni is imported, which may import a package of the same name.
        sources.install_package(Path(task.root), task.package, None if task.runtime is None else Path(task.runtime))
        if task.library is not None:
            real_library.install(Path(task.library))
        else:
            sources.install_kit(Path(task.kit))
        self.adapters = sources.load_adapters(task.package)
        for package in self.adapters.upstream_packages:
            settings.withhold_kernels(package)
        _build_checkpoint(task)
        precision.match(self.adapters, task.dtype)

        from scaffold.verify.rollout.engine_side.engine import Engine
        from scaffold.verify.rollout.engine_side.stage_inputs import StageInputs
        from scaffold.verify.rollout.engine_side.tiny.trial import first_request
        from scaffold.verify.rollout.engine_side.training import Training
        from scaffold.verify.rollout.engine_side.transport import KitTransport, LibraryTransport

        dtype = getattr(torch, task.dtype)
        unit, ported = int(task.facts["pixels_per_token"]), task.facts.get("ported") or {}
        # Values that VeRL-Omni's configuration would otherwise fill in, and scales that only requests with images have.
        guidance = {**(task.facts["guidance"].get("filled") or {}), **(task.facts["guidance"].get("others") or {})}
        declared = task.facts.get("declared")
        self.texts = TEXTS if declared is None else SHORT_TEXTS
        if declared and declared["guidance"]:
            guidance = {declared["guidance"]: declared["scale"], **guidance}
        self.recipe = Recipe(
            *(SIDE * unit, SIDE * unit),
            noise_level=task.facts["noise_level"],
            guidance=guidance,
            brought=_room(task.facts["prompt"].get("around")),
            whole=declared is not None,
        )
        transport = KitTransport() if task.library is None else LibraryTransport()
        with _checkpoint(task, self.adapters) as checkpoint:
            fit = None if checkpoint is None else checkpoint.fit
            registered, wide = ported.get("pipeline"), bool(ported.get("own"))
            own = ported.get("additional_config")
            self.engine = Engine(self.adapters, task.checkpoint, dtype, transport, registered, fit, own, wide)
            self.prompts = _prompt_form(task, self.engine.pipeline, checkpoint)
            self.engine.media = tuple(task.facts.get("media") or ())
            if ported.get("staged"):
                folder = Path(task.checkpoint) / "stage_inputs"
                self.engine.stage_inputs = StageInputs(task.package, ported["given"]["stages"], folder, dtype)
            if checkpoint is not None:
                self.recipe = first_request(self.engine, checkpoint, self.recipe, ported, self.prompts)
        column = task.facts["prompt"]["column"]
        self.training = Training.load(self.adapters, task.checkpoint, dtype, column, self.recipe)
        if not ported:
            # A token of the tiny checkpoint may cover fewer pixels than the spec's.
            unit = self.training.pixels_per_token or unit
            self.recipe = replace(self.recipe, height=SIDE * unit, width=SIDE * unit)
        side, longer = SIDE * unit, SIDE * unit * 3 // 2
        sizes.allow(self.adapters, task.facts.get("sizes"), [(side, side), (side, longer), (longer, side)])
        self.table = None if declared is None else Declared.of(declared)
        self._first: list[Trajectory] | None = None
        if ported.get("loaded") and task.facts["guidance"]["scale"] is not None:
            self._find_negatives()

    def _find_negatives(self) -> None:
        """Send negative prompts where guidance acts on requests alone that bring one."""
        for negatives in (False, True):
            self.prompts = replace(self.prompts, negatives=negatives)
            ends = [self.roll_out(recipe, self.texts[:1])[0].latents[-1] for recipe in (self.recipe, self.unguided)]
            if not torch.equal(*ends):
                return
        self.prompts = replace(self.prompts, negatives=False)

    @property
    def first(self) -> list[Trajectory]:
        """One rollout of every prompt with the package's own settings; made once."""
        if self._first is None:
            self._first = self.roll_out(self.recipe)
        return self._first

    @property
    def embedded(self) -> int | None:
        """Number of tokens of every prompt's embeddings if it is independent of the prompt's length, else None."""
        found = {len(rows) for sample in self.first if (rows := sample.extra.get("prompt_embeds")) is not None}
        alike = len(found) == 1 and len({len(sample.token_ids) for sample in self.first}) > 1
        return found.pop() if alike else None

    @property
    def references(self) -> bool:
        """Whether the package is for edits, so that its requests bring images."""
        ported = self.task.facts.get("ported")
        return bool(ported["references"] if ported else self.task.facts.get("media"))

    def roll_out(
        self,
        recipe: Recipe,
        texts: Sequence[str] | None = None,
        *,
        lora: bool = False,
        native: bool = False,
        seed: int = 7,
    ) -> list[Trajectory]:
        """Generate one sample a text; ``native`` sends the data set's ids in place of the chat form."""
        # For packages whose noise takes no seed of the request, as the initial latents do.
        torch.manual_seed(seed + NOISE)
        samples = []
        for index, text in enumerate(self.texts if texts is None else texts):
            ids = self.prompts.native(text)
            sent = ids if native else self.prompts.chat(text)
            self.engine.negative = self.prompts.negative(text)
            samples.append(self.engine.generate(sent, recipe.sampling(seed + index), ids, lora=lora))
        return samples

    def validate(self, recipe: Recipe) -> tuple[dict[str, Any], list[recorder.StepTaken]]:
        """One validation request: what comes back as latents, timesteps and log-probs (None each), and its steps.

        Raises:
            RuntimeError: there is no output.
        """
        with recorder.steps() as taken:
            output = self.engine.answer(self.prompts.chat(self.texts[0]), recipe.sampling(7))
        found = trajectory_tensors(output)
        if output.output is None:
            raise RuntimeError("a validation request has no output")
        return found, taken

    def compare(
        self,
        samples: Sequence[Trajectory],
        recipe: Recipe,
        *,
        change: Change | None = None,
        together: bool = False,
        training: Any = None,
    ) -> Comparison:
        """Recompute the samples, one by one or in one padded batch.

        Args:
            change: edits the token ids that training is given; a control.
            together: one batch of all samples.
            training: another training side than the bench's.
        """
        side = training or self.training
        groups = [list(samples)] if together else [[sample] for sample in samples]
        parts = []
        for group in groups:
            ids = [change(sample.token_ids) if change else sample.token_ids for sample in group]
            parts.append(compare(group, side.recompute(group, recipe, ids)))
        return join(parts)

    @property
    def neutral(self) -> float:
        """The text guidance scale that means no guidance: 1, or 0 if the scale weights a term added to one."""
        return float(self.task.facts["guidance"].get("neutral", 1.0))

    def guided(self, scale: float) -> Recipe:
        """The recipe with another scale of text guidance.

        Raises:
            NotApplicable: the pipeline has no guidance.
        """
        name = self.task.facts["guidance"]["name"]
        if name is None:
            raise NotApplicable("the pipeline has no guidance scale")
        return replace(self.recipe, guidance={**self.recipe.guidance, name: scale})

    @property
    def unguided(self) -> Recipe:
        """The recipe with guidance off at every scale.

        Raises:
            NotApplicable: the pipeline has no guidance.
        """
        recipe = self.guided(self.neutral)
        return replace(recipe, guidance=dict.fromkeys(recipe.guidance, self.neutral))

    @cached_property
    def cause(self) -> str | None:
        """Why a comparison with the package's own settings fails, determined once; None if unknown."""
        from scaffold.verify.rollout.engine_side.cause import cause

        try:
            return cause(self, self.recipe)
        except Exception as error:
            return f"the cause was not found ({type(error).__name__}: {' '.join(str(error).split())[:100]})"

    def equal(self, checks: tuple[Check, Check], found: Comparison) -> tuple[Measurement, Measurement]:
        """The two measurements of a comparison in float32."""
        log_prob, velocity = checks
        if found.problem:
            told = found.problem
        else:
            told = f"largest difference of {len(found.steps)} log-probs, at {found.where}"
            if not found.log_prob <= (log_prob.limit or math.inf):
                told = f"{found.misfit or self.cause or 'no single cause was found'}; {told}"
        if found.velocity is None:
            second = Measurement(velocity.id, None, "no velocity of a side was seen at its SDE step", skipped=True)
        else:
            second = Measurement(
                velocity.id, found.velocity, f"largest difference of {len(found.steps)} velocities", floor=2**-23
            )
        return Measurement(log_prob.id, found.log_prob, told, floor=found.floor, series=found.series), second


def _room(around: Sequence[str] | None) -> dict[str, Any]:
    """Return the token limit for a prompt: the tiny tokenizer may need a token per byte."""
    return {"max_sequence_length": ROOM + len("".join(around).encode())} if around else {}


def _checkpoint(task: Task, adapters: sources.Adapters) -> contextlib.AbstractContextManager[Any]:
    """Inside the block the engine loads its checkpoint; a ported package's is written on demand."""
    facts = task.facts.get("ported")
    if facts is None:
        return contextlib.nullcontext()
    from scaffold.verify.rollout.engine_side.tiny.checkpoint import growing

    return growing(Path(task.checkpoint), task.package, adapters, facts, getattr(torch, task.dtype))


def _prompt_form(task: Task, pipeline: Any, checkpoint: Any) -> PromptForm:
    """Return how prompts become ids with the checkpoint's tokenizer, for a ported package its pipeline's.

    A pipeline that takes token ids, or follows other stages, may have none: the sender encodes the prompt.
    """
    if task.facts.get("ported"):
        if task.facts["ported"].get("tokenizer"):
            tokenizer = attrgetter(task.facts["ported"]["tokenizer"])(pipeline)
        else:
            holders = (pipeline, getattr(pipeline, "processor", None))
            tokenizer = next((found for holder in holders if (found := getattr(holder, "tokenizer", None))), None)
            if not hasattr(tokenizer, "encode"):  # a processor
                tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        if tokenizer is None:
            tokenizer = checkpoint.components.tokenizer()
    else:
        from transformers import AutoTokenizer

        files = Path(task.checkpoint).rglob("tokenizer_config.json")
        first = min(files, key=lambda file: (len(file.parts), file), default=None)
        folder = first.parent if first is not None else task.checkpoint  # in a folder of its own, say
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    prompt = task.facts["prompt"]
    rows = (
        rows_of(Path(task.facts["prompts"]), SHORT_TEXTS, Path(task.results).parent)
        if task.facts.get("prompts")
        else {}
    )
    return PromptForm(
        tokenizer,
        prompt["begin"],
        prompt["end"],
        prompt["add_special_tokens"],
        prompt["chat_template"],
        None if prompt.get("around") is None else tuple(prompt["around"]),
        rows,
    )


def _build_checkpoint(task: Task) -> None:
    """Run the package's own builder unless the checkpoint is there."""
    if task.builder is None:
        return
    import io
    import runpy
    import sys

    from scaffold.attributes import with_attribute

    command = [task.builder, "--output-dir", task.checkpoint]
    with with_attribute(sys, "argv", command), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(task.builder, run_name="__main__")
