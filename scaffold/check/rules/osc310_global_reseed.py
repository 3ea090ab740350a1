"""An adapter reseeds a global random number generator.

The global generators belong to the process: initial latents, noise, dropout and the window of other requests are
drawn from them. Setting their seed in the middle of a rollout makes every sample that follows repeat the same noise,
or makes training's draws depend on which request came last. Nothing fails; the groups lose their spread.

    torch.manual_seed(0)
    window = random.randint(low, high)

Instead: use a generator of your own, ``random.Random(seed)`` or ``torch.Generator(device).manual_seed(seed)``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Hit, Hits

ID = "OSC310"
NAME = "global-reseed"
SEVERITY = "error"
CHECKLIST = ("pitfall 17",)
HELP = "draw from a generator of your own instead: random.Random(seed), torch.Generator(device).manual_seed(seed)"
_SEEDING = {
    "random.seed",
    "random.setstate",
    "numpy.random.seed",
    "numpy.random.set_state",
    "torch.manual_seed",
    "torch.seed",
    "torch.random.manual_seed",
    "torch.random.seed",
    "torch.set_rng_state",
    "torch.random.set_rng_state",
    "torch.default_generator.manual_seed",
    "torch.default_generator.seed",
    "transformers.set_seed",
    "transformers.trainer_utils.set_seed",
    "accelerate.utils.set_seed",
    "diffusers.training_utils.set_seed",
    "lightning.seed_everything",
    "pytorch_lightning.seed_everything",
}
_DEVICES = ("cuda", "npu", "xpu", "mps", "musa", "accelerator")
_OF_DEVICE = {"manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all"}


def check(package: Package) -> Hits:
    """Look at the functions of both sides, and at what their modules do when they are imported."""
    functions: dict[FunctionModel, None] = {}
    for which in ("training", "rollout"):
        functions.update(dict.fromkeys(side_of(package, which).functions))
    for function in functions:
        for call in function.calls:
            yield from _hits(function.file, call)
    for file in {function.file for function in functions}:
        for call in file.index.nodes(ast.Call):
            if file.function_around(call) is None:
                yield from _hits(file, call)


def _hits(file: PythonFile, call: ast.Call) -> Hits:
    name = file.qualified(call.func)
    if name is None:
        return
    parts = name.split(".")
    of_device = len(parts) == 3 and parts[0] == "torch" and parts[1] in _DEVICES and parts[2] in _OF_DEVICE
    if (name in _SEEDING or of_device) and not _forked(file, call):
        yield Hit(file, call, f"{name}() sets a generator that the whole process draws from")


def _forked(file: PythonFile, call: ast.Call) -> bool:
    """Whether the global state is put back afterwards: ``with torch.random.fork_rng():``."""
    for outer in file.index.ancestors(call):
        if isinstance(outer, (ast.With, ast.AsyncWith)):
            managers = [item.context_expr for item in outer.items]
            if any(isinstance(m, ast.Call) and (file.qualified(m.func) or "").endswith("fork_rng") for m in managers):
                return True
    return False


FAILING = (
    Example(
        "the device",
        rollout=("_ensure_prompt_text(req)\n", "_ensure_prompt_text(req)\n        «torch.cuda.manual_seed_all(0)»\n"),
        also="OSC126",
    ),
    Example("Python's", common=("- int(size)\n", "- int(size)\n    «random.seed(int(training_step))»\n")),
)
PASSING = (
    Example("torch.Generator", rollout=('extra_args.get("generator"', "torch.Generator().manual_seed(hash(req)")),
)
