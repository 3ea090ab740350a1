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
"""Rollout side of BAGEL-7B-MoT: ``BagelPipeline`` with stochastic steps and recorded log-probs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from huggingface_hub import snapshot_download
from vllm_omni.diffusion.data import DiffusionOutput, OmniDiffusionConfig
from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline
from vllm_omni.diffusion.worker.request_batch import DiffusionRequestBatch

from verl_omni.pipelines.diffusion_rollout_output import rollout_output
from verl_omni.pipelines.model_base import VllmOmniPipelineBase
from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler

from .bagel_model import IGNORED_KEYS, open_checkpoint, to_checkpoint_key
from .common import (
    CFG_DEFAULTS,
    INCLUDE_LOGPROB_NORMALIZER,
    MAX_PROMPT_LENGTH,
    pick_sde_window,
    resolve_guidance,
    setup_bagel_sigmas,
)


def _training_name(name: str) -> str:
    """Name of a parameter in BagelForTraining, from the one under which the actor sends it."""
    return name.rpartition("transformer.")[2].replace(".base_layer.", ".")


class _StepOutput(NamedTuple):
    prev_sample: torch.Tensor
    log_prob: torch.Tensor | None


class _BagelSchedulerAdapter:
    """Takes the place of the pipeline's scheduler for its whole life: steps, records, and checks the schedule.

    ``BagelPipeline`` calls ``step(model_output, timestep, sample, dt)`` on latents without a batch dimension. Inside
    the window a step is stochastic and recorded, outside it is the plain Euler step. Latents, noise levels and
    log-probs are recorded together, so they cannot be out of step, and none of the pipeline's own trajectory is used.
    """

    def __init__(self) -> None:
        self.inner = FlowMatchSDEDiscreteScheduler()
        self._window: tuple[int, int] | None = None
        self._may_be_empty = False
        self._options: dict[str, Any] = {}
        self._generator: torch.Generator | None = None
        self._sigmas: list[torch.Tensor] = []
        self._latents: list[torch.Tensor] = []
        self._log_probs: list[torch.Tensor] = []

    def begin(
        self,
        *,
        num_inference_steps: int,
        window: tuple[int, int] | None,
        noise_level: float,
        sde_type: str,
        record_log_probs: bool,
        generator: torch.Generator | None,
    ) -> None:
        """Start a trajectory.

        Args:
            num_inference_steps: what the request asks for; the schedule follows from it.
            window: steps ``[begin, end)`` to sample and record; None for all.
            noise_level: of the steps in the window; at 0, as in validation, nothing is recorded.

        Raises:
            ValueError: the window lies outside the schedule.
        """
        count = len(setup_bagel_sigmas(self.inner, num_inference_steps))
        begin, end = (window or (0, count)) if noise_level > 0.0 else (0, 0)
        if noise_level > 0.0 and not 0 <= begin < end <= count:
            raise ValueError(f"SDE window [{begin}, {end}) does not lie in the {count} steps of {num_inference_steps=}")
        self._window = (begin, end)
        self._may_be_empty = num_inference_steps == 1  # the engine's warm-up, which some releases run without a step
        self._options = {"noise_level": noise_level, "sde_type": sde_type, "return_logprobs": record_log_probs}
        self._generator = generator
        self._sigmas, self._latents, self._log_probs = [], [], []

    def step(
        self,
        model_output: torch.Tensor,
        sigma: torch.Tensor | float,
        sample: torch.Tensor,
        dt: torch.Tensor | float,
        **kwargs,
    ) -> _StepOutput:
        """Advance ``sample`` by one step of the schedule.

        Args:
            model_output: velocity ``(N, C)``.
            sigma: noise level reported by the pipeline; compared with the schedule in :meth:`finish`.
            sample: latents, shaped like the velocity.
            dt: not used, the schedule has it.

        Raises:
            RuntimeError: the pipeline takes more steps than training knows, or none was announced.
        """
        if self._window is None:
            raise RuntimeError("step() outside of BagelPipelineWithLogProb.forward()")
        index, (begin, end) = len(self._sigmas), self._window
        if index >= len(self.inner.timesteps):
            raise RuntimeError(f"BagelPipeline takes more than the {index} steps of the training schedule")
        inside = begin <= index < end
        options = self._options if inside else {**self._options, "noise_level": 0.0, "return_logprobs": False}
        sample = sample.float()[None]
        prev_sample, log_prob, _, _ = self.inner.step(
            model_output=model_output.float()[None],
            timestep=self.inner.timesteps[index],
            sample=sample,
            generator=self._generator,
            include_logprob_normalizer=INCLUDE_LOGPROB_NORMALIZER,
            return_dict=False,
            **options,
        )
        self._sigmas.append(torch.as_tensor(sigma, dtype=torch.float32).detach())
        if inside:
            if not self._latents:
                self._latents.append(sample)
            self._latents.append(prev_sample)
            if log_prob is not None:
                self._log_probs.append(log_prob)
        return _StepOutput(prev_sample[0], None if log_prob is None else log_prob[0])

    def finish(self) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """End the trajectory.

        Returns:
            ``latents (1, W + 1, N, C)``, ``timesteps (1, W)`` and ``log_probs (1, W)`` on the CPU, for a window of W
            steps; log_probs is None where none were asked for, all are None without noise or without a step.

        Raises:
            RuntimeError: the pipeline's noise levels are not those of the training schedule.
        """
        (begin, end), self._window = self._window, None
        if not self._sigmas and self._may_be_empty:
            return None, None, None
        expected = self.inner.timesteps.cpu()
        seen = torch.stack([sigma.reshape(()).cpu() for sigma in self._sigmas]) if self._sigmas else expected[:0]
        if seen.shape != expected.shape:
            raise RuntimeError(
                f"BagelPipeline took {len(seen)} steps, training takes {len(expected)}: the step count of this"
                " vllm-omni release differs from the one this package was made for"
            )
        wrong = (seen - expected).abs() > 1e-5
        if wrong.any():
            step = int(wrong.nonzero()[0])
            raise RuntimeError(
                f"BagelPipeline was at noise level {seen[step]:.6f} in step {step}, training expects"
                f" {expected[step]:.6f}: the schedules differ (shift or number of steps)"
            )
        if not self._latents:
            return None, None, None
        latents = torch.stack(self._latents, dim=1).cpu()
        log_probs = torch.stack(self._log_probs, dim=1).cpu() if self._log_probs else None
        return latents, expected[begin:end][None], log_probs


class _PromptRecorder:
    """Keeps the ids that ``BagelPipeline`` embeds, so that training is given those that it really encoded.

    Args:
        pipeline: has the table of embeddings under the name ``embed_tokens``.

    Raises:
        RuntimeError: the pipeline has no such module.
    """

    def __init__(self, pipeline: torch.nn.Module) -> None:
        self._expected: list[int] | None = None
        self._width = 0
        self._embedded: list[torch.Tensor] = []
        tables = {module for path, module in pipeline.named_modules() if path.rpartition(".")[2] == "embed_tokens"}
        if not tables:
            raise RuntimeError("BagelPipeline has no module embed_tokens, by which a prompt enters")
        for table in tables:
            table.register_forward_pre_hook(self._keep)

    def begin(self, expected: list[int] | None, width: int) -> None:
        """Start a request.

        Args:
            expected: ids that its text has; None where nothing is to be recorded.
            width: most ids that a prompt may have.

        Raises:
            ValueError: there are more ids; they are never cut.
        """
        if expected is not None and len(expected) > width:
            raise ValueError(f"{len(expected)} tokens of a prompt where max_sequence_length leaves room for {width}")
        self._expected, self._width, self._embedded = expected, width, []

    def _keep(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if self._expected is not None and args:
            self._embedded.append(args[0].detach().flatten().clone())

    def finish(self) -> dict[str, torch.Tensor]:
        """Ids ``(1, width)`` int64 and their mask ``(1, width)`` bool, by column; nothing where none was expected.

        All requests have the same width, so that their columns stack; zeros and False stand behind the ids.

        Raises:
            RuntimeError: the pipeline did not embed the expected ids, in one piece.
        """
        if self._expected is None:
            return {}
        expected, self._expected = torch.tensor(self._expected, dtype=torch.long), None
        if not any(_holds(embedded.cpu(), expected) for embedded in self._embedded):
            raise RuntimeError(
                f"BagelPipeline encoded another prompt than the {len(expected)} tokens that training would be given"
            )
        behind = self._width - len(expected)
        return {
            "encoded_prompt_ids": torch.nn.functional.pad(expected, (0, behind))[None],
            "encoded_prompt_mask": torch.arange(self._width)[None] < len(expected),
        }


def _holds(ids: torch.Tensor, part: torch.Tensor) -> bool:
    """Whether ``part`` ``(L,)`` stands in ``ids`` ``(M,)`` in one piece."""
    return len(ids) >= len(part) and bool((ids.unfold(0, len(part), 1) == part).all(dim=1).any())


@VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")
class BagelPipelineWithLogProb(BagelPipeline):
    """``BagelPipeline`` that samples with the SDE scheduler and returns the trajectory of its window."""

    def __init__(self, *, od_config: OmniDiffusionConfig, prefix: str = ""):
        super().__init__(od_config=od_config, prefix=prefix)
        self.scheduler = _BagelSchedulerAdapter()
        self._prompt = _PromptRecorder(self)
        self.scheduler_kwargs = {}
        self._synced_sums: dict[str, tuple[torch.dtype, torch.Tensor]] = {}

    def forward(self, req: DiffusionRequestBatch) -> DiffusionOutput:
        """Generate one image; trajectory tensors have a leading batch dimension of 1.

        Raises:
            ValueError: the request asks for something that training does not reproduce.
            RuntimeError: the pipeline did not follow the training schedule.
        """
        self._ensure_bagel_prompt_text(req)
        params = req.sampling_params
        if params.num_inference_steps is None:
            raise ValueError("a rollout request needs num_inference_steps")
        if params.extra_args is None:
            params.extra_args = {}
        extra_args = params.extra_args
        extra_args.update(resolve_guidance({name: extra_args.get(name) for name in CFG_DEFAULTS}))

        requested_steps = int(params.num_inference_steps)
        # No noise is how validation and the engine's warm-up are told from training: no window, no trajectory.
        noise_level = float(extra_args.get("noise_level", 0.0))
        window = None
        if noise_level > 0.0:
            window = pick_sde_window(
                extra_args.get("sde_window_size"), extra_args.get("sde_window_range"), extra_args.get("global_steps")
            )
        self.scheduler.begin(
            num_inference_steps=requested_steps,
            window=window,
            noise_level=noise_level,
            sde_type=str(extra_args.get("sde_type", "sde")),
            record_log_probs=bool(extra_args.get("logprobs", True)),
            # Not the request's own generator: seeded like the initial latents, it would repeat them as noise.
            generator=extra_args.get("generator"),
        )
        width = int(params.max_sequence_length or MAX_PROMPT_LENGTH)
        self._prompt.begin(self._prompt_ids(req.prompts[0]) if noise_level > 0.0 else None, width)
        output = super().forward(req)
        latents, timesteps, log_probs = self.scheduler.finish()
        carried = {} if latents is None else self._prompt.finish()

        media, metadata = output.output, None
        if isinstance(media, dict) and isinstance(media.get("payload"), dict):
            media, metadata = media["payload"].get("image"), dict(media.get("metadata") or {})
        return rollout_output(
            media=media,
            trajectory_latents=latents,
            trajectory_timesteps=timesteps,
            trajectory_log_probs=log_probs,
            rl=carried,
            metadata=metadata,
            to_cpu=False,
        )

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load checkpoint weights, or the actor's, which come as ``transformer.<training name>``.

        The actor's names go back through ``KEY_MAP`` to the checkpoint's, which the pipeline knows how to place.

        Returns:
            Names of the engine's parameters that were filled.
        """
        return super().load_weights(self._checkpoint_names(self._summed(weights)))

    @staticmethod
    def _checkpoint_names(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterable[tuple[str, torch.Tensor]]:
        for name, tensor in weights:
            if name.startswith("transformer."):
                name = to_checkpoint_key(_training_name(name))
            yield name, tensor

    def map_lora_update_to_engine(
        self, tensors: dict[str, torch.Tensor], peft_config: dict[str, Any]
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Make the actor's LoRA take effect by folding it into the engine's weights.

        The engine keeps the generation weights where its own adapter manager cannot wrap them, and drops an adapter
        that finds no module without a word. Each push is folded into the checkpoint's weights anew, so nothing adds
        up; the weights are read from the mapped file and kept nowhere.

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
        if peft_config.get("use_dora") or peft_config.get("rank_pattern") or peft_config.get("alpha_pattern"):
            raise ValueError("only plain LoRA of one rank can be folded (no DoRA, no rank or alpha patterns)")
        rank = int(peft_config["r"])
        scaling = peft_config["lora_alpha"] / (rank**0.5 if peft_config.get("use_rslora") else rank)
        modules = {name.removesuffix(".lora_A.weight") for name in tensors if name.endswith(".lora_A.weight")}
        strange = sorted(tensors.keys() ^ {f"{m}.lora_{side}.weight" for m in modules for side in "AB"})
        if strange:
            raise ValueError(
                f"{strange[0]!r} and {len(strange) - 1} more are no pairs of LoRA matrices of a projection"
            )
        base = open_checkpoint(self._checkpoint_folder())
        unknown = sorted(m for m in modules if _training_name(f"{m}.weight") not in base)
        if unknown:
            raise ValueError(f"LoRA on {unknown[0]!r}: the checkpoint has no weight of that name")
        placeholder = self._placeholder_adapter(peft_config, rank)
        device = next(self.parameters()).device

        def folded() -> Iterable[tuple[str, torch.Tensor]]:
            for module in sorted(modules):
                name = _training_name(f"{module}.weight")
                weight = base[name].to(device)
                if name in self._synced_sums:
                    dtype, synced = self._synced_sums[name]
                    expected = weight.to(dtype).sum(dtype=torch.float64)
                    if not torch.allclose(expected, synced.to(device), rtol=1e-6, atol=1e-6):
                        raise ValueError(f"the actor's base weight {name!r} is not the checkpoint's to fold LoRA into")
                down, up = (tensors[f"{module}.lora_{side}.weight"].to(device).float() for side in "AB")
                yield f"transformer.{name}", weight.float().addmm(up, down, alpha=scaling)

        if modules and not super().load_weights(self._checkpoint_names(folded())):
            raise ValueError(f"the engine took none of the {len(modules)} weights that LoRA was folded into")
        return placeholder

    def _summed(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterable[tuple[str, torch.Tensor]]:
        """Pass weights on and keep the sum of each that the actor sends, to recognise a changed base by."""
        for name, tensor in weights:
            if name.startswith("transformer."):
                self._synced_sums[_training_name(name)] = tensor.dtype, tensor.sum(dtype=torch.float64)
            yield name, tensor

    def _checkpoint_folder(self) -> str:
        """Local folder of the model, which may have been named by its Hub id."""
        if os.path.isdir(self.od_config.model):
            return self.od_config.model
        revision = getattr(self.od_config, "revision", None)
        return snapshot_download(self.od_config.model, revision=revision, local_files_only=True)

    def _placeholder_adapter(
        self, peft_config: dict[str, Any], rank: int
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        for name, module in self.named_modules():
            linear = getattr(module, "base_layer", module)
            kinds = {kind.__name__ for kind in type(linear).__mro__}
            unused = next((prefix for prefix, _ in IGNORED_KEYS if f".{prefix}" in f".{name}."), None)
            if unused is None or "LinearBase" not in kinds:
                continue
            target = name[f".{name}.".index(f".{unused}") :]
            adapter = {
                f"{target}.lora_A.weight": torch.zeros(rank, linear.input_size),
                f"{target}.lora_B.weight": torch.zeros(linear.output_size, rank),
            }
            return adapter, {**peft_config, "target_modules": [target]}
        raise ValueError("the engine has no unused linear module to bind a placeholder adapter to")

    def _ensure_bagel_prompt_text(self, req: DiffusionRequestBatch) -> None:
        """Give the pipeline the text it wants in place of the token ids that the agent loop sends.

        Raises:
            ValueError: the request brings an image or a negative prompt, which training would not see.
        """
        prompt = req.prompts[0] if req.prompts else None
        if not isinstance(prompt, dict):
            return
        if str(getattr(req, "request_id", "")).startswith("dummy_req_id"):
            # The engine's warm-up brings an image wherever upstream could take one.
            prompt.pop("multi_modal_data", None)
        # VeRL-Omni puts media beside the prompt, among its extra arguments, or at both places.
        media = prompt.get("multi_modal_data") or (prompt.get("extra_args") or {}).get("multi_modal_data") or {}
        if media:
            raise ValueError("BagelPipelineWithLogProb trains text-to-image; the request brings multi_modal_data")
        # Under which name the ids come depends on the release of VeRL-Omni.
        ids = prompt.get("prompt_token_ids") if prompt.get("prompt_ids") is None else prompt["prompt_ids"]
        if not prompt.get("prompt") and ids is not None:
            prompt["prompt"] = self._decode_prompt(ids)
        negative = prompt.get("negative_prompt")
        if not negative and prompt.get("negative_prompt_ids") is not None:
            negative = self._decode_prompt(prompt["negative_prompt_ids"])
        negative = negative or (req.sampling_params.extra_args or {}).get("negative_prompt")
        if negative and negative.strip():
            raise ValueError(f"training's unconditional branch has no text, the request's has {negative!r}")
        prompt["negative_prompt"] = ""

    def _prompt_ids(self, prompt: Any) -> list[int]:
        """Ids that the pipeline has to make of a request's text for training to see the same."""
        text = prompt if isinstance(prompt, str) else prompt["prompt"]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return [
            self.tokenizer.convert_tokens_to_ids("<|im_start|>"),
            *ids,
            self.tokenizer.convert_tokens_to_ids("<|im_end|>"),
        ]

    def _decode_prompt(self, token_ids: Any) -> str:
        """Text of one prompt: the last user turn of a chat, or the whole without its begin and end tokens.

        Raises:
            ValueError: ids outside a chat, which training takes as they are, would not be encoded to themselves again.
        """
        ids = token_ids.tolist() if isinstance(token_ids, torch.Tensor) else list(token_ids)
        if ids and isinstance(ids[0], list):
            ids = ids[0]
        decoded = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if "<|im_start|>user\n" in decoded:
            turn = decoded.rpartition("<|im_start|>user\n")[2]
            return turn.partition("<|im_end|>")[0].strip()
        text = decoded.removeprefix("<|im_start|>").removesuffix("<|im_end|>").strip()
        body = self.tokenizer.encode(text, add_special_tokens=False)
        if body != ids[1:-1]:
            raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")
        return text
