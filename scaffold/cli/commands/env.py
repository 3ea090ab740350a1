"""Environments in which the real engine and the real trainer run on a CPU."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from scaffold.cli.answer import show_json
from scaffold.cli.options import Format
from scaffold.errors import ScaffoldError

ORDER = 70
SCHEMA = 1


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
            "--vllm-omni", metavar="VERSION", help="Which one; by default the checkout's pin, else all known."
        ),
    ] = None,
    verl_omni: Annotated[
        Path | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="The environment that this checkout needs.")
    ] = None,
    device: Annotated[
        Device, typer.Option("--device", help="cuda: vllm's CUDA build, for `verify --level train --device cuda`.")
    ] = Device.cpu,
    force: Annotated[bool, typer.Option("--force", help="Build it again.")] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="DIR", help="Also write the pins that were found for a new release here."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print where it is.")] = Format.text,
) -> None:
    """Build an environment for `verify --level rollout` and `train`.

    Built once, in the cache: 3 minutes and 3 GB. For a release without pins, pins are found, tried and recorded.

    \b
    Example:
      omni-scaffold env rollout --vllm-omni 0.30.0
    """
    from scaffold.doctor import versions_needed
    from scaffold.target import Checkout
    from scaffold.verify.rollout.new_release import copy_record
    from scaffold.verify.rollout.resolving import checked_version

    if vllm_omni is not None:
        versions = [_newest() if vllm_omni == "newest" else checked_version(vllm_omni)]
    else:
        versions = versions_needed(Checkout.open(verl_omni) if verl_omni is not None else None)
    if record is not None and not record.is_dir():
        raise ScaffoldError(f"--record {record} is no folder", hint="name one that is there")
    if device is Device.cuda and purpose is not Purpose.train:
        raise ScaffoldError("level rollout runs on a CPU", hint="omni-scaffold env train --device cuda")
    built = build_cuda(versions, force=force) if device is Device.cuda else build(versions, force=force)
    written = [copy_record(version, record) for version in versions] if record is not None else []
    if format is Format.json:
        show_json({"schema": SCHEMA, "environments": built})
        return
    for one in built:
        took = f", {one['seconds']:.0f} s" if one["seconds"] is not None else ", was there"
        typer.echo(f"vllm-omni {one['version']}: {one['folder']} ({one['bytes'] / 1e9:.1f} GB{took})")
        if (tried := one["tried"]) is not None:
            failed = f", not {', '.join(tried['failed'])}" if tried["failed"] else ""
            typer.echo(f"  pins found and recorded; {tried['pipeline']} passes {tried['passed']} checks in it{failed}")
    for file in written:
        typer.echo(f"pins written to {file}")
    on = " --device cuda" if device is Device.cuda else ""
    level = f"--level {purpose.value}{on}{' --verl-omni CHECKOUT' if purpose is Purpose.train else ''}"
    typer.echo(f"next: `omni-scaffold verify PACKAGE {level}` runs a package in it")


def build(versions: list[str], *, force: bool = False) -> list[dict[str, Any]]:
    """Build the environments of these versions unless they are there; where each is, its size and what it took.

    Of a release without pins, they are found, tried out and recorded.
    """
    import time
    from dataclasses import asdict

    from scaffold.grade.proof import proofs
    from scaffold.progress import step
    from scaffold.verify.rollout.environment import Environment, build_environment, find_environment, size
    from scaffold.verify.rollout.new_release import add_release, is_described

    # A task may stand behind the registry key.
    pipelines = tuple(dict.fromkeys(name.partition(" ")[0] for known in proofs().values() for name in known))
    found = []
    for version in versions:
        was_there = isinstance(find_environment(version), Environment) and not force
        started = time.monotonic()
        tried = None
        with step(f"building the environment of vllm-omni {version}, about 3 minutes and 3 GB"):
            if is_described(version):
                built = build_environment(version, force=force)
            else:
                built, tried = add_release(version, pipelines)
        seconds = None if was_there else round(time.monotonic() - started, 1)
        entry = {"version": version, "folder": str(built.folder), "bytes": size(built.folder), "seconds": seconds}
        found.append({**entry, "tried": None if tried is None else asdict(tried)})
    return found


def build_cuda(versions: list[str], *, force: bool = False) -> list[dict[str, Any]]:
    """Build the environments of these versions for CUDA unless they are there; as `build` tells it."""
    import time

    from scaffold.progress import step
    from scaffold.verify.rollout.environment import size
    from scaffold.verify.train.cuda import build_cuda_environment, find_cuda_environment

    found = []
    for version in versions:
        was_there = not isinstance(find_cuda_environment(version), str) and not force
        started = time.monotonic()
        with step(f"building the environment of vllm-omni {version} for CUDA, about 10 minutes and 12 GB"):
            built = build_cuda_environment(version, force=force)
        seconds = None if was_there else round(time.monotonic() - started, 1)
        entry = {"version": version, "folder": str(built.folder), "bytes": size(built.folder), "seconds": seconds}
        found.append({**entry, "tried": None})
    return found


def _newest() -> str:
    from scaffold.upstream.locate import DISTRIBUTION
    from scaffold.upstream.newest import newest_release

    return newest_release(DISTRIBUTION)
