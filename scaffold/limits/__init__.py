"""Bounds on evaluated values, steps, processor time and child processes."""

# Whether this process is the console script's: no part of the tool is patched, so results may be cached.
MAY_CACHE = False
