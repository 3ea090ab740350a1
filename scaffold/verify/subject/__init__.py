"""The package under test, as contracts see it: its classes, a tiny model, inputs, a rollout to drive."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from scaffold.verify.contracts.ported import NOT_DRIVEN
from scaffold.verify.measured import NotDrivableError
from scaffold.verify.subject.subject import Subject

__all__ = ["Subject", "contract_of", "subject_of"]


def subject_of(job: dict[str, Any], package: Any) -> Subject:
    """The subject that fits a package: one with a ported denoiser is driven by what its pipeline was recorded doing."""
    if job.get("ported") is None:
        return Subject(job, package)
    from scaffold.verify.subject.ported import PortedSubject

    return PortedSubject(job, package)


def contract_of(name: str, job: dict[str, Any]) -> Any:
    """A contract's module; for a package with a ported denoiser the one in ``contracts/ported/``, if it is there.

    Raises:
        NotDrivableError: nothing that was recorded of such a package tells.
    """
    if job.get("ported") is not None and name in NOT_DRIVEN:
        raise NotDrivableError(NOT_DRIVEN[name])
    rooms = ["scaffold.verify.contracts"] + ([] if job.get("ported") is None else ["scaffold.verify.contracts.ported"])
    found = [f"{room}.{name}" for room in rooms if importlib.util.find_spec(f"{room}.{name}")]
    return importlib.import_module(found[-1])
