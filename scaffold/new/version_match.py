"""Checks that a package and its checkout are for the same version of vllm-omni."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.errors import ConflictError
from scaffold.upstream.versions import fits, is_same

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec
    from scaffold.target import Checkout

ALLOW = "--allow-version-mismatch"
KEY = "checkout_pin"
"""In ``[upstream]``: the checkout's pin, if a person allowed the package to be for another version."""


def other_pin(checkout: Checkout | None, version: str | None, *, allowed: bool, notes: list[str]) -> str | None:
    """Return the checkout's pin if a package is made for another version, and that is allowed.

    Without a single pinned version, the requirement takes the place of the pin.

    Args:
        checkout: where the package goes; None for a folder of its own, which pins nothing.
        version: the version the package is made for; None or a label if its source has no version.
        allowed: whether the user allowed another version.
        notes: receives remarks for the user.

    Raises:
        ConflictError: the versions differ, and nobody allowed it.
    """
    pin = checkout.asked if checkout is not None else None
    same = fits(pin, version)
    if pin is None or same:
        return None
    if same is None:
        notes.append(
            f"the checkout pins vllm-omni {pin}; whether the source that was read is that version is not known"
        )
        return None
    if not allowed:
        raise ConflictError(
            f"the checkout pins vllm-omni {pin} and the package would be for {version}: with what is pinned, importing "
            "verl_omni.pipelines can fail, for every model; nothing was written",
            hint=f"stay with {pin}, move the checkout's pin to {version} first, or give {ALLOW}",
        )
    notes.append(
        f"the package is for vllm-omni {version}, the checkout pins {pin}: install {version} before anything imports "
        "verl_omni.pipelines, and move the pin"
    )
    return pin


def with_pin(spec: IntegrationSpec, pin: str | None) -> IntegrationSpec:
    """Return the spec with the result of `other_pin`, which its README then mentions."""
    upstream = {key: value for key, value in spec.sections.get("upstream", {}).items() if key != KEY}
    name = f"upstream.{KEY}"
    provenance = {key: value for key, value in spec.provenance.items() if key != name}
    derived = {key: value for key, value in spec.derived.items() if key != name}
    if pin is not None:
        upstream[KEY] = pin
        provenance[name] = f"flag {ALLOW}"
    return replace(spec, sections={**spec.sections, "upstream": upstream}, provenance=provenance, derived=derived)


def is_allowed(spec: IntegrationSpec, checkout: Checkout | None, version: str | None) -> bool:
    """Whether a package records that it may be for this version although the checkout pins another."""
    pin, recorded = checkout.asked if checkout is not None else None, spec.value(f"upstream.{KEY}")
    as_recorded = recorded is not None and (recorded == pin or is_same(recorded, pin))
    return bool(as_recorded and is_same(str(spec.value("upstream.version")), version))
