"""What happens to a rendered package after ``new``: update to another vllm-omni or spec, and removal."""
