"""Curves of a check by step, as the coordinates of a small drawing: the curves, and below them their distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scaffold.terminal.printable import printable
from scaffold.verify.report.log_scale import LogScale
from scaffold.verify.report.number import distinct_figures, figure
from scaffold.verify.result import CheckResult, Status, VerifyReport

# Units of the drawing, which are about CSS pixels: it is shown at most a fifth larger or smaller.
WIDTH = 360.0
LEFT, RIGHT = 58.0, 350.0
TOP, BOTTOM = 10.0, 138.0
DISTANCE_TOP, DISTANCE_BOTTOM = 174.0, 258.0
HEIGHT_CURVES, HEIGHT_DISTANCE = 174.0, 286.0
LABEL_HEIGHT = 14.0
MAX_STEP_TICKS = 8

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One series; ``segments`` are runs of points without a gap."""

    name: str
    segments: list[list[Point]]


@dataclass(frozen=True)
class Distance:
    """Distance of the two curves at every step they share; ``limit`` is a height in the drawing, where one applies."""

    points: list[Point]
    ticks: list[tuple[float, str]]
    limit: float | None
    limit_text: str


@dataclass(frozen=True)
class Drawing:
    """Everything the page needs to draw a check's series; the numbers themselves are in ``rows``."""

    id: str
    title: str
    status: Status
    height: float
    curves: list[Curve]
    ticks: list[tuple[float, str]]
    steps: list[tuple[float, int]]
    distance: Distance | None
    notes: list[str]
    rows: list[list[str]]


def drawings(report: VerifyReport) -> list[Drawing]:
    """Return a drawing for each check of ``report`` that has series."""
    return [_drawing(check, check.series) for check in report.checks if check.series and any(check.series.values())]


def _drawing(check: CheckResult, series: Mapping[str, Sequence[float]]) -> Drawing:
    length = max(map(len, series.values()))
    across = [_between(LEFT + 8, RIGHT - 8, (step + 0.5) / length) for step in range(length)]
    finite = [value for values in series.values() for value in values if math.isfinite(value)]
    low, high = _range(finite)

    def height(value: float) -> float:
        # Halved, because the distance of two finite numbers may not be finite.
        return _between(BOTTOM - 4, TOP + 4, (value / 2 - low / 2) / (high / 2 - low / 2))

    curves = [
        Curve(printable(name), _segments(list(zip(across, values, strict=False)), height))
        for name, values in series.items()
    ]
    distance = _distance(check, list(series.values()), across)
    every = math.ceil(length / MAX_STEP_TICKS)
    levels = (low, low / 2 + high / 2, high) if finite else ()
    return Drawing(
        printable(check.id),
        printable(check.title),
        check.status,
        HEIGHT_DISTANCE if distance else HEIGHT_CURVES,
        curves,
        list(zip(map(height, levels), distinct_figures(levels), strict=True)),
        [(across[step], step + 1) for step in range(0, length, every)],
        distance,
        _notes(series),
        [[str(step + 1), *(_cell(values, step) for values in series.values())] for step in range(length)],
    )


def _distance(check: CheckResult, curves: Sequence[Sequence[float]], across: Sequence[float]) -> Distance | None:
    if len(curves) != 2:
        return None
    values = [abs(a - b) for a, b in zip(*curves, strict=False)]
    # The limit is one of log-probs only where the check measures an absolute distance.
    limit = check.limit if check.unit == "absolute" else None
    scale = LogScale.of([*values, limit])
    if scale is None:
        return None

    def height(value: float | None) -> float | None:
        place = scale.place(value)
        return None if place is None else _between(DISTANCE_BOTTOM, DISTANCE_TOP, place / 100)

    heights = ((_between(DISTANCE_BOTTOM, DISTANCE_TOP, at / 100), label) for at, label in scale.ticks())
    points = [(x, y) for x, y in zip(across, map(height, values), strict=False) if y is not None]
    return Distance(points, _apart(heights), height(limit), figure(limit))


def _apart(ticks: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out each tick, from the lowest up, whose label would touch the one before."""
    kept: list[tuple[float, str]] = []
    for at, label in ticks:
        if not kept or kept[-1][0] - at >= LABEL_HEIGHT:
            kept.append((at, label))
    return kept


def _notes(series: Mapping[str, Sequence[float]]) -> list[str]:
    notes = []
    if len({len(values) for values in series.values()}) > 1:
        lengths = ", ".join(f"{printable(name)} has {len(values)}" for name, values in series.items())
        notes.append(f"The curves differ in length: {lengths}.")
    for name, values in series.items():
        missing = sum(not math.isfinite(value) for value in values)
        if missing:
            notes.append(f"{printable(name)}: {missing} of {len(values)} values are not finite and not drawn.")
    return notes


def _segments(points: Sequence[Point], height: Callable[[float], float]) -> list[list[Point]]:
    """Split at values that are not finite."""
    segments: list[list[Point]] = [[]]
    for x, value in points:
        if math.isfinite(value):
            segments[-1].append((x, height(value)))
        elif segments[-1]:
            segments.append([])
    return [segment for segment in segments if segment]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        room = abs(low) * 0.01 or 1.0
        return low - room, high + room
    return low, high


def _between(start: float, end: float, share: float) -> float:
    return round(start + (end - start) * share, 2)


def _cell(values: Sequence[float], step: int) -> str:
    return figure(values[step], 9) if step < len(values) else "none"
