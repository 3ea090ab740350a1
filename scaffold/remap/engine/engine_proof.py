"""Whether the rollout engine takes each weight that the actor sends, and puts it where the checkpoint's own goes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.remap.engine.loading import Engine, Loaded
from scaffold.remap.engine.tokens import Landing
from scaffold.remap.key_map import KeyMap
from scaffold.remap.proof import Offender
from scaffold.source.classes import ClassInfo
from scaffold.source.values import UndecidedError
from scaffold.upstream import UpstreamSource

CHECK = "engine"
PREFIX = "transformer."


@dataclass(frozen=True)
class EngineProof:
    """The outcome.

    Attributes:
        holds: True, False, or None where the engine's text does not settle it.
        offenders: the names by which it fails.
        reason: what was found, or why nothing could be.
        landings: where each parameter of the training module ends up in the engine, with file and line.
    """

    holds: bool | None
    offenders: tuple[Offender, ...]
    reason: str
    landings: Mapping[str, tuple[Landing, ...]] = field(default_factory=dict, repr=False)


def prove_engine(
    source: UpstreamSource,
    pipeline: str,
    key_map: KeyMap,
    headers: CheckpointHeaders,
    parameters: Mapping[str, Sequence[int]],
    *,
    prefix: str = PREFIX,
    package: Mapping[str, ast.Module] | None = None,
) -> EngineProof:
    """Follow the loading code of a pipeline, once with the checkpoint's keys and once with what the actor sends.

    Args:
        source: the version of vllm-omni to read; nothing of it is imported.
        pipeline: a registry key, a model folder or ``module:Class``.
        key_map: from the checkpoint's keys to the training module's parameters.
        headers: the checkpoint.
        parameters: shape of each parameter of the training module.
        prefix: what the actor puts before a parameter's name.
        package: the modules of the package by name; its subclass of the pipeline translates the actor's names.
            Without it they are taken to arrive as the key map's inverse makes them.

    Raises:
        ScaffoldError: there is no such pipeline.
    """
    sent = whole_keys(key_map, headers, parameters)
    if not sent:
        return EngineProof(None, (), "the key map leads no parameter to a key of its own in the checkpoint")
    parts = [name for name in parameters if name not in sent and key_map.inverse(name)]
    shapes = {name: parameters[name] for name in sent}
    try:
        engine = Engine(source, pipeline, [*headers.tensors, *parameters], headers.configs, package)
        handler = engine.rollout_handler() if package is not None else None
        if package is not None and handler is None:
            return EngineProof(None, (), f"no class of the package subclasses {engine.program.cls.name}")
        original = engine.load([(key, headers.tensors[key].shape) for key in sent.values()])
        if original.error is not None:
            return EngineProof(None, (), f"by its text the engine refuses the checkpoint itself: {original.error}")
        if handler is None:
            arrived = original
        else:
            arrived = engine.load([(prefix + name, shapes[name]) for name in sent], handler=handler)
    except UndecidedError as error:
        return EngineProof(None, (), f"the text does not settle it: {error}")
    names = {name: prefix + name if handler is not None else key for name, key in sent.items()}
    if arrived.error is not None:
        name = _blamed(engine, handler, {prefix + name: shape for name, shape in shapes.items()}, arrived)
        message = f"loading {quoted(name)} fails: {arrived.error}"
        return EngineProof(False, (Offender(CHECK, name, message),), message)
    offenders = tuple(_offenders(sent, names, prefix, original, arrived))
    landings = {name: arrived.landings.get(names[name], ()) for name in sent}
    nowhere = [name for name, key in sent.items() if not landings[name] and not original.landings.get(key)]
    if nowhere and not offenders:
        lost = f"{len(nowhere)} of {len(sent)} weights are taken neither from the checkpoint nor from the actor"
        return EngineProof(None, (), f"by its text {lost}: {quoted(sent[nowhere[0]])} first", landings)
    if parts and not offenders:
        reason = f"{len(parts)} of {len(parameters)} parameters have no key of their own, and are not followed"
        return EngineProof(None, (), f"{reason}: {quoted(parts[0])} first", landings)
    return EngineProof(not offenders, offenders, _reason(len(sent), offenders, handler is not None, arrived), landings)


def whole_keys(key_map: KeyMap, headers: CheckpointHeaders, parameters: Iterable[str]) -> dict[str, str]:
    """Return the key of each parameter that is one key of the checkpoint, whole."""
    keys = {name: key for name in parameters if (key := key_map.invert(name)) is not None and key in headers.tensors}
    shared = Counter(keys.values())
    return {name: key for name, key in keys.items() if shared[key] == 1}


def _blamed(engine: Engine, handler: ClassInfo | None, sent: Mapping[str, Sequence[int]], arrived: Loaded) -> str:
    """The first name that did not land, if it fails on its own as well; else what all of them begin with."""
    first = next((name for name in sent if not arrived.landings.get(name)), None)
    try:
        if first is not None and engine.load([(first, sent[first])], handler=handler).error is not None:
            return first
    except UndecidedError:
        pass
    return f"{next(iter(sent)).partition('.')[0]}.…"


def _offenders(
    sent: Mapping[str, str], names: Mapping[str, str], prefix: str, original: Loaded, arrived: Loaded
) -> list[Offender]:
    found: list[Offender] = []
    taken: dict[Landing, str] = {}
    for name, key in sent.items():
        places, wanted = arrived.landings.get(names[name], ()), original.landings.get(key, ())
        shown = quoted(prefix + name)
        if not places and wanted:
            message = f"the engine drops {shown}, where {quoted(key)} goes to {_shown(wanted)}"
            found.append(Offender(CHECK, prefix + name, message))
        elif set(places) != set(wanted):
            message = f"{shown} goes to {_shown(places)}, {quoted(key)} to {_shown(wanted) if wanted else 'nothing'}"
            found.append(Offender(CHECK, prefix + name, message))
        for place in places:
            other = taken.setdefault(place, name)
            if other != name:
                message = f"{quoted(prefix + other)} and {shown} both go to {_shown((place,))}"
                found.append(Offender(CHECK, prefix + name, message))
    return found


def _shown(places: Sequence[Landing]) -> str:
    first = places[0]
    line = f" ({first.at.file}:{first.at.line})" if first.at is not None else ""
    return f"{quoted(first.place)}{f', shard {first.shard},' if first.shard else ''}{line}"


def _reason(count: int, offenders: Sequence[Offender], through: bool, arrived: Loaded) -> str:
    way = "as the package's rollout adapter hands them on" if through else "under the checkpoint's names"
    if offenders:
        return f"{len({o.name for o in offenders})} of {count} weights, {way}, do not arrive: {offenders[0].message}"
    assumed = f"; taken for granted: {', '.join(sorted(arrived.assumed))}" if arrived.assumed else ""
    return f"all {count} weights, {way}, arrive where the checkpoint's do{assumed}"
