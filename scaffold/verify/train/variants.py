"""The ways in which a package can be trained, as overrides of one run; ``lora`` runs unless another is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scaffold.algorithms import ALGORITHMS
from scaffold.verify.train.trainers import ASYNC, V0

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
FULL = "full"  # the one without an adapter


@dataclass(frozen=True)
class Variant:
    """One way.

    Attributes:
        name: as ``--variant`` takes it.
        title: what it tries, for a report.
        overrides: of the trainer.
        processes: of the trainer.
        devices: that the engine sees in one process, for tensor parallelism.
        dtype: of rollout and training.
        log_prob_limit: the largest difference of a log-prob that passes whatever the floor says.
        log_prob_reason: why it is that large; with a floor, what is rounded in it.
        floor: overrides of a second run, without updates, whose differences are rounding alone: the limits rest on it.
        validates: whether validation runs after the last step.
        resumes: whether a checkpoint is saved after the last step and one more step taken from it, by a new process.
        steps: the most that are run, where more would show nothing new.
        sleeps: whether the engine gives its memory back between images and training, as it does on CUDA.
        algorithm: that is trained by, where it is another than the one of the package's scripts.
        trainer: ``v0`` or a mode of v1; None for the one that the checkout's own recipes take.
    """

    name: str
    title: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    devices: int = 1
    dtype: str = "float32"
    log_prob_limit: float = 1e-6
    log_prob_reason: str = "float32 on both sides"
    floor: Mapping[str, str] = field(default_factory=dict)
    validates: bool = False
    resumes: bool = False
    steps: int | None = None
    trainer: str | None = None
    sleeps: bool = False
    algorithm: str | None = None

    @property
    def scores_steps(self) -> bool:
        """Whether it is trained on log-probs of the rollout's steps."""
        return self.algorithm is None or ALGORITHMS[self.algorithm].scores_steps

    @property
    def exports(self) -> bool:
        """Whether what was trained is exported, and held against the last validation."""
        return self.resumes and self.validates

    @property
    def engines(self) -> int:
        """Ranks of the engine apart from the trainer's processes."""
        return self.processes if self.trainer == ASYNC else 0

    @property
    def lags(self) -> bool:
        """Whether images of a step were made with weights of an earlier one."""
        return self.trainer == ASYNC


VARIANTS = (
    Variant("lora", "LoRA, one process", validates=True, resumes=True),
    Variant("v0", "LoRA, verl-omni's older trainer", validates=True, trainer=V0),
    Variant(
        "async",
        "images made apart from training, one step ahead of it",
        log_prob_reason="float32 on both sides, no weight changes",
        floor={f"{ACTOR}.optim.lr": "0.0"},
        steps=3,
        trainer=ASYNC,
    ),
    *(
        Variant(name, f"LoRA under {name}", {f"{ACTOR}.strategy": kind, f"{ACTOR}.fsdp_config.strategy": kind}, steps=3)
        for name, kind in (("fsdp1", "fsdp"), ("fsdp2", "fsdp2"))
    ),
    Variant(
        "kl",
        "KL loss against the reference",
        {f"{ACTOR}.use_kl_loss": "True", f"{ACTOR}.kl_loss_coef": "0.01"},
        steps=3,
    ),
    Variant("two-processes", "two trainer processes, sharded, and two replicas", processes=2, steps=3),
    Variant(
        "tensor-parallel",
        "a rollout on two ranks",
        {f"{ROLLOUT}.tensor_model_parallel_size": "2"},
        processes=2,
        devices=2,
        steps=3,
    ),
    Variant(
        FULL,
        "all parameters under fsdp2",
        {
            f"{MODEL}.lora_rank": "0",
            f"{ROLLOUT}.layered_summon": "False",
            f"{ACTOR}.strategy": "fsdp2",
            f"{ACTOR}.fsdp_config.strategy": "fsdp2",
            f"{ACTOR}.optim.lr": "3e-5",
        },
        log_prob_reason="verl-omni casts full parameters to bfloat16 on their way to the rollout, and none changes",
        floor={f"{ACTOR}.optim.lr": "0.0"},
        validates=True,
        resumes=True,
        steps=3,
    ),
    Variant(
        "bf16",
        "bfloat16 on both sides",
        dtype="bfloat16",
        log_prob_reason="the rollout is in bfloat16, training in float32, and no weight changes",
        floor={
            f"{ACTOR}.optim.lr": "0.0",
            f"{ACTOR}.fsdp_config.model_dtype": "float32",
            f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype": "float32",
        },
        steps=2,
    ),
)


# One for each algorithm, of packages that are registered for it; no checkpoint is made of it.
BY_ALGORITHM = tuple(
    Variant(
        found.name,
        f"{found.title}, LoRA",
        steps=3 if found.scores_steps else None,
        algorithm=found.name,
        trainer=None if found.v1 else V0,
    )
    for found in ALGORITHMS.values()
)


def variants() -> dict[str, Variant]:
    """Every variant by its name, the ordinary one first."""
    return {variant.name: variant for variant in (*VARIANTS, *BY_ALGORITHM)}


def merged(variant: Variant) -> Variant:
    """The same of a package whose adapter the trainer merges: every weight is then cast to bfloat16 on its way."""
    if variant.floor:
        return variant
    reason = "verl-omni casts merged weights to bfloat16 on their way to the rollout, and none changes"
    return replace(variant, floor={f"{ACTOR}.optim.lr": "0.0"}, log_prob_reason=reason)
