"""What runs only under a condition that does not hold, or holds where it should not."""

from mutants.edit import Edit, text
from mutants.mutant import INIT, ROLLOUT, mutant

REGISTER = '@VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")\n'
CALL = REGISTER[1:-1] + "(BagelPipelineWithLogProb)\n"
LAST = (
    '            raise ValueError(f"the prompt {decoded!r} is not encoded to the ids it was decoded from")\n'
    "        return text\n"
)
ADAPTER = "from .vllm_omni_rollout_adapter import BagelPipelineWithLogProb\n"
PIPELINE = "from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline\n"
SUPER = "        output = super().forward(req)\n"
FEWER = "            params.num_inference_steps = requested_steps - 1\n"
PLACEHOLDER = "        placeholder = self._placeholder_adapter(peft_config, rank)\n"
KWARGS = "        self.scheduler_kwargs = {}\n"


def registered_if(test: str) -> tuple[Edit, Edit]:
    """Return the edits that register the rollout adapter under a condition."""
    return text(ROLLOUT, REGISTER, ""), text(ROLLOUT, LAST, f"{LAST}\n\nif {test}:\n    {CALL}")


def steps_if(test: str, imports: str) -> tuple[Edit, Edit]:
    """Return the edits that take a step less under a condition."""
    return text(ROLLOUT, "import torch\n", f"import torch\n{imports}", times=1), text(
        ROLLOUT, SUPER, f"        if {test}:\n{FEWER}{SUPER}"
    )


VERSION = "import vllm_omni\nfrom packaging.version import Version\n"
MUTANTS = [
    mutant("registered where a variable is set", ("R1",), "301", *registered_if('os.environ.get("BAGEL_ROLLOUT")')),
    mutant("registered where a variable is there", ("R1",), "301", *registered_if('"BAGEL_ROLLOUT" in os.environ')),
    mutant("registered where a variable is one", ("R1",), "301", *registered_if('int(os.getenv("BAGEL", "0")) == 1')),
    mutant("registered for type checkers", ("R1",), "301", *registered_if("False")),
    mutant(
        "rollout adapter imported for one role",
        ("W1",),
        "503",
        text(INIT, ADAPTER, 'import os\n\nif os.environ.get("ROLE", "actor") == "rollout":\n    ' + ADAPTER),
    ),
    mutant(
        "neither adapter in __all__",
        ("W1",),
        "503",
        text(INIT, '__all__ = ["BagelDiffusion", "BagelPipelineWithLogProb"]', "__all__: list[str] = []"),
    ),
    mutant(
        "pipeline of a module that is not there, or none",
        ("R2",),
        "302",
        text(
            ROLLOUT,
            PIPELINE,
            "try:\n    from vllm_omni.diffusion.models.bagel.bagel_pipeline import BagelPipeline\n"
            "except ImportError:\n    BagelPipeline = torch.nn.Module\n",
        ),
    ),
    mutant(
        "pipeline of a module that is not there",
        ("R2",),
        "302",
        text(ROLLOUT, PIPELINE, PIPELINE.replace("pipeline_bagel", "pipeline")),
    ),
    mutant(
        "forward of what is above the pipeline",
        ("R2",),
        "302",
        text(ROLLOUT, "super().forward(req)", "super(BagelPipeline, self).forward(req)"),
    ),
    mutant(
        "constructor of what is above the pipeline",
        ("R2",),
        "302",
        text(ROLLOUT, "super().__init__(od", "super(BagelPipeline, self).__init__(od"),
    ),
    mutant(
        "a step less for this release and later",
        ("R6", 5),
        "309",
        *steps_if('Version(vllm_omni.__version__) >= Version("0.22")', VERSION),
    ),
    mutant(
        "a step less for what comes behind 0.24",
        ("R6", 5),
        "309",
        *steps_if(
            'Version(version("vllm-omni")) > Version("0.24.0")',
            "from importlib.metadata import version\nfrom packaging.version import Version\n",
        ),
    ),
    mutant(
        "LoRA folded once",
        (18,),
        "318",
        text(ROLLOUT, KWARGS, KWARGS + "        self._folded = False\n"),
        text(
            ROLLOUT,
            PLACEHOLDER,
            PLACEHOLDER + "        if self._folded:\n            return placeholder\n        self._folded = True\n",
        ),
    ),
]
