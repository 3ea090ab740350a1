"""Bounds on evaluated values, steps, processor time and child processes."""
