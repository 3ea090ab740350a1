"""vllm packs linear weights for oneDNN and AMX; a packed layer has no ``weight`` left to load an update into."""

from __future__ import annotations

from typing import Any

PLACES = {"vllm/model_executor/layers/utils.py:dispatch_cpu_unquantized_gemm": ("252aeb8da14e", "79628c1effff")}


def no_onednn(module: Any) -> None:
    """Say that oneDNN is not there."""
    module._supports_onednn = False


def no_amx(module: Any) -> None:
    """Say that no layer suits the kernels for AMX."""
    module.check_cpu_sgl_kernel = lambda *_: False


HOOKS = {"vllm._custom_ops": no_onednn, "vllm.model_executor.layers.utils": no_amx}
