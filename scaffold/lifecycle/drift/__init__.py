"""What another version of vllm-omni changes for a pipeline and for its rendered package."""

from __future__ import annotations

from scaffold.lifecycle.drift.compare import DriftRequest, compare
from scaffold.lifecycle.drift.report import Drift

__all__ = ["Drift", "DriftRequest", "compare"]
