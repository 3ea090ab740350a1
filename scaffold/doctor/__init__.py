"""What the commands need on this machine: what is present, what is wrong, and the command that fixes it."""

from scaffold.doctor.examine import Finding, buildable_versions, examine, to_json
from scaffold.doctor.package import examine_package

__all__ = ["Finding", "buildable_versions", "examine", "examine_package", "to_json"]
