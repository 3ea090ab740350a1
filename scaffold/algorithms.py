"""Algorithms of verl-omni that a package can be trained by, and what each needs of the trainer's configuration.

All of them take the same record of a rollout; they differ in the noise of a step, in its window and in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FLOW_GRPO = "flow_grpo"
_LOSS = "actor_rollout_ref.actor.diffusion_loss"
_ROLLOUT = "actor_rollout_ref.rollout.algo"
_MODEL = "actor_rollout_ref.model"


@dataclass(frozen=True)
class Algorithm:
    """One algorithm.

    Attributes:
        name: as ``--algorithm`` takes it.
        title: as documentation calls it.
        registered: the algorithm that both adapters are looked up by (``actor_rollout_ref.model.algorithm``).
        differs: what it does otherwise than FlowGRPO, in one sentence.
        options: overrides of the trainer's configuration beside those of the recipe.
        rollout: class of the runtime's module ``algorithms`` that goes before the rollout adapter; None for none.
        training: class of its module ``forward_process`` that goes before the training adapter; None for none.
        v1: whether verl-omni's newer trainer has it.
        anywhere: whether training predicts at noise levels between those of the rollout.
        begins: what its trainer logs at the policy that it begins at, and is different later: a metric and its value.
    """

    name: str
    title: str
    registered: str
    differs: str
    options: Mapping[str, str] = field(default_factory=dict)
    rollout: str | None = None
    training: str | None = None
    v1: bool = True
    anywhere: bool = False
    begins: tuple[str, float] | None = None

    @property
    def scores_steps(self) -> bool:
        """Whether it is trained on log-probs of the rollout's steps."""
        return self.training is None


_FOUND = (
    Algorithm(FLOW_GRPO, "FlowGRPO", FLOW_GRPO, "The ratio of log-probs is clipped, every step of the window alike."),
    Algorithm(
        "mix_grpo",
        "MixGRPO",
        "mix_grpo",
        "The window of stochastic steps is drawn for each training step, or slides over the schedule"
        " (sample_strategy=progressive, by sde_window_size every iters_per_group steps).",
        {
            "algorithm.adv_estimator": FLOW_GRPO,
            f"{_LOSS}.loss_mode": FLOW_GRPO,
            f"{_ROLLOUT}.sample_strategy": "random",
            f"{_ROLLOUT}.sde_window_seed": "42",
        },
    ),
    Algorithm(
        "dance_grpo",
        "DanceGRPO",
        "dance_grpo",
        "Steps are noised by a constant rate, and all images of a prompt begin with the same noise.",
        {f"{_ROLLOUT}.sde_type": "dance_sde"},
        "SharedStart",
    ),
    # The divergence of these two takes a step's deviation as std_dev_t * sqrt(dt), which only sde has it as.
    Algorithm(
        "flow_dppo",
        "Flow-DPPO",
        FLOW_GRPO,
        "Steps that leave the old policy too far behind, by their exact divergence, are left out of the loss.",
        {
            f"{_LOSS}.loss_mode": "flow_dppo",
            f"{_LOSS}.kl_mask_threshold": "1e-5",
            f"{_ROLLOUT}.sde_type": "sde",
        },
    ),
    Algorithm(
        "grpo_guard",
        "GRPO-Guard",
        FLOW_GRPO,
        "The ratio is corrected by how far the mean of a step has moved, and weighed by the size of the step.",
        {f"{_LOSS}.loss_mode": "grpo_guard", f"{_LOSS}.clip_ratio": "2e-6", f"{_ROLLOUT}.sde_type": "sde"},
    ),
    Algorithm(
        "diffusion_nft",
        "DiffusionNFT",
        "diffusion_nft",
        "No step is scored: the rollout has no noise, and training predicts the velocity at its clean latents with"
        " noise added, drawn to images of high reward and away from those of low. It needs LoRA and verl-omni's older"
        " trainer.",
        {
            "algorithm.trainer_type": "direct_preference",
            "algorithm.sample_source": "online",
            "algorithm.old_policy_decay_schedule": "delayed_linear_to_0_999",
            "algorithm.old_policy_update_interval": "2",
            f"{_MODEL}.model_type": "diffusion_nft_model",
            f"{_MODEL}.policy_state_adapters": '["default","old"]',
            f"{_LOSS}.mix_beta": "0.1",
            f"{_LOSS}.ref_kl_coef": "1e-4",
            f"{_LOSS}.adv_clip_max": "5.0",
            f"{_ROLLOUT}.noise_level": "0.0",
            "actor_rollout_ref.rollout.rollout_adapter": "old",
        },
        "CleanLatents",
        "ForwardProcess",
        v1=False,
        begins=("actor/old_deviate", 0.0),
    ),
    # Noise and its level are those of a pair, so that a pass takes whole ones.
    Algorithm(
        "dpo",
        "DPO",
        "dpo",
        "No step is scored: of each prompt the images of highest and lowest reward are a pair, and training predicts"
        " the velocity at both with the same noise added, better than without its adapter for the first and worse for"
        " the second. It needs LoRA and verl-omni's older trainer.",
        {
            "algorithm.trainer_type": "direct_preference",
            "algorithm.sample_source": "online",
            "algorithm.paired_preference": "True",
            f"{_MODEL}.model_type": "diffusion_dpo_model",
            f"{_LOSS}.loss_mode": "dpo",
            f"{_LOSS}.dpo_beta": "100.0",
            f"{_ROLLOUT}.noise_level": "0.0",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "2",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": "2",
        },
        "CleanLatents",
        "PairedForwardProcess",
        v1=False,
        anywhere=True,
        begins=("actor/dpo_loss", math.log(2.0)),
    ),
)
ALGORITHMS: Mapping[str, Algorithm] = {found.name: found for found in _FOUND}


def algorithms(names: Iterable[str]) -> list[dict[str, Any]]:
    """Algorithms as templates take them, in the order of their names."""
    return [asdict(ALGORITHMS[name]) for name in names]


def registered(names: Iterable[str]) -> list[dict[str, Any]]:
    """What a package of these algorithms registers its adapters for, FlowGRPO first; one entry for each key."""
    found: dict[str, Algorithm] = {}
    for name in (FLOW_GRPO, *names):
        found.setdefault(ALGORITHMS[name].registered, ALGORITHMS[name])
    return [asdict(entry) for entry in found.values()]
