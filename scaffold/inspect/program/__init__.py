"""Abstract execution of a pipeline's source: what its text-to-image path computes, without importing any of it."""

from scaffold.inspect.program.program import Program, once

__all__ = ["Program", "once"]
