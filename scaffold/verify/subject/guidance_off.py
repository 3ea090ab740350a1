"""Settings under which a package applies no guidance."""

from __future__ import annotations

from typing import Any


def without_guidance(subject: Any) -> dict[str, Any]:
    """The setting that switches guidance off; empty where a known velocity shows that there is none to switch off.

    A module that predicts one velocity in both branches is guided to that velocity, renormed or not, so contracts
    that use one stay right where the names are not known.
    """
    from scaffold.verify.subject.guidance import guidance_of

    found = guidance_of(subject)
    return {} if found is None else found.settings(text_scale=1.0)
