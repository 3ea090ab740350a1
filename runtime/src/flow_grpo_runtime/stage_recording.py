"""What the stages before a pipeline make of prompts, made once with vllm-omni itself while the data is made."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import yaml

from .stage_inputs import STAGE_INPUTS, StageInputsRecorder


@dataclass(frozen=True)
class StagePlan:
    """Where a pipeline stands behind other stages.

    Attributes:
        topology: vllm-omni's name of it.
        position: of the pipeline's stage in it.
        deploy_file: vllm-omni's own deploy configuration of the topology, below its ``deploy``.
        pipeline: key of the pipeline in vllm-omni's registry.
        grid: of a stage before that draws a token for each square of the image: side of a square in pixels, tokens
            behind each row and at the end. None where it draws none.
    """

    topology: str
    position: int
    deploy_file: str
    pipeline: str
    grid: tuple[int, int, int] | None = None

    def tokens(self, height: int, width: int) -> int | None:
        """Tokens that the stage before draws for an image of this size in pixels; None where it draws none."""
        if self.grid is None:
            return None
        pixels, row_end, last = self.grid
        return (height // pixels) * (width // pixels + row_end) + last


def recording_config(plan: StagePlan, path: str, folder: str) -> str:
    """Write a deploy configuration in which the recorder stands in the place of the pipeline; its path.

    Args:
        plan: where the pipeline stands.
        path: a deploy configuration of all stages; vllm-omni's own where it is empty.
        folder: where the new one goes.
    """
    import vllm_omni
    from vllm_omni.config.stage_config import resolve_deploy_yaml

    own = os.path.join(os.path.dirname(str(vllm_omni.__file__)), "deploy", plan.deploy_file)
    content = resolve_deploy_yaml(path or own)
    recorder = f"{StageInputsRecorder.__module__}.{StageInputsRecorder.__qualname__}"
    for stage in content["stages"]:
        if stage["stage_id"] == plan.position:
            stage.update(max_num_seqs=1, enforce_eager=True, custom_pipeline_args={"pipeline_class": recorder})
    made = os.path.join(folder, "recording.yaml")
    with open(made, "w", encoding="utf-8") as file:
        yaml.safe_dump({**content, "pipeline": plan.topology}, file)
    return made


def record_stage_inputs(
    plan: StagePlan,
    rows: list[dict[str, Any]],
    model_path: str,
    deploy_config: str,
    folder: str,
    height: int,
    width: int,
) -> None:
    """Run the stages before for each row that names no file yet, and name the one that was written.

    Args:
        plan: where the pipeline stands.
        rows: of the parquet files; changed.
        model_path: checkpoint of all stages.
        deploy_config: of all stages; vllm-omni's own where it is empty.
        folder: where the files go.
        height, width: of the images, in pixels.

    Raises:
        ValueError: there is no checkpoint to run them with.
        RuntimeError: the stages made nothing of a prompt.
    """
    waiting = [row for row in rows if STAGE_INPUTS not in json.loads(row["extra_info"]["inputs"])]
    if not waiting:
        return
    if not model_path:
        raise ValueError(
            f"{len(waiting)} rows name no file of {STAGE_INPUTS}: give the checkpoint by --model_path, to make them"
        )
    from vllm_omni.entrypoints.omni import Omni
    from vllm_omni.inputs.data import OmniDiffusionSamplingParams
    from vllm_omni.model_extras import build_text_to_image_prompt

    os.makedirs(folder, exist_ok=True)
    omni = Omni(model=model_path, deploy_config=recording_config(plan, deploy_config, folder))
    tokens = plan.tokens(height, width)
    try:
        for row in waiting:
            info = row["extra_info"]
            path = os.path.abspath(os.path.join(folder, f"{info['split']}-{info['index']}.safetensors"))
            if os.path.isfile(path):
                os.remove(path)  # of an earlier run, perhaps of another prompt
            prompt = build_text_to_image_prompt(plan.pipeline, {"prompt": row["prompt"][0]["content"]}, height, width)
            params = list(omni.default_sampling_params_list)
            if tokens is not None:
                params[plan.position - 1] = params[plan.position - 1].clone()
                params[plan.position - 1].max_tokens = tokens
            params[plan.position] = OmniDiffusionSamplingParams(
                height=height, width=width, extra_args={STAGE_INPUTS: path}
            )
            omni.generate(prompt, params)
            if not os.path.isfile(path):
                raise RuntimeError(
                    f"vllm-omni handed nothing to stage {plan.position} of {plan.topology} for {path}: its log says why"
                )
            info["inputs"] = json.dumps({**json.loads(info["inputs"]), STAGE_INPUTS: path})
    finally:
        omni.close()
