"""The ``scaffold.toml`` of the examples' package: the checkpoint keys that its training module takes."""

from __future__ import annotations
