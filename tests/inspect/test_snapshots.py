"""The table of all pipelines of each version: verdicts judged by hand, the other columns pinned as they are.

``OMNI_SCAFFOLD_WRITE_SNAPSHOTS=1 pytest tests/inspect/test_snapshots.py`` writes the snapshots anew; read the
difference, open the source at each changed line, and keep docs/pipelines.md in step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from synthetic import look

from scaffold.grade.models_page import VERSION as PAGE_VERSION
from scaffold.inspect.table import inspect_all, registered_classes
from scaffold.upstream import locate

pytestmark = [pytest.mark.upstream, pytest.mark.slow]
HERE = Path(__file__).parent / "snapshots"
DOCUMENT = Path(__file__).parents[2] / "docs" / "pipelines.md"
JUDGED = ("0.22.0", "0.27.0rc1", "0.30.0", "0.32.0rc1")
# Of that one docs/models.md goes through all pipelines anyway.
ALWAYS = (PAGE_VERSION,)
# In one worker: others would make the same table beside it.
EACH_JUDGED = [
    pytest.param(
        version,
        marks=[
            pytest.mark.xdist_group(f"table {version}"),
            *([] if version in ALWAYS else [pytest.mark.table]),
        ],
    )
    for version in JUDGED
]


@cache
def table(version: str) -> dict[str, Any]:
    return inspect_all(version)


def line(row: dict[str, Any]) -> str:
    """One pipeline on one line: what a change of the analyser or of the source may move."""
    verdict, scheduler, cfg, denoiser = row["verdict"], row["scheduler"], row["cfg"], row["denoiser"]
    file = (verdict["file"] or "").removeprefix("vllm_omni/").removeprefix("diffusion/").removeprefix("models/")
    parts = [
        "/".join(row["registry_keys"]),
        f"{verdict['path']} {verdict['confidence']} {file}:{verdict['line']}",
        f"{denoiser['class']}.{denoiser['method']}",
        "inline" if scheduler["inline"] else f"{scheduler['class']} {scheduler['call']} {scheduler['arguments']}",
        f"{scheduler['steps']} {scheduler['direction']} shift={scheduler['shift']} negated={scheduler['negated']}",
        f"{cfg['branches']} {cfg['execution']} {cfg['scales']} {cfg['interval']}",
    ]
    return " | ".join(parts)


@pytest.mark.parametrize("version", EACH_JUDGED)
def test_snapshot(version: str) -> None:
    rows = table(version)["pipelines"]
    lines = [line(row) for row in rows]
    path = HERE / f"{version}.txt"
    if os.environ.get("OMNI_SCAFFOLD_WRITE_SNAPSHOTS"):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == path.read_text(encoding="utf-8").splitlines()
    classes = registered_classes(locate(version))
    # One row a class, and one more for a key with which it does something else; each key in one row.
    assert sorted(k for r in rows for k in r["registry_keys"]) == sorted(k for keys in classes.values() for k in keys)
    assert [r["registry_keys"][0] for r in rows if r["registry_keys"][0] in classes] == list(classes)
    assert all(locate(version).exists(row["verdict"]["file"]) for row in rows)


@pytest.mark.parametrize("version", EACH_JUDGED)
def test_verdicts_are_those_judged_by_hand(version: str) -> None:
    """The table of docs/pipelines.md was written by hand from the sources, not from the tool's output."""
    judged = _judged(version)
    found = {row["registry_keys"][0]: row["verdict"]["path"] for row in table(version)["pipelines"]}
    assert found == judged


def _judged(version: str) -> dict[str, str]:
    rows = {}
    for text in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in text.strip("|").split("|")]
        if text.startswith("| `") and len(cells) == 2 + len(JUDGED):
            verdict = dict(zip(JUDGED, cells[1:-1], strict=True))[version]
            if verdict != "–":
                rows[cells[0].strip("`")] = verdict
    return rows


def test_the_command_prints_the_table(tmp_path: Path, scaffold_cli: Callable[..., Any]) -> None:
    look(tmp_path)
    folder = tmp_path / "vllm_omni/diffusion"
    with (folder / "models/made_up/pipeline.py").open("a") as file:
        file.write("\n\nclass OtherPipeline(MadeUpPipeline):\n    pass\n")
    registry = folder / "registry.py"
    registry.write_text(registry.read_text().replace("}", '    "Other": ("made_up", "pipeline", "OtherPipeline"),\n}'))
    shown = json.loads(scaffold_cli("inspect", "--all", "--vllm-omni", tmp_path, "--format", "json").success())
    made = inspect_all(str(tmp_path))
    plain = [{key: row[key] for key in made["pipelines"][0]} for row in shown["pipelines"]]
    assert {**shown, "pipelines": plain} == made
    assert list(shown) == ["schema", "upstream", "pipelines"]
    assert (shown["schema"], shown["upstream"]["registry_keys"]) == (1, 2)
    assert [row["registry_keys"] for row in plain] == [["MadeUpPipeline"], ["Other"]]


def test_what_the_command_refuses(scaffold_cli: Callable[..., Any]) -> None:
    assert "--all takes no PIPELINE" in scaffold_cli("inspect", "BagelPipeline", "--all").refusal()
    assert "no PIPELINE" in scaffold_cli("inspect").refusal()
