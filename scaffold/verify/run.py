"""``verify``: opens the package, runs the levels asked for, gathers one report. Executes nothing of the package."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from scaffold.checkpoint.folder import opened_folder
from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded
from scaffold.verify.catalogue import catalogue
from scaffold.verify.contract_level import run_contract_level
from scaffold.verify.loading.check import ID as CHECKPOINT
from scaffold.verify.loading.check import checked
from scaffold.verify.package import Package, open_package
from scaffold.verify.request import VerifyRequest
from scaffold.verify.result import Level, Outcome, VerifyReport
from scaffold.verify.rollout import level as rollout
from scaffold.verify.rollout.forking import forking
from scaffold.verify.train.level import TrainRequest, check_ids, run_level

if TYPE_CHECKING:
    from scaffold.verify.train.level import TrainRequest


def verify(
    package: str | Path,
    *,
    checkpoint: str | Path | None = None,
    level: Level = "contract",
    select: Sequence[str] = (),
    training: TrainRequest | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> VerifyReport:
    """Run a package against its contracts.

    Args:
        package: folder of the package, rendered or written by hand.
        checkpoint: folder of a checkpoint that the package loads, and whose configuration the tiny model takes, shrunk.
        level: ``contract``; ``rollout`` for both; ``train`` for the trainer alone.
        select: ids of the contracts to run; empty for all.
        training: what level ``train`` is to do; its defaults where None.
        tell: gets a line for each contract and for each training step as it ends.

    Raises:
        ScaffoldError: wrong use: no such package, checkpoint or contract, or no torch to run it with.
    """
    opened = open_package(package)
    folder = None if checkpoint is None else opened_folder(expanded(checkpoint))
    if folder is not None and not folder.exists():
        raise ScaffoldError(f"no such folder here: {checkpoint}", hint="--checkpoint takes one that is on this machine")
    configs = (*opened.declared.files, "config.json", "transformer/config.json")
    if folder is not None and not any((folder / name).is_file() for name in configs):
        raise ScaffoldError(f"{checkpoint} holds no {' or '.join(configs)}", hint="--checkpoint takes a folder")
    compared = folder is not None and level != "train" and (not select or CHECKPOINT in select)
    if CHECKPOINT in select and folder is None:
        raise ScaffoldError(f"{CHECKPOINT} needs a checkpoint", hint="--checkpoint DIR")
    _known([name for name in select if name != CHECKPOINT], level)
    if level == "train":
        return _train(opened, str(package), VerifyRequest(opened.folder, None, level, tuple(select)), training, tell)
    request = VerifyRequest(opened.folder, None if folder is None else folder.resolve(), level, tuple(select))
    if level == "rollout":
        if not request.select or set(request.select) & set(rollout.check_ids()):
            rollout.require(request, Path())  # before the contracts, which take a minute
    with _orderly_end(), forking():
        outcome = run_contract_level(opened, request, tell) if request.select != (CHECKPOINT,) else Outcome()
        checks, environment = outcome.checks, outcome.environment
        if compared and folder is not None:
            checks = [checked(opened.folder, folder.resolve(), str(checkpoint)), *checks]
            tell(checks[0].line)
        if level == "rollout":
            found = rollout.run_level(request, tell=tell)
            checks = [*checks, *found.checks]
            environment = _both(environment, found.environment)
    command = _command(str(package), None if checkpoint is None else str(checkpoint), request)
    return VerifyReport(opened.name, outcome.contract, tuple(checks), environment, (command,))


def _train(
    opened: Package,
    named: str,
    request: VerifyRequest,
    training: TrainRequest | None,
    tell: Callable[[str], None],
) -> VerifyReport:
    asked = training or TrainRequest()
    with _orderly_end():
        outcome = run_level(request, asked, tell)
    command = _command(named, None if asked.model is None else str(asked.model), request) + f" --steps {asked.steps}"
    command += "".join(f" --variant {name}" for name in asked.variants)
    return VerifyReport(opened.name, outcome.contract, tuple(outcome.checks), outcome.environment, (command,))


def _both(contract: Mapping[str, Any], rollout: Mapping[str, Any]) -> dict[str, Any]:
    """One table of both levels' environments; where they differ, what each had."""
    merged = {**rollout, **contract}
    for name in contract.keys() & rollout.keys():
        if contract[name] != rollout[name]:
            merged[name] = f"{rollout[name]} (rollout), {contract[name]} (contract)"
    return merged


def _known(select: Sequence[str], level: Level) -> None:
    ids = [entry.id for entry in catalogue()]
    if level == "train":
        ids = check_ids()
    elif level == "rollout":
        ids += rollout.check_ids()
    for name in select:
        if name not in ids:
            near = get_close_matches(name, ids, 1, 0.0)
            elsewhere = name.startswith("rollout-") and level == "contract"
            hint = "it belongs to --level rollout" if elsewhere else f"nearest is {near[0]}" if near else None
            raise ScaffoldError(f"there is no contract {name!r} at level {level}", hint=hint)


def _command(package: str, checkpoint: str | None, request: VerifyRequest) -> str:
    """The command as the user typed it: a pull request has no use for the folders of one machine."""
    words = ["omni-scaffold", "verify", package, "--level", request.level]
    if checkpoint is not None:
        words += ["--checkpoint", checkpoint]
    for name in request.select:
        words += ["--select", name]
    return shlex.join(words)


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Raise ``SystemExit(128 + number)`` on SIGTERM and SIGHUP, which otherwise skip all clean-up.

    Only the main thread can do so; elsewhere, and for a signal that the caller ignores, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {}

    def end(number: int, frame: FrameType | None) -> None:
        for name in handlers:
            signal.signal(name, signal.SIG_IGN)  # the clean-up is under way
        raise SystemExit(128 + number)

    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is signal.SIG_DFL:
            handlers[name] = signal.signal(name, end)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
