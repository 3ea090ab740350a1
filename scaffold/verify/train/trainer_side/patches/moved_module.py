"""verl 0.9 moved ``verl.utils.chat_template``; verl-omni imports it from where its pin of verl has it."""

from __future__ import annotations

import sys

PLACES: dict[str, tuple[str, ...]] = {}


def prepare() -> None:
    """Answer the old name, where nothing else does."""
    from scaffold.verify.rollout.engine_side.real_library import MOVED
    from scaffold.verify.rollout.engine_side.sources import MovedModule

    sys.meta_path.extend(MovedModule(old, new) for old, new in MOVED.items())
