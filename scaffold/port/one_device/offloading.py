"""Where weights are while nobody computes with them: on the device."""

CALLS = {"resolve_offload_strategy": '"none"'}
VALUES = {
    "OffloadStrategy.NONE": '"none"',
    "OffloadStrategy.MODEL_LEVEL": '"model_level"',
    "OffloadStrategy.LAYER_WISE": '"layer_wise"',
    "OffloadStrategy.DISTRIBUTED_LAYER_WISE": '"distributed_layer_wise"',
}
