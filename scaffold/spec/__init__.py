"""The integration spec: every value the templates need, and where it came from."""

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
