"""Stand-in for ``verl_omni.workers.rollout``: only ``vllm_rollout``."""
