"""Every model folder of vllm-omni, with stand-in pipelines."""

from omni_scaffold_kit.model_finder import install

install()
