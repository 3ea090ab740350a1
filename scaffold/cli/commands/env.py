"""Environments in which the real engine and the real trainer run on a CPU."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from scaffold.cli.answer import show_json
from scaffold.cli.options import Format

ORDER = 70
SCHEMA = 1


class Purpose(str, Enum):
    """What an environment is for; one serves both."""

    rollout = "rollout"
    train = "train"


def env(
    purpose: Annotated[Purpose, typer.Argument(help="rollout: vllm-omni. train: that, and what verl-omni needs.")],
    vllm_omni: Annotated[
        str | None,
        typer.Option(
            "--vllm-omni", metavar="VERSION", help="Which one; by default the checkout's pin, else all known."
        ),
    ] = None,
    verl_omni: Annotated[
        Path | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="The environment that this checkout needs.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build it again.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print where it is.")] = Format.text,
) -> None:
    """Build an environment for `verify --level rollout` and `train`.

    In the cache, unless it is there; 3 minutes and 3 GB.

    \b
    Example:
      omni-scaffold env rollout --vllm-omni 0.30.0
    """
    from scaffold.doctor import versions_needed
    from scaffold.target import Checkout

    checkout = Checkout.open(verl_omni) if verl_omni is not None and vllm_omni is None else None
    built = build([vllm_omni] if vllm_omni is not None else versions_needed(checkout), force=force)
    if format is Format.json:
        show_json({"schema": SCHEMA, "environments": built})
        return
    for one in built:
        took = f", {one['seconds']:.0f} s" if one["seconds"] is not None else ", was there"
        typer.echo(f"vllm-omni {one['version']}: {one['folder']} ({one['bytes'] / 1e9:.1f} GB{took})")
    level = f"--level {purpose.value}{' --verl-omni CHECKOUT' if purpose is Purpose.train else ''}"
    typer.echo(f"next: `omni-scaffold verify PACKAGE {level}` runs a package in it")


def build(versions: list[str], *, force: bool = False) -> list[dict[str, Any]]:
    """Build the environments of these versions unless they are there; where each is, its size and what it took."""
    import time

    from scaffold.progress import step
    from scaffold.verify.rollout.environment import Environment, build_environment, find_environment, size

    found = []
    for version in versions:
        was_there = isinstance(find_environment(version), Environment) and not force
        started = time.monotonic()
        with step(f"building the environment of vllm-omni {version}, about 3 minutes and 3 GB"):
            built = build_environment(version, force=force)
        seconds = None if was_there else round(time.monotonic() - started, 1)
        folder = built.folder
        found.append({"version": version, "folder": str(folder), "bytes": size(folder), "seconds": seconds})
    return found
