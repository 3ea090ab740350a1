"""A part that every integration has is not there.

The contract of verl-omni is a list of methods and files. Most are asked for by rules of their own; those whose absence
is all there is to see stand in one table here: a training adapter without its step, a module without ``forward``, a
rollout adapter that leaves sampling to upstream and so records nothing, a wrapper without ``step``, a recipe whose data
no script makes. Each of them imports, registers and starts.

    class ToyDiffusion(DiffusionModelBase):              # no forward_and_sample_previous_step()

Instead: write the part that the message names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import RECIPES, Objective, Package
from scaffold.check.model.python import ClassModel, FunctionModel, PythonFile
from scaffold.check.model.scheduler_wrappers import replacements
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Hit, Hits

ID = "OSC524"
NAME = "missing-part"
SEVERITY = "error"
CHECKLIST = ("M6", "T3", "T4", "T5", "R3", "R6", "D1")


class Part(NamedTuple):
    """A method that a class of an integration has.

    Attributes:
        of: which class: training, module, rollout or wrapper.
        name: of the method.
        objective: how packages that need it are trained; None for all.
        why: who calls it, or what goes without it.
        result: what the caller takes from it; None where another rule looks at that.
    """

    of: str
    name: str
    objective: Objective | None
    why: str
    result: str | None = None


PARTS = (
    Part(
        "training",
        "prepare_model_inputs",
        None,
        "the engine calls it for every micro-batch",
        "the inputs of both branches",
    ),
    Part(
        "training",
        "forward_and_sample_previous_step",
        "policy_gradient",
        "the engine computes log-probs with it",
        "the log-prob and what belongs to it",
    ),
    Part("training", "build_scheduler", "policy_gradient", "the engine asks it for the SDE scheduler", "the scheduler"),
    Part("training", "set_timesteps", "policy_gradient", "the scheduler keeps its own schedule"),
    Part("module", "forward", None, "it is what is trained", "the prediction"),
    Part(
        "module", "from_pretrained", None, "what the base class has knows neither the files nor the keys", "the module"
    ),
    Part("rollout", "forward", "policy_gradient", "upstream's own records no trajectory"),
    Part(
        "wrapper",
        "step",
        "policy_gradient",
        "the pipeline's call goes past it to the scheduler inside",
        "the next sample",
    ),
)
# Where the methods stand that a class has to override, and bases that bring none.
_ABSTRACT = ("verl_omni/pipelines/model_base.py", "verl_omni/pipelines/non_diffusers_model_base.py")
_PLAIN = ("verl_omni.pipelines.", "vllm_omni.", "torch.nn.", "abc.", "object")
_WRITING = {"to_parquet", "write_table", "write_parquet", "save_to_disk", "to_json", "to_csv", "write", "write_text"}
_PLACE = re.compile(r": port \S+\.py:\d+ of vllm-omni ")
_ELSEWHERE = {"rollout": ("diffuse", "post_decode", "denoise_step", "step_scheduler")}


def check(package: Package) -> Hits:
    """Check every part of the table, and look for the data script."""
    for part in PARTS:
        if part.objective not in (None, package.objective):
            continue
        # An algorithm that the trainer does not know has an engine of its own, which calls what it needs.
        if part.of == "training" and package.algorithms and package.objective is None:
            continue
        for cls in dict.fromkeys(_classes(package, part.of)):
            if cls.file not in package.files or not _is_known(cls):
                continue
            written = cls.method(part.name)
            if (
                written is not None
                and written.is_abstract
                and written.file in package.files
                and written.nodes(ast.Raise)
            ):
                told = any(_PLACE.search(ast.unparse(node)) for node in written.nodes(ast.Raise))
                if not told:  # OSC140 tells where `new` left a place to port
                    text = f"{cls.name}.{part.name}() only raises: {part.why}"
                    yield Hit(written.file, written.node, text, f"write {part.name}()")
                continue
            if not any(_has(cls, name) for name in (part.name, *_ELSEWHERE.get(part.of, ()))):
                text = f"{cls.name} has no {part.name}(): {part.why}"
                yield Hit(cls.file, cls.node, text, f"write {part.name}()")
                continue
            method = cls.method(part.name)
            if part.result is not None and method is not None and method.file in package.files and _falls_off(method):
                text = f"{cls.name}.{part.name}() returns nothing, and its caller takes {part.result} from it"
                yield Hit(method.file, method.node, text, f"return {part.result}")
    yield from _data(package)


def _classes(package: Package, of: str) -> Iterator[ClassModel]:
    if of == "training":
        yield from (cls for cls in package.training_adapters if cls.derives_from("DiffusionModelBase"))
    elif of == "module" and package.training_module is not None:
        yield package.training_module
    elif of == "rollout":
        yield from (cls for cls in package.rollout_adapters if any(b.startswith("vllm_omni.") for b in cls.external))
    elif of == "wrapper":
        side = side_of(package, "rollout")
        for adapter in side.adapters:
            yield from (found.wrapper for found in replacements(side, adapter, "scheduler") if found.wrapper)


def _is_known(cls: ClassModel) -> bool:
    """Whether every base is in the tree, or one that brings no such method of its own."""
    return cls.resolved and all(name.startswith(_PLAIN) for name in cls.external)


def _has(cls: ClassModel, name: str) -> bool:
    method = cls.method(name)
    owner = next((one for one in cls.mro if name in one.methods or name in one.own_attributes), None)
    if method is None or owner is None or name in owner.own_attributes:
        return owner is not None
    return not method.is_abstract and method.file.path not in _ABSTRACT


def _falls_off(method: FunctionModel) -> bool:
    """Whether a method has a body and no way of it ends with a value, an error or a generator's item."""
    own = list(method.file.index.own(method.node))
    valued = any(isinstance(node, ast.Return) and node.value is not None for node in own)
    ends = isinstance(method.node.body[-1], ast.Raise) or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own)
    return not (valued or ends or method.is_abstract)


def _data(package: Package) -> Hits:
    """Look for a script below ``examples/`` that the package's scripts or their README name, and that writes a file."""
    for file in package.preprocessors:
        named = {node.attr for node in file.index.nodes(ast.Attribute)}
        if file.path.startswith(RECIPES) and file.problem is None and not named & _WRITING and not _hands_on(file):
            text = f"{file.name} writes no file, and the recipe trains on what it made"
            yield Hit(file, Span(1, 1, 1, 1), text, "write the rows with to_parquet()")
    if package.project.alone or not package.is_non_diffusers or not package.launch_scripts:
        return
    files = [file for one in (package, *package.sharing) for file in one.preprocessors]
    if not any(file.path.startswith(RECIPES) for file in files):
        file = package.init or package.files[0]
        text = f"no script below {' or '.join(RECIPES)} makes the data of {package.name}"
        help = "add examples/<algorithm>_trainer/data_process/<model>_….py and name it in the README of the recipe"
        yield Hit(file, Span(1, 1, 1, 1), text, help)


def _hands_on(file: PythonFile) -> bool:
    """Whether a script takes something from another file of the tree, which may write."""
    taken = [binding.target for bound in file.names.values() for binding in bound if binding.kind == "import"]
    return bool(file.stars) or any(file.project.definition(target) is not None for target in taken if target)


FAILING = (
    Example(
        "a step that only raises",
        training=(
            "    @classmethod\n    def set_timesteps(cls, scheduler, model_config: DiffusionModelConfig, device: str) -> None:\n"
            "        setup_toy_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)\n",
            "    @classmethod\n    def «set_timesteps»(cls, scheduler, model_config, device):\n        raise NotImplementedError\n",
        ),
    ),
    Example(
        "what the step returns",
        training=[
            ("return log_prob, prev_sample_mean, std_dev_t, sqrt_dt", "print(log_prob)"),
            ("def forward_and_sample_previous_step", "def «forward_and_sample_previous_step»"),
        ],
    ),
    Example(
        "the data",
        data=None,
        dummy=("from examples.flowgrpo_trainer.data_process.toy_ocr import build_row\n", ""),
        init=("from .diffusers_training_adapter", "«»from .diffusers_training_adapter"),
        also="OSC519 OSC601 OSC510",
    ),
    Example(
        "the rollout's loop",
        rollout=[("ToyPipelineWithLogProb", "«ToyPipelineWithLogProb»"), ("def forward", "def sample")],
        also="OSC314 OSC305 OSC306 OSC203 OSC303",
    ),
)
_LOADS = (
    "        config = ToyTrainingConfig.from_model_path(model_path)\n        state: dict[str, Tensor] = {}\n"
    '        with safe_open(os.path.join(model_path, "ema.safetensors"), framework="pt", device="cpu") as file:\n'
    "            for source in file.keys():\n                target = to_training_key(source)\n"
    "                if target is not None:\n                    state[target] = file.get_tensor(source)\n"
    '        with torch.device("meta"):\n            model = cls(config)\n'
    "        model.load_state_dict(state, strict=True, assign=True)\n        return model.to(torch_dtype)\n"
)
_PORT = 'NotImplementedError("loading: port vllm_omni/diffusion/models/toy/pipeline_toy.py:12 of vllm-omni 0.30.0")'
PASSING = (
    Example("a place to port", model=(_LOADS, f"        raise {_PORT}\n"), also="OSC140 OSC202 OSC401 OSC409"),
    Example("all are there"),
    Example(
        "a method made of a function",
        training=(
            "    @classmethod\n    def set_timesteps(cls, scheduler, model_config: DiffusionModelConfig, device: str) -> None:\n"
            "        setup_toy_sigmas(scheduler, model_config.pipeline.num_inference_steps, device=device)\n",
            "    set_timesteps = classmethod(\n"
            "        lambda cls, scheduler, model_config, device: setup_toy_sigmas(\n"
            "            scheduler, model_config.pipeline.num_inference_steps, device=device\n"
            "        )\n"
            "    )\n",
        ),
    ),
)
