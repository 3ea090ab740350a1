"""How a partial package's rollout adapter replaces the pipeline's steps: by which attribute, or in which method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.grade.established import Established
from scaffold.grade.replaced_update import is_own_loop, replaced_update

if TYPE_CHECKING:
    from scaffold.upstream import UpstreamSource

NEEDED = frozenset({"model_output", "timestep", "sample"})
TAKEN = NEEDED | {"return_dict", "generator"}
ATTRIBUTE, CONSTRUCTED, UPDATE = "attribute", "constructed", "update"


@dataclass(frozen=True)
class Recording:
    """How the adapter's step replaces the pipeline's.

    Attributes:
        kind: ``attribute``: the pipeline holds its scheduler in an attribute, which the adapter replaces.
            ``constructed``: a method builds the scheduler, and the adapter overrides it. ``update``: the statements of
            the loop that compute the next sample are replaced. None: none of these is established.
        attribute: its name.
        differences: whether the loop passes each step the difference of the noise levels, and holds no scheduler that
            knows it.
        sign: of the velocity in what the loop gives such a step.
        single: whether the latents of a step have no batch dimension.
        ported: ``method``, ``text``, ``names`` and ``location`` of the method; for an update also the values of
            `scaffold.grade.replaced_update`.
        calls: whether the denoiser's calls can be recorded and repeated in training.
    """

    kind: str | None = None
    attribute: str | None = None
    differences: bool = False
    sign: int | None = None
    single: bool = False
    ported: dict[str, Any] | None = None
    calls: bool = False
    why: str = ""  # the reason why ``kind`` is None

    def section(self) -> dict[str, Any]:
        """Return the values of the spec's section ``recording``."""
        names = ("kind", "attribute", "differences", "sign", "single", "ported")
        return {name: getattr(self, name) for name in names}


def find_recording(facts: Established, source: UpstreamSource | None = None) -> Recording:
    """Return how a pipeline's steps are replaced.

    A step that takes more than a scheduler's usual arguments (times of each token, a difference of times), and an
    update that the loop writes out, are replaced together with the statements that belong to them.

    Args:
        facts: answers for the pipeline.
        source: the version of vllm-omni; without it no update is replaced.
    """
    if facts.value("detail.request.class") is None and facts.value("detail.request.sizes") is None:
        return Recording(why="what the pipeline reads of a request was not seen")
    calls = _calls(facts, source)
    arguments = set(facts.value("answers.scheduler.arguments") or ())
    if _told_differences(facts, arguments):
        attribute = facts.value("detail.scheduler.attribute")
        single = facts.value("detail.scheduler.sample_rank") == 2
        return Recording(ATTRIBUTE, attribute, differences=True, sign=facts.sign, single=single)
    if NEEDED <= arguments <= TAKEN:
        name = facts.value("detail.scheduler.attribute")
        if name is not None:
            return Recording(ATTRIBUTE, name, calls=calls)
        ported = _ported(facts)
        if ported is not None:
            return Recording(CONSTRUCTED, ported=ported, calls=calls)
    if source is not None:
        replaced = replaced_update(facts, source)
        if isinstance(replaced, dict):
            return Recording(UPDATE, ported=replaced, calls=calls)
        return Recording(why=replaced)
    return Recording()


def _calls(facts: Established, source: UpstreamSource | None) -> bool:
    """Whether the loop calls the ported denoiser, and the arguments are its only inputs.

    Values a denoiser reads from the engine's context are not arguments: recorded calls would lack them.
    """
    port = facts.port
    if port is None or not port.inputs or port.assumptions:
        return False
    if facts.value("answers.denoiser.method") is not None:
        return True
    return source is not None and port.kept is not None and is_own_loop(facts, source)


def _told_differences(facts: Established, arguments: set[str]) -> bool:
    """Whether the pipeline has an empty scheduler attribute and passes each step its size."""
    empty = facts.report.fact("answers.scheduler.class")
    return (
        arguments == NEEDED | {"dt"}
        and facts.value("detail.scheduler.attribute") is not None
        and empty.value is None
        and empty.confidence == "certain"
        and facts.sign is not None
        and facts.value("detail.scheduler.sample_rank") is not None
    )


def _ported(facts: Established) -> dict[str, Any] | None:
    """Return the method that builds the scheduler, changed to build one of ours that follows it."""
    from scaffold.port.method import port_method

    made, text = facts.value("detail.construction.statement"), facts.value("detail.construction.method")
    owner = facts.value("detail.pipeline.class")
    if made is None or text is None or owner is None:
        return None
    construction, location = made["text"].partition(" = ")[2], facts.place("detail.construction.method")
    replaced = {made["text"]: f"{made['name']} = self.sde_scheduler.following({construction})"}
    try:
        method = port_method(text, owner, replaced)
    except ScaffoldError:
        return None
    return {"method": made["method"], "text": method.text, "names": list(method.names), "location": location}
