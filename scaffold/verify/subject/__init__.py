"""The package under test, as contracts see it: its classes, a tiny model, inputs, a rollout to drive."""

from __future__ import annotations

import importlib
from typing import Any

from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.subject import Subject

__all__ = ["Subject", "contract_of", "measure", "subject_of"]


def contract_of(name: str) -> Any:
    """Return the module of a contract, or its class in a module of several."""
    module, _, cls = name.partition(".")
    found = importlib.import_module(f"scaffold.verify.contracts.{module}")
    return getattr(found, cls) if cls else found


def measure(name: str, job: dict[str, Any], package: Any) -> Measured:
    """Measure one contract of a package.

    One with a ported denoiser is driven by what its pipeline was recorded doing, a hand-written one where that is what
    the contract is about and its pipeline was recorded.

    Raises:
        NotDrivableError: nothing that was recorded of a package with a ported denoiser tells.
    """
    contract, ported = contract_of(name), job.get("ported") is not None
    if ported and hasattr(contract, "NOT_RECORDED"):
        raise NotDrivableError(contract.NOT_RECORDED)
    rolled = not ported and hasattr(contract, "ROLLED") and "folder" in (job.get("rolled") or {})
    run = getattr(contract, "run_recorded", contract.run) if ported or rolled else contract.run
    measured: Measured = run(subject_of(job, package, rolled=rolled))
    return measured


def subject_of(job: dict[str, Any], package: Any, *, rolled: bool = False) -> Subject:
    """Return the subject that fits a package; ``rolled`` where a hand-written one is driven by what was recorded."""
    if job.get("ported") is not None:
        # Put off, as below: few packages need the recorder, and every contract starts with this module.
        from scaffold.verify.subject.ported import PortedSubject

        return PortedSubject(job, package)
    if rolled:
        from scaffold.verify.subject.recorded import RecordedSubject

        return RecordedSubject(job, package)
    return Subject(job, package)
