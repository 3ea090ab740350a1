# Copyright 2026 Bytedance Ltd. and/or its affiliates
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The rollout adapter of a pipeline whose model the training module computes anew, from the prompt's ids."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .encoded import PromptRecorder
from .engine_queue import lock_queue
from .engine_views import EngineViews
from .joint_forward import JointForward
from .lockstep import seeded
from .lora_updates import SENT, LoraFold, base_place, placeholder_adapter
from .prompt_form import PromptForm, ensure_text
from .references import ReferencePlan, ReferenceRecorder
from .released import ReleasedWeights
from .request_batch import Replaced, roll_out_together
from .results import failed
from .stepped import SteppedPlan, SteppedRollout

logger = logging.getLogger(__name__)

# By which constructors draw a parameter's first values.
_DRAWN = frozenset(
    f"{kind}_"
    for kind in (
        *("uniform", "normal", "erfinv", "trunc_normal", "orthogonal"),
        *("kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal"),
    )
)


@dataclass(frozen=True)
class ComposedPlan(SteppedPlan):
    """How such a pipeline is rolled out.

    Attributes:
        pipeline: name of its class, for messages.
        prompts: what it makes of a text.
        weights: names and files of the checkpoint.
        pinned: settings of a request that change what the pipeline generates and that training does not reproduce
            otherwise.
        more_steps: by how many the pipeline is asked for more than training takes for the same number.
        engine_prefix: what the engine puts before every name of the checkpoint.
        second_name: what it puts there that the pipeline does not know, for it calls modules by a second name.
        unused: prefixes of the engine's modules that are not trained, one of which a placeholder is bound to; without
            any it is given a layer that nothing calls.
        packed_lora: the engine's adapter manager wraps layers of every kind.
        token_pixels: side of the square that a latent stands for, where the pipeline makes images of few sizes alone.
        worker_extension: by which LoRA updates reach this adapter, where the engine does not bring them by itself.
        reference: where the image enters that requests bring; None where they bring none.
        training: ``module.Class`` of the training adapter, by which several requests are made at once.
        replaced: calls of the pipeline that then need not be made; without any, requests are made one by one.
    """

    pipeline: str = ""
    prompts: PromptForm = field(default_factory=PromptForm)
    weights: ReleasedWeights | None = None
    pinned: Mapping[str, Any] = field(default_factory=dict)
    more_steps: int = 0
    engine_prefix: str = ""
    second_name: str = ""
    unused: tuple[str, ...] = ()
    packed_lora: bool = True
    token_pixels: int = 0
    worker_extension: str = ""
    reference: ReferencePlan | None = None
    training: str = ""
    replaced: tuple[Replaced, ...] = ()


class ComposedRollout(SteppedRollout):
    """Goes before a pipeline of vllm-omni: samples with the SDE scheduler and returns the trajectory of its window."""

    rollout_plan: ClassVar[ComposedPlan]

    tokenizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with _Undrawn():
            super().__init__(*args, **kwargs)
        lock_queue()
        plan = self.rollout_plan
        self._prompt = PromptRecorder(cast(Any, self), plan.pipeline)
        self._reference: ReferenceRecorder | None = None  # made for the first request with an image
        self._inputs: dict[str, Tensor] | None = None
        self.asked_guidance: dict[str, Any] = {}
        assert plan.weights is not None
        self._views = EngineViews(cast(Any, self), plan.weights, plan.engine_prefix)
        self._joint: JointForward | None = None
        self.one_by_one = ""  # why requests of a batch are made so

    def forward(self, req: Any) -> Any:
        """Make one request, or all of a batch; see :meth:`roll_out`.

        Returns:
            The result of one request; of several a list, in which an error stands at its own request.
        """
        requests = getattr(req, "requests", None) or ()
        if len(requests) < 2:
            return self.roll_out(req, req.sampling_params)
        singles = [type(req)(requests=[request]) for request in requests]
        joint = self._joint_forward()
        if joint is None:
            return [self._contained(single) for single in singles]
        together = [single for single in singles if self._joins(single.sampling_params)]
        results = iter(roll_out_together(self, together, joint))
        return [next(results) if self._joins(single.sampling_params) else self._contained(single) for single in singles]

    def _contained(self, single: Any) -> Any:
        try:
            return self.roll_out(single, single.sampling_params)
        except Exception as error:
            return failed(error)

    def _joins(self, params: Any) -> bool:
        """Whether a request can be made with others."""
        return bool(params.height and params.width and getattr(params, "lora_request", None) is None)

    def _joint_forward(self) -> JointForward | None:
        """The joint forward pass over the engine's present weights; None where there can be none."""
        plan, asked = self.rollout_plan, getattr(self.od_config, "additional_config", None) or {}
        if not plan.replaced or not asked.get("two_streams", True) or self.one_by_one:
            return None
        if self._joint is None:
            weight = next(cast(Any, self).parameters())
            most = asked.get("images_per_pass")
            self._joint = JointForward(
                plan.training,
                self.checkpoint_folder(),
                self._views,
                self.od_config.dtype or weight.dtype,
                weight.device,
                None if most is None else int(most),
            )
        try:
            self._joint.bind()
        except LookupError as error:
            self.one_by_one = str(error)
            logger.warning("requests of a batch are made one by one: %s", error)
            return None
        return self._joint

    def roll_out(self, req: Any, params: Any) -> Any:
        """Generate one image, asked for with ``params``; trajectory tensors have a leading batch dimension of 1.

        Raises:
            ValueError: the request asks for something that training does not reproduce.
            RuntimeError: the pipeline did not follow the training schedule, or LoRA was not folded.
        """
        plan = self.rollout_plan
        ensure_text(plan.prompts, self, req, plan.pipeline)
        extra_args = self._extra_args(params)
        self.asked_guidance = self._set_guidance(params, extra_args)
        for name, value in plan.pinned.items():
            if extra_args.setdefault(name, value) != value:
                raise ValueError(f"training knows {name}={value!r} alone, the request has {extra_args[name]!r}")
        steps = self._steps(params, extra_args, req.prompts[0])
        self.sde_scheduler.start(**steps)
        self.begin_inputs(req, steps["noise_level"] > 0.0)
        params.num_inference_steps = max(1, steps["num_inference_steps"] + plan.more_steps)
        try:
            with seeded(params.seed):
                output = self.generate(req)
        finally:
            params.num_inference_steps = steps["num_inference_steps"]
        trajectory = self.sde_scheduler.end()
        if steps["num_inference_steps"] > 1:  # the warm-up may have any size
            self._check_size(params, trajectory[0])
        return self._result(output, trajectory, {} if trajectory[0] is None else self.finish_inputs())

    def generate(self, req: Any) -> Any:
        """Run the pipeline."""
        return super().forward(req)  # type: ignore[misc]

    def begin_inputs(self, req: Any, recorded: bool) -> None:
        """Start to keep what training needs beside the trajectory, of the prompt and of a reference image."""
        prompts = self.rollout_plan.prompts
        width = int(req.sampling_params.max_sequence_length or self.rollout_plan.common.MAX_PROMPT_LENGTH)
        prompt, joint = req.prompts[0], self.sde_scheduler.joint is not None
        ids = prompts.ids(self.tokenizer, prompt) if recorded or joint else None
        self._prompt.begin(ids, width if recorded or ids is None else max(width, len(ids)))
        self._inputs = None
        brings = self.brings_image(prompt)
        if brings or self._reference is not None:
            self.reference_recorder().begin(brings)

    def brings_image(self, prompt: Any) -> bool:
        """Whether a request brings an image that is to be changed."""
        brings = self.rollout_plan.reference is not None and isinstance(prompt, dict)
        return brings and bool(prompt.get("multi_modal_data"))

    def reference_recorder(self) -> ReferenceRecorder:
        """Keeps what the pipeline makes of such an image."""
        if self._reference is None:
            self._reference = ReferenceRecorder(cast(Any, self), cast(ReferencePlan, self.rollout_plan.reference))
        return self._reference

    def finish_inputs(self) -> dict[str, Tensor]:
        """What training needs beside the trajectory, by column, with a leading batch dimension of 1."""
        if self._inputs is None:
            reference = self._reference.finish() if self._reference is not None else {}
            self._inputs = {**self._prompt.finish(), **reference}
        return self._inputs

    def _check_size(self, params: Any, latents: Tensor | None) -> None:
        side = self.rollout_plan.token_pixels
        if not side or latents is None:
            return
        tokens = (params.height // side) * (params.width // side) if params.height and params.width else None
        if latents.shape[2] != tokens:
            raise ValueError(
                f"{self.rollout_plan.pipeline} makes images of few sizes alone, and {params.width}x{params.height} is"
                " none of them: training would take other positions"
            )

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load checkpoint weights, or the actor's, which come as ``transformer.<training name>``.

        The actor's names go back through the package's rules to the checkpoint's, which the pipeline can place.

        Returns:
            Names of the engine's parameters that were filled.
        """
        named, second = self._checkpoint_names(weights), self.rollout_plan.second_name
        if second:  # vllm loads an embedding that stands twice under its first name alone
            named = ((name.removeprefix(second), tensor) for name, tensor in named)
        if self._joint is not None:
            self._joint.compared = False
        with self._views.watched() as watched:
            filled: set[str] = super().load_weights(watched(named))  # type: ignore[misc]
        return filled

    def _checkpoint_names(self, weights: Iterable[tuple[str, Tensor]]) -> Iterable[tuple[str, Tensor]]:
        """Give the actor's weights the checkpoint's names; those of the checkpoint are passed on as they are."""
        plan = self.rollout_plan
        assert plan.weights is not None
        own: set[str] = set()

        def training_name(name: str) -> str | None:
            if name.startswith(SENT):
                return sent_name(name)
            own.add(name)
            return None

        for name, tensor in plan.weights.tensors(weights, training_name):
            if name in own:
                own.discard(name)
                yield name, tensor
            else:
                yield plan.engine_prefix + name, tensor

    def checkpoint_folder(self) -> str:
        """Local folder of the model, which may have been named by its Hub id."""
        if os.path.isdir(self.od_config.model):
            return str(self.od_config.model)
        from huggingface_hub import snapshot_download

        revision = getattr(self.od_config, "revision", None)
        return str(snapshot_download(self.od_config.model, revision=revision, local_files_only=True))


class FoldingRollout(ComposedRollout):
    """The same with LoRA, which is folded into the engine's weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lora_fold = LoraFold(self._mapped_checkpoint, sent_name, base_place(getattr(self, "od_config", None)))
        self._lora_folded = False

    def roll_out(self, req: Any, params: Any) -> Any:
        """Generate one image; see :meth:`ComposedRollout.roll_out`."""
        self._require_folded(params)
        return super().roll_out(req, params)

    def _joins(self, params: Any) -> bool:
        return bool(params.height and params.width)  # LoRA is in the weights

    def _require_folded(self, params: Any) -> None:
        extension = self.rollout_plan.worker_extension
        if extension and getattr(params, "lora_request", None) is not None and not self._lora_folded:
            raise RuntimeError(
                "the engine got a LoRA adapter that was not folded into its weights, and would drop most of it; set"
                f" +actor_rollout_ref.rollout.engine_kwargs.vllm_omni.worker_extension_cls to {extension}"
            )

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load the checkpoint's weights or the actor's, whose digests are kept to recognise a changed base by."""
        return super().load_weights(self._lora_fold.noting(weights))

    def map_lora_update_to_engine(
        self, tensors: dict[str, Tensor], peft_config: dict[str, Any]
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Make the actor's LoRA take effect by folding it into the engine's weights.

        The engine keeps the generation weights where its own adapter manager cannot wrap them, and drops an adapter
        that finds no module without a word. Each push is folded into the checkpoint's weights anew, so nothing adds
        up; the weights are read from the mapped file, and only what a rule joins is kept.

        Args:
            tensors: ``transformer.<training name>.lora_A.weight`` and ``….lora_B.weight``.
            peft_config: PEFT's configuration as a dictionary.

        Returns:
            What is left for the engine's adapter manager: one adapter of zeros on a module that is not trained,
            because the manager insists on binding something.

        Raises:
            ValueError: the update is not plain LoRA, names a module that the checkpoint does not have, the actor's
                base weights are not the checkpoint's, or the engine has no module to bind a placeholder to.
        """
        device = next(cast(Any, self).parameters()).device
        folded = self._lora_fold.folded(tensors, peft_config, lambda name: (device, torch.float32))
        placeholder = self._placeholder_adapter(peft_config, int(peft_config["r"]))
        if tensors and not super().load_weights(folded):
            raise ValueError(f"the engine took none of the {len(tensors) // 2} weights that LoRA was folded into")
        self._lora_folded = True
        return placeholder

    def _mapped_checkpoint(self) -> Mapping[str, Tensor]:
        assert self.rollout_plan.weights is not None
        return self.rollout_plan.weights.open(self.checkpoint_folder())

    def _placeholder_adapter(self, peft_config: dict[str, Any], rank: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        plan = self.rollout_plan
        return placeholder_adapter(cast(Any, self), peft_config, packed=plan.packed_lora, unused=plan.unused)


class _Undrawn(TorchFunctionMode):
    """Leaves parameters as they are allocated where a constructor would draw their values.

    The engine builds a pipeline on the CPU, where a billion of them take a minute, and then loads each one: its
    loader refuses a checkpoint that leaves one out.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        filled = args[0] if args else given.get("tensor")
        if isinstance(filled, nn.Parameter) and getattr(func, "__name__", "") in _DRAWN:
            return filled
        return func(*args, **given)


def sent_name(name: str) -> str:
    """Name of a parameter in the training module, from the one under which the actor sends it."""
    return name.rpartition(SENT)[2].replace(".base_layer.", ".")


def in_dtype_of_module(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Forward pre-hook: cast the arguments to the dtype of the module's first parameter."""
    dtype = next(module.parameters()).dtype

    def cast_one(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    return tuple(map(cast_one, args)), {name: cast_one(value) for name, value in kwargs.items()}


def require_chat_template(holder: Any, prefix: str, suffix: str, behind: str = "") -> None:
    """Compare the checkpoint's chat template, which the pipeline uses, with the texts that training uses.

    Args:
        holder: has the template; None where there is none.
        prefix, suffix: the texts around a prompt.
        behind: what the pipeline puts behind the template's text.

    Raises:
        ValueError: they put something else around a prompt.
    """
    if holder is None:
        return
    turn = [{"role": "user", "content": "a prompt"}]
    text = holder.apply_chat_template(turn, tokenize=False, add_generation_prompt=True) + behind
    if text != f"{prefix}a prompt{suffix}":
        raise ValueError(
            f"the checkpoint's chat template makes {text!r} of a prompt; PROMPT_PREFIX and PROMPT_SUFFIX say otherwise"
        )
