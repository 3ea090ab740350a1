"""The rollout adapter of a pipeline whose denoiser calls are recorded."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar, cast

import torch

from .calls import COLUMN
from .checkpoint import DenoiserSource
from .engine_config import weights_file
from .engine_queue import lock_queue
from .engine_weights import fill_denoiser, fold_by_name, has_engine_linear, mapped_checkpoint, sent_name
from .joined_calls import JoinedCalls, pipeline_view
from .lockstep import seeded
from .lora_updates import LoraFold, add_spare_linear, base_place, placeholder_adapter
from .passes import Passes
from .prompts import ensure_prompt_text
from .records import as_column
from .results import PIXELS, failed
from .stepped import SteppedPlan, SteppedRollout


@dataclass(frozen=True)
class LoopOfModule:
    """The sampling loop is a method of a submodule of the pipeline.

    Attributes:
        kind: class of that module.
        loop: the copy of the method with the stochastic step in it.
    """

    kind: type
    loop: Callable[..., Any]

    def bind(self, pipeline: torch.nn.Module, scheduler: Any) -> None:
        """Put the copy in the method's place.

        Raises:
            RuntimeError: there is not one such module, or a class below it has a loop of its own.
        """
        name = self.loop.__name__
        modules = list(pipeline.modules())
        for value in vars(pipeline).values():  # an object that is no module may hold some
            inner = vars(value).values() if hasattr(value, "__dict__") else ()
            modules += [module for one in inner if isinstance(one, torch.nn.Module) for module in one.modules()]
        holders: list[Any] = list(dict.fromkeys(module for module in modules if isinstance(module, self.kind)))
        if len(holders) != 1 or getattr(type(holders[0]), name) is not getattr(self.kind, name):
            raise RuntimeError(
                f"{type(pipeline).__name__} holds {len(holders)} modules {self.kind.__name__}, of which one with its"
                " own loop is known"
            )
        holders[0].sde_scheduler = scheduler
        setattr(holders[0], name, types.MethodType(self.loop, holders[0]))


@dataclass(frozen=True)
class LoopOfFile:
    """The sampling loop is a function of a file.

    Attributes:
        file: the module that the pipeline looks it up in.
        name: of the function there.
        loop: the copy of it with the stochastic step in it.
    """

    file: Any
    name: str
    loop: Callable[..., Any]

    @contextlib.contextmanager
    def replaced(self, scheduler: Any) -> Iterator[None]:
        """Let the pipeline find the copy under the loop's name."""
        before = getattr(self.file, self.name)
        setattr(self.file, self.name, functools.partial(self.loop, sde_scheduler=scheduler))
        try:
            yield
        finally:
            setattr(self.file, self.name, before)


class FollowedScheduler:
    """An attribute of the pipeline that holds the scheduler that steps; what the pipeline sets there is followed."""

    def __get__(self, pipeline: Any, owner: type | None = None) -> Any:
        return self if pipeline is None else pipeline.sde_scheduler

    def __set__(self, pipeline: Any, scheduler: Any) -> None:
        pipeline.sde_scheduler.following(scheduler)


@dataclass(frozen=True)
class RolloutPlan(SteppedPlan):
    """How a pipeline is rolled out whose denoiser calls are recorded.

    Attributes:
        recorder: makes, of what both sides share and the pipeline's name, the scheduler that steps and records.
        denoiser: class of the module whose calls are recorded; None where none are.
        source: where the pipeline gets its denoiser from; None where it is not known how to load it.
        attribute: of the pipeline that holds the denoiser; empty for a pipeline that is one.
        tables: makes, of the denoiser, what the pipeline computes of its configuration and gives to every call.
        beside: says what the denoiser reads from the engine's context, under the names of the ported one's arguments.
        loop: where the loop is whose update is replaced; a function is a copy of the pipeline's ``forward``.
        steps_in_extra_args: the pipeline reads the number of steps there.
        folds_lora: LoRA is folded into the weights.
        packed_lora: the engine's adapter manager wraps layers of every kind.
        spare_at_start: the manager looks for layers once, when it starts, and refuses a pipeline without any.
        tokenizer: path of the tokenizer in the pipeline, for prompts that come as ids.
        takes_ids: the pipeline reads the prompt's token ids, and no text.
        text_only: what is rolled out is made of text, whatever the engine's warm-up brings: entries of a request that
            stay then beside the text, or True for all but media.
    """

    recorder: Callable[[Any, str], Any] | None = None
    denoiser: type[torch.nn.Module] | None = None
    source: DenoiserSource | None = None
    attribute: str = ""
    tables: Callable[[Any], dict[str, Any]] | None = None
    beside: Callable[[], dict[str, Any]] | None = None
    loop: LoopOfModule | LoopOfFile | Callable[..., Any] | None = None
    steps_in_extra_args: bool = False
    folds_lora: bool = True
    packed_lora: bool = True
    spare_at_start: bool = False
    tokenizer: str = ""
    takes_ids: bool = False
    text_only: bool | tuple[str, ...] = False


class RecordedRollout(SteppedRollout):
    """Goes before a pipeline of vllm-omni: samples with the SDE scheduler and returns the trajectory of its window."""

    rollout_plan: ClassVar[RolloutPlan]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Before the pipeline makes a scheduler of its own, which this one then follows. Plain attributes of a module
        # can be set before it is one.
        plan = self.rollout_plan
        name = type(self).__bases__[-1].__name__
        scheduler = plan.recorder(plan.common, name) if plan.recorder is not None else None
        object.__setattr__(self, "sde_scheduler", scheduler)
        if plan.source is not None and plan.source.file:
            # The engine is given the folder around the file that the pipeline asks for.
            kwargs["od_config"].model = weights_file(kwargs["od_config"].model)
        super().__init__(*args, **kwargs)
        lock_queue()
        pipeline: Any = self
        if not hasattr(pipeline, "od_config"):  # a pipeline need not keep it
            pipeline.od_config = kwargs["od_config"] if "od_config" in kwargs else args[0]
        if plan.spare_at_start and not has_engine_linear(pipeline):
            add_spare_linear(pipeline, packed=plan.packed_lora)
        self._watched = False
        self._bound = False
        self._passes: Passes | None = None
        self.one_by_one = ""  # why requests of a batch are made so

    def forward(self, req: Any) -> Any:
        """Make one request, or all of a batch; see :meth:`roll_out`.

        Returns:
            The result of one request; of several a list, in which an error stands at its own request.
        """
        requests = getattr(req, "requests", None) or ()
        if len(requests) < 2:
            return self.roll_out(req)
        singles = [type(req)(requests=[request]) for request in requests]
        self._watch()
        calls = self._joined_calls()
        if calls is None:
            return [self._contained(single) for single in singles]
        results = calls.lockstep.run([functools.partial(self._apart(calls).roll_out, single) for single in singles])
        return [failed(result) if isinstance(result, Exception) else result for result in results]

    def _contained(self, single: Any) -> Any:
        try:
            return self.roll_out(single)
        except Exception as error:
            return failed(error)

    def _joined_calls(self) -> JoinedCalls | None:
        """What makes the calls of several requests in one; None where each has to make its own."""
        plan, asked = self.rollout_plan, getattr(self.od_config, "additional_config", None) or {}
        denoiser = getattr(self, plan.attribute, None) if plan.attribute else None
        if denoiser is None or not isinstance(denoiser, plan.denoiser or ()):
            self.one_by_one = "the denoiser is not an attribute of the pipeline"
        elif isinstance(plan.loop, LoopOfModule | LoopOfFile):
            self.one_by_one = "the loop is not the pipeline's own"
        elif not plan.common.CALLS.stacked:
            self.one_by_one = "it has not been shown that a sample of a call gets what it gets alone"
        if self.one_by_one or denoiser is None:
            return None
        if self._passes is None:
            most = asked.get("images_per_pass")
            self._passes = Passes(None if most is None else int(most))
        tables = plan.tables(denoiser) if plan.tables is not None else {}
        return JoinedCalls(denoiser, plan.common.CALLS.method, tables, self._passes)

    def _apart(self, calls: JoinedCalls) -> Any:
        """This adapter for one request of several, with a scheduler and a record of its own."""
        plan, name = self.rollout_plan, self.sde_scheduler.pipeline
        assert plan.recorder is not None
        return pipeline_view(self, plan.attribute, calls.view(), plan.recorder(plan.common, name))

    def roll_out(self, req: Any) -> Any:
        """Generate, and record latents, noise levels, log-probs and the calls of the denoiser.

        Raises:
            ValueError: the request lacks something, or asks for more than one sample.
            RuntimeError: the pipeline did not do what training would.
        """
        self.prepare_rollout(req)
        plan, params = self.rollout_plan, req.sampling_params
        extra_args = self._extra_args(params)
        if getattr(params, "output_type", None) == PIXELS:
            params.output_type = None  # upstream has its own words for them
        if plan.steps_in_extra_args:
            extra_args["num_inference_steps"] = int(params.num_inference_steps)
        self._watch()
        scheduler = self.sde_scheduler
        guidance = self._set_guidance(params, extra_args)
        scheduler.begin(
            record_calls=plan.denoiser is not None,
            **self._steps(params, extra_args, req.prompts[0] if req.prompts else None),
        )
        try:
            replaced = plan.loop.replaced(scheduler) if isinstance(plan.loop, LoopOfFile) else contextlib.nullcontext()
            with replaced, seeded(params.seed):
                output = plan.loop(self, req) if callable(plan.loop) else super().forward(req)  # type: ignore[misc]
        except BaseException:
            scheduler.calls.close()
            raise
        # Not every release of the engine says which request is its own.
        warms_up = getattr(req, "is_dummy_run", None)
        trajectory = scheduler.finish(warm_up=warms_up is not None and warms_up())
        calls = scheduler.calls.finish(guidance, scheduler.inner.sigmas.cpu()) if plan.denoiser is not None else None
        return self._result(output, trajectory, {} if calls is None else {COLUMN: as_column(calls)})

    def prepare_rollout(self, req: Any) -> None:
        """Give the pipeline the text it wants in place of the token ids that the agent loop sends."""
        plan = self.rollout_plan
        ensure_prompt_text(self, req, tokenizer=plan.tokenizer, text_only=plan.text_only, takes_ids=plan.takes_ids)

    def _watch(self) -> None:
        """Watch the denoiser and bind the loop, once the pipeline has loaded them.

        Raises:
            RuntimeError: there is not one of each.
        """
        plan, pipeline = self.rollout_plan, cast(Any, self)
        if plan.denoiser is not None and not self._watched:
            denoisers = [module for module in pipeline.modules() if isinstance(module, plan.denoiser)]
            if len(denoisers) != 1:
                raise RuntimeError(
                    f"{type(self).__name__} holds {len(denoisers)} modules {plan.denoiser.__name__}, training has one"
                )
            tables = plan.tables(denoisers[0]) if plan.tables is not None else None
            self.sde_scheduler.calls.watch(denoisers[0], plan.beside, tables)
            self._watched = True
        if isinstance(plan.loop, LoopOfModule) and not self._bound:
            plan.loop.bind(pipeline, self.sde_scheduler)
            self._bound = True

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]] | None) -> set[str]:
        """Load checkpoint weights, or the actor's, which come as ``transformer.<training name>``.

        The checkpoint's come first, and only from a pipeline that lists ``weights_sources``; all later ones are the
        actor's.

        Returns:
            Names of the engine's parameters that were filled.
        """
        weights = iter(weights or ())
        first = list(islice(weights, 1))
        weights = chain(first, weights)
        if not getattr(self, "_loaded", False) and (getattr(self, "weights_sources", None) or not first):
            loaded: set[str] = super().load_weights(weights)  # type: ignore[misc]
            self._loaded = True
            return loaded
        filled, attribute = self.fill_weights(weights), self.rollout_plan.attribute
        return {f"{attribute}.{name}" for name in filled} if attribute else filled

    def fill_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Put the actor's weights into the denoiser."""
        plan = self.rollout_plan
        assert plan.source is not None
        if plan.folds_lora:
            weights = self._lora_fold.noting(weights)
        return fill_denoiser(self._engine_denoiser, weights, plan.source.fused)

    @property
    def _engine_denoiser(self) -> Any:
        attribute = self.rollout_plan.attribute
        return getattr(self, attribute) if attribute else self

    @property
    def _lora_fold(self) -> LoraFold:
        if "_fold" not in self.__dict__:
            self.__dict__["_fold"] = LoraFold(self._mapped_checkpoint, sent_name, base_place(self.od_config))
        fold: LoraFold = self.__dict__["_fold"]
        return fold

    def _mapped_checkpoint(self) -> dict[str, torch.Tensor]:
        assert self.rollout_plan.source is not None
        return mapped_checkpoint(self.rollout_plan.source, self.od_config.model)

    def fold_lora(self, tensors: dict[str, torch.Tensor], peft_config: dict[str, Any]) -> None:
        """Fold the actor's update into the denoiser's weights."""
        assert self.rollout_plan.source is not None
        fold_by_name(self._engine_denoiser, self._lora_fold, tensors, peft_config, self.rollout_plan.source.fused)

    def map_lora_update_to_engine(
        self, tensors: dict[str, torch.Tensor], peft_config: dict[str, Any]
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Make the actor's LoRA take effect by folding it into the engine's weights.

        The engine's own adapter manager looks modules up by name and drops those that it does not find without a word.

        Args:
            tensors: ``transformer.<training name>.lora_A.weight`` and ``….lora_B.weight``.
            peft_config: PEFT's configuration as a dictionary.

        Returns:
            What is left for the manager: one adapter of zeros on a layer that nothing calls, because the manager
            insists on binding something.

        Raises:
            ValueError: the update is not plain LoRA, or the engine has no layer to bind a placeholder to.
            KeyError: the engine has no parameter for a module of the update.
        """
        self.fold_lora(tensors, peft_config)
        pipeline: Any = self
        return placeholder_adapter(pipeline, peft_config, packed=self.rollout_plan.packed_lora)
