"""The integration spec: every value the templates need, and where it came from."""

from scaffold.spec.build import SpecRequest, build_spec
from scaffold.spec.model import IntegrationSpec
from scaffold.spec.preset import Preset, find_preset

__all__ = ["IntegrationSpec", "Preset", "SpecRequest", "build_spec", "find_preset"]
