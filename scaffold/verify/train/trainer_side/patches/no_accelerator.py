"""What verl, vllm and torch ask of an accelerator, or of its driver, where there is none."""

from __future__ import annotations

from typing import Any

from scaffold.verify.train.trainer_side.hooks import after, at_start


@at_start
def absent_libraries() -> None:
    """The server imports torchaudio, which is not used here; its CPU build is on no common index."""
    from scaffold.verify.rollout.engine_side.absent import stand_in

    stand_in()


@after(
    "torch.distributed.fsdp._init_utils",
    places={"torch/distributed/fsdp/_init_utils.py:_check_module_states_for_sync_module_states": ("9e0fe064f75c",)},
)
def fsdp1_broadcast(module: Any) -> None:
    """FSDP1 with ``sync_module_states`` refuses parameters on a CPU; gloo broadcasts them all the same."""
    module._check_module_states_for_sync_module_states = lambda states: None


# vllm asks its platform for the memory in use, which its CPU platform cannot say, and vllm-omni asks NVML. Where the
# machine has a card, NVML looks for the one that Ray gave the engine: one of those that there are only for Ray.
@after(
    "vllm.platforms.interface",
    places={"vllm/platforms/interface.py:Platform.get_current_memory_usage": ("105344512613",)},
)
def memory_of_platform(module: Any) -> None:
    """Say none."""
    module.Platform.get_current_memory_usage = classmethod(lambda cls, device=None: 0.0)


@after(
    "vllm_omni.worker.gpu_memory_utils",
    places={"vllm_omni/worker/gpu_memory_utils.py:get_process_gpu_memory": ("f14ab8ff1d02", "d10369b9fca0")},
)
def memory_of_process(module: Any) -> None:
    """Say that it is unknown, as where there is no NVML."""
    module.get_process_gpu_memory = lambda local_rank: None


class _Stream:
    """A stream on which nothing is ever under way."""

    def __init__(self, **_: Any) -> None:
        """It has no device."""

    def wait_event(self, event: Any) -> None:
        """There is nothing to wait for."""

    def synchronize(self) -> None:
        """Nor here."""


class _Accelerator:
    """``torch.accelerator``, and the CPU as the current one."""

    def current_accelerator(self) -> Any:
        import torch

        return torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.accelerator, name)


@after(
    "vllm_omni.diffusion.worker.diffusion_worker",
    places={
        "vllm_omni/diffusion/worker/diffusion_worker.py:WorkerProc._async_output_loop": ("8b49bc78beeb", "1443613b4361")
    },
)
def output_thread(module: Any) -> None:
    """The engine's output thread copies on a side stream: give it one that does nothing, and pack without it."""
    from scaffold.verify.rollout.engine_side.precision import TorchWith

    module.torch = TorchWith(accelerator=_Accelerator(), Stream=_Stream)
    pack = module.pack_diffusion_output_shm
    module.pack_diffusion_output_shm = lambda output, **_: pack(output)


@after("vllm.lora.lora_model", places={"vllm/lora/lora_model.py:LoRAModel.from_lora_tensors": ("213a2668d4a1",)})
def pinned_memory(module: Any) -> None:
    """vllm pins the memory of LoRA weights, which needs an accelerator's driver."""
    module.PIN_MEMORY = False


# vllm packs linear weights for oneDNN and AMX; a packed layer has no ``weight`` left to load an update into.
@after("vllm._custom_ops")
def no_onednn(module: Any) -> None:
    """Say that oneDNN is not there."""
    module._supports_onednn = False


@after(
    "vllm.model_executor.layers.utils",
    places={"vllm/model_executor/layers/utils.py:dispatch_cpu_unquantized_gemm": ("252aeb8da14e", "79628c1effff")},
)
def no_amx(module: Any) -> None:
    """Say that no layer suits the kernels for AMX."""
    module.check_cpu_sgl_kernel = lambda *_: False


@after(
    "verl.utils.distributed",
    places={"verl/utils/distributed.py:initialize_global_process_group_ray": ("31347938cf9d",)},
)
def process_group_backend(module: Any) -> None:
    """verl asks for ``cpu:gloo,<device>:<backend>``, which names the CPU twice here, and torch refuses that."""
    original = module.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second: Any = None, backend: str | None = None) -> Any:
        return original(timeout_second, backend or "gloo")

    module.initialize_global_process_group_ray = initialize_global_process_group_ray


@after("torchvision.extension", places={"torchvision/_meta_registrations.py": ("136d83924845",)})
def torchvision_operators(module: Any) -> None:
    """torchvision's binary is linked to CUDA: declare the two operators that its import registers shapes for."""
    if not module._has_ops():
        from scaffold.verify.rollout.engine_side.settings import define_torchvision_operators

        define_torchvision_operators()
