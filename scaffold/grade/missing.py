"""What a person must still write in a partial package: each with its place upstream and the file it belongs in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scaffold.grade.established import Established
from scaffold.grade.loading import Loading
from scaffold.grade.recording import Recording


@dataclass(frozen=True)
class Missing:
    """One thing that is not established.

    Attributes:
        key: name by which templates test whether it is missing.
        what: what to write, as in the README and the NotImplementedError.
        at: ``file:line`` of vllm-omni to port.
        where: file of the package, from its folder.
        limit: the limit of VeRL-Omni that it runs into, by its name in the profile.
        theirs: whether no code in the package can work around that limit.
    """

    key: str
    what: str
    at: str
    where: str
    limit: str | None = None
    theirs: bool = False

    def message(self, version: str) -> str:
        """Return the text of the NotImplementedError rendered in its place."""
        return f"{self.what}: port {self.at} of vllm-omni {version}"


def find_missing(facts: Established, model: str, recording: Recording, loading: Loading) -> list[Missing]:
    """Return everything that is missing, in the order in which to write it.

    Args:
        facts: what is established.
        model: MODEL, which names the package's files.
        recording: how the rollout replaces the steps.
        loading: how the weights are loaded.
    """
    found = [*_module(facts, model), *_weights(facts, model, loading)]
    return [*found, *_inputs(facts, recording), *_rollout(facts, recording)]


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
        elif facts.value("answers.denoiser.class") is None:
            what = f"what predicts: the pipeline keeps a {port.entry}, and its loop was not seen to call that"
            yield Missing("forward", what, place, module)
    if not (port and port.checkpointed):
        what = "gradient checkpointing: call each layer through _checkpointed_call"
        yield Missing("checkpointing", what, place, module)
    elif port is not None and not port.layer_classes:
        what = "_no_split_modules: which modules FSDP may shard one by one, each called as a module"
        yield Missing("sharding", what, place, module)


def _weights(facts: Established, model: str, loading: Loading) -> Iterator[Missing]:
    loader, module = facts.place("detail.checkpoint.loader_location"), f"{model}_model.py"
    if not loading.established:
        at, why = loading.stopped or ("", "")
        because = f": {why}" if why else ""
        what = "how the denoiser is built from the checkpoint's configuration"
        yield Missing("loading", what + because, at or facts.place(), module)
        what = "the map from the checkpoint's keys to the module's parameters"
        yield Missing("key_map", what + because, at or loader, module)
    if not loading.located:
        what = "the pipeline's names for weights that the actor sends"
        yield Missing("weight_sync", what, loader, "vllm_omni_rollout_adapter.py")
        what = "how a LoRA update reaches the pipeline's layers"
        yield Missing("lora_sync", what, loader, "vllm_omni_rollout_adapter.py")


def _inputs(facts: Established, recording: Recording) -> Iterator[Missing]:
    adapter = "diffusers_training_adapter.py"
    if recording.calls:
        return
    what = "the denoiser's arguments of both branches, from the micro-batch"
    what += f": {recording.why}" if recording.why else ""
    place = facts.place("answers.denoiser.method", "detail.scheduler.loop_location")
    if recording.kind is not None and facts.port is not None and facts.port.assumptions:
        read = facts.port.assumptions[0]
        what = f"what the denoiser reads from the engine through {read.what}, beside its arguments"
        place = f"{read.file}:{read.line}"
    yield Missing("inputs", what, place, adapter)


def _rollout(facts: Established, recording: Recording) -> Iterator[Missing]:
    adapter = "vllm_omni_rollout_adapter.py"
    if recording.kind is None:
        step = facts.place("detail.scheduler.step_location", "detail.scheduler.loop_location")
        what = "the stochastic step in place of the pipeline's update, and the trajectory"
        what += f": {recording.why}" if recording.why else ""
        yield Missing("recording", what, step, adapter)
