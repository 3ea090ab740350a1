"""The integration spec: every value the templates need, and where it came from."""

from typing import TYPE_CHECKING

from scaffold.limits.on_demand import on_demand

if TYPE_CHECKING:
    from scaffold.spec.build import SpecRequest, build_spec
    from scaffold.spec.lock import LOCK_NAME, SPEC_NAME
    from scaffold.spec.model import IntegrationSpec
    from scaffold.spec.preset import Preset, find_preset
    from scaffold.spec.stored import StoredSpec, read_spec

__all__ = [
    "LOCK_NAME",
    "SPEC_NAME",
    "IntegrationSpec",
    "Preset",
    "SpecRequest",
    "StoredSpec",
    "build_spec",
    "find_preset",
    "read_spec",
]

# `check` reads a lock and builds no spec.
__getattr__ = on_demand(
    __name__,
    {
        "build": "SpecRequest build_spec",
        "lock": "LOCK_NAME SPEC_NAME",
        "model": "IntegrationSpec",
        "preset": "Preset find_preset",
        "stored": "StoredSpec read_spec",
    },
)
