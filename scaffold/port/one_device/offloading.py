"""Where weights are while nobody computes with them: on the device."""

CALLS = {"resolve_offload_strategy": '"none"'}
VALUES = {"OffloadStrategy.NONE": '"none"'}
