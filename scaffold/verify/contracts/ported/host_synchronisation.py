"""``forward`` never waits for the device, where the package's own code decides it."""

from __future__ import annotations

from typing import Any

from scaffold.verify.contracts import host_synchronisation
from scaffold.verify.measured import Measured


def run(subject: Any) -> Measured:
    """Watch as for every package; what the ported denoiser reads back it reads back in the rollout, too."""
    found = host_synchronisation.run(subject)
    ported = f" at {subject.spec['names']['model']}_denoiser.py:"
    own = [line for line in found.problems if ported not in line]
    told = f"{found.found}; the ported denoiser reads back at {len(found.problems) - len(own)} places, as upstream's"
    return Measured(told, own, float(len(own)), found.limit, found.unit)
