"""How the rollout adapter of a partial package gets at the pipeline's steps: by which attribute, or in which method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaffold.grade.established import Established

NEEDED = frozenset({"model_output", "timestep", "sample"})
TAKEN = NEEDED | {"return_dict", "generator"}


@dataclass(frozen=True)
class Recording:
    """What the adapter does to step in place of the pipeline's scheduler.

    Attributes:
        kind: ``attribute``: the pipeline holds its scheduler under a name, and the adapter answers to it.
            ``constructed``: a method makes the scheduler, and the adapter overrides it. None: neither is established.
        attribute: the name.
        ported: ``method``, ``text``, ``names`` and ``location`` of the method.
        calls: whether the denoiser's calls can be recorded and made again in training.
    """

    kind: str | None = None
    attribute: str | None = None
    ported: dict[str, Any] | None = None
    calls: bool = False

    def section(self) -> dict[str, Any]:
        """Return the values of the spec's section ``recording``."""
        return {"kind": self.kind, "attribute": self.attribute, "ported": self.ported}


def find_recording(facts: Established) -> Recording:
    """Return what is established of a pipeline.

    A step that takes more than a scheduler's usual arguments (times of each token, a difference of times) is left to a
    person: our step would not do with them what the pipeline's does.
    """
    arguments = set(facts.value("answers.scheduler.arguments") or ())
    if not NEEDED <= arguments <= TAKEN or facts.value("detail.request.class") is None:
        return Recording()
    # What a denoiser reads from the engine's context is no argument: its calls alone would not say what it was given.
    calls = facts.port is not None and bool(facts.port.inputs) and not facts.port.assumptions
    name = facts.value("detail.scheduler.attribute") or facts.value("detail.step.attribute")
    if name is not None:
        return Recording("attribute", name, None, calls)
    ported = _ported(facts)
    return Recording() if ported is None else Recording("constructed", None, ported, calls)


def _ported(facts: Established) -> dict[str, Any] | None:
    """The method that makes the scheduler, with a scheduler of ours that follows it in its place."""
    from scaffold.errors import ScaffoldError
    from scaffold.port.method import port_method

    made, text = facts.value("detail.construction.statement"), facts.value("detail.construction.method")
    owner = facts.value("detail.pipeline.class")
    if made is None or text is None or owner is None:
        return None
    construction = made["text"].partition(" = ")[2]
    replaced = {made["text"]: f"{made['name']} = self.sde_scheduler.following({construction})"}
    try:
        method = port_method(text, owner, replaced)
    except ScaffoldError:
        return None
    location = facts.place("detail.construction.method")
    return {"method": made["method"], "text": method.text, "names": list(method.names), "location": location}
