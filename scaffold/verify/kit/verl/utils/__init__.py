"""Stand-in for ``verl.utils``."""
