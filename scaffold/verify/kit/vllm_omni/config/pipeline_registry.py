"""Topologies by name: any is there that is asked for, with stages as they are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STAGES = 8  # of each topology, more than any has


@dataclass(frozen=True)
class StagePipelineConfig:
    """One stage."""

    stage_id: int
    input_sources: tuple[int, ...] = ()
    custom_process_input_func: str | None = None
    requires_multimodal_data: bool = False


@dataclass(frozen=True)
class PipelineConfig:
    """Stages, and how the engine finds them."""

    model_type: str
    stages: tuple[StagePipelineConfig, ...] = ()
    hf_architectures: tuple[str, ...] = ()
    default_deploy_config_name: str | None = None
    stage_cli_aliases: Any = None


OMNI_PIPELINES: dict[str, PipelineConfig] = {}


def register_pipeline(pipeline: PipelineConfig, model_type: str | None = None) -> None:
    """Let the engine know a topology."""
    OMNI_PIPELINES[model_type or pipeline.model_type] = pipeline


def resolve_pipeline_config(model_type: str, hf_config: Any = None) -> PipelineConfig:
    """The topology of that name."""
    stages = tuple(StagePipelineConfig(index, tuple(range(index))[-1:], "hand_on") for index in range(STAGES))
    return OMNI_PIPELINES.get(model_type) or PipelineConfig(model_type, stages)
