"""Stand-in for verl: the helpers that adapters and data preprocessors use."""

__contract__ = "kit"
