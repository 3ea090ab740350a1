"""The accelerator: none that has kernels of its own, so that the plain code runs everywhere."""

from scaffold.source.modules import ACCELERATORS

_NONE = dict.fromkeys((*sorted(ACCELERATORS), "is_cpu", "is_tpu"), "False")
METHODS = {
    "current_omni_platform": {
        **_NONE,
        "supports_float64": "True",
        "reset_diffusion_fused_moe_forward_context": "None",
    },
    "current_platform": {**_NONE, "supports_float64": "True"},
}
CALLS = {"_fused_cuda_supported": "False"}
VALUES = {"HAS_TRITON": "False", "flash_attn_varlen_func": "None", "flash_attn_func": "None"}
# Packages of kernels: what imports them where they are has a plain branch for where they are not.
ABSENT = ("flash_attn", "mindiesd", "aiter", "sageattention", "flash_attn_interface", "fa3_fwd_interface", "torch_npu")
# Functions that return the one device.
DEVICES = ("get_local_device",)
