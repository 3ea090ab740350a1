"""The engine's output thread copies on a side stream of the accelerator, and there is none."""

from __future__ import annotations

from typing import Any

PLACES = {
    "vllm_omni/diffusion/worker/diffusion_worker.py:WorkerProc._async_output_loop": ("8b49bc78beeb", "1443613b4361")
}


def patch(module: Any) -> None:
    """Pack and answer without a stream."""
    if not hasattr(module.WorkerProc, "_async_output_loop"):
        return

    def loop(self: Any) -> None:
        ready = module.AsyncOutputKind.OUTPUT_READY
        while (item := self._async_output_queue.get()) is not None:
            output, number, _ = item
            try:
                module.pack_diffusion_output_shm(output)
                answer = {"output": output}
            except Exception:
                module.logger.exception("an output could not be packed")
                answer = {"error": "an output could not be packed"}
            self.result_mq.enqueue(module.AsyncDiffusionOutput(kind=ready, async_output_id=number, **answer))

    module.WorkerProc._async_output_loop = loop


HOOKS = {"vllm_omni.diffusion.worker.diffusion_worker": patch}
