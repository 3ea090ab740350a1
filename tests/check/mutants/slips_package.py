"""Small slips in exports and registry."""

from mutants.edit import move, text
from mutants.mutant import (
    COMMON,
    INIT,
    MODEL,
    PATCH,
    TRAINING,
    Mutant,
    mutant,
)


def script(name: str, items: tuple, rules: str, path: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of a text file."""
    return mutant(name, items, rules, text(path, old, new))


MUTANTS = [
    # The package
    script(
        "training adapter not exported",
        ("W1",),
        "503",
        INIT,
        "from .diffusers_training_adapter import BagelDiffusion\n",
        "",
    ),
    script(
        "rollout adapter not in __all__",
        ("W1",),
        "503",
        INIT,
        '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]',
        '__all__ = ["BagelDiffusion"]',
    ),
    script(
        "misspelt in __all__",
        ("W1",),
        "503",
        INIT,
        '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]',
        '__all__ = ["BagelDifusion", "BagelPipelineWithLogProb"]',
    ),
    script(
        "imported from another file",
        ("W1",),
        "503 004",
        INIT,
        "from .vllm_omni_rollout_adapter import",
        "from .rollout_adapter import",
    ),
    script(
        "exports in a string",
        ("W1",),
        "503",
        INIT,
        '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]',
        '__all__ = "BagelDiffusion"',
    ),
    script(
        "exports the model instead",
        ("W1",),
        "503",
        INIT,
        "from .diffusers_training_adapter import BagelDiffusion",
        "from .bagel_model import BagelForTraining as BagelDiffusion",
    ),
    script(
        "imports swallowed",
        ("W1",),
        "503",
        INIT,
        "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb",
        "try:\n    from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb\nexcept ImportError:\n    BagelPipelineWithLogProb = None",
    ),
    mutant(
        "model file renamed", ("W1", 25), "004", *move(MODEL, "verl_omni/pipelines/bagel_flow_grpo/modeling_bagel.py")
    ),
    mutant("shared file renamed", ("W1", 30), "004", *move(COMMON, "verl_omni/pipelines/bagel_flow_grpo/shared.py")),
    script(
        "imports a name that is not there",
        ("W1", 27),
        "004",
        TRAINING,
        "from .bagel_model import BagelForTraining, BagelTrainingConfig, timestep_features",
        "from .bagel_model import BagelForTraining, BagelTrainingConfig, time_features as timestep_features",
    ),
    script(
        "base from the wrong module",
        ("M2",),
        "004 101",
        MODEL,
        "from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase",
        "from verl_omni.pipelines.model_base import NonDiffusersModelBase",
    ),
    # The registry
    script("registry imports nothing of it", ("W2", 25), "502", PATCH, "+    bagel_flow_grpo,\n", ""),
    script(
        "registry without the star",
        ("W2", 25),
        "502",
        PATCH,
        "+from .bagel_flow_grpo import *  # noqa: F401, F403\n",
        "",
    ),
    script("registry without __all__", ("W2", 25), "502", PATCH, "+__all__ += list(bagel_flow_grpo.__all__)\n", ""),
    script(
        "registry names another package",
        ("W2", 25),
        "502",
        PATCH,
        "+from .bagel_flow_grpo import *",
        "+from .bagel_flowgrpo import *",
    ),
]
