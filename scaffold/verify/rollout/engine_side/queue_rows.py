"""Passes a rollout to training through verl-omni's own code: the batch of v0 and the rows of v1.

Only the server, the reward, and the queue's transport are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from scaffold.attributes import with_attribute, with_entries
from scaffold.verify.rollout.check import NotApplicable
from scaffold.verify.rollout.engine_side.trajectory import Trajectory

BATCHING = "verl_omni.agent_loop.diffusion_agent_loop"
WRITING = "verl_omni.agent_loop.diffusion_agent_loop_tq"
READER = "verl_omni/trainer/diffusion/v1/tq_utils.py"
QUEUED = "TRANSFER_QUEUE_ENABLE"  # what verl-omni sets there
PROMPT_LENGTH = 256  # of the agent loop's padded ids, which are not what a package should train on


def require(library: str | None, file: str) -> Path:
    """The checkout of the real verl-omni.

    Raises:
        NotApplicable: there is none at hand, or it has not the file.
    """
    if library is None:
        raise NotApplicable(
            "the kit has no trainer: set VERL_OMNI_SRC to a checkout of verl-omni, or verify inside one"
        )
    if not Path(library, file).is_file():
        raise NotApplicable(f"this verl-omni has no {file}")
    return Path(library)


def under_queue() -> AbstractContextManager[Any]:
    """As in every process of a run of v1 with `transfer_queue.enable`, as the scripts have it: a package may return
    other things where the queue carries them."""
    return with_entries(os.environ, {QUEUED: "1"})


def batch_of(samples: Sequence[Trajectory], column: str, width: int) -> Any:
    """The micro-batch that v0's agent loop concatenates, embeddings padded to ``width`` tokens.

    The data set's ``column`` of ids is in it.
    """
    worker = _worker(importlib.import_module(BATCHING).DiffusionAgentLoopWorker, samples, width)
    ids = np.empty(len(samples), dtype=object)
    ids[:] = [np.asarray(sample.token_ids) for sample in samples]
    data = worker._postprocess([_padded(worker, sample) for sample in samples], input_non_tensor_batch={column: ids})
    return data.to_tensordict()


def rows_of(samples: Sequence[Trajectory], checkout: Path, steps: Sequence[int], width: int) -> Any:
    """The micro-batch that v1's trainer reads from the rows that its agent loop writes.

    Args:
        samples: one a row.
        checkout: of the real verl-omni.
        steps: the training step in which each was rolled out.
        width: tokens that embeddings are padded to.
    """
    writing: Any = importlib.import_module(WRITING)
    remote = writing.DiffusionAgentLoopWorkerTQ
    worker = _worker(getattr(getattr(remote, "__ray_metadata__", None), "modified_class", remote), samples, width)
    reading, queue = _module(checkout / READER), _Queue()
    columns = {"data_source": "data", "reward_model": {}, "extra_info": {}, "raw_prompt": []}
    with with_attribute(writing, "tq", queue), with_attribute(reading, "tq", queue):
        for number, (sample, step) in enumerate(zip(samples, steps, strict=True)):
            wrote = worker._write_trajectory_to_tq(
                _padded(worker, sample),
                uid=f"prompt{number}",
                session_id=0,
                trajectory={"step": step, "validate": False},
                validate=False,
                global_steps=step,
                prompt_token_ids=list(sample.token_ids),
                **columns,
            )
            _finished(wrote)
        meta = SimpleNamespace(keys=list(queue.rows), partition_id="train")
        return reading.diffusion_tq_batch_to_dataproto(meta).to_tensordict()


class _Queue:
    """Stand-in for TransferQueue: stores rows, and returns columns of several rows as its storage does."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    async def async_kv_batch_put(self, keys: list[str], fields: Any, **_: Any) -> None:
        for at, key in enumerate(keys):
            self.rows[key] = {str(name): value[at] for name, value in fields.items()}

    def kv_batch_get(self, keys: list[str], **_: Any) -> dict[str, Any]:
        names = dict.fromkeys(name for key in keys for name in self.rows[key])
        return {name: self._column([self.rows[key].get(name) for key in keys]) for name in names}

    @staticmethod
    def _column(values: list[Any]) -> Any:
        if not all(isinstance(value, torch.Tensor) for value in values):
            return values
        if values[0].dim() == 0:
            return torch.stack(values)
        try:
            return torch.nested.as_nested_tensor(values, layout=torch.jagged)
        except (RuntimeError, TypeError):
            return torch.nested.as_nested_tensor(values, layout=torch.strided)


class _Padding:
    """Stand-in for the tokenizer, which the agent loop uses only to pad ids on the left."""

    @staticmethod
    def pad(encoded: dict[str, list[int]], *, max_length: int, **_: Any) -> dict[str, torch.Tensor]:
        ids = encoded["input_ids"][:max_length]
        before = max_length - len(ids)
        return {
            "input_ids": torch.tensor([[0] * before + ids]),
            "attention_mask": torch.tensor([[0] * before + [1] * len(ids)]),
        }


def _worker(kind: Any, samples: Sequence[Trajectory], width: int) -> Any:
    """A worker of the agent loop with what it needs to pack a result; it has no server and no reward.

    A tiny checkpoint's tokenizer may make more tokens of a prompt than the released one, which ``width`` is for.
    """
    embedded = [len(rows) for sample in samples if (rows := sample.extra.get("prompt_embeds")) is not None]

    async def unscored(*_: Any, **__: Any) -> None:
        return None

    worker = object.__new__(kind)
    worker.tokenizer, worker.max_prompt_embed_length = _Padding(), max([width, *embedded])
    worker.rollout_config = SimpleNamespace(prompt_length=PROMPT_LENGTH)
    worker._compute_score = unscored
    return worker


def _padded(worker: Any, sample: Trajectory) -> Any:
    """One result as the server hands it to the agent loop, padded by the agent loop."""
    loops: Any = importlib.import_module(BATCHING)
    output = loops.DiffusionAgentLoopOutput(
        prompt_ids=list(sample.token_ids),
        response_diffusion_output=torch.zeros(3, 2, 2, dtype=torch.uint8),
        response_logprobs=sample.log_probs,
        num_turns=2,
        metrics=loops.AgentLoopMetrics(),
        extra_fields={"all_latents": sample.latents, "all_timesteps": sample.timesteps, **sample.extra},
    )
    return _finished(worker._agent_loop_postprocess(output, raw_prompt=[]))


def _finished(coroutine: Any) -> Any:
    """Return the result of a coroutine that never waits: server, reward and queue answer at once here."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the agent loop waits for something that is not there")


def _module(path: Path) -> Any:
    """A module by itself: its package imports the trainers, and what they need."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
