"""The checkpoint: a folder on this machine, whose weights are handed over one by one."""

# Where nothing else places a weight, what it is handed to does.
VALUES = {"default_weight_loader": "None"}
FIRST_ARGUMENT = ("download_weights_from_hf_specific", "maybe_remap_kv_scale_name")
# Functions of the engine that make an object of a library.
LIBRARY = {"hf_api": "huggingface_hub.HfApi"}
