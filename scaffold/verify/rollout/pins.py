"""The pinned requirement sets: which versions of vllm-omni can be run here, and with what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.reading import read_text

FOLDER = Path(__file__).resolve().parent / "environments"


@dataclass(frozen=True)
class Step:
    """One call of pip; ``dependencies`` says whether what the requirements ask for is installed with them."""

    requirements: tuple[str, ...]
    dependencies: bool
    why: str


@dataclass(frozen=True)
class Pins:
    """The requirement set of one version.

    Attributes:
        version: version of vllm-omni.
        steps: what to install, in this order.
        constraints: one exact version for each distribution that any step brings.
        probe: modules that must import when all is installed.
    """

    version: str
    steps: tuple[Step, ...]
    constraints: tuple[str, ...]
    probe: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides what is installed."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def known_versions() -> list[str]:
    """Versions that have a requirement set, oldest first."""
    return sorted((path.stem for path in FOLDER.glob("*.toml")), key=_order)


def read_pins(version: str, folder: Path = FOLDER) -> Pins:
    """Read one requirement set.

    Raises:
        ScaffoldError: there is none for ``version``, or the file is not what it should be.
    """
    path = folder / f"{version}.toml"
    if version not in {found.stem for found in folder.glob("*.toml")}:
        known = ", ".join(known_versions()) or "none"
        raise ScaffoldError(
            f"no rollout environment is described for vllm-omni {version}",
            hint=f"known are {known}; docs/rollout.md says how to add one",
        )
    import tomli

    try:
        data = tomli.loads(read_text(path))
        pins = Pins(
            version=str(data["version"]),
            steps=tuple(
                Step(tuple(step["requirements"]), bool(step["dependencies"]), str(step["why"]))
                for step in data["install"]
            ),
            constraints=tuple(data["constraints"]["pins"]),
            probe=tuple(data["probe"]),
        )
    except (KeyError, TypeError, tomli.TOMLDecodeError) as error:
        raise ScaffoldError(f"{path.name} is no requirement set: {error!r}") from None
    for requirement in (*pins.constraints, *_alone(pins)):
        if "==" not in requirement:
            raise ScaffoldError(f"{path.name} does not pin {requirement!r} to one version")
    return pins


def _alone(pins: Pins) -> Iterator[str]:
    """Requirements installed without their dependencies: no constraint reaches them twice, so they pin themselves."""
    for step in pins.steps:
        if not step.dependencies:
            yield from step.requirements


def _order(version: str) -> tuple[tuple[int, int | str], ...]:
    import re

    return tuple((0, int(part)) if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[a-z]+", version))
