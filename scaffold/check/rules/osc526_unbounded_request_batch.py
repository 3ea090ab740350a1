"""The rollout adapter takes several requests at once, and a script does not say how many.

``rollout.max_num_seqs`` is 1,024 by default. verl-omni lowers it to 1 for an adapter that takes one request at a time;
one with ``supports_request_batch`` gets as many in one forward pass as there are: the rollout runs out of memory, and
log-probs of another batch shape differ in bfloat16.

    supports_request_batch = True          # and no actor_rollout_ref.rollout.max_num_seqs

Instead: set ``max_num_seqs`` to the micro-batch of the log-probs, in the script: verl-omni hands its own number on,
which overrules the one of a deploy file. Seen in verl-omni#487.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.model.shell import ROLLOUT
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC526"
NAME = "unbounded-request-batch"
SEVERITY = "error"
CHECKLIST = ("W3", "pitfall 52")
APPLIES = Applies(non_diffusers=True)
HELP = f"write {ROLLOUT}max_num_seqs=N, as large as the micro-batch of the log-probs"
_KEY = "max_num_seqs"


def check(package: Package) -> Hits:
    """Look at the scripts of adapters that take several requests."""
    declared = [adapter.attribute("supports_request_batch") for adapter in package.rollout_adapters]
    if not any(a is not None and a.value is not None and a.file.value(a.value) is True for a in declared):
        return
    for script in package.scripts:
        asked = [item for item in script.overrides if item.key.startswith(ROLLOUT)]
        if asked and not any(item.key.endswith(f".{_KEY}") for item in asked):
            yield Hit(script, asked[0].span, f"{script.name} sets no {_KEY}: up to 1024 requests go into one forward")


_BATCH = ("WithLogProb(ToyPipeline):\n", "WithLogProb(ToyPipeline):\n    supports_request_batch = True\n\n")
_NAME = "actor_rollout_ref.rollout.name=vllm_omni"
_BOUND = (_NAME, f"actor_rollout_ref.rollout.max_num_seqs=2 \\\n    {_NAME}")
FAILING = (
    Example(
        "no bound",
        rollout=_BATCH,
        launch=(_NAME, f"«{_NAME}»"),
        e2e=_BOUND,
    ),
)
PASSING = (
    Example("one request at a time"),
    Example("a bound", rollout=_BATCH, launch=_BOUND, e2e=_BOUND),
)
