"""The command ``remap``: which map a package or a pipeline has, and whether it holds."""
