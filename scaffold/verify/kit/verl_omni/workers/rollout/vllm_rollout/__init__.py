"""Stand-in for ``verl_omni.workers.rollout.vllm_rollout``: only ``utils``."""
