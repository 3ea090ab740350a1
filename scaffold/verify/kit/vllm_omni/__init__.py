"""Stand-in for vllm-omni: requests, outputs and pipeline classes without an engine."""

from omni_scaffold_kit.profile import ACTIVE

__contract__ = "kit"
__version__ = ACTIVE.vllm_omni
