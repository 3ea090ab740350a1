"""What the commands need on this machine: what is present, what is wrong, and the command that fixes it."""

from scaffold.doctor.examine import Finding, examine, to_json, versions_needed

__all__ = ["Finding", "examine", "to_json", "versions_needed"]
