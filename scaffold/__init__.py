"""omni-scaffold: from a vllm-omni pipeline and a checkpoint to a VeRL-Omni integration that trains."""

__version__ = "0.1.0"
