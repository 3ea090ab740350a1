"""Stand-in for ``vllm_omni.diffusion``."""
