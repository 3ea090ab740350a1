"""What is seen of a run beside the trainer's own metrics: one event a line, in a file of each process."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scaffold.verify.train.trainer_side.hooks import after

UPDATE = "_update_actor"
LARGE = 1_000_000


def say(kind: str, **values: Any) -> None:
    """Write one event into the run's folder of events."""
    folder = os.environ.get("OMNI_SCAFFOLD_TRAIN_EVENTS")
    if folder:
        with Path(folder, f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "pid": os.getpid(), **values}) + "\n")


@after("verl_omni.trainer.diffusion.ray_diffusion_trainer", "verl_omni.trainer.diffusion.v1.trainer_base")
def batches(module: Any) -> None:
    """Look at the batch of every trainer class of a module that has an update of its own: one of v0, one of v1.

    v1's batch was read from the TransferQueue.
    """
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__ and UPDATE in vars(value):
            setattr(value, UPDATE, _seen_batch(vars(value)[UPDATE]))


def _seen_batch(original: Any) -> Any:
    def update_actor(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = batch.batch
        groups = [str(name) for name in batch.non_tensor_batch["uid"]]
        timesteps, latents = (_first(tensors, name, f"all_{name}") for name in ("timesteps", "latents"))
        prompts = batch.non_tensor_batch.get("raw_prompt")
        say(
            "batch",
            step=int(self.global_steps),
            groups=groups,
            scores=tensors["sample_level_scores"].float().reshape(len(batch), -1)[:, 0].tolist(),
            windows=None if timesteps is None else timesteps.float().reshape(len(batch), -1).tolist(),
            closest=None if latents is None else closest(latents[:, 0], groups),
            prompts=None if prompts is None else [_short(prompt) for prompt in prompts],
        )
        return original(self, batch, *args, **kwargs)

    return update_actor


def _first(tensors: Any, *names: str) -> Any:
    known = set(tensors.keys())
    return next((tensors[name] for name in names if name in known), None)


def _short(prompt: Any) -> str:
    return hashlib.sha256(str(prompt).encode()).hexdigest()[:16]


def closest(latents: Any, groups: list[str]) -> dict[str, float | None]:
    """Smallest distance of two samples of a group, and of two groups, over the median of all distances.

    Args:
        latents: ``(B, …)`` where the window begins: noise, or what the same steps without noise made of it.
        groups: the prompt of each sample.
    """
    import torch

    flat = latents.detach().double().reshape(len(groups), -1)
    distances = torch.cdist(flat, flat)
    rows, columns = torch.triu_indices(len(groups), len(groups), offset=1)
    apart = distances[rows, columns]
    if not len(apart):
        return {"within": None, "across": None}
    median = float(apart.median()) or 1.0
    same = torch.tensor(
        [groups[row] == groups[column] for row, column in zip(rows.tolist(), columns.tolist(), strict=False)]
    )
    kinds = {"within": apart[same], "across": apart[~same]}
    return {name: float(found.min()) / median if len(found) else None for name, found in kinds.items()}


@after("verl_omni.workers.rollout.vllm_rollout.utils")
def pushes(module: Any) -> None:
    """Compare the engine's weights before and after ``update_weights_from_ipc``: does it hold other numbers."""
    extension = module.vLLMOmniColocateWorkerExtension
    original = extension.update_weights_from_ipc

    def update_weights_from_ipc(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, places = fingerprint(self), storages(self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            say("push", changed=0, moved=0, error=f"{type(error).__name__}: {error}"[:400], **_place(self))
            raise
        after, now = fingerprint(self), storages(self)
        moved = [name for name, place in now.items() if places.get(name, place) != place]
        changed = [name for name, value in after.items() if before.get(name) != value]
        say("push", changed=len(changed), moved=len(moved), error=None, names=changed[:5], **_place(self))
        return result

    extension.update_weights_from_ipc = update_weights_from_ipc


def _place(worker: Any) -> dict[str, Any]:
    return {"replica": os.environ.get("VERL_REPLICA_RANK", "0"), "rank": getattr(worker, "local_rank", 0)}


def fingerprint(worker: Any) -> dict[str, float]:
    """A number for each parameter, and for each tensor of a LoRA layer, of the worker's pipeline."""
    import torch

    pipeline = worker.model_runner.pipeline
    found = {}
    for name, value in (*pipeline.named_parameters(), *_adapters(pipeline)):
        flat = value.detach().reshape(-1)
        found[name] = float(flat.sum(dtype=torch.float64))
        if len(flat) <= LARGE:  # a sum alone does not see two numbers that change places
            found[name] += float(
                flat.double() @ torch.arange(len(flat), dtype=torch.float64, device=flat.device)
            ) / max(len(flat), 1)
    return found


def storages(worker: Any) -> dict[str, int]:
    """Where each parameter of the worker's pipeline lies in memory."""
    return {name: value.data_ptr() for name, value in worker.model_runner.pipeline.named_parameters()}


def _adapters(pipeline: Any) -> Iterator[tuple[str, Any]]:
    for path, module in pipeline.named_modules():
        for attribute in ("lora_a_stacked", "lora_b_stacked"):
            for index, value in enumerate(getattr(module, attribute, None) or ()):
                yield f"{path}.{attribute}.{index}", value


@after("vllm_omni.diffusion.worker.diffusion_worker")
def sleeps(module: Any) -> None:
    """Look at torch's own allocations after each ``sleep`` of the worker: workspaces, and what left its pool."""
    worker = module.DiffusionWorker
    original = worker.sleep

    def sleep(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        result = original(self, *args, **kwargs)
        if torch.cuda.is_available():
            say("sleep", allocated=torch.cuda.memory_allocated(), rank=int(getattr(self, "local_rank", 0)))
        return result

    worker.sleep = sleep
