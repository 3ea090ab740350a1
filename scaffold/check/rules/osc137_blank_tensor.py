"""Zeros, ones or new noise stand where a tensor's own values belong.

The name is there, and of the tensor behind it nothing but the shape is taken. A timestep whose embedding is that of
zeros, latents that are drawn anew, weights that are sent as ``empty_like``: every shape fits, nothing fails, and the
log-probs are those of another step or another model.

    latents = latents + self.time_embedder(torch.zeros_like(features))

Instead: use the tensor itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scaffold.check.example import Example
from scaffold.check.model.arrivals import Arrivals, blank
from scaffold.check.model.blank_weights import blank_sent, blank_weights
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sde import appended, sampling_argument, sampling_calls
from scaffold.check.model.sides import side_of
from scaffold.check.model.streams import self_call
from scaffold.check.model.submodules import submodules
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC137"
NAME = "blank-tensor"
SEVERITY = "error"
CHECKLIST = ("M6", "M7", "M8", "T4", "T5", "R4", "R6")
APPLIES = Applies()
HELP = "use the tensor's values, not only its shape"
_STEP = ("sample", "prev_sample", "model_output", "timestep")
# Inputs that change from step to step; ids and masks may well be constant.
_CHANGING = {"hidden_states", "timestep", "timesteps", "sigma", "sigmas", "latents", "sample", "noise_level", "x", "t"}
_RESULTS = ("trajectory_latents", "trajectory_timesteps", "trajectory_log_probs")
_METHOD = "forward_and_sample_previous_step"
_PREPARE = "prepare_model_inputs"


def check(package: Package) -> Hits:
    """Look at the model, at what the step of each side is given, and at weights on their way."""
    told = set()
    for hit in _hits(package):
        if hit.at not in told:
            told.add(hit.at)
            yield hit


def _hits(package: Package) -> Hits:
    if package.training_module is not None and package.is_non_diffusers:
        yield from _model(package, package.training_module)
        places = blank_weights(package, package.training_module)
        yield from (Hit(function.file, where, text) for function, where, text in places)
    for which in ("training", "rollout"):
        yield from _steps(package, which)
    yield from _adapter(package)
    yield from (Hit(function.file, where, text) for function, where, text in blank_sent(package))


def _model(package: Package, module: ClassModel) -> Hits:
    """Look at the inputs of ``forward``, and at what sub-modules compute."""
    forward = module.method("forward")
    for function in package.forward_functions:
        if function.file not in package.files or function.is_abstract or not _may(function):
            continue
        arrivals = Arrivals(function)
        built = {part.name for part in submodules(function.cls)} if function.cls is not None else set()
        for call in function.calls:
            called = self_call(call)
            where = arrivals.lost(call) if called in built else None
            if where is not None:
                yield Hit(function.file, where, f"of what {called}() computes nothing but the shape is used")
        for name in forward.parameters if forward is not None and function == forward else ():
            node = forward.parameter_node(name) if forward is not None else None
            where = arrivals.lost(node) if node is not None and "mask" not in name else None
            if where is not None and not name.startswith("_"):
                yield Hit(function.file, where, f"of {name} nothing but the shape gets into the velocity")


def _may(function: FunctionModel) -> bool:
    """Whether a function takes a shape, or multiplies with zero; most do not."""
    index = function.file.index
    return any(
        node.attr in ("shape", "size") or node.attr.endswith("_like") or node.attr.startswith("new_")
        for node in index.nodes(ast.Attribute, function.node)
    ) or any(node.value == 0 for node in index.nodes(ast.Constant, function.node))


def _steps(package: Package, which: str) -> Hits:
    """Look at what the scheduler's step is given."""
    side = side_of(package, "training" if which == "training" else "rollout")
    for function, call in sampling_calls(side):
        for name in _STEP if function.file in package.files else ():
            value = sampling_argument(call, name)
            where = blank(function, value) if value is not None else None
            if where is not None and value is not None:
                yield Hit(function.file, where, f"the scheduler is given a blank tensor for {name}")
    for function in side.functions if which == "training" else ():
        for node in function.file.index.nodes(ast.Compare, function.node) if function.file in package.files else ():
            ordered = isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) and isinstance(node.left, ast.Name)
            where = blank(function, node.left) if ordered else None
            if where is not None:
                yield Hit(function.file, where, f"{ast.unparse(node.left)} is blank and compared with something")
    for function in side.functions if which == "rollout" else ():
        for call in function.calls:
            for item in call.keywords:
                where = blank(function, item.value) if item.arg in _RESULTS else None
                if where is not None and function.file in package.files:
                    yield Hit(function.file, where, f"{item.arg} is a blank tensor")
        for kept in function.file.index.nodes(ast.Attribute, function.node):
            if "latents" in kept.attr or "log_prob" in kept.attr:
                for around, call in appended(side, function, kept):
                    where = blank(around, call.args[0]) if call.args else None
                    if where is not None and around.file in package.files:
                        yield Hit(around.file, where, f"a blank tensor is recorded in {kept.attr}")


def _adapter(package: Package) -> Hits:
    """Look at the inputs that the training adapter prepares, at what its module computes, and at its answer."""
    for adapter in package.training_adapters:
        prepare, step = adapter.method(_PREPARE), adapter.method(_METHOD)
        if prepare is not None and prepare.file in package.files:
            for key, value in _entries(prepare):
                where = blank(prepare, value) if key in _CHANGING else None
                if where is not None:
                    yield Hit(prepare.file, where, f"the module is given a blank tensor for {key}")
        if step is None or step.file not in package.files or step.is_abstract:
            continue
        arrivals = Arrivals(step)
        for call in step.calls:
            if isinstance(call.func, ast.Name) and call.func.id in step.positional[:1]:
                lost = arrivals.lost(call)
                if lost is not None:
                    yield Hit(step.file, lost, "of what the module computes nothing but the shape is used")
        for statement in step.returns:
            for part in statement.value.elts if isinstance(statement.value, ast.Tuple) else ():
                where = blank(step, part)
                if where is not None:
                    yield Hit(step.file, where, "a blank tensor is returned for what the scheduler computed")


def _entries(function: FunctionModel) -> Iterator[tuple[str, ast.expr]]:
    """Yield keys and values of the dictionaries that a function writes down."""
    for node in function.file.index.nodes(ast.Dict, function.node):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    for call in function.calls:
        if isinstance(call.func, ast.Name) and call.func.id == "dict":
            yield from ((item.arg, item.value) for item in call.keywords if item.arg is not None)
    for statement in function.file.index.nodes(ast.Assign, function.node):
        target = statement.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            if isinstance(target.slice.value, str):
                yield target.slice.value, statement.value


_TIME = "self.time_embedder(timestep.to(context.dtype))"
_POSITION = "self.latent_pos_embed(latent_pos_ids)"
FAILING: tuple[Example, ...] = (
    Example(
        "the shape of an input",
        {"model": [(_TIME, "self.time_embedder(«torch.zeros_like(timestep)».to(context.dtype))")]},
    ),
    Example(
        "the shape of an input, by a name",
        {
            "model": [
                (
                    "        latents = latents + " + _TIME,
                    "        levels = timestep.float()\n        levels = «levels.new_zeros»(levels.shape)\n"
                    "        latents = latents + self.time_embedder(levels.to(context.dtype))",
                )
            ]
        },
    ),
    Example(
        "positions are counted",
        {"model": [(_POSITION, "self.latent_pos_embed(torch.arange(«latent_pos_ids.shape»[1], device=device))")]},
    ),
    Example("nothing of what is computed", {"model": [(_POSITION, f"«torch.zeros_like({_POSITION})»")]}),
    Example("multiplied with zero", {"model": [(_POSITION, f"«{_POSITION} * 0.0»")]}),
    Example(
        "another sample for the step",
        {"training": [("sample=latents[:, step].float()", "sample=«torch.randn_like(latents[:, step])».float()")]},
    ),
    Example(
        "the next sample",
        {
            "training": [
                ("prev_sample=latents[:, step + 1].float()", "prev_sample=«torch.zeros_like(latents[:, step])»")
            ]
        },
    ),
    Example(
        "the module's input",
        {"training": [('"hidden_states": latents[:, step]', '"hidden_states": «torch.randn_like(latents[:, step])»')]},
    ),
    Example(
        "the branch without the prompt",
        {
            "training": [
                (
                    "unconditional = module(**negative_model_inputs)[0].float()",
                    "unconditional = «torch.zeros_like(module(**negative_model_inputs)[0])».float()",
                )
            ]
        },
    ),
    Example(
        "the log-prob",
        {
            "training": [
                (
                    "return log_prob, prev_sample_mean, std_dev_t, sqrt_dt",
                    "return «torch.zeros_like(log_prob)», prev_sample_mean, std_dev_t, sqrt_dt",
                )
            ]
        },
    ),
)
FAILING += (
    Example(
        "weights of the shape",
        {
            "model": [
                (
                    "                    state[target] = file.get_tensor(source)\n",
                    "                    size = «file.get_tensor(source).shape»\n"
                    "                    state[target] = torch.empty(size)\n",
                )
            ]
        },
    ),
    Example(
        "the recorded latents",
        {"rollout": [("self._latents.append(prev_sample)", "self._latents.append(«torch.empty_like(prev_sample)»)")]},
    ),
    Example(
        "the log-probs of the result",
        {
            "rollout": [
                (
                    "trajectory_log_probs=log_probs,",
                    "trajectory_log_probs=None if log_probs is None else «torch.zeros_like(log_probs)»,",
                )
            ]
        },
    ),
    Example(
        "the weights that are sent",
        {"rollout": [("            yield name, tensor\n", "            yield name, «torch.empty_like(tensor)»\n")]},
    ),
    Example(
        "the weights that are loaded",
        {
            "model": [
                (
                    "state[target] = file.get_tensor(source)",
                    "state[target] = «torch.empty_like(file.get_tensor(source))»",
                )
            ]
        },
    ),
)
PASSING = (
    Example("the values"),
    Example(
        "an input that is refused",
        {
            "model": [
                (
                    "        text_attention_mask: Tensor | None = None,\n    )",
                    "        text_attention_mask: Tensor | None = None,\n        guidance: Tensor | None = None,\n"
                    "        grid: Tensor | None = None,\n    )",
                ),
                (
                    "        batch, device = hidden",
                    "        if guidance is not None:\n            raise ValueError('there is no guidance embedding')\n"
                    "        if grid is not None and grid.shape[0] != hidden_states.shape[0]:\n"
                    "            raise ValueError(f'a batch of {grid.shape[0]}')\n        batch, device = hidden",
                ),
            ]
        },
    ),
    Example(
        "a look at a weight's shape",
        {
            "model": [
                (
                    "                    state[target] = file.get_tensor(source)\n",
                    "                    size = file.get_tensor(source).shape\n"
                    "                    if not all(size):\n                        raise ValueError(source)\n"
                    "                    state[target] = file.get_tensor(source)\n",
                ),
            ]
        },
    ),
    Example(
        "a shape beside the values",
        {
            "model": [
                (
                    "        latents = latents + " + _POSITION,
                    "        where = " + _POSITION + "\n        padding = torch.zeros_like(where[:, :0])\n"
                    "        latents = latents + torch.cat((where, padding), dim=1)",
                )
            ]
        },
    ),
    Example(
        "ids that are constant",
        {
            "training": [
                (
                    '"latent_pos_ids": torch.arange(latents.shape[2], device=latents.device).expand(latents.shape[0], -1)',
                    '"latent_pos_ids": torch.zeros_like(latents[:, step, :, 0], dtype=torch.long)',
                )
            ]
        },
    ),
    Example(
        "filled afterwards",
        {
            "model": [
                (
                    "        latents = latents + " + _POSITION,
                    "        placed = torch.zeros_like(latents)\n        placed[:] = " + _POSITION + "\n"
                    "        latents = latents + placed",
                )
            ]
        },
    ),
    Example("of diffusers", base="diffusers"),
)
