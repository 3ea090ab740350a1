"""Finds vllm-omni's source (installed, a folder, a wheel, or a version fetched once) and reads it as text."""

from typing import TYPE_CHECKING

from scaffold.limits.on_demand import on_demand
from scaffold.upstream.cache import cache_root
from scaffold.upstream.locate import DEFAULT_VERSION, locate
from scaffold.upstream.source import UpstreamSource

if TYPE_CHECKING:
    from scaffold.upstream.registry import PipelineTarget, read_registry, resolve_pipeline

__all__ = [
    "DEFAULT_VERSION",
    "PipelineTarget",
    "UpstreamSource",
    "cache_root",
    "locate",
    "read_registry",
    "resolve_pipeline",
]

# `check` reads a version without looking up a pipeline.
__getattr__ = on_demand(__name__, {"registry": "PipelineTarget read_registry resolve_pipeline"})
