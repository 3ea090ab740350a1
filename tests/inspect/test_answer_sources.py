"""`inspect --show` and `--extract`: the source that an answer rests on, as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
VERSION = "0.27.0rc1"
BAGEL = ("inspect", "bagel", "--vllm-omni", VERSION)


def test_lines_are_those_of_the_source(scaffold_cli: Callable[..., Any]) -> None:
    answer = json.loads(scaffold_cli(*BAGEL, "--show", "scheduler.shift", "--format", "json").success())
    assert (answer["schema"], answer["fact"], answer["value"]) == (1, "scheduler.shift", 3.0)
    assert answer["evidence"]
    for place in answer["evidence"]:
        text = locate(VERSION).read(place["file"]).splitlines()
        assert place["lines"][place["line"] - place["first"]] == text[place["line"] - 1]
        assert place["lines"] == text[place["first"] - 1 : place["line"] + 3]
    printed = scaffold_cli(*BAGEL, "--show", "scheduler.shift").success()
    place = answer["evidence"][0]
    marked = [line for line in printed.splitlines() if line.startswith("> ")]
    assert marked[0].split(maxsplit=2)[1] == str(place["line"])
    assert marked[0].endswith(place["lines"][place["line"] - place["first"]].rstrip())


def test_an_answer_that_is_none_names_the_nearest(scaffold_cli: Callable[..., Any]) -> None:
    assert "scheduler.steps" in scaffold_cli(*BAGEL, "--show", "schedule.steps").refusal()


def test_every_place_can_be_opened_once_extracted(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "source"
    outcome = scaffold_cli(*BAGEL, "--extract", folder, "--format", "json")
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith("wrote ")
    places = [place for found in json.loads(outcome.out)["evidence"].values() for place in found]
    assert len(places) > 20
    for place in places:
        file, line = (place["file"], place["line"]) if isinstance(place, dict) else place
        text = (folder / file).read_text(encoding="utf-8")
        assert text == locate(VERSION).read(file)
        assert len(text.splitlines()) >= int(line)
    edited = next(folder.rglob("*.py"))
    edited.write_text("mine = 1\n")
    assert "differs" in scaffold_cli(*BAGEL, "--extract", folder).refusal()
    assert edited.read_text() == "mine = 1\n"
