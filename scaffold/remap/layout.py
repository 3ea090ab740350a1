"""Shapes and dtypes of split and joined tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.remap.key_map import AppliedMap, KeyMap, Mapped

Shapes = Mapping[str, Sequence[int]]


def misfits(
    key_map: KeyMap, applied: AppliedMap, headers: CheckpointHeaders, parameters: Shapes
) -> Iterator[tuple[str, str]]:
    """Yield each key whose shape does not match its parameters, with a message.

    A split's parts must add up to the key along the axis, a join's keys to the parameter; the other dimensions must be
    equal.
    """
    for name, mapped in applied.targets.items():
        if any(target not in parameters for target in mapped.targets):
            continue
        op = key_map.rules[mapped.rule].op
        if op == "rename":
            shape, wanted = list(headers.tensors[name].shape), list(parameters[mapped.target])
            if shape != wanted:
                yield name, f"{quoted(name)} has shape {shape}, its parameter {quoted(mapped.target)} {wanted}"
        elif op == "split":
            yield from _split(name, mapped, key_map.rules[mapped.rule].axis, headers, parameters)
    for target, sources in applied.sources.items():
        rule = key_map.rules[applied.targets[sources[0]].rule]
        if rule.op == "join" and target in parameters and len(sources) == len(rule.parts):
            yield from _join(target, sources, rule.axis, rule.sizes, headers, parameters)


def _split(
    name: str, mapped: Mapped, axis: int, headers: CheckpointHeaders, parameters: Shapes
) -> Iterator[tuple[str, str]]:
    whole = list(headers.tensors[name].shape)
    parts = [list(parameters[target]) for target in mapped.targets]
    total = _stacked(parts, axis)
    if total != whole:
        shown = " + ".join(f"{quoted(target)} {part}" for target, part in zip(mapped.targets, parts, strict=True))
        made = f"make {total}" if total is not None else "do not go together"
        yield name, f"{quoted(name)} has shape {whole}, its parts along axis {axis} {made}: {shown}"


def _join(
    target: str,
    sources: tuple[str, ...],
    axis: int,
    sizes: tuple[int, ...] | None,
    headers: CheckpointHeaders,
    parameters: Shapes,
) -> Iterator[tuple[str, str]]:
    wanted = list(parameters[target])
    parts = [list(headers.tensors[source].shape) for source in sources]
    total = _stacked(parts, axis)
    if total != wanted:
        shown = " + ".join(f"{quoted(source)} {part}" for source, part in zip(sources, parts, strict=True))
        made = f"make {total}" if total is not None else "do not go together"
        yield sources[0], f"{shown} along axis {axis} {made}, their parameter {quoted(target)} has shape {wanted}"
        return
    lengths = [part[axis] for part in parts]
    expected = list(sizes) if sizes is not None else [wanted[axis] // len(parts)] * len(parts)
    if lengths != expected:
        yield (
            sources[0],
            f"the parts of {quoted(target)} are {lengths} long along axis {axis}, the rule says {expected}",
        )
    dtypes = {headers.tensors[source].dtype for source in sources}
    if len(dtypes) > 1:
        yield sources[0], f"the parts of {quoted(target)} have the dtypes {', '.join(sorted(dtypes))}"


def _stacked(parts: list[list[int]], axis: int) -> list[int] | None:
    """Return the shape of the parts concatenated along the axis; None if they do not match."""
    if any(len(part) <= axis for part in parts):
        return None
    if len({(*part[:axis], 0, *part[axis + 1 :]) for part in parts}) != 1:
        return None
    first = parts[0]
    return [*first[:axis], sum(part[axis] for part in parts), *first[axis + 1 :]]
