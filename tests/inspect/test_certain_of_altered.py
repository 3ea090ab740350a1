"""Real pipelines altered so that a value comes to its use by another way: whatever is called certain is right.

An answer may be ``likely`` or unknown instead. What an alteration does not touch stays as it was.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import tomli
from altered import Overlay

from scaffold.inspect import Report, inspect_pipeline
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
VERSION, MODELS = "0.30.0", "vllm_omni/diffusion/models"
ALTERED = tomli.loads(Path(__file__).with_name("altered_pipelines.toml").read_text(encoding="utf-8"))


@cache
def before(pipeline: str) -> Report:
    return inspect_pipeline(locate(VERSION), pipeline)


@pytest.mark.parametrize("name", ALTERED)
def test_nothing_certain_is_wrong(name: str) -> None:
    row = ALTERED[name]
    edits = {f"{MODELS}/{row['file']}": tuple((old, new) for old, new in row["edits"])}
    found = inspect_pipeline(Overlay(locate(VERSION), edits), row["pipeline"])
    answer = found.facts[f"answers.{row['key']}"]
    if answer.confidence == "certain":
        assert answer.value in [json.loads(value) for value in row["right"]], f"{answer.value} is no certain value"
    touched = {f"answers.{other}" for other in (row["key"], *row.get("also", ()))}
    for key, fact in before(row["pipeline"]).facts.items():
        now = found.facts[key]
        if key.startswith("answers.") and key not in touched and fact.confidence == now.confidence == "certain":
            assert now.value == fact.value, key
