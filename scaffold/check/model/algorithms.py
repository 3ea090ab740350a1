"""What the name of an algorithm says: how a model is trained, and which part of a package's name is the model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

Objective = Literal["policy_gradient", "direct_preference"]
# How verl-omni's algorithms end: the first are trained on log-probs of a recorded trajectory, the others are not.
POLICY_GRADIENT = ("grpo", "ppo", "gspo", "grpo_guard")
DIRECT_PREFERENCE = ("dpo", "nft")
# Algorithms of the releases, so that a folder's name tells its model without reading its files.
ALGORITHM_ENDINGS = ("_flow_grpo", "_dance_grpo", "_mix_grpo", "_dual_grpo", "_diffusion_nft", "_dpo")


def objective_of(algorithms: Sequence[str]) -> Objective | None:
    """Return how a package is trained that is registered for these algorithms; None where they do not tell."""
    kinds: set[Objective] = set()
    for algorithm in algorithms:
        if algorithm.endswith(POLICY_GRADIENT):
            kinds.add("policy_gradient")
        elif algorithm.endswith(DIRECT_PREFERENCE):
            kinds.add("direct_preference")
    return kinds.pop() if len(kinds) == 1 else None


def model_name(package: str, algorithms: Callable[[], Sequence[str]]) -> str:
    """Return a package's name without its algorithm: ``foo`` of ``foo_flow_grpo``.

    Args:
        package: name of the folder.
        algorithms: returns what the package is registered for; asked only where no known algorithm ends the name.
    """
    endings = next((ending for ending in ALGORITHM_ENDINGS if package.endswith(ending)), None)
    if endings is None:
        endings = next((f"_{name}" for name in algorithms() if package.endswith(f"_{name}")), "")
    return package.removesuffix(endings)
