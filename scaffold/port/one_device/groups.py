"""Groups of devices: one of each kind, with one member."""

CALLS = {
    "get_tensor_model_parallel_world_size": "1",
    "get_tensor_model_parallel_rank": "0",
    "get_tensor_parallel_world_size": "1",
    "get_tensor_parallel_rank": "0",
    "get_sequence_parallel_world_size": "1",
    "get_sequence_parallel_rank": "0",
    "get_ulysses_parallel_world_size": "1",
    "get_ulysses_parallel_rank": "0",
    "get_ring_parallel_world_size": "1",
    "get_ring_parallel_rank": "0",
    "get_allgather_parallel_world_size": "1",
    "get_pipeline_parallel_world_size": "1",
    "get_pipeline_parallel_rank": "0",
    "get_data_parallel_world_size": "1",
    "get_classifier_free_guidance_world_size": "1",
    "get_classifier_free_guidance_rank": "0",
    "is_pipeline_first_stage": "True",
    "is_pipeline_last_stage": "True",
    "is_sp_initialized": "False",
    "model_parallel_is_initialized": "False",
    "is_pp_missing_parameter": "False",
}
FIRST_ARGUMENT = (
    "tensor_model_parallel_all_reduce",
    "tensor_model_parallel_all_gather",
    "sp_shard",
    "sp_gather",
)
# Attributes of what functions return.
ATTRIBUTES = {
    "get_pp_group": {"is_first_rank": "True", "is_last_rank": "True", "world_size": "1", "rank_in_group": "0"},
    "get_current_vllm_config": {"parallel_config.enable_expert_parallel": "False"},
}
# Stands where another device of a pipeline has the layer.
LIBRARY = {"PPMissingLayer": "torch.nn.Identity"}
