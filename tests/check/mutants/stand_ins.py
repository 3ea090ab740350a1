"""A name is right, and what stands behind it is another thing."""

from mutants.edit import text
from mutants.mutant import COMMON, MODEL, ROLLOUT, TRAINING, mutant

_BASE = "from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase\n"
_LOCAL = (
    "\nclass NonDiffusersModelBase(nn.Module):\n"
    '    """Shared behaviour of models that diffusers cannot load."""\n\n'
    "    def _checkpointed_call(self, function, *args):\n        return function(*args)\n\n"
)
_METHOD = "    def add_adapter(self, adapter_config, adapter_name"
_SCHEDULER = "from verl_omni.pipelines.schedulers import FlowMatchSDEDiscreteScheduler\n"

MUTANTS = [
    mutant("base class written again", ("M2",), "101", text(MODEL, _BASE, _LOCAL)),
    mutant(
        "base class is an alias of nn.Module",
        ("M2",),
        "101",
        text(MODEL, _BASE, "NonDiffusersModelBase = nn.Module\n"),
    ),
    mutant(
        "base class from the package's own file",
        ("M2",),
        "101",
        text(MODEL, _BASE, "from .common import NonDiffusersModelBase\n"),
        text(
            COMMON,
            "# Rate of the schedule",
            "class NonDiffusersModelBase(torch.nn.Module):\n"
            "    def _checkpointed_call(self, function, *args):\n        return function(*args)\n\n\n# Rate of the schedule",
        ),
    ),
    mutant(
        "base class where the import fails",
        ("M2",),
        "101",
        text(MODEL, _BASE, "from torch.nn import Module as NonDiffusersModelBase\n"),
    ),
    mutant(
        "checkpointed call that only calls",
        ("M5", 10),
        "105",
        text(
            MODEL,
            _METHOD,
            "    def _checkpointed_call(self, layer, *args):\n        return layer(*args)\n\n" + _METHOD,
        ),
    ),
    mutant(
        "loading that is never strict",
        (3,),
        "109",
        text(
            MODEL,
            _METHOD,
            "    def load_state_dict(self, state_dict, strict=True, assign=False):\n"
            "        return super().load_state_dict(state_dict, strict=False, assign=assign)\n\n" + _METHOD,
        ),
        text(MODEL, "        check_state(model.state_dict(), state, model_path)\n", ""),
    ),
    mutant(
        "training adapter's base written again",
        ("T1",),
        "201 101",
        text(
            TRAINING,
            "from verl_omni.pipelines.model_base import DiffusionModelBase\n",
            "\nclass DiffusionModelBase:\n    registry = {}\n\n    @classmethod\n"
            "    def register(cls, architecture, algorithm):\n        return lambda adapter: adapter\n\n",
        ),
    ),
    mutant(
        "rollout's register written again",
        ("R1",),
        "301 520",
        text(
            ROLLOUT,
            "from verl_omni.pipelines.model_base import VllmOmniPipelineBase\n",
            "\nclass VllmOmniPipelineBase:\n    @classmethod\n"
            "    def register(cls, architecture, algorithm):\n        return lambda adapter: adapter\n\n",
        ),
    ),
    mutant(
        "upstream pipeline written again",
        ("R2",),
        "302",
        text(
            ROLLOUT,
            "from vllm_omni.diffusion.models.bagel.pipeline_bagel import BagelPipeline\n",
            "\nclass BagelPipeline(torch.nn.Module):\n    def __init__(self, *, od_config, prefix=''):\n"
            "        super().__init__()\n        self.od_config = od_config\n\n",
        ),
    ),
    mutant(
        "scheduler of diffusers under the SDE scheduler's name",
        ("T3", "T5"),
        "203 204 209 223",
        text(
            TRAINING,
            _SCHEDULER,
            "from diffusers import FlowMatchEulerDiscreteScheduler as FlowMatchSDEDiscreteScheduler\n",
        ),
    ),
    mutant(
        "scheduler of diffusers in the rollout under the name",
        ("R3",),
        "303",
        text(
            ROLLOUT,
            _SCHEDULER,
            "from diffusers import FlowMatchEulerDiscreteScheduler as FlowMatchSDEDiscreteScheduler\n",
        ),
    ),
    mutant(
        "wrapper taken off at once",
        ("R3",),
        "303",
        text(ROLLOUT, "self.scheduler = _BagelSchedulerAdapter()", "self.scheduler = _BagelSchedulerAdapter().inner"),
    ),
    mutant(
        "wrapper taken off by a name",
        ("R3",),
        "303",
        text(
            ROLLOUT,
            "self.scheduler = _BagelSchedulerAdapter()",
            "wrapper = _BagelSchedulerAdapter()\n        self.scheduler = wrapper.inner",
        ),
    ),
    mutant(
        "wrapper taken off later",
        ("R3",),
        "303",
        text(
            ROLLOUT,
            "self.scheduler = _BagelSchedulerAdapter()\n",
            "self._recorder = _BagelSchedulerAdapter()\n        self.scheduler = self._recorder.inner\n",
        ),
    ),
    mutant(
        "the wrapper's method instead of the wrapper",
        ("R3",),
        "303",
        text(ROLLOUT, "self.scheduler = _BagelSchedulerAdapter()", "self.scheduler = _BagelSchedulerAdapter().step"),
    ),
    mutant(
        "shared guidance hidden by a local one",
        ("T5", 29),
        "205 316 204",
        text(
            TRAINING,
            "def _renormed(",
            "def resolve_guidance(values):\n    return {'cfg_text_scale': 3.0, 'cfg_img_scale': 1.0,"
            " 'cfg_interval': (0.0, 1.0), 'cfg_renorm_type': 'none', 'cfg_renorm_min': 0.0}\n\n\ndef _renormed(",
        ),
    ),
    mutant(
        "shared schedule hidden by a local one",
        ("T3", 30),
        "204 223 520",
        text(
            TRAINING,
            "def _renormed(",
            "def setup_bagel_sigmas(scheduler, count, device=None):\n"
            "    scheduler.set_timesteps(count, device=device)\n\n\ndef _renormed(",
        ),
    ),
    mutant(
        "normaliser's flag bound again",
        ("T5", 7),
        "210 520",
        text(TRAINING, "logger = logging", "INCLUDE_LOGPROB_NORMALIZER = True\nlogger = logging"),
    ),
    mutant(
        "normaliser's flag bound again in the rollout",
        ("R6", 7),
        "210 520",
        text(ROLLOUT, "def _training_name(", "INCLUDE_LOGPROB_NORMALIZER = True\n\n\ndef _training_name("),
    ),
    mutant(
        "configuration's saving inherited from nothing",
        ("M1", 36),
        "115 112",
        text(MODEL, _METHOD, "    def _save_config(self, save_directory):\n        pass\n\n" + _METHOD),
    ),
]
