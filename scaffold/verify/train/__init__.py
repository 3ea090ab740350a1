"""Level ``train``: the real trainer of verl-omni takes steps with the package, on a CPU."""
