"""What a person must still write in a partial package: each with its place upstream and the file that waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.grade.established import Established


@dataclass(frozen=True)
class Missing:
    """One thing that is not established.

    Attributes:
        key: name by which templates ask whether it is missing.
        what: what to write, as the README and the NotImplementedError say it.
        at: ``file:line`` of vllm-omni to port.
        where: file of the package, from its folder.
    """

    key: str
    what: str
    at: str
    where: str

    def message(self, version: str) -> str:
        """Return the text of the NotImplementedError that stands in its place."""
        return f"{self.what}: port {self.at} of vllm-omni {version}"


def find_missing(facts: Established, model: str) -> list[Missing]:
    """Return everything that is missing, in the order in which it is best written.

    Args:
        facts: what is established.
        model: MODEL, which names the package's files.
    """
    found: list[Missing] = []
    for part in (_module, _schedule, _prediction, _guidance, _inputs, _rollout):
        found += part(facts, model)
    return found


def _module(facts: Established, model: str) -> Iterator[Missing]:
    module, port = f"{model}_model.py", facts.port
    place = facts.place("detail.denoiser.location", "detail.scheduler.loop_location")
    if port is None:
        yield Missing("denoiser", "the denoiser, which its source does not name", place, module)
    else:
        for gap in port.gaps:
            yield Missing("port", gap.what, f"{gap.file}:{gap.line}", f"{model}_denoiser.py")
        for taken in port.assumptions:
            yield Missing(
                "assumption",
                f"whatever {taken.what} would bring in (reference images, say), which is taken as absent",
                f"{taken.file}:{taken.line}",
                f"{model}_denoiser.py",
            )
        if not port.inputs:
            yield Missing("forward", "which of the module's methods predicts", place, module)
    loader = facts.place("detail.checkpoint.loader_location")
    yield Missing("loading", "how the denoiser is built from the checkpoint's configuration", facts.place(), module)
    yield Missing("key_map", "the map from the checkpoint's keys to the module's parameters", loader, module)
    yield Missing("checkpointing", "gradient checkpointing: call each layer through _checkpointed_call", place, module)


def _schedule(facts: Established, model: str) -> Iterator[Missing]:
    if not facts.schedule:
        what = "the noise levels of the schedule, from 1 downwards"
        place = facts.place("answers.scheduler.class", "detail.scheduler.loop_location")
        yield Missing("schedule", what, place, "common.py")


def _prediction(facts: Established, model: str) -> Iterator[Missing]:
    if facts.sign is None:
        place = facts.place("detail.scheduler.step_location", "detail.scheduler.loop_location")
        yield Missing("prediction", "the velocity dx/dsigma that the denoiser's output stands for", place, "common.py")


def _guidance(facts: Established, model: str) -> Iterator[Missing]:
    if not facts.guidance:
        place = facts.place("detail.cfg.location", "detail.cfg.formula", "detail.scheduler.loop_location")
        yield Missing("guidance", "how the branches of guidance are combined", place, "common.py")


def _inputs(facts: Established, model: str) -> Iterator[Missing]:
    place = facts.place("answers.denoiser.method", "detail.scheduler.loop_location")
    adapter = "diffusers_training_adapter.py"
    yield Missing("inputs", "the denoiser's arguments of both branches, from the micro-batch", place, adapter)


def _rollout(facts: Established, model: str) -> Iterator[Missing]:
    adapter = "vllm_omni_rollout_adapter.py"
    step = facts.place("detail.scheduler.step_location", "detail.scheduler.loop_location")
    yield Missing(
        "recording", "the stochastic step in place of the pipeline's update, and the trajectory", step, adapter
    )
    place = facts.place("detail.checkpoint.loader_location")
    yield Missing("weight_sync", "the pipeline's names for weights that the actor sends", place, adapter)
