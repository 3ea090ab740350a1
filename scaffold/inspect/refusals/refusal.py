"""What a reason to refuse says."""

from __future__ import annotations

from typing import NamedTuple

from scaffold.inspect.facts import Evidence


class Refusal(NamedTuple):
    """A reason in words, and the places that show it, the decisive one first.

    ``on_this_path_only`` says that diffusers' path, where the denoiser loads through diffusers, is open all the same.
    ``impossible`` says that nobody could train the pipeline; the others are not supported here.
    """

    reason: str
    places: list[Evidence | None]
    on_this_path_only: bool = False
    impossible: bool = False
