"""Sends weights and adapters to the worker: through verl-omni's own update path, or the same calls on the kit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch

from scaffold.attributes import with_attribute

Tensors = list[tuple[str, torch.Tensor]]

# Small and odd, so that one layer's tensors arrive in different calls, as they do between processes.
BUCKET = 7
LORA = {"lora_name": "verification", "lora_int_id": 1, "lora_path": "in memory"}


def buckets(tensors: Tensors) -> Iterator[Tensors]:
    """Cut the tensors into the pieces in which they are sent."""
    for start in range(0, len(tensors), BUCKET):
        yield tensors[start : start + BUCKET]


def _base_classes() -> tuple[Any, Any]:
    module: Any = importlib.import_module("vllm_omni.diffusion.worker.diffusion_worker")
    return module.CustomPipelineWorkerExtension, module.DiffusionWorker


class KitTransport:
    """The calls that verl-omni's extension of the worker makes, made directly."""

    def worker_class(self) -> type:
        """The engine's worker with vllm-omni's own extension for custom pipelines."""
        return type("Worker", _base_classes(), {})

    def sync(self, worker: Any, tensors: Tensors) -> None:
        """Hand each bucket to the pipeline's ``load_weights``."""
        for bucket in buckets(tensors):
            worker.model_runner.pipeline.load_weights(iter(bucket))

    def push_lora(self, worker: Any, tensors: Tensors, peft_config: dict[str, Any]) -> None:
        """Remove the adapter and add the new one, through the pipeline's ``map_lora_update_to_engine`` if it has it."""
        manager = worker.lora_manager
        manager._load_adapter = MethodType(_loader(dict(tensors), peft_config), manager)
        worker.remove_lora(LORA["lora_int_id"])
        worker.add_lora(self.lora_request())

    def lora_request(self) -> Any:
        """vllm's request type; the path is never opened."""
        request: Any = importlib.import_module("vllm_omni.lora.request")
        return request.LoRARequest(**LORA)


def _loader(tensors: dict[str, torch.Tensor], peft_config: dict[str, Any]) -> Callable[..., Any]:
    """Return what takes the place of the manager's loading from a folder: the adapter comes from memory."""

    def load(manager: Any, lora_request: Any) -> tuple[Any, Any]:
        if not manager._expected_lora_modules:  # as the library's own says before it reads anything
            raise ValueError("No supported LoRA modules found in the diffusion pipeline.")
        model: Any = importlib.import_module("vllm.lora.lora_model")
        helper: Any = importlib.import_module("vllm.lora.peft_helper")
        mapper = getattr(manager.pipeline, "map_lora_update_to_engine", None)
        mapped, config = (tensors, peft_config) if mapper is None else mapper(tensors, peft_config)
        peft = helper.PEFTHelper.from_dict(config)
        adapter = model.LoRAModel.from_lora_tensors(
            lora_model_id=lora_request.lora_int_id,
            tensors=mapped,
            peft_helper=peft,
            device="cpu",
            dtype=manager.dtype,
            model_vocab_size=None,
            weights_mapper=None,
        )
        for layer in adapter.loras.values():
            layer.optimize()  # puts alpha / rank into B, which the engine expects
        return adapter, peft

    return load


class LibraryTransport:
    """The real verl-omni's extension of the worker; only the channel between two processes is replaced."""

    RECEIVER = "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer"
    UTILS = "verl_omni.workers.rollout.vllm_rollout.utils"

    def worker_class(self) -> type:
        """The class that the worker process of verl-omni builds."""
        utils: Any = importlib.import_module(self.UTILS)
        return type("Worker", (utils.vLLMOmniColocateWorkerExtension, _base_classes()[1]), {})

    def sync(self, worker: Any, tensors: Tensors) -> None:
        """Update through the extension."""
        self._update(worker, tensors, None)

    def push_lora(self, worker: Any, tensors: Tensors, peft_config: dict[str, Any]) -> None:
        """Update through the extension."""
        self._update(worker, tensors, peft_config)

    def _update(self, worker: Any, tensors: Tensors, peft_config: dict[str, Any] | None) -> None:
        with with_attribute(importlib.import_module(self.RECEIVER), "BucketedWeightReceiver", _receiver(tensors)):
            worker.update_weights_from_ipc(peft_config=peft_config, base_sync_done=True)

    def lora_request(self) -> Any:
        """The request that verl-omni's server attaches."""
        names: Any = importlib.import_module("verl.workers.rollout.vllm_rollout.utils")
        request: Any = importlib.import_module("vllm_omni.lora.request")
        return request.LoRARequest(
            lora_name=names.VLLM_LORA_NAME, lora_int_id=names.VLLM_LORA_INT_ID, lora_path=names.VLLM_LORA_PATH
        )


def _receiver(tensors: Tensors) -> type:
    """A receiver that has everything already and calls back once a bucket."""

    class Receiver:
        def __init__(self, **_: Any) -> None:
            pass

        def receive_weights(self, on_bucket_received: Callable[[Tensors], Any]) -> None:
            for bucket in buckets(tensors):
                on_bucket_received(bucket)

    return Receiver
