"""Environments in which the real engine and the real trainer run on a CPU."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from scaffold.cli import completion
from scaffold.cli.answer import show_json, show_next
from scaffold.cli.options import Format
from scaffold.errors import ScaffoldError
from scaffold.terminal.progress import announce

ORDER = 70
SCHEMA = 1
LEAVE_OUT = "leave out --with and --record"


class Purpose(str, Enum):
    """What an environment is for; one serves both."""

    rollout = "rollout"
    train = "train"


class Device(str, Enum):
    """What runs in the environment."""

    cpu = "cpu"
    cuda = "cuda"


def env(
    purpose: Annotated[
        Purpose,
        typer.Argument(metavar="rollout|train", help="rollout: vllm-omni. train: that, and what verl-omni needs."),
    ],
    vllm_omni: Annotated[
        str | None,
        typer.Option(
            "--vllm-omni",
            metavar="VERSION|WHEEL|DIR",
            help="Which one, a build of your own too; by default the checkout's pin, else all known.",
            autocompletion=completion.versions,
        ),
    ] = None,
    verl_omni: Annotated[
        Path | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="The environment that this checkout needs.")
    ] = None,
    device: Annotated[
        Device, typer.Option("--device", help="cuda: vllm's CUDA build, for `verify --level train --device cuda`.")
    ] = Device.cpu,
    force: Annotated[bool, typer.Option("--force", help="Build it again.")] = False,
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME", help="Of a release without pins: a distribution that it imports too."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="DIR", help="Also write the pins that were found for a new release here."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print where it is.")] = Format.text,
) -> None:
    """Build an environment for `verify --level rollout` and `train`.

    Built once, in the cache: 3 minutes and 3 GB. For a release without pins, uv finds them, and they are recorded.

    \b
    Example:
      omni-scaffold env rollout --vllm-omni 0.30.0
    """
    from scaffold.doctor import buildable_versions
    from scaffold.target import Checkout
    from scaffold.verify.rollout.resolving import checked_version

    if vllm_omni is not None:
        versions = [_newest() if vllm_omni == "newest" else _of_path(vllm_omni) or checked_version(vllm_omni)]
    else:
        versions = buildable_versions(Checkout.open(verl_omni) if verl_omni is not None else None)
    if record is not None and not record.is_dir():
        raise ScaffoldError(f"--record {record} is not a folder", hint="name one that is there")
    if device is Device.cuda and purpose is not Purpose.train:
        raise ScaffoldError("level rollout runs on a CPU", hint="omni-scaffold env train --device cuda")
    if device is Device.cuda:
        built = build_cuda(versions, force=force)
    else:
        built = build(versions, force=force, beside=beside or (), folder=record)
    if format is Format.json:
        show_json({"schema": SCHEMA, "environments": built})
        return
    for one in built:
        took = f", {one['seconds']:.0f} s" if one["seconds"] is not None else ", was there"
        typer.echo(f"vllm-omni {one['version']}: {one['folder']} ({one['bytes'] / 1e9:.1f} GB{took})")
        if one["pins"] is not None:
            typer.echo(f"  its pins were found and recorded: {one['pins']}")
    on = " --device cuda" if device is Device.cuda else ""
    checkout = f" --verl-omni {shlex.quote(str(verl_omni or 'CHECKOUT'))}" if purpose is Purpose.train else ""
    level = f"--level {purpose.value}{on}{checkout}"
    show_next(f"`omni-scaffold verify PACKAGE {level}` runs a package in it")


def build(
    versions: list[str], *, force: bool = False, beside: Sequence[str] = (), folder: Path | None = None
) -> list[dict[str, Any]]:
    """Build the environments of these versions unless they are there; where each is, its size and what it took.

    Args:
        versions: of vllm-omni; of one without pins they are found and recorded.
        force: build again.
        beside: distributions that such a release imports and its nearest one does not.
        folder: where what is found is also written.
    """
    import time

    from scaffold.upstream.builds import base_of, is_own
    from scaffold.verify.rollout import environment as room
    from scaffold.verify.rollout.environment import Environment, build_environment, find_environment, size
    from scaffold.verify.rollout.pins import is_packaged, is_readable, nearest_version, read_pins
    from scaffold.verify.rollout.resolving import record, resolve

    if room.is_overridden():
        raise ScaffoldError(f"${room.OVERRIDE} is set, so no environment is built", hint=f"unset {room.OVERRIDE}")
    found = []
    for version in versions:
        was_there = isinstance(find_environment(version), Environment) and not force and not beside
        started = time.monotonic()
        pins = None
        if (beside or folder is not None) and is_packaged(version):
            raise ScaffoldError(f"the pins of vllm-omni {version} come with omni-scaffold", hint=LEAVE_OUT)
        if not is_own(version) and (beside or not is_readable(version)):
            pins = record(resolve(version, beside))
        if folder is not None:
            pins = record(read_pins(version), folder)
        if not was_there:
            below = nearest_version(base_of(version)) if is_own(version) else version
            what = f", on that of the nearest release, {below}" if is_own(version) else ""
            there = is_own(version) and isinstance(find_environment(below), Environment)
            takes = "" if there else ": about 3 minutes and 3 GB"
            announce(f"building the environment of vllm-omni {version}{what}{takes}")
        built = build_environment(version, force=force)
        seconds = None if was_there else round(time.monotonic() - started, 1)
        entry = {"version": version, "folder": str(built.folder), "bytes": size(built.folder), "seconds": seconds}
        found.append({**entry, "pins": None if pins is None else str(pins)})
    return found


def _of_path(selector: str) -> str | None:
    """The version of a folder or a wheel, of its own where it is not a release; None where no path is named."""
    from scaffold.files.reading import expanded
    from scaffold.upstream import locate
    from scaffold.upstream.identity import identified

    if not selector.strip() or not expanded(selector).exists():
        return None
    version = identified(locate(selector)).version
    if version is None:
        hint = "write the release that it comes from into vllm_omni/_version.py, such as version = '0.30.0'"
        raise ScaffoldError(f"{selector} gives no version of itself", hint=hint)
    return version


def build_cuda(versions: list[str], *, force: bool = False) -> list[dict[str, Any]]:
    """Build the environments of these versions for CUDA unless they are there; as `build` tells it."""
    import time

    from scaffold.terminal.progress import step
    from scaffold.verify.rollout.environment import size
    from scaffold.verify.train.cuda import build_cuda_environment, find_cuda_environment

    found = []
    for version in versions:
        was_there = not isinstance(find_cuda_environment(version), str) and not force
        started = time.monotonic()
        with step(f"building the environment of vllm-omni {version} for CUDA"):
            built = build_cuda_environment(version, force=force)
        seconds = None if was_there else round(time.monotonic() - started, 1)
        entry = {"version": version, "folder": str(built.folder), "bytes": size(built.folder), "seconds": seconds}
        found.append({**entry, "pins": None})
    return found


def _newest() -> str:
    from scaffold.upstream.locate import DISTRIBUTION
    from scaffold.upstream.pip import newest_release

    return newest_release(DISTRIBUTION)
