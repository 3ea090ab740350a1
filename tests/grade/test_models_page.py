"""docs/models.md: current, and what its grades say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scaffold.grade.models_page import VERSION, model_name, models_page
from scaffold.render import derive_names
from scaffold.upstream import locate
from scaffold.upstream.registry import read_registry

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.mark.upstream
@pytest.mark.slow
def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == models_page(locate(VERSION)), "run `make docs`"


@pytest.mark.upstream
def test_page_has_every_pipeline_once() -> None:
    text = PAGE.read_text(encoding="utf-8")
    registry = read_registry(locate(VERSION))
    first = {entry: key for key, entry in reversed(registry.items())}
    for key in first.values():
        rows = [line for line in text.splitlines() if line.startswith((f"| `{key}` |", f"| [`{key}`]"))]
        assert len(rows) == 1, key


def test_readme_has_the_same_numbers() -> None:
    page, readme = (path.read_text(encoding="utf-8") for path in (PAGE, PAGE.parents[1] / "README.md"))
    counts = {grade.lower(): int(count) for grade, count in re.findall(r"^## (\w+) \((\d+)\)$", page, re.MULTILINE)}
    left = sum(counts.values()) - counts["diffusers"]
    assert f"Of the {sum(counts.values())} pipelines of vllm-omni {VERSION}, {counts['diffusers']} are" in readme
    assert f"Of the other {left}:" in readme
    for grade in ("complete", "unproven", "partial", "refused"):
        assert f"| `{grade}` | {counts[grade]} |" in readme


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("OmniGen2Pipeline", "omni_gen2"),
        ("AuKPipeline", "au_k"),
        ("HunyuanImage3ForCausalMM", "hunyuan_image3_for_causal_mm"),
    ],
)
def test_model_names_are_names(key: str, name: str) -> None:
    assert model_name(key) == name
    assert derive_names(name).model == name
