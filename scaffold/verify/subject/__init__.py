"""The package under test, as contracts see it: its classes, a tiny model, inputs, a rollout to drive."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from scaffold.verify.contracts.ported import NOT_DRIVEN, OF_HAND
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.subject import Subject

__all__ = ["Subject", "contract_of", "subject_of"]


def subject_of(job: dict[str, Any], package: Any, contract: str = "") -> Subject:
    """The subject that fits a package and one of its contracts.

    One with a ported denoiser is driven by what its pipeline was recorded doing, a hand-written one where that is what
    the contract is about and its pipeline was recorded.
    """
    if job.get("ported") is not None:
        from scaffold.verify.subject.ported import PortedSubject

        return PortedSubject(job, package)
    if _of_recording(contract, job):
        from scaffold.verify.subject.recorded import RecordedSubject

        return RecordedSubject(job, package)
    return Subject(job, package)


def _of_recording(name: str, job: dict[str, Any]) -> bool:
    return name in OF_HAND and "folder" in (job.get("rolled") or {})


def contract_of(name: str, job: dict[str, Any]) -> Any:
    """A contract's module; the one in ``contracts/ported/`` for what is recorded, if it is there.

    Raises:
        NotDrivableError: nothing that was recorded of a package with a ported denoiser tells.
    """
    if job.get("ported") is not None and name in NOT_DRIVEN:
        raise NotDrivableError(NOT_DRIVEN[name])
    recorded = job.get("ported") is not None or _of_recording(name, job)
    rooms = ["scaffold.verify.contracts"] + (["scaffold.verify.contracts.ported"] if recorded else [])
    found = [f"{room}.{name}" for room in rooms if importlib.util.find_spec(f"{room}.{name}")]
    return importlib.import_module(found[-1])
