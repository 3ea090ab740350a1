"""Small slips in registration, module and schedule of the training side."""

from mutants.edit import bases, decorate, rename, swap
from mutants.mutant import COMMON, TRAINING, Mutant, mutant

ADAPTER = "BagelDiffusion"
BUILD = f"{ADAPTER}.build_module"
SCHEDULER = f"{ADAPTER}.build_scheduler"
TIMESTEPS = f"{ADAPTER}.set_timesteps"
LOADED = "BagelForTraining.from_pretrained(model_config.local_path, torch_dtype=torch_dtype)"
SET = "setup_bagel_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)"


def slip(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant with one expression or one run of statements changed."""
    return mutant(name, items, rules, swap(TRAINING, within, old, new))


def shared(name: str, items: tuple, rules: str, within: str, old: str, new: str = "") -> Mutant:
    """Return a mutant of what both sides share."""
    return mutant(name, items, rules, swap(COMMON, within, old, new))


MUTANTS = [
    # Registration
    mutant(
        "registered without an algorithm, once more",
        ("T1", 26),
        "201 509",
        decorate(TRAINING, ADAPTER, 'DiffusionModelBase.register("OmniBagelForConditionalGeneration")'),
    ),
    mutant(
        "registered for another algorithm, once more",
        ("T1", 26),
        "509",
        decorate(
            TRAINING,
            ADAPTER,
            'DiffusionModelBase.register("OmniBagelForConditionalGeneration", algorithm="dance_grpo")',
        ),
    ),
    mutant(
        "registered without Omni",
        ("T1", "W5", 26),
        "501 506",
        decorate(
            TRAINING, ADAPTER, 'DiffusionModelBase.register("BagelForConditionalGeneration", algorithm="flow_grpo")'
        ),
    ),
    mutant(
        "registered on the other side's base",
        ("T1",),
        "201 301",
        decorate(
            TRAINING,
            ADAPTER,
            'VllmOmniPipelineBase.register("OmniBagelForConditionalGeneration", algorithm="flow_grpo")',
        ),
        swap(
            TRAINING,
            "",
            "from verl_omni.pipelines.model_base import DiffusionModelBase",
            "from verl_omni.pipelines.model_base import DiffusionModelBase, VllmOmniPipelineBase",
        ),
    ),
    mutant(
        "decorator with its arguments exchanged",
        ("T1",),
        "201 501 509",
        decorate(
            TRAINING, ADAPTER, 'DiffusionModelBase.register("flow_grpo", algorithm="OmniBagelForConditionalGeneration")'
        ),
    ),
    mutant("adapter without its base", ("T1",), "201", bases(TRAINING, ADAPTER)),
    mutant(
        "adapter of the image-to-image base",
        ("T1", "T4"),
        "201",
        bases(TRAINING, ADAPTER, "DiffusionI2IModelBase"),
        swap(
            TRAINING,
            "",
            "from verl_omni.pipelines.model_base import DiffusionModelBase",
            "from verl_omni.pipelines.model_base import DiffusionI2IModelBase, DiffusionModelBase",
        ),
    ),
    # Module
    mutant("build_module misspelt", ("T2",), "202", rename(TRAINING, ADAPTER, "build_module", "build_modules")),
    slip("module built and loaded later", ("T2",), "202", BUILD, f"return {LOADED}", f"module = {LOADED}"),
    slip(
        "type not handed on",
        ("T2",),
        "130 202",
        BUILD,
        LOADED,
        "BagelForTraining.from_pretrained(model_config.local_path)",
    ),
    slip(
        "errors of loading swallowed",
        ("T2", 3),
        "202",
        BUILD,
        f"return {LOADED}",
        f"try:\n    return {LOADED}\nexcept Exception:\n    return None",
    ),
    slip("class returned, not a module", ("T2",), "202", BUILD, LOADED, "BagelForTraining"),
    slip(
        "config returned",
        ("T2",),
        "202 101",
        BUILD,
        LOADED,
        "BagelTrainingConfig.from_model_path(model_config.local_path)",
    ),
    # Schedule
    slip(
        "scheduler never set up",
        ("T3",),
        "203",
        SCHEDULER,
        "cls.set_timesteps(scheduler, model_config, get_device_name())",
    ),
    slip(
        "scheduler of diffusers",
        ("T3",),
        "203",
        SCHEDULER,
        "FlowMatchSDEDiscreteScheduler()",
        "FlowMatchEulerDiscreteScheduler()",
    ),
    slip(
        "scheduler returned is a new one",
        ("T3",),
        "203",
        SCHEDULER,
        "return scheduler",
        "return FlowMatchSDEDiscreteScheduler()",
    ),
    slip(
        "one step more in training",
        ("T3", 5, 30),
        "204 309",
        TIMESTEPS,
        "model_config.pipeline.num_inference_steps",
        "model_config.pipeline.num_inference_steps + 1",
    ),
    slip(
        "one step fewer in training",
        ("T3", 5, 30),
        "204 309",
        TIMESTEPS,
        "model_config.pipeline.num_inference_steps",
        "model_config.pipeline.num_inference_steps - 1",
    ),
    slip(
        "timesteps scaled in training",
        ("T3", 30),
        "204",
        TIMESTEPS,
        SET,
        f"{SET}\nscheduler.timesteps = scheduler.timesteps * 1000",
    ),
    slip(
        "timesteps whole numbers",
        (33,),
        "124",
        TIMESTEPS,
        SET,
        f"{SET}\nscheduler.timesteps = scheduler.timesteps.long()",
    ),
    slip(
        "reversed schedule in training",
        ("T3", 30),
        "204",
        TIMESTEPS,
        SET,
        f"{SET}\nscheduler.sigmas = scheduler.sigmas.flip(0)",
    ),
    shared("schedule's shift is one", ("T3", 30), "223", "", "SCHEDULE_SHIFT = 3.0", "SCHEDULE_SHIFT = 1.0"),
    shared(
        "schedule without shift",
        ("T3", 30),
        "223",
        "bagel_sigmas",
        "shift_sigmas(torch.linspace(1, 0, points, dtype=torch.float32))[:-1].tolist()",
        "torch.linspace(1, 0, points, dtype=torch.float32)[:-1].tolist()",
    ),
    shared(
        "schedule upwards",
        ("T3", 30),
        "223",
        "bagel_sigmas",
        "torch.linspace(1, 0, points, dtype=torch.float32)",
        "torch.linspace(0, 1, points, dtype=torch.float32)",
    ),
    shared(
        "schedule with one point more",
        ("T3", 5),
        "223 309",
        "bagel_sigmas",
        "torch.linspace(1, 0, points, dtype=torch.float32)",
        "torch.linspace(1, 0, points + 1, dtype=torch.float32)",
    ),
    shared(
        "terminal noise level kept",
        ("T3", 5),
        "223",
        "bagel_sigmas",
        "shift_sigmas(torch.linspace(1, 0, points, dtype=torch.float32))[:-1].tolist()",
        "shift_sigmas(torch.linspace(1, 0, points, dtype=torch.float32)).tolist()",
    ),
    shared(
        "shift formula upside down",
        ("T3", 30),
        "223",
        "shift_sigmas",
        "shift * t / (1 + (shift - 1) * t)",
        "t / (shift + (1 - shift) * t)",
    ),
    shared(
        "scheduler's own timesteps kept",
        ("T3", 44),
        "223 203",
        "setup_bagel_sigmas",
        "scheduler.timesteps = scheduler.sigmas[:-1].clone()",
    ),
    shared(
        "scheduler shifts a second time",
        ("T3", 30),
        "223",
        "setup_bagel_sigmas",
        "scheduler.set_shift(1.0)",
        "scheduler.set_shift(SCHEDULE_SHIFT)",
    ),
    shared(
        "sigmas computed and not set",
        ("T3",),
        "203 204 223",
        "setup_bagel_sigmas",
        "scheduler.set_timesteps(sigmas=sigmas, device=device)",
        "scheduler.set_timesteps(num_inference_steps, device=device)",
    ),
]
