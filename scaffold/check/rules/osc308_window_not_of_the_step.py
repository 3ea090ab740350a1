"""The SDE window is not that of the training step.

All members of a group, on every rank, need one window in a training step, and another in the next. Drawn per request
the log-probs of a group stand at different steps, and the run dies after some dozen of them; drawn from the rank the
window never moves, and the ranks of one tensor-parallel rollout disagree. What a run draws, `verify` measures
(``window-per-step``).

    begin = random.Random(int(os.environ["LOCAL_RANK"])).randint(low, high)

Instead: ``random.Random(extra_args["global_steps"])``.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import origin
from scaffold.check.model.package import Package
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.sde import of_rank, of_request, of_window
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits
from scaffold.source.syntax import keyword_of

ID = "OSC308"
NAME = "window-not-of-the-step"
SEVERITY = "error"
CHECKLIST = ("R6", "pitfall 15")
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = 'draw it from the training step alone: random.Random(extra_args["global_steps"])'
_DRAWS = {"randint", "randrange", "random", "choice", "uniform", "integers", "rand", "sample", "randperm"}
_GLOBAL = ("random.", "numpy.random.", "torch.rand")


def check(package: Package) -> Hits:
    """Look at every random draw for the window."""
    side = side_of(package, "rollout")
    for function in side.functions:
        for call in function.calls:
            last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if (
                last in _DRAWS
                and _for_window(side, function, call)
                and (why := _from(side, function, call)) is not None
            ):
                yield Hit(function.file, call, f"the SDE window is drawn {why}")


def _for_window(side: Side, function: FunctionModel, call: ast.Call) -> bool:
    """Whether a draw stands in a function of the window, in a statement that names it, or between its ends."""
    statement = next(outer for outer in function.file.index.ancestors(call) if isinstance(outer, ast.stmt))
    written = of_window({function.name, ast.unparse(statement)})
    return written or any(of_window(origin(side, function, end).words) for end in call.args)


def _from(side: Side, function: FunctionModel, call: ast.Call) -> str | None:
    """Return the source that a call draws from, where that is not the training step."""
    name = function.file.qualified(call.func) or ""
    seeds: list[ast.expr | None] = [keyword_of(call, "generator")]
    if not name.startswith(_GLOBAL) and isinstance(call.func, ast.Attribute):
        seeds = [call.func.value]
    elif seeds == [None]:
        seeded = [c for c in function.calls if (function.file.qualified(c.func) or "").endswith("random.seed")]
        seeds = [value for c in seeded for value in c.args] or [None]
    for seed in seeds:
        if seed is None:
            return f"from the global state of {name.rpartition('.')[0]}"
        made = origin(side, function, seed)
        if of_rank(made):
            return "from the rank, so that no training step changes it"
        if of_request(made):
            return "from something that each request has of its own"
        read = [node for _, _, node in made.nodes if isinstance(node, (ast.Attribute, ast.Subscript))]
        called = [value for _, value in made.calls() if value.args]
        if made.complete and not made.open and len(read) <= 1 and all(_is_number(value.args[0]) for value in called):
            return "from a constant, so that no training step changes it" if called else "from an unseeded generator"
    return None


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


FAILING = (
    Example(
        "the global generator",
        common=("random.Random(int(training_step)).randint(low, latest)", "«random.randint(low, latest)»"),
    ),
    Example(
        "an unseeded generator",
        common=("random.Random(int(training_step)).randint(low, latest)", "«random.Random().randint(low, latest)»"),
    ),
    Example(
        "the request's seed, kept beside the step",
        rollout=[
            ("class _StepOutput(", "class _Asked(NamedTuple):\n    seed: int\n    step: int\n\n\nclass _StepOutput("),
            (
                'step = extra_args.get("global_steps")',
                'asked = _Asked(seed=params.seed, step=extra_args["global_steps"])',
            ),
            ('_range"), step)', '_range"), asked.seed)'),
        ],
        common=(
            "random.Random(int(training_step)).randint(low, latest)",
            "«random.Random(int(training_step)).randint(low, latest)»",
        ),
    ),
)
PASSING = (
    Example(
        "the step, through an object of the adapter and a text",
        rollout=[
            (
                "class _StepOutput(",
                "class _Asked(NamedTuple):\n    generator: object\n    step: int\n\n\ndef _asked(extra):\n"
                '    return _Asked(extra["generator"], int(extra["global_steps"]))\n\n\nclass _StepOutput(',
            ),
            ('step = extra_args.get("global_steps")', "self._ask = _asked(extra_args)"),
            ('_range"), step)', '_range"), self._ask.step)'),
        ],
        common=("random.Random(int(training_step))", 'random.Random(f"toy-{training_step}")'),
    ),
    Example(
        "the step, kept beside what each request has",
        rollout=[
            ("class _StepOutput(", "class _Asked(NamedTuple):\n    seed: int\n    step: int\n\n\nclass _StepOutput("),
            (
                'step = extra_args.get("global_steps")',
                'asked = _Asked(seed=params.seed, step=extra_args["global_steps"])',
            ),
            ('_range"), step)', '_range"), asked.step)'),
        ],
    ),
    Example(
        "the step and a seed of the recipe",
        rollout=('global_steps")\n', 'global_steps", 0) + extra_args["sde_window_seed"]\n'),
    ),
)
