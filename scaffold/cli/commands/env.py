"""Environments in which the real engine and the real trainer run on a CPU."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

ORDER = 75


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
) -> None:
    """Build an environment for `verify --level rollout` and `--level train`, in the cache."""
    import time

    from scaffold.progress import step
    from scaffold.verify.rollout.environment import build_environment, size
    from scaffold.verify.rollout.pins import known_versions

    versions = known_versions() if vllm_omni is None else [vllm_omni]
    if verl_omni is not None and vllm_omni is None:
        from scaffold.target import Checkout

        versions = [Checkout.open(verl_omni).vllm_omni_pin or "none"]
    for version in versions:
        started = time.monotonic()
        with step(f"building the environment of vllm-omni {version}, about 3 minutes and 3 GB"):
            built = build_environment(version, force=force)
        seconds, gigabytes = time.monotonic() - started, size(built.folder) / 1e9
        typer.echo(f"vllm-omni {version}: {built.folder} ({gigabytes:.1f} GB, {seconds:.0f} s)")
    if purpose is Purpose.train:
        typer.echo("next: omni-scaffold verify PACKAGE --level train --verl-omni CHECKOUT")
