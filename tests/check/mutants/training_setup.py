"""Registration, module and schedule of the training adapter."""

from mutants.edit import add, decorate, define, line, rename
from mutants.mutant import ROLLOUT, TRAINING, mutant

ADAPTER = "BagelDiffusion"
BUILD = f"{ADAPTER}.build_module"
SCHEDULER = f"{ADAPTER}.build_scheduler"
TIMESTEPS = f"{ADAPTER}.set_timesteps"
LOADED = "return BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)"
SHARED = "setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)"

MUTANTS = [
    # Registration
    mutant("training adapter not registered", ("T1",), "201", decorate(TRAINING, ADAPTER)),
    mutant(
        "registered without an algorithm",
        ("T1",),
        "201 509",
        decorate(TRAINING, ADAPTER, 'DiffusionModelBase.register("OmniBagelForConditionalGeneration")'),
    ),
    mutant(
        "registered for another algorithm",
        ("T1",),
        "509",
        decorate(
            TRAINING, ADAPTER, 'DiffusionModelBase.register("OmniBagelForConditionalGeneration", algorithm="mix_grpo")'
        ),
    ),
    mutant("register not called", ("T1",), "201", decorate(TRAINING, ADAPTER, "DiffusionModelBase.register")),
    mutant(
        "registered with the rollout's register",
        ("T1",),
        "201 501 302 301",
        decorate(
            TRAINING,
            ADAPTER,
            'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")',
        ),
        add(TRAINING, "", "from verl_omni.pipelines.model_base import VllmOmniPipelineBase", first=True),
    ),
    # Module
    mutant("no build_module", ("T2",), "202", define(TRAINING, BUILD, "")),
    mutant(
        "build_module forgets to return", ("T2",), "202", line(TRAINING, BUILD, LOADED, LOADED.removeprefix("return "))
    ),
    mutant(
        "module built with random weights",
        ("T2",),
        "202",
        line(
            TRAINING,
            BUILD,
            LOADED,
            "return BagelForTraining(BagelTrainingConfig.from_model_path(model_config.local_path))",
        ),
    ),
    mutant("build_module returns None", ("T2",), "202", line(TRAINING, BUILD, LOADED, "return None")),
    mutant("build_module named otherwise", ("T2",), "202", rename(TRAINING, ADAPTER, "build_module", "build_model")),
    mutant(
        "diffusers loads the module",
        ("T2",),
        "202 101",
        line(
            TRAINING,
            BUILD,
            LOADED,
            "return AutoModel.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)",
        ),
        add(TRAINING, "", "from diffusers import AutoModel", first=True),
    ),
    # Schedule
    mutant("no build_scheduler", ("T3",), "203", define(TRAINING, SCHEDULER, "")),
    mutant("no set_timesteps", ("T3",), "203", define(TRAINING, TIMESTEPS, "")),
    mutant(
        "scheduler built without its schedule",
        ("T3",),
        "203",
        line(TRAINING, SCHEDULER, "cls.set_timesteps(scheduler, model_config, get_device_name())"),
    ),
    mutant("set_timesteps left empty", ("T3",), "203", line(TRAINING, TIMESTEPS, SHARED)),
    mutant(
        "schedule of its own in training",
        ("T3", 30),
        "204",
        line(
            TRAINING,
            TIMESTEPS,
            SHARED,
            """
steps = model_config.pipeline.num_inference_steps
t = torch.linspace(1, 0, steps)
sigmas = (3.0 * t / (1 + 2.0 * t))[:-1].tolist()
scheduler.set_timesteps(sigmas=sigmas, device=device)
""",
        ),
    ),
    mutant(
        "schedule without shift in training",
        ("T3", 30),
        "204 203",
        line(
            TRAINING,
            TIMESTEPS,
            SHARED,
            "scheduler.set_timesteps(model_config.pipeline.num_inference_steps, device=device)",
        ),
    ),
    mutant(
        "schedule of its own in the rollout",
        (30,),
        "204",
        line(
            ROLLOUT,
            "_BagelSchedulerAdapter.begin",
            "count = len(setup_bagel_sigmas(self.inner, num_inference_steps))",
            """
t = torch.linspace(1, 0, num_inference_steps)
sigmas = (3.0 * t / (1 + 2.0 * t))[:-1].tolist()
self.inner.set_shift(1.0)
self.inner.set_timesteps(sigmas=sigmas)
count = len(sigmas)
""",
        ),
    ),
    mutant(
        "a copy of the schedule beside the adapter",
        (30,),
        "204",
        add(
            TRAINING,
            "",
            """
def training_sigmas(steps: int) -> list[float]:
    t = torch.linspace(1, 0, steps, dtype=torch.float32)
    return (3.0 * t / (1 + 2.0 * t))[:-1].tolist()
""",
        ),
        line(
            TRAINING,
            TIMESTEPS,
            SHARED,
            """
scheduler.set_timesteps(sigmas=training_sigmas(model_config.pipeline.num_inference_steps), device=device)
scheduler.timesteps = scheduler.sigmas[:-1].clone()
""",
        ),
    ),
]
