"""Which of a checkout's trainers a run takes: verl-omni's v1, synchronous or asynchronous, or the older v0."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.documents import MalformedError, parse_yaml
from scaffold.errors import ScaffoldError
from scaffold.reading import read_text
from scaffold.target import Checkout
from scaffold.target.pin import text_of

V0, SYNC, ASYNC = "v0", "sync", "separate_async"
ENTRY = "verl_omni.trainer.main_diffusion"
ENTRY_V1 = f"{ENTRY}_v1"
CONFIG = "verl_omni/trainer/config/diffusion_trainer.yaml"
# Rows of a run of this size fit one unit; two show that rows come back from several. Each takes one of Ray's CPUs.
STORAGE_UNITS = 2
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
ENGINE = "scaffold.verify.train.inside.file_transfer"  # registers `files`
_STARTED = re.compile(rf"(?<=-m ){re.escape(ENTRY)}(?:_v1)?(?=\s)")


@dataclass(frozen=True)
class Trainer:
    """One trainer of a checkout.

    Attributes:
        name: ``v0``, ``sync`` or ``separate_async``.
        has_v1: whether the checkout has v1.
        by_default: which one the checkout's own configuration takes.
    """

    name: str
    has_v1: bool
    by_default: str

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
        own = f"v1, {self.by_default}" if self.by_default != V0 else V0
        return f"{name}, the checkout's default" if self.name == self.by_default else f"{name}; its default is {own}"

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
    """The trainer of this name, by default the one of the checkout's own recipes, or v1 where that is switched off.

    Raises:
        ScaffoldError: the checkout has no such trainer.
    """
    has_v1 = (checkout.root / f"{ENTRY_V1.replace('.', '/')}.py").is_file()
    if not has_v1:
        if name not in (None, V0):
            raise ScaffoldError(f"{checkout.root} has no v1 trainer", hint="leave --variant async out")
        return Trainer(V0, False, V0)
    settings = _settings(checkout)
    mode = settings.get("v1", {}).get("trainer_mode", SYNC) if settings.get("use_v1") is True else V0
    return Trainer(name or (SYNC if mode == V0 else str(mode)), True, str(mode))


def _settings(checkout: Checkout) -> dict[str, Any]:
    """``trainer`` of the checkout's own configuration; empty where it cannot be read."""
    text = text_of(checkout.root, CONFIG)
    try:
        found = parse_yaml(text or "")
    except MalformedError:
        return {}
    trainer = found.get("trainer") if isinstance(found, dict) else None
    return trainer if isinstance(trainer, dict) else {}


def start_with(script: Path, trainer: Trainer) -> None:
    """Have a copy of a smoke script start the module that knows every trainer of the checkout.

    Raises:
        ScaffoldError: it starts none that is known.
    """
    text = read_text(script)
    changed, count = _STARTED.subn(ENTRY_V1 if trainer.has_v1 else ENTRY, text)
    if not count:
        raise ScaffoldError(
            f"tests/special_e2e/{script.name} starts no trainer of verl-omni", hint=f"write python3 -m {ENTRY} in it"
        )
    script.write_text(changed, encoding="utf-8")
