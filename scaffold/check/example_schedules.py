"""A change of the examples' package: the noise levels come from a scheduler that is made only to be asked."""

from __future__ import annotations
