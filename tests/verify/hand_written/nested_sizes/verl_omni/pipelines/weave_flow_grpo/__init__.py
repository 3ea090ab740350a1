from .rollout import WeaveSampler
from .training import WeaveTraining
from .fabric import Fabric

__all__ = ["Fabric", "WeaveSampler", "WeaveTraining"]
