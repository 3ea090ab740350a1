"""Loaded into a checkout's own test run: what the real verl-omni needs on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

from scaffold.verify.rollout.engine_side.real_library import install
from scaffold.verify.rollout.engine_side.settings import before_imports

before_imports()
install(Path.cwd())
