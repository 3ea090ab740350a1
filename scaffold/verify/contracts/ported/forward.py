"""``forward`` returns one finite velocity for each latent."""

from __future__ import annotations

from typing import Any

from scaffold.verify.contracts import forward
from scaffold.verify.measured import Measured


def run(subject: Any) -> Measured:
    """As for every package; where nothing could be recorded there is nothing to give to it."""
    subject.recording  # noqa: B018
    return forward.run(subject)
