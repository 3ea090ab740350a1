"""Level ``rollout``: the real vllm-omni runs the package on a CPU, and training recomputes what it did."""
