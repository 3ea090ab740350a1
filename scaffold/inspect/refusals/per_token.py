"""Per-token samplers: a small head is denoised once for each token of an autoregressive model."""

from __future__ import annotations

from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.updates import NOISE_CALLS
from scaffold.inspect.program.values import Call, Seq
from scaffold.inspect.refusals.refusal import Refusal
from scaffold.source.values import Value

ORDER = 20
REASON = (
    "a per-token sampler: the loop denoises one token inside the loop over tokens, so an image has as many "
    "trajectories as tokens"
)


def refusal(program: Program) -> Refusal | None:
    """The denoising loop runs inside another loop, on noise of one vector a sample drawn in that loop's turn."""
    loop = program.denoising
    if loop is None or not loop.loop.outer or loop.sample is None or loop.sample.init is None:
        return None
    outer = loop.loop.outer[-1]
    for node in walk(loop.sample.init):
        if isinstance(node, Call) and node.name in NOISE_CALLS and outer in node.loops and _is_vector(node):
            return Refusal(REASON, [loop.loop.at, program.trace.loops[outer].at, node.at])
    return None


def _is_vector(noise: Call) -> bool:
    """Whether the noise has a batch and a channel axis only."""
    shape: Value | None = noise.argument(0, "shape", "size")
    return shape is not None and any(isinstance(o, Seq) and o.exact and len(o.items) == 2 for o in options(shape))
