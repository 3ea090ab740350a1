"""The pinned requirement sets: which versions of vllm-omni can be run here, and with what.

Those that come with the tool go before those that `omni-scaffold env rollout` found on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import ScaffoldError
from scaffold.files.digest import sha256_hex
from scaffold.files.documents import parse_toml
from scaffold.files.reading import read_text
from scaffold.upstream.cache import cache_root

if TYPE_CHECKING:
    from packaging.version import Version

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
        return sha256_hex(json.dumps(asdict(self), sort_keys=True))[:16]


def recorded_folder() -> Path:
    """Where the sets that were found on this machine are kept."""
    return cache_root() / "environments"


def packaged_versions() -> list[str]:
    """Versions whose requirement set comes with the tool, oldest first."""
    return _versions(FOLDER)


def known_versions() -> list[str]:
    """Versions that have a requirement set, oldest first."""
    return sorted({*_versions(FOLDER), *_versions(recorded_folder())}, key=_order)


def nearest_version(version: str) -> str:
    """The newest release up to this one that has a set, else the first after it."""
    from packaging.version import Version

    known = [Version(name) for name in known_versions()]
    before = [name for name in known if name <= Version(version)]
    return str(max(before) if before else min(known))


def is_packaged(version: str) -> bool:
    """Whether the requirement set of a version comes with the tool."""
    return version in packaged_versions()


def is_readable(version: str) -> bool:
    """Whether a version has a requirement set; a damaged one of this machine's is as good as none, and found anew.

    Raises:
        ScaffoldError: the packaged set is damaged.
    """
    try:
        read_pins(version)
    except ScaffoldError:
        if is_packaged(version):
            raise
        return False
    return True


def read_pins(version: str, folder: Path | None = None) -> Pins:
    """Read one requirement set, by default the packaged one, else the one that was found on this machine.

    Raises:
        ScaffoldError: there is none for ``version``, or the file is not what it should be.
    """
    folders = [FOLDER, recorded_folder()] if folder is None else [folder]
    place = next((place for place in folders if version in _versions(place)), None)
    if place is None:
        known = ", ".join(known_versions()) or "none"
        raise ScaffoldError(
            f"no rollout environment is described for vllm-omni {version}; known are {known}",
            hint=f"`omni-scaffold env rollout --vllm-omni {version}` finds one",
        )
    path = place / f"{version}.toml"
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise ScaffoldError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        pins = _of(parse_toml(text))
    except (KeyError, TypeError, ValueError) as error:
        raise ScaffoldError(f"{path} is not a requirement set: {error}") from None
    if pins.version != version:
        raise ScaffoldError(f"{path} is the requirement set of vllm-omni {pins.version}")
    for requirement in (*pins.constraints, *_alone(pins)):
        if "==" not in requirement:
            raise ScaffoldError(f"{path.name} does not pin {requirement!r} to one version")
    return pins


def _of(data: dict[str, Any]) -> Pins:
    """Make a set of its document.

    Raises:
        KeyError, TypeError, ValueError: something is missing, of another kind, or no requirement that pip would read.
    """
    from packaging.requirements import Requirement

    steps = tuple(
        Step(_texts(step["requirements"]), bool(step["dependencies"]), str(step["why"])) for step in data["install"]
    )
    constraints = _texts(data["constraints"]["pins"])
    for text in (*constraints, *(text for step in steps for text in step.requirements)):
        if Requirement(text).url is not None:
            raise ValueError(f"{text!r} names an address")
    probe = _texts(data["probe"])
    for name in probe:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not a name")
    return Pins(str(data["version"]), steps, constraints, probe)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise TypeError(f"{value!r} is not a list of texts")
    return tuple(value)


def _versions(folder: Path) -> list[str]:
    return sorted((path.stem for path in folder.glob("*.toml")), key=_order)


def _alone(pins: Pins) -> Iterator[str]:
    """Requirements installed without their dependencies: no constraint reaches them twice, so they pin themselves."""
    for step in pins.steps:
        if not step.dependencies:
            yield from step.requirements


def _order(version: str) -> tuple[Version, str]:
    """By age; a file whose name is not a version comes first."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version), version
    except InvalidVersion:
        return Version("0.dev0"), version
