"""verl's receiver takes ``.to(device)`` for a copy; on a CPU it is a view of memory that is unmapped next.

From 0.9 it also says which bucket is the last, which verl-omni's callback does not take.
"""

from __future__ import annotations

from typing import Any

PLACES = {
    "verl/workers/rollout/vllm_rollout/bucketed_weight_transfer.py:BucketedWeightReceiver.receive_weights": (
        "62877255bd1f",
        "0854e471e11f",
    )
}


def patch(module: Any) -> None:
    """Copy what a bucket brings."""
    original = module.BucketedWeightReceiver.receive_weights

    def receive_weights(self: Any, on_bucket_received: Any) -> Any:
        def received(weights: Any, *_: Any) -> None:
            on_bucket_received([(name, value.clone()) for name, value in weights])

        return original(self, received)

    module.BucketedWeightReceiver.receive_weights = receive_weights


HOOKS = {"verl.workers.rollout.vllm_rollout.bucketed_weight_transfer": patch}
