"""Loading counts as established only where the pipeline's own loader leaves names and tensors of the denoiser alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaffold.grade.established import Established
from scaffold.grade.loading import find_loading
from scaffold.port import Fused, Kept, Port
from scaffold.upstream.source import FolderSource

FILE = "vllm_omni/diffusion/models/small/pipeline.py"
MODEL = "vllm_omni/diffusion/models/small/model.py"
UNKNOWN = [["unknown", ""]]
PLAIN = """
def track(weights):
    for name, weight in weights:
        yield name, weight


class Pipeline:
    def load_weights(self, weights):
        return AutoWeightsLoader(self).load_weights(track(weights), mapper=self.mapper)
"""


def rule(op: str, how: str, source: str, target: str | None, file: str = FILE, line: int = 1) -> dict[str, Any]:
    return {"op": op, "how": how, "from": source, "to": target, "shard": None, "file": file, "line": line}


def loading(
    tmp_path: Path, text: str, rules: list[dict[str, Any]], renames: list[list[str]] | None = None, **port: Any
) -> tuple[str, bool]:
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    line = next(number for number, part in enumerate(text.splitlines(), 1) if "def load_weights" in part)
    values: dict[str, Any] = {"detail.checkpoint.loader_location": f"{FILE}:{line}", "detail.checkpoint.rules": rules}
    if renames != UNKNOWN:
        values["answers.checkpoint.renames"] = renames or []
    unknown = SimpleNamespace(confidence="unknown", value=None)
    report: Any = SimpleNamespace(
        fact=lambda key: SimpleNamespace(confidence="certain", value=values[key]) if key in values else unknown,
        upstream=SimpleNamespace(module="vllm_omni.diffusion.models.small.pipeline"),
    )
    given = {
        "kept": Kept("vllm_omni.diffusion.models.small.pipeline", "Pipeline", "transformer"),
        "builder": "build_denoiser",
        "streamed": True,
        "loader_lines": ((MODEL, 10, 20),),
    }
    made = Port("", "", "Model", (), (), (), (), **{**given, **port})
    found = find_loading(Established(report, made), FolderSource(tmp_path, "9.9.9", "9.9.9"))
    return found.attribute, found.established


def test_rules_of_the_denoiser_and_of_other_components_are_no_matter(tmp_path: Path) -> None:
    rules = [
        rule("rename", "contains", ".old.", ".new.", MODEL, 12),
        rule("stacked", "contains", ".to_q.", ".to_qkv.", MODEL, 3),
        rule("rename", "prefix", "encoder.model.", "encoder."),
        rule("skip", "prefix", "lm_head.", None),
    ]
    assert loading(tmp_path, PLAIN, rules) == ("transformer", True)


@pytest.mark.parametrize(
    "found",
    [
        rule("rename", "contains", ".old.", ".new."),
        rule("rename", "prefix", "transformer.old.", "transformer.new."),
        rule("rename", "prefix", "trans", "transformer."),
        rule("rename", "prefix", "", "transformer."),
        rule("skip", "prefix", "transformer.extra.", None),
        rule("skip", "suffix", ".scale", None),
    ],
)
def test_a_rule_that_may_touch_the_denoiser(tmp_path: Path, found: dict[str, Any]) -> None:
    assert loading(tmp_path, PLAIN, [found]) == ("transformer", False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("yield name, weight", "yield name, weight.t()"),
        ("yield name, weight", "yield 'transformer.' + name, weight"),
        ("        yield name", "        weight = weight.float()\n        yield name"),
        ("load_weights(track(weights)", "load_weights(((n, w.t()) for n, w in weights)"),
    ],
)
def test_a_loader_that_changes_what_it_hands_on(tmp_path: Path, old: str, new: str) -> None:
    assert loading(tmp_path, PLAIN.replace(old, new), []) == ("transformer", False)


@pytest.mark.parametrize(
    ("cut", "established"),
    [
        ("n.removeprefix('transformer.')", True),
        ("n[len('transformer.'):]", True),
        ("n[12:]", True),
        ("n.removeprefix('net.')", False),
        ("n[4:]", False),
        ("n.removeprefix('transformer.').lower()", False),
    ],
)
def test_the_denoisers_prefix_may_be_cut_before_its_own_loader(tmp_path: Path, cut: str, established: bool) -> None:
    handed = f"self.transformer.load_weights(({cut}, w) for n, w in weights)"
    text = f"class Pipeline:\n    def load_weights(self, weights):\n        return {handed}\n"
    assert loading(tmp_path, text, [rule("rename", "prefix", "transformer.", "")]) == ("transformer", established)


def test_what_the_pipeline_loads_by_itself_passes_no_loader(tmp_path: Path) -> None:
    assert loading(tmp_path, PLAIN.replace("yield name, weight", "yield name, -weight"), [], streamed=False) == (
        "transformer",
        True,
    )


def test_nothing_is_known_without_a_builder_or_a_place(tmp_path: Path) -> None:
    assert loading(tmp_path, PLAIN, [], builder="") == ("transformer", False)
    assert loading(tmp_path / "again", PLAIN, [], kept=None) == ("", False)


def test_names_that_cannot_be_followed_may_be_the_denoisers(tmp_path: Path) -> None:
    assert loading(tmp_path, PLAIN, [], UNKNOWN) == ("transformer", False)


PLACES = """
class Pipeline:
    def load_weights(self, weights):
        found = dict(self.named_parameters())
        for name, weight in weights:
            for whole, part, shard in self.rows:
                if part not in name:
                    continue
                name = name.replace(part, whole)
                found[name].weight_loader(found[name], weight, shard)
                break
            else:
                default_weight_loader(found[name], weight)
"""
ROW = rule("stacked", "contains", ".mlp.gate", ".mlp.gate_up", FILE, 3)


def fused(*parts: str) -> dict[str, Any]:
    return {"fused": (Fused("Block", "gate_up", parts),)}


def test_rows_of_stacked_parameters_are_the_names_of_the_port(tmp_path: Path) -> None:
    assert loading(tmp_path, PLACES, [ROW], **fused("gate", "up")) == ("transformer", True)
    assert loading(tmp_path / "none", PLACES, [ROW]) == ("transformer", True)  # another component's, then
    assert loading(tmp_path / "whole", PLACES, [ROW], **fused("w1", "w2")) == ("transformer", False)
    moved = rule("stacked", "contains", ".old.gate", ".mlp.gate_up", FILE, 3)
    assert loading(tmp_path / "moved", PLACES, [moved], **fused("gate", "up")) == ("transformer", False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name.replace(part, whole)", "name.replace(whole, part)"),
        ("name.replace(part, whole)", "name.replace('old', whole)"),
        ("(found[name], weight, shard)", "(found[name], weight.t(), shard)"),
        ("(found[name], weight)", "(found[name], weight.chunk(2)[0])"),
    ],
)
def test_a_loader_that_places_weights_otherwise(tmp_path: Path, old: str, new: str) -> None:
    assert loading(tmp_path, PLACES.replace(old, new), [ROW], **fused("gate", "up")) == ("transformer", False)
