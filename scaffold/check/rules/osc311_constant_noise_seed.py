"""The noise of the SDE steps comes from a generator that all samples of a group have in common.

A group is compared by its rewards: with the same noise every member is the same image, all advantages are zero, and
nothing is learned. A seed made of the prompt alone starts each training step of a prompt from the same noise.

    generator = torch.Generator().manual_seed(42)

Instead: take the generator of the request, ``extra_args["generator"]``, or let the training step and the member's
number go into the seed.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.dataflow import Origin, origin
from scaffold.check.model.package import Package
from scaffold.check.model.sde import of_rank, of_request
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC311"
NAME = "constant-noise-seed"
SEVERITY = "error"
CHECKLIST = ("pitfall 16",)
APPLIES = Applies(objective="policy_gradient")
HELP = "take the generator that the request brings"
_PROMPT = {"prompt", "prompts", "prompt_ids", "prompt_token_ids"}
_REQUEST = {"seed", "request_id", "request_ids", "req_id", "generator", "global_steps"}


def check(package: Package) -> Hits:
    """Look at what generators of the rollout are seeded with."""
    side = side_of(package, "rollout")
    for function, call in side.calls("manual_seed"):
        if not call.args or (function.file.qualified(call.func) or "").startswith("torch."):
            continue
        seed = origin(side, function, call.args[0])
        if _of_prompt_alone(seed):
            text = "this seed is made of the prompt alone: each training step begins with the same noise"
            yield Hit(function.file, call, text, "let the training step, extra_args['global_steps'], go into the seed")
        elif seed.complete and not seed.open and not of_request(seed) and not seed.words & _REQUEST:
            what = "the rank" if of_rank(seed) else "a constant"
            yield Hit(function.file, call, f"the noise of all samples is drawn from one seed, {what}")


def _of_prompt_alone(seed: Origin) -> bool:
    """Whether a seed depends on the prompt, and on nothing that differs between two requests for it."""
    read = seed.strings | seed.attributes
    return seed.complete and bool(read & _PROMPT) and not (read & _REQUEST or seed.words & {"global_steps"})


FAILING = (Example("a literal", rollout=('extra_args.get("generator")', "«torch.Generator().manual_seed(42)»")),)
PASSING = (
    Example(
        "the prompt's hash and the training step for the latents",
        rollout=(
            "CFG_DEFAULTS}))\n",
            "CFG_DEFAULTS}))\n"
            '        ids = (*req.prompts[0]["prompt_token_ids"], extra_args.get("global_steps"))\n'
            "        latents_generator = torch.Generator().manual_seed(hash(ids) & 0xFFFF)\n"
            '        extra_args["latents"] = torch.randn(4, generator=latents_generator)\n',
        ),
    ),
    Example("none", rollout=('extra_args.get("generator")', "None")),
    Example(
        "a seed derived from the request's",
        rollout=('extra_args.get("generator"', "torch.Generator().manual_seed(params.seed + 1"),
    ),
)
