"""A release that nobody has pinned yet: its requirement set is found, built, tried out and recorded, or nothing is."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, timezone
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.reading import read_text
from scaffold.upstream.cache import cache_root
from scaffold.verify.rollout import environment as room
from scaffold.verify.rollout.environment import Environment, Runner
from scaffold.verify.rollout.pins import Pins, packaged_versions, read_pins, recorded_folder
from scaffold.verify.rollout.resolving import checked_version, resolve, with_module
from scaffold.verify.rollout.trial import Tried, try_out

# Modules that a release imports and its nearest did not; each costs a build.
MOST_MODULES = 3
WIDTH = 120
_NO_MODULE = re.compile(r"No module named '([A-Za-z0-9_.]+)'")

Trial = Callable[[Environment, Sequence[str]], Tried]
Resolver = Callable[[str], Pins]


def is_described(version: str) -> bool:
    """Whether a release has a requirement set that can be read; a damaged one of this machine's is found anew.

    Raises:
        ScaffoldError: the packaged set is damaged.
    """
    try:
        read_pins(version)
    except ScaffoldError:
        if version in packaged_versions():
            raise
        return False
    return True


def record_file(version: str, folder: Path | None = None) -> Path:
    """Where the requirement set of a release is written."""
    return (folder or recorded_folder()) / f"{version}.toml"


def copy_record(version: str, folder: Path) -> Path:
    """Write what was found for a release into a folder of a maintainer's; return the file.

    Raises:
        ScaffoldError: nothing was found on this machine for it, or the folder cannot be written.
    """
    source, target = record_file(version), record_file(version, folder)
    if not source.is_file():
        why = f"the pins of vllm-omni {version} come with omni-scaffold, nothing was found here"
        raise ScaffoldError(why, hint="leave out --record")
    with _writing():
        write_record(target, read_text(source))
    return target


def add_release(
    version: str,
    pipelines: Sequence[str],
    *,
    run: Runner | None = None,
    trial: Trial = try_out,
    resolver: Resolver = resolve,
) -> tuple[Environment, Tried]:
    """Find the requirement set of a release, build its environment, try it out and record what was found.

    Args:
        version: a release of vllm-omni on the package index.
        pipelines: registry keys; the package of the first that can be rendered tries the environment out.
        run: runs one command of the build.
        trial: tries the environment out.
        resolver: finds the requirement set.

    Raises:
        ScaffoldError: one of these failed; neither environment nor record is left.
    """
    version = checked_version(version)
    if room.is_overridden():
        raise ScaffoldError(f"${room.OVERRIDE} is set, so no environment is built", hint=f"unset {room.OVERRIDE}")
    folder = cache_root() / f"rollout-{version}"
    with _writing(), room.alone(folder):
        pins = resolver(version)
        with _nothing_half_built(folder):
            shutil.rmtree(folder, ignore_errors=True)  # what stands there was built for a set that is gone
            record_file(version).unlink(missing_ok=True)
            pins, tried = _built_and_tried(folder, pins, pipelines, run, trial)
            write_record(record_file(version), to_toml(pins, tried, _today()))
            room.finish(folder, pins)
        return Environment(folder, version), tried


def _built_and_tried(
    folder: Path, pins: Pins, pipelines: Sequence[str], run: Runner | None, trial: Trial
) -> tuple[Pins, Tried]:
    """Build and try; a module that turns out to be missing is looked for in what the release asks for."""
    added: set[str] = set()
    while True:
        try:
            room.install(folder, pins, run)
            return pins, trial(Environment(folder, pins.version), pipelines)
        except ScaffoldError as error:
            named = _NO_MODULE.search(error.message)
            if named is None or named[1] in added or len(added) == MOST_MODULES:
                raise
            added.add(named[1])
            more = with_module(pins, named[1])
            if more is None:
                why = f"vllm-omni {pins.version} imports {named[1]}, which nothing that it asks for holds"
                raise ScaffoldError(why, hint=f"{error.message}; docs/rollout.md says how to pin by hand") from None
            shutil.rmtree(folder, ignore_errors=True)
            pins = more


@contextlib.contextmanager
def _nothing_half_built(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or cache_root()
        raise ScaffoldError(
            f"cannot write {where}: {error.strerror or error}", hint="set OMNI_SCAFFOLD_CACHE"
        ) from None


def write_record(file: Path, text: str) -> None:
    """Write a record: whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    staged = file.with_name(file.name + ".tmp")
    try:
        staged.write_text(text, encoding="utf-8")
        staged.replace(file)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise


def to_toml(pins: Pins, tried: Tried, day: date) -> str:
    """Return the file of a requirement set, with how and when it was tried out."""
    what = f"What runs vllm-omni {pins.version} on a CPU"
    lines = [
        f"# {what}. Every distribution is pinned, so that two builds are the same.",
        f"version = {_text(pins.version)}",
        "",
        "# Imported when all is installed; an environment in which one of them fails is not kept.",
        f"probe = [{', '.join(map(_text, pins.probe))}]",
    ]
    for part in pins.steps:
        lines += ["", "[[install]]", f"why = {_text(part.why)}", f"dependencies = {str(part.dependencies).lower()}"]
        lines += ["requirements = [", *_wrapped(part.requirements), "]"]
    lines += [
        "",
        "[constraints]",
        "pins = [",
        *_wrapped(pins.constraints),
        "]",
        "",
        "[tried]",
        f"on = {day.isoformat()}",
    ]
    lines += [f"python = {_text(platform.python_version())}", f"machine = {_text(platform.machine())}"]
    lines += [f"pipeline = {_text(tried.pipeline)}", f"passed = {tried.passed}"]
    lines += [f"failed = [{', '.join(map(_text, tried.failed))}]"]
    return "\n".join(lines) + "\n"


def _wrapped(entries: Iterable[str]) -> Iterator[str]:
    line = "   "
    for entry in entries:
        word = f" {_text(entry)},"
        if len(line) + len(word) > WIDTH:
            yield line
            line = "   "
        line += word
    yield line


def _text(value: str) -> str:
    """A basic string of TOML; those of JSON are."""
    return json.dumps(value, ensure_ascii=False)


def _today() -> date:
    return datetime.now(timezone.utc).date()
