"""The server imports torchaudio, which is not installed and not used here; its CPU build is on no common index."""

from __future__ import annotations

PLACES: dict[str, tuple[str, ...]] = {}


def prepare() -> None:
    """Serve hollow modules for what is not installed."""
    from scaffold.verify.rollout.engine_side.absent import stand_in

    stand_in()
