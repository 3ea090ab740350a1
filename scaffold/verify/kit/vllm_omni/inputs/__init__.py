"""Stand-in for ``vllm_omni.inputs``."""
