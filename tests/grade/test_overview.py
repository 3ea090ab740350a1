"""`list`: what `new` makes of each pipeline, on any width without a broken name."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from scaffold import limits
from scaffold.grade import overview_cache
from scaffold.grade.overview_cache import overview
from scaffold.grade.overview_text import print_overview

sys.path.insert(0, str(Path(__file__).parents[1] / "inspect"))
import synthetic
from synthetic import look

LONGEST = "HunyuanVideo15ImageToVideoPipeline"  # no key of vllm-omni 0.30.0 is longer
INIT = "        self.net = Net()\n"


def row(name: str, grade: str | None, left: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "pipeline": name,
        "registry_keys": [name, "ShortName"],
        "verdict": {"path": "refused", "reason": "no steps of_a_name_that_stays_whole"},
        "prompt": {"kind": ["text", "embeds", "token_ids"]},
        "cfg": {"branches": 2, "execution": "sequential"},
        "modality": "action",
        "media": ["image", "video"],
        "grade": grade,
        "left": [{"what": what, "at": "a.py:1"} for what in left],
        **more,
    }


def page(width: int, *rows: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    print_overview({"upstream": {"registry_keys": 2, "classes": 1}, "pipelines": list(rows)}, "1.2", console)
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_breaks_no_name(width: int) -> None:
    wanted = "configuration classes of get_current_vllm_config"
    rows = [
        row(LONGEST, grade, (wanted,) * 11 if grade == "partial" else ())
        for grade in ("complete", "unproven", "partial", "refused", "diffusers", None)
    ]
    text = page(width, *rows)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    assert words.count(LONGEST) == words.count("ShortName") == len(rows)
    assert words.count("sequential") == words.count("token_ids") == words.count("action") == len(rows)
    assert ("get_current_vllm_config" in words) == (width == 120), "below, there is room for their number alone"
    assert ("11" in words) == (width == 80)


@pytest.mark.parametrize(("grade", "left"), [("unproven", ()), ("partial", ("the schedule",))])
def test_what_verl_omni_lacks_is_shown_although_nobody_can_write_it(grade: str, left: tuple[str, ...]) -> None:
    needs = [{"what": "results that are sound", "at": "server.py:680"}]
    wide = page(160, row("SomePipeline", grade, left, needs=needs))
    assert "- results that are sound (in the way stands server.py:680)" in wide
    assert wide.count("- ") == 1 + len(left)
    assert ("left to write" if left else "verl-omni lacks") in wide
    narrow = page(80, row("SomePipeline", grade, left, needs=needs)).splitlines()
    assert next(line for line in narrow if line.startswith("SomePipeline")).rstrip().endswith("1")


def test_reasons_stand_beside_what_is_refused() -> None:
    assert "of_a_name_that_stays_whole" in page(120, row("SomePipeline", "refused")).split()
    assert "why" not in page(120, row("SomePipeline", "diffusers")).split()


def test_rows_of_a_version(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    loop = """
    for i, t in enumerate(self.levels):
        x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x)
"""
    look(tmp_path, loop, init=INIT)
    for command in (("list",), ("inspect", "--all")):
        answer = json.loads(scaffold_cli(*command, "--vllm-omni", tmp_path, "--format", "json").success())
        assert answer["schema"] == 1
        (found,) = answer["pipelines"]
        assert found["registry_keys"] == ["MadeUpPipeline"]
        assert found["grade"] in ("partial", "refused", "diffusers")
        assert {"modality", "media", "left", "prompt", "cfg", "verdict"} <= set(found)
    text = scaffold_cli("inspect", "--all", "--vllm-omni", tmp_path).success()
    assert "MadeUpPipeline" in text
    assert f"{found['grade']} (1)" in text
    assert text.splitlines()[-1].startswith(f"next: `omni-scaffold inspect PIPELINE --vllm-omni {tmp_path}` ")
    assert scaffold_cli("list", "--vllm-omni", tmp_path).success() == text


def test_a_module_that_cannot_be_read_leaves_the_table_standing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        synthetic, "REGISTRY", synthetic.REGISTRY.replace("}", '"Gone": ("gone", "pipeline", "Gone"),}')
    )
    look(tmp_path, "", init=INIT)
    found = {row["pipeline"]: row for row in overview(str(tmp_path), processes=1)["pipelines"]}
    assert found["Gone"]["grade"] is None
    assert page(80, found["Gone"]).count("Gone") == 1


@pytest.mark.parametrize(("grade", "readings"), [("complete", 1), (None, 2)])
def test_the_table_of_a_release_is_read_once(
    grade: str | None, readings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept for the console script; one in which a pipeline could not be read is not."""
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(limits, "MAY_CACHE", True)
    read: list[str | None] = []

    def reading(selector: str | None, **_: object) -> dict[str, Any]:
        read.append(selector)
        return {"pipelines": [{"pipeline": "MadeUpPipeline", "grade": grade}]}

    monkeypatch.setattr(overview_cache, "overview", reading)
    source: Any = SimpleNamespace(digest="0" * 64, version="9.9.0", label="9.9.0")
    first, again = (overview_cache.cached_overview(source, "9.9.0", lambda done, of: None) for _ in range(2))
    assert first == again
    assert len(read) == readings
