"""The repository that receives the output: which verl-omni it is and what differs there."""

from __future__ import annotations

from scaffold.target.checkout import Checkout, profile_for_checkout
from scaffold.target.profile import ContractProfile, default_profile, profile_by_name, profiles

__all__ = ["Checkout", "ContractProfile", "default_profile", "profile_by_name", "profile_for_checkout", "profiles"]
