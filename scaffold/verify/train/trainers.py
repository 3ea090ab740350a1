"""Which of a checkout's trainers a run takes: verl-omni's v1, synchronous or asynchronous, or the older v0."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_text
from scaffold.target import Checkout

V0, SYNC, ASYNC = "v0", "sync", "separate_async"
# Rows of a run of this size fit one unit; two show that rows come back from several. Each takes one of Ray's CPUs.
STORAGE_UNITS = 2
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
ENGINE = "scaffold.verify.train.trainer_side.file_transfer"  # registers `files`
_STARTED = re.compile(r"(?<=-m )verl_omni\.trainer\.main_diffusion(?:_v1)?(?=\s)")


@dataclass(frozen=True)
class Trainer:
    """One trainer of a checkout.

    Attributes:
        name: ``v0``, ``sync`` or ``separate_async``.
        entry: the module that starts it.
        has_v1: whether the checkout has v1, whose module starts v0 as well.
        v1_is_default: whether the checkout's own configuration takes v1.
    """

    name: str
    entry: str
    has_v1: bool = True
    v1_is_default: bool = False

    @property
    def is_v1(self) -> bool:
        """Whether rows travel through the TransferQueue."""
        return self.name != V0

    @property
    def cpus(self) -> int:
        """CPUs of Ray that it takes beyond those of its workers: the TransferQueue's controller and its storage."""
        return 1 + STORAGE_UNITS if self.is_v1 else 0

    @property
    def title(self) -> str:
        """For a report."""
        name = f"v1, {self.name}" if self.is_v1 else self.name
        return name if self.is_v1 == self.v1_is_default else f"{name}, which is not the checkout's default"

    def overrides(self, processes: int) -> dict[str, str]:
        """Overrides that choose it, and what it needs on a CPU.

        Args:
            processes: of the trainer; asynchronous, as many engines beside theirs make the images.
        """
        if not self.has_v1:
            return {}
        if not self.is_v1:
            return {"trainer.use_v1": "false"}
        found = {"trainer.use_v1": "true", "trainer.v1.trainer_mode": self.name, UNITS: str(STORAGE_UNITS)}
        if self.name == ASYNC:
            rollout = "actor_rollout_ref.rollout"
            found |= {
                f"{rollout}.nnodes": "1",
                f"{rollout}.n_gpus_per_node": str(processes),
                f"{rollout}.checkpoint_engine.backend": "files",
                f"{rollout}.checkpoint_engine.custom_backend_module": ENGINE,
                "trainer.v1.separate_async.parameter_sync_step": "1",
            }
        return found


def find_trainer(checkout: Checkout, name: str | None = None) -> Trainer:
    """The trainer of this name, by default v1's synchronous one, also where the checkout has v1 switched off.

    Raises:
        ScaffoldError: the checkout has no such trainer.
    """
    profile = checkout.profile
    if profile.v1_entry_point is not None:
        return Trainer(name or SYNC, profile.v1_entry_point, True, profile.use_v1)
    if name not in (None, V0):
        raise ScaffoldError(f"{checkout.root} has no v1 trainer", hint="leave --variant async out")
    return Trainer(V0, profile.entry_point, False)


def start_with(script: Path, trainer: Trainer) -> None:
    """Have a copy of a smoke script start the trainer's module.

    Raises:
        ScaffoldError: it starts none that is known.
    """
    changed, count = _STARTED.subn(trainer.entry, read_text(script))
    if not count:
        raise ScaffoldError(
            f"{script.name} starts no trainer of verl-omni",
            hint=f"write python3 -m {trainer.entry} in it",
        )
    script.write_text(changed, encoding="utf-8")
