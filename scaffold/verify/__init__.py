"""Runs a package against its contracts, in child processes."""
