"""The SDE window is not that of the training step.

The window says which denoising steps get noise and are trained. Drawn from an unseeded generator, or from the
request's own seed, each sample of a group gets its noise at other timesteps, and rewards differ because of that instead
of because of the samples: a run that trains past step 181 with a window in common died at step 28 with one a request.
Drawn from the rank, or from a constant, it is one window for the whole training: every replica's worker has the local
rank 0, so a recipe of 14 steps trained [3, 5) for ever. And the ranks of one tensor-parallel rollout then take noisy
steps at different places of one image, and its log-probs are 9e-2 off.

    begin = random.Random(int(os.environ["LOCAL_RANK"])).randint(low, latest)

Instead: draw from the training step, ``extra_args["global_steps"]``, which every training request carries.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import keyword
from scaffold.check.model.dataflow import origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.sde import of_window
from scaffold.check.model.seeds import MAKERS, is_constant, of_rank, of_request, seeding
from scaffold.check.model.sides import Side, side_of
from scaffold.check.model.streams import derived, reads
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC308"
NAME = "window-not-of-the-step"
SEVERITY = "error"
CHECKLIST = ("R6", "pitfall 15")
# Packages that diffusers loads share verl-omni's own helper, which draws a window a sample on purpose.
APPLIES = Applies(non_diffusers=True, objective="policy_gradient")
HELP = 'draw the window from the training step alone: extra_args["global_steps"]'
_DRAWS = {
    "randint",
    "randrange",
    "choice",
    "choices",
    "uniform",
    "random",
    "integers",
    "sample",
    "randbelow",
    "shuffle",
}
_TORCH = {"torch.randint", "torch.randperm", "torch.rand", "torch.multinomial"}
_GLOBAL = ("random.", "numpy.random.", "secrets.")
_OF_RANK = "from the rank, which no training step changes and which differs within a tensor-parallel rollout"


def check(package: Package) -> Hits:
    """Look at every draw that has to do with the window."""
    side = side_of(package, "rollout")
    for function in side.functions:
        for call in function.calls:
            why = _drawn(side, function, call)
            if why is not None and _for_window(side, function, call):
                yield Hit(function.file, call, f"the SDE window is drawn {why}")
        for node in function.file.index.nodes(ast.BinOp, function.node):
            if isinstance(node.op, ast.Mod) and not isinstance(node.left, (ast.Constant, ast.JoinedStr)):
                made = origin(side, function, node.left)
                what = "something that each request has of its own" if of_request(made) else "the rank"
                if (of_request(made) or of_rank(made)) and (
                    _about_window(function, origin(side, function, node.right).words) or _becomes_window(function, node)
                ):
                    yield Hit(function.file, node, f"the SDE window is computed from {what}")


def _drawn(side: Side, function: FunctionModel, call: ast.Call) -> str | None:
    """Return from what a call draws, where that is not the training step."""
    name = function.file.qualified(call.func) or ""
    if name in _TORCH:
        generator = keyword(call, "generator")
        if generator is None or (isinstance(generator, ast.Constant) and generator.value is None):
            return f"from the global state of {name.rpartition('.')[0]}"
        return _why(side, function, generator)
    if not isinstance(call.func, (ast.Attribute, ast.Name)) or _last(call) not in _DRAWS:
        return None
    if name.startswith(_GLOBAL):
        seeds = [c for c in function.calls if (function.file.qualified(c.func) or "").endswith("random.seed")]
        made = [origin(side, function, value) for c in seeds for value in c.args]
        if any(map(of_request, made)):
            return "from a seed that differs between requests"
        if any(map(of_rank, made)):
            return _OF_RANK
        return None if seeds else f"from the global state of {name.rpartition('.')[0]}"
    return _why(side, function, call.func.value) if isinstance(call.func, ast.Attribute) else None


def _why(side: Side, function: FunctionModel, generator: ast.expr) -> str | None:
    kind, found = seeding(side, function, generator)
    if kind == "unseeded":
        return "from an unseeded generator"
    if kind != "request":
        if of_rank(found):
            return _OF_RANK
        return (
            "from a constant, so that no training step changes it" if kind == "shared" and is_constant(found) else None
        )
    made = any(file.qualified(call.func) in MAKERS for file, call in found.calls())
    return (
        "from the request's generator"
        if "generator" in found.words and not made
        else "from a seed that differs between requests"
    )


def _for_window(side: Side, function: FunctionModel, call: ast.Call) -> bool:
    if "window" in function.name.lower() or _becomes_window(function, call):
        return True
    given = [*call.args, *(item.value for item in call.keywords if item.arg != "generator")]
    return any(_about_window(function, origin(side, function, value).words) for value in given)


def _becomes_window(function: FunctionModel, call: ast.expr) -> bool:
    """Whether what is drawn ends in a name, a keyword or a key of the window, in the same function."""
    index = function.file.index

    def flows(value: ast.expr, names: set[str]) -> bool:
        return index.contains(value, call) or reads(value, names)

    names = derived(function, (), flows)
    if of_window(names):
        return True
    given = [item for other in function.calls for item in other.keywords if item.arg is not None]
    pairs = [(item.arg or "", item.value) for item in given if not index.contains(call, item)]
    for table in index.nodes(ast.Dict, function.node):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                pairs.append((key.value, value))
    return any(of_window({name}) and flows(value, names) for name, value in pairs)


def _about_window(function: FunctionModel, words: set[str]) -> bool:
    return "window" in function.name.lower() or of_window(words)


def _last(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


_DRAW = "random.Random(int(training_step)).randint(low, latest)"
_SIGNATURE = "def pick_sde_window(size, window_range, training_step):"
_CALL = 'pick_sde_window(extra_args.get("sde_window_size"), extra_args.get("sde_window_range"), step)'
_IMPORT = ("import random\n", "import os\nimport random\n")
FAILING = (
    Example(
        "the global generator, seeded by the request",
        {
            "common": [
                (_SIGNATURE, "def pick_sde_window(size, window_range, training_step, seed):"),
                ("    if not size:\n", "    random.seed(seed)\n    if not size:\n"),
                (_DRAW, "«random.randint(low, latest)»"),
            ],
            "rollout": [(_CALL, _CALL[:-1] + ", params.seed)")],
        },
        also=("OSC310",),
    ),
    Example(
        "the rank",
        {"common": [_IMPORT, (_DRAW, '«random.Random(int(os.environ["LOCAL_RANK"])).randint(low, latest)»')]},
    ),
    Example(
        "the rank and the step",
        {
            "common": [
                _IMPORT,
                (_DRAW, '«random.Random(int(training_step) + int(os.environ["RANK"])).randint(low, latest)»'),
            ]
        },
    ),
    Example(
        "the rank that a helper reads",
        {
            "common": [
                _IMPORT,
                (
                    _SIGNATURE,
                    'def _rank() -> int:\n    value = os.environ.get("LOCAL_RANK", "0")\n    return int(value)\n\n\n'
                    + _SIGNATURE,
                ),
                (_DRAW, "«random.Random(_rank()).randint(low, latest)»"),
            ]
        },
    ),
    Example(
        "torch's rank, handed on",
        {
            "common": [(_DRAW, "«random.Random(training_step).randint(low, latest)»")],
            "rollout": [('extra_args.get("global_steps")', "torch.distributed.get_rank()")],
        },
    ),
    Example(
        "the remainder of the rank",
        {"common": [_IMPORT, (_DRAW, 'low + «int(os.environ["LOCAL_RANK"]) % (latest - low + 1)»')]},
    ),
    Example(
        "the global generator, seeded by the rank",
        {
            "common": [
                _IMPORT,
                ("    if not size:\n", '    random.seed(int(os.environ["LOCAL_RANK"]))\n    if not size:\n'),
                (_DRAW, "«random.randint(low, latest)»"),
            ]
        },
        also=("OSC310",),
    ),
    Example("a constant", {"common": [(_DRAW, "«random.Random(7).randint(low, latest)»")]}),
    Example(
        "a constant of the module",
        {
            "common": [
                ("SCHEDULE_SHIFT = 3.0\n", "SCHEDULE_SHIFT = 3.0\nWINDOW_SEED = 7\n"),
                (_DRAW, "low + int(«random.Random(WINDOW_SEED).random()» * (latest - low + 1))"),
            ]
        },
    ),
    Example(
        "the step and a counter",
        {
            "common": [
                (
                    "SCHEDULE_SHIFT = 3.0\n",
                    "SCHEDULE_SHIFT = 3.0\nDRAWS = iter(range(1000))\n",
                ),
                (_DRAW, "«random.Random(int(training_step) + next(DRAWS)).randint(low, latest)»"),
            ]
        },
    ),
    Example(
        "the remainder of the request's seed, in the place of the window that was drawn",
        {
            "rollout": [
                (
                    "        self.scheduler.begin(\n",
                    "        if params.seed is not None and window:\n            first = «params.seed % 5»\n"
                    "            window = (first, first + 2)\n        self.scheduler.begin(\n",
                )
            ]
        },
    ),
    Example("the global generator", {"common": [(_DRAW, "«random.randint(low, latest)»")]}),
    Example("an unseeded generator", {"common": [(_DRAW, "«random.Random().randint(low, latest)»")]}),
    Example(
        "the request's seed, handed on",
        {
            "common": [
                (_SIGNATURE, "def pick_sde_window(size, window_range, training_step, seed):"),
                (_DRAW, "«random.Random(seed).randint(low, latest)»"),
            ],
            "rollout": [(_CALL, _CALL[:-1] + ", params.seed)")],
        },
    ),
    Example(
        "step and request mixed",
        {
            "common": [
                (_SIGNATURE, "def pick_sde_window(size, window_range, training_step, request_id):"),
                (_DRAW, "«random.Random(int(training_step) + hash(request_id)).randint(low, latest)»"),
            ],
            "rollout": [(_CALL, _CALL[:-1] + ", req.request_id)")],
        },
    ),
    Example(
        "drawn beside the shared function",
        {
            "rollout": [
                (
                    f"            window = {_CALL}\n",
                    f"            window = {_CALL}\n            begin = «random.randrange(0, 5)»\n"
                    "            window = (begin, begin + 2)\n",
                ),
                ("import torch\n", "import random\n\nimport torch\n"),
            ]
        },
    ),
    Example("torch's global generator", {"common": [(_DRAW, "«torch.randint(low, latest + 1, (1,))».item()")]}),
    Example(
        "the request's generator",
        {
            "common": [
                (_SIGNATURE, "def pick_sde_window(size, window_range, training_step, generator):"),
                (_DRAW, "«torch.randint(low, latest + 1, (1,), generator=generator)».item()"),
            ],
            "rollout": [(_CALL, _CALL[:-1] + ", params.generator)")],
        },
    ),
    Example(
        "a remainder",
        {
            "common": [
                (_SIGNATURE, "def pick_sde_window(size, window_range, training_step, seed):"),
                (_DRAW, "low + «seed % (latest - low + 1)»"),
            ],
            "rollout": [(_CALL, _CALL[:-1] + ", params.seed)")],
        },
    ),
)
PASSING = (
    Example("the training step"),
    Example(
        "something else is drawn",
        {
            "rollout": [
                (
                    f"            window = {_CALL}\n",
                    f"            window = {_CALL}\n            colour = random.randrange(0, 5)\n            print(colour)\n",
                ),
                ("import torch\n", "import random\n\nimport torch\n"),
            ]
        },
    ),
    Example(
        "the step, drawn without arguments",
        {"common": [(_DRAW, "low + int(random.Random(int(training_step)).random() * (latest - low + 1))")]},
    ),
    Example(
        "the step and a seed of the recipe",
        {
            "rollout": [
                ('extra_args.get("global_steps")', 'extra_args.get("global_steps", 0) + extra_args["sde_window_seed"]')
            ]
        },
    ),
    Example("the remainder of the step", {"common": [(_DRAW, "low + int(training_step) % (latest - low + 1)")]}),
    Example(
        "a generator with the step's seed",
        {
            "common": [
                (
                    _DRAW,
                    "torch.randint(low, latest + 1, (1,), "
                    "generator=torch.Generator().manual_seed(int(training_step))).item()",
                )
            ]
        },
    ),
    Example(
        "the rank in another seed",
        {
            "rollout": [
                ("import torch\n", "import os\n\nimport torch\n"),
                (
                    f"            window = {_CALL}\n",
                    f"            window = {_CALL}\n"
                    '            colours = torch.Generator().manual_seed(int(os.environ["LOCAL_RANK"]))\n'
                    "            print(torch.randint(0, 5, (1,), generator=colours))\n",
                ),
            ]
        },
    ),
)
