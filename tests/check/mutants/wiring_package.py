"""The package and its three edits in the registry."""

from mutants.edit import line, swap, text
from mutants.mutant import INIT, PATCH, mutant

MUTANTS = [
    # The package
    mutant(
        "adapters not imported by the package",
        ("W1",),
        "503",
        line(
            INIT,
            "",
            "from .diffusers_training_adapter import BagelDiffusion\n"
            "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb\n"
            '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]',
            "__all__ = []",
        ),
    ),
    mutant(
        "rollout adapter not imported by the package",
        ("W1",),
        "503",
        line(INIT, "", "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb"),
        swap(INIT, "", '["BagelDiffusion", "BagelPipelineWithLogProb"]', '["BagelDiffusion"]'),
    ),
    mutant(
        "training adapter missing in __all__",
        ("W1",),
        "503",
        swap(INIT, "", '["BagelDiffusion", "BagelPipelineWithLogProb"]', '["BagelPipelineWithLogProb"]'),
    ),
    mutant(
        "wrong name in __all__",
        ("W1",),
        "503",
        swap(
            INIT, "", '["BagelDiffusion", "BagelPipelineWithLogProb"]', '["BagelDiffusion", "BagelPipelineWithLogprob"]'
        ),
    ),
    mutant(
        "no __all__", ("W1", "W2"), "503", line(INIT, "", '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]')
    ),
    # The registry
    mutant(
        "package not in the registry's import",
        ("W2", 25),
        "502",
        text(
            PATCH,
            "@@ -15,2 +15,3 @@\n from . import (\n+    bagel_flow_grpo,\n     ltx2_flow_grpo,\n@@ -28,2 +29,3 @@",
            "@@ -28,2 +28,3 @@",
        ),
    ),
    mutant(
        "registry without the star import",
        ("W2", 25),
        "502",
        text(
            PATCH,
            "@@ -28,2 +29,3 @@\n )\n+from .bagel_flow_grpo import *  # noqa: F401, F403\n from .ltx2_flow_grpo import *  # noqa: F401, F403\n",
            "",
        ),
    ),
    mutant(
        "registry's __all__ without the package",
        ("W2", 25),
        "502",
        text(
            PATCH,
            "@@ -53 +55,2 @@\n __all__ += list(qwen_image_edit_flow_grpo.__all__)\n+__all__ += list(bagel_flow_grpo.__all__)\n",
            "",
        ),
    ),
    mutant(
        "package not in the registry at all",
        ("W2", 25),
        "502",
        text(
            PATCH,
            """diff --git a/verl_omni/pipelines/__init__.py b/verl_omni/pipelines/__init__.py
--- a/verl_omni/pipelines/__init__.py
+++ b/verl_omni/pipelines/__init__.py
@@ -15,2 +15,3 @@
 from . import (
+    bagel_flow_grpo,
     ltx2_flow_grpo,
@@ -28,2 +29,3 @@
 )
+from .bagel_flow_grpo import *  # noqa: F401, F403
 from .ltx2_flow_grpo import *  # noqa: F401, F403
@@ -53 +55,2 @@
 __all__ += list(qwen_image_edit_flow_grpo.__all__)
+__all__ += list(bagel_flow_grpo.__all__)
""",
            "",
        ),
    ),
    mutant(
        "another package's __all__ added",
        ("W2", 25),
        "502",
        text(PATCH, "+__all__ += list(bagel_flow_grpo.__all__)", "+__all__ += list(qwen_image_flow_grpo.__all__)"),
    ),
]
