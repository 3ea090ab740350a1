"""What a contract hands back, and how one says that it cannot be driven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


SHOWN = 4  # problems in one line


class NotDrivableError(Exception):
    """The package's conventions do not let the contract run; the message is the reason of the skip."""


class Attempts:
    """Runs cases one after the other; one that raises is a problem and does not hide the others."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def of(self, case: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """What ``function`` returns, or None where it raised; several cases that raise the same are one problem."""
        try:
            return function(*args, **kwargs)
        except (NotDrivableError, MemoryError):
            raise
        except Exception as error:
            told = f"raises {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            known = next((i for i, line in enumerate(self.problems) if line.endswith(f": {told}")), None)
            if known is None:
                self.problems.append(f"{case}: {told}")
            else:
                self.problems[known] = f"{self.problems[known].removesuffix(f': {told}')}, {case}: {told}"
            return None


@dataclass(frozen=True)
class Measured:
    """The outcome of one contract.

    It holds when there is no problem and ``value``, if there is one, is a number of at most ``limit``.

    Attributes:
        found: what was looked at, for the line of a contract that holds.
        problems: what is wrong, most important first; any makes the contract fail.
        value: the measured number, if the contract is one.
        limit: the largest that holds.
        unit: what ``value`` counts.
        floor: what rounding alone gives.
        series: curves by name.
    """

    found: str
    problems: Sequence[str] = ()
    value: float | None = None
    limit: float | None = None
    unit: str | None = None
    floor: float | None = None
    series: Mapping[str, list[float]] | None = None

    @property
    def _inside(self) -> bool:
        return self.value is None or self.limit is None or self.value <= self.limit

    @property
    def holds(self) -> bool:
        """Whether the contract holds; a value that is not a number does not."""
        return self._inside and not self.problems

    @property
    def shown(self) -> float | None:
        """The value, unless it is fine and the contract failed for something else."""
        return None if self.problems and self._inside else self.value

    @property
    def reason(self) -> str:
        """One line about the outcome."""
        if self.holds:
            return self.found
        parts = list(self.problems[:SHOWN])
        if len(self.problems) > SHOWN:
            parts.append(f"and {len(self.problems) - SHOWN} more")
        if not self._inside:
            parts.append(self.found)  # a problem does not hide the number
        return "; ".join(part for part in parts if part)
