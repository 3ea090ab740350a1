"""What of this machine the commands need: what is there, what is wrong, the one command that mends it."""

from scaffold.doctor.examine import Finding, examine, to_json, versions_needed

__all__ = ["Finding", "examine", "to_json", "versions_needed"]
