"""The noise of the SDE steps comes from a generator that all samples of a group have in common.

Group members differ by their noise alone. A generator made for each request with a literal seed, or with the rank,
gives all of them the same noise: equal samples, equal rewards, advantages of zero. A fresh generator with the
request's own seed is no better where the pipeline draws the initial latents from that seed: the first noise repeats
them. And latents whose seed is made of the prompt alone are the same at every training step.

    generator = torch.Generator(device).manual_seed(42)

Instead: hand on a generator that goes on from draw to draw, or none, so that the process's own is used.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.dataflow import Origin, origin
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sde import sampling_argument, sampling_calls
from scaffold.check.model.seeds import of_rank, of_request
from scaffold.check.model.sides import Side, side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC311"
NAME = "constant-noise-seed"
SEVERITY = "error"
CHECKLIST = ("pitfall 16",)
APPLIES = Applies(objective="policy_gradient")
HELP = "use a generator whose state goes on from draw to draw, or none"
_PROMPT = {"prompt", "prompts", "prompt_ids", "prompt_token_ids"}
_REQUEST = {"seed", "generator", "request_id", "request_ids", "req_id"}


def check(package: Package) -> Hits:
    """Look at what the generators of scheduler steps are seeded with."""
    side = side_of(package, "rollout")
    seen: set[ast.AST] = set()
    for function, call in sampling_calls(side):
        generator = sampling_argument(call, "generator")
        if generator is None:
            continue
        yield from _own_generator(package, side, function, generator)
        for around, file, node in origin(side, function, generator).nodes:
            seeded = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if not seeded or around is None or node in seen:
                continue
            assert isinstance(node, ast.Call)
            assert isinstance(node.func, ast.Attribute)
            if node.func.attr == "manual_seed" and node.args:
                seen.add(node)
                yield from _judge(side, around, file, node)
    for function, call in side.calls("manual_seed"):
        if call.args and call not in seen and _of_prompt_alone(origin(side, function, call.args[0])):
            text = "this seed is made of the prompt alone: each training step begins with the same noise"
            yield Hit(function.file, call, text, "let the training step, extra_args['global_steps'], go into the seed")


def _of_prompt_alone(seed: Origin) -> bool:
    """Whether the prompt goes into a seed, and nothing that differs between two requests for it."""
    read = seed.strings | seed.attributes
    return seed.complete and bool(read & _PROMPT) and not (read & _REQUEST or seed.words & {"global_steps"})


def _own_generator(package: Package, side: Side, function: FunctionModel, generator: ast.expr) -> Hits:
    """Look for the generator that the request brings for its initial latents."""
    if not package.is_non_diffusers or not _upstream_draws(side):
        return
    for _, file, node in origin(side, function, generator).nodes:
        if isinstance(node, ast.Attribute) and node.attr == "generator" and isinstance(node.ctx, ast.Load):
            text = ast.unparse(node.value)
            if "param" in text and not text.endswith("extra_args"):
                yield Hit(file, node, "the noise is drawn from the generator of the initial latents, and repeats them")


def _judge(side: Side, around: FunctionModel, file: PythonFile, call: ast.Call) -> Hits:
    seed = origin(side, around, call.args[0])
    once = around.name == "__init__" and around.cls is not None
    if of_request(seed):
        plain = isinstance(call.args[0], (ast.Attribute, ast.Name)) and not _mixed(seed.nodes)
        if plain and not once and _upstream_draws(side):
            yield Hit(file, call, "the noise is drawn from the seed of the initial latents, and repeats them")
    elif not seed.open and seed.complete and not (of_rank(seed) and once) and "global_steps" not in seed.words:
        what = "the rank" if of_rank(seed) else "a constant"
        yield Hit(file, call, f"the noise of all samples is drawn from one seed, {what}")


def _mixed(nodes: list[tuple[FunctionModel | None, PythonFile, ast.AST]]) -> bool:
    return any(isinstance(node, (ast.BinOp, ast.JoinedStr)) for _, _, node in nodes)


def _upstream_draws(side: Side) -> bool:
    """Whether the initial latents are drawn by the upstream pipeline's own ``forward``."""
    for function in side.functions:
        if function.name == "forward":
            for call in function.calls:
                target = call.func
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr == "forward"
                    and isinstance(target.value, ast.Call)
                ):
                    if side.called(function, call) is None:
                        return True
    return False


_GENERATOR = 'extra_args.get("generator")'
FAILING = (
    Example("the request's own generator", {"rollout": [(_GENERATOR, "«params.generator»")]}),
    Example("a literal", {"rollout": [(_GENERATOR, "«torch.Generator().manual_seed(42)»")]}),
    Example(
        "a literal in the scheduler's wrapper",
        {"rollout": [("self._generator = generator", "self._generator = «torch.Generator().manual_seed(0)»")]},
    ),
    Example(
        "the rank",
        {
            "rollout": [
                ("import torch\n", "import os\n\nimport torch\n"),
                (_GENERATOR, '«torch.Generator().manual_seed(int(os.environ["LOCAL_RANK"]))»'),
            ]
        },
    ),
    Example(
        "the prompt's hash for the latents",
        {
            "rollout": [
                (
                    "        noise_level = float(",
                    '        ids = tuple(req.prompts[0]["prompt_token_ids"])\n'
                    "        latents_generator = «torch.Generator().manual_seed(hash(ids) & 0xFFFF)»\n"
                    '        extra_args["latents"] = torch.randn(4, generator=latents_generator)\n'
                    "        noise_level = float(",
                )
            ]
        },
    ),
    Example("the seed of the latents", {"rollout": [(_GENERATOR, "«torch.Generator().manual_seed(params.seed)»")]}),
)
PASSING = (
    Example(
        "the prompt's hash and the training step for the latents",
        {
            "rollout": [
                (
                    "        noise_level = float(",
                    '        ids = (*req.prompts[0]["prompt_token_ids"], extra_args.get("global_steps"))\n'
                    "        latents_generator = torch.Generator().manual_seed(hash(ids) & 0xFFFF)\n"
                    '        extra_args["latents"] = torch.randn(4, generator=latents_generator)\n'
                    "        noise_level = float(",
                )
            ]
        },
    ),
    Example("a generator that the request brings"),
    Example("none", {"rollout": [(f"generator={_GENERATOR}", "generator=None")]}),
    Example(
        "a seed derived from the request's",
        {"rollout": [(_GENERATOR, "torch.Generator().manual_seed(params.seed + 1)")]},
    ),
)
