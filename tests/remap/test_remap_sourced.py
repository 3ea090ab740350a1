"""What upstream's loader says, read from altered copies: skips with their line, and nothing that is not certain."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.checkpoint import CheckpointHeaders
from scaffold.inspect import inspect_pipeline
from scaffold.remap import SourceRules, infer_key_map
from scaffold.remap.sourced import SourceRule
from scaffold.upstream import locate

pytestmark = pytest.mark.upstream
FILE = "vllm_omni/diffusion/models/bagel/pipeline_bagel.py"
LOOP = "            for name, tensor in weights:\n                total += 1\n"
Shapes = dict[str, tuple[int, ...]]


@pytest.fixture
def rules_of(tmp_path: Path) -> Callable[[str], tuple[SourceRules, int]]:
    """Return a function that adds lines to the pipeline's own loop over weights and reads the rules again."""
    path = Path(__file__).resolve().parents[1] / "inspect/altered.py"
    spec = importlib.util.spec_from_file_location("upstream_copies", path)
    assert spec is not None
    assert spec.loader is not None
    copies: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copies)

    def read(lines: str) -> tuple[SourceRules, int]:
        source = locate("0.27.0rc1")
        copy = copies.Copy(source, tmp_path / "upstream")
        added = "".join(f"                {line}\n" for line in lines.splitlines())
        copy.replace(FILE, LOOP, LOOP + added)
        text = source.read(FILE)
        first = text[: text.index(LOOP) + len(LOOP)].count("\n") + 1
        return SourceRules.of(inspect_pipeline(locate(str(tmp_path / "upstream")), "bagel")), first

    return read


def test_a_skip_is_cited_with_its_line(
    rules_of: Callable[[str], tuple[SourceRules, int]], real: CheckpointHeaders, parameters: Shapes
) -> None:
    rules, line = rules_of(
        'if name.startswith("vit_model.") or name.endswith("lm_head.weight"):\n    logger.debug("no")\n    continue'
    )
    found = [(rule.how, rule.source, rule.line) for rule in rules.rules if rule.op == "skip"]
    assert found == [("prefix", "vit_model.", line + 2), ("suffix", "lm_head.weight", line + 2)]
    key_map = infer_key_map(real, parameters, source=rules, drop_reasons={"vit_model.": "sees"})
    reasons = {rule.source: rule.reason for rule in key_map.rules if rule.op == "drop"}
    assert reasons["vit_model."] == f"sees; skipped by upstream's loader ({FILE}:{line + 2})"
    assert reasons["language_model.lm_head."] == f"skipped by upstream's loader ({FILE}:{line + 2})"


@pytest.mark.parametrize(
    "lines",
    [
        # It may take the weight, something else decides too, or the name is another by then.
        'if name.startswith("vit_model."):\n    kept += 1\n    continue',
        'if name.startswith("vit_model.") and total > 3:\n    continue',
        'name = "x." + name\nif name.startswith("vit_model."):\n    continue',
        'if total > 3:\n    if name.startswith("vit_model."):\n        continue',
    ],
)
def test_what_is_not_certain_is_no_skip(lines: str, rules_of: Callable[[str], tuple[SourceRules, int]]) -> None:
    rules, _ = rules_of(lines)
    assert [rule for rule in rules.rules if rule.op == "skip"] == []
    assert rules.stacked


@pytest.mark.parametrize(
    ("how", "name", "renamed"),
    [
        ("equal", "a.b", "c"),
        ("equal", "x.a.b", "x.a.b"),
        ("suffix", "a.b.a.b", "a.b.c"),
        ("suffix", "a.b.x", "a.b.x"),
        ("prefix", "a.b.a.b", "c.a.b"),
        ("contains", "x.a.b.y", "x.c.y"),
    ],
)
def test_a_rename_is_applied_where_it_looks(how: str, name: str, renamed: str) -> None:
    assert SourceRules((SourceRule("rename", how, "a.b", "c"),)).upstream_name(name) == renamed
