"""What the stages before a pipeline make of a prompt: made once, and kept in files that rows name.

VeRL-Omni trains and syncs one stage, so what comes before it is not trained, and is the same in every epoch.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

# Name among the extra arguments of a request, and among the inputs of a row; it stands for the path of a file.
STAGE_INPUTS = "stage_inputs"
_FORM = "prompt"
_TENSOR = "tensor in this file"


def register_alone(topology: str, position: int, alone: str) -> None:
    """Let vllm-omni know the topology in which a stage has no other before it.

    Args:
        topology: vllm-omni's name of it.
        position: of the stage in it.
        alone: name of the topology of that stage alone.
    """
    from vllm_omni.config.pipeline_registry import OMNI_PIPELINES, register_pipeline, resolve_pipeline_config

    if alone in OMNI_PIPELINES:
        return
    known = resolve_pipeline_config(topology)
    stage = dataclasses.replace(
        known.stages[position],
        stage_id=0,
        input_sources=(),
        custom_process_input_func=None,
        requires_multimodal_data=False,
    )
    # Only the deploy configuration names it: vllm-omni must not recognise a checkpoint by its architecture as this one.
    register_pipeline(
        dataclasses.replace(
            known,
            model_type=alone,
            stages=(stage,),
            hf_architectures=(),
            default_deploy_config_name=None,
            stage_cli_aliases={},
        )
    )


def write_stage_inputs(path: str, inputs: dict[str, Any]) -> None:
    """Write what the stages before hand on: tables, lists, plain values, and tensors of any dtype.

    Raises:
        ValueError: something else is among it.
    """
    tensors: dict[str, torch.Tensor] = {}

    def plain(value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            tensors[name] = value.detach().cpu().contiguous()
            return {_TENSOR: name}
        if isinstance(value, dict):
            return {key: plain(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item, f"{name}.{index}") for index, item in enumerate(value)]
        if value is None or isinstance(value, str | int | float | bool):
            return value
        raise ValueError(f"{name} is a {type(value).__name__}, which no file of stage inputs holds")

    form = json.dumps(plain(inputs, ""))
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    save_file(tensors, path, metadata={_FORM: form})


def read_stage_inputs(path: str) -> dict[str, Any]:
    """What ``write_stage_inputs`` wrote.

    Raises:
        ValueError: there is no such file, or it is none of these.
    """
    if not os.path.isfile(path):
        raise ValueError(f"the request's {STAGE_INPUTS} {path} is no file here: workers need the paths of the data")
    with safe_open(path, framework="pt") as file:
        form = (file.metadata() or {}).get(_FORM)
        if form is None:
            raise ValueError(f"{path} holds no {STAGE_INPUTS}: the data script makes such files")

        def restored(value: Any) -> Any:
            if isinstance(value, dict):
                return (
                    file.get_tensor(value[_TENSOR])
                    if _TENSOR in value
                    else {key: restored(item) for key, item in value.items()}
                )
            return [restored(item) for item in value] if isinstance(value, list) else value

        return dict(restored(json.loads(form)))


def give_stage_inputs(prompt: Any, sampling_params: Any) -> None:
    """Put what the stages before made into a request that names a file, where upstream's own request has it.

    Args:
        prompt: of the request; changed. It keeps the path, which says that this was done.
        sampling_params: of the request; the path of the file is taken out of its ``extra_args``.

    Raises:
        ValueError: the file cannot be used.
    """
    path = (getattr(sampling_params, "extra_args", None) or {}).pop(STAGE_INPUTS, None)
    if path is not None and isinstance(prompt, dict):
        prompt.update({**read_stage_inputs(path), STAGE_INPUTS: path})


class StageInputsRecorder(nn.Module):
    """Replaces a pipeline while the data is made, and writes what the stages before hand to it."""

    supports_request_batch = False
    supports_step_execution = False

    def __init__(self, *, od_config: Any, prefix: str = "") -> None:
        super().__init__()
        self.od_config = od_config
        self.weights_sources: tuple[Any, ...] = ()

    def load_weights(self, weights: Any) -> set[str]:
        """Ignore the weights."""
        return set()

    def forward(self, req: Any) -> Any:
        """Write the file that the request names, and return a black image."""
        from vllm_omni.diffusion.data import DiffusionOutput

        path = (req.sampling_params.extra_args or {}).get(STAGE_INPUTS)
        if path is not None:
            write_stage_inputs(path, dict(req.prompts[0]))
        return DiffusionOutput(output=torch.zeros(1, 3, 16, 16))


class StagedRollout:
    """Goes before :class:`RecordedRollout`: a request brings what the stages before the pipeline made of its prompt."""

    def prepare_rollout(self, req: Any) -> None:
        """Put what the stages before made of the prompt into the request, in place of its token ids.

        Raises:
            ValueError: the request names no file, or one that cannot be used.
        """
        prompt = req.prompts[0] if req.prompts else None
        give_stage_inputs(prompt, req.sampling_params)
        has_inputs = isinstance(prompt, dict) and STAGE_INPUTS in prompt
        if not has_inputs and not str(getattr(req, "request_id", "")).startswith("dummy_req_id"):
            raise ValueError(f"the request names no {STAGE_INPUTS}: the agent loop of this package sends it")


def prepare_with_stage_inputs(file: Any, name: str) -> None:
    """Make the pipeline's pre-processor fill in the request first, as the stages before would have.

    Args:
        file: module of the pipeline, where the engine looks it up.
        name: of the function there that makes it.
    """
    make = getattr(file, name)

    def rollout_preparation(config: Any = None) -> Callable[..., Any]:
        prepare = make(config)

        def prepared(request: Any) -> Any:
            give_stage_inputs(request.prompt, request.sampling_params)
            return prepare(request)

        return prepared

    setattr(file, name, rollout_preparation)
