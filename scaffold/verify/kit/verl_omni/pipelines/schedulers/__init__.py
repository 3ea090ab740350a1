"""The scheduler that rollout and training share."""

from .flow_match_sde import FlowMatchSDEDiscreteScheduler

__all__ = ["FlowMatchSDEDiscreteScheduler"]
