"""The repository that receives the output: its verl-omni release and how it differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaffold.limits.on_demand import on_demand

if TYPE_CHECKING:
    from scaffold.target.checkout import Checkout, profile_for_checkout
    from scaffold.target.profile import ContractProfile, default_profile, profile_by_name, profiles

__all__ = ["Checkout", "ContractProfile", "default_profile", "profile_by_name", "profile_for_checkout", "profiles"]

# `check` needs only the pin.
__getattr__ = on_demand(
    __name__,
    {
        "checkout": "Checkout profile_for_checkout",
        "profile": "ContractProfile default_profile profile_by_name profiles",
    },
)
