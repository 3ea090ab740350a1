"""``new`` from a checkpoint that keeps q/k/v and gate/up fused, as upstream's engine does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from small_checkpoint import LAYERS, LLM_CONFIG, ROOT_CONFIG, first_layers

pytestmark = pytest.mark.upstream

CLI = Callable[..., Any]
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
REAL: dict[str, Any] = {
    **LLM_CONFIG,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
}
CHECKS = ("covers", "fills", "injective", "no_dead_rule", "invertible", "shapes")


def fused_name(name: str) -> str:
    """Return what upstream's engine packs a tensor into; the image encoder's stay as they are."""
    if not name.startswith("language_model."):
        return name
    name = re.sub(r"self_attn\.[qkv]_proj_moe_gen\.", "self_attn.qkv_proj.gen_exp.", name)
    name = re.sub(r"self_attn\.[qkv]_proj\.", "self_attn.qkv_proj.", name)
    return re.sub(r"\.(gate|up)_proj\.", ".gate_up_proj.", name)


@pytest.fixture
def fused(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a fused checkpoint of the released sizes, with few layers and without data."""

    def write(change: dict[str, list[int]] | None = None, text: Any = REAL) -> Path:
        shapes: dict[str, list[int]] = {}
        for name, shape in first_layers().items():
            whole = fused_name(name)
            if whole == name:
                shapes[name] = list(shape)
            else:
                shapes.setdefault(whole, [0, *shape[1:]])[0] += shape[0]
        header, position = {}, 0
        for name, sizes in {**shapes, **(change or {})}.items():
            end = position + 2 * prod(sizes)
            header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [position, end]}
            position = end
        folder = tmp_path / "fused"
        folder.mkdir()
        raw = json.dumps(header).encode()
        with (folder / "ema.safetensors").open("wb") as stream:
            stream.write(len(raw).to_bytes(8, "little") + raw)
            stream.truncate(8 + len(raw) + position)
        (folder / "llm_config.json").write_text(json.dumps(text))
        (folder / "config.json").write_text(json.dumps({**ROOT_CONFIG, "max_latent_size": 64}))
        return folder

    return write


def test_it_is_split_in_upstream_s_order(
    scaffold_cli: CLI, fused: Callable[..., Path], tmp_path: Path, kit_passes: Callable[..., None]
) -> None:
    checkpoint, out = fused(), tmp_path / "out"
    printed = scaffold_cli("new", "bagel", "--checkpoint", checkpoint, "--patch", "--out", out).success()
    assert re.search(r"key remap +5 renames, 4 splits, \d+ drops", printed), printed
    data = json.loads(scaffold_cli("remap", out, "--checkpoint", checkpoint, "--format", "json").success())
    assert [check for check in CHECKS if data["proof"][check] is not True] == []
    assert data["counts"]["parameters"] == 96
    splits = {rule["from"]: rule["to"] for rule in data["rules"] if isinstance(rule["to"], list)}
    layer = "language_model.model.layers.{n}."
    assert splits == {
        f"{layer}self_attn.qkv_proj.": [f"layers.{{n}}.self_attn.{side}_proj." for side in "qkv"],
        f"{layer}self_attn.qkv_proj.gen_exp.": [f"layers.{{n}}.self_attn.{side}_proj_moe_gen." for side in "qkv"],
        f"{layer}mlp.gate_up_proj.": [f"layers.{{n}}.mlp.{side}_proj." for side in ("gate", "up")],
        f"{layer}mlp_moe_gen.gate_up_proj.": [f"layers.{{n}}.mlp_moe_gen.{side}_proj." for side in ("gate", "up")],
    }
    kit_passes(out)


def test_rows_that_do_not_go_into_heads(scaffold_cli: CLI, fused: Callable[..., Path], tmp_path: Path) -> None:
    name = "language_model.model.layers.0.self_attn.qkv_proj.weight"
    line = scaffold_cli(
        "new", "bagel", "--checkpoint", fused({name: [4607, 3584]}), "--patch", "--out", tmp_path / "out"
    )
    assert f"'{name}' has 4607 rows, which do not go into 28 + 4 + 4 equal parts" in line.refusal()


def test_heads_that_the_rows_contradict(scaffold_cli: CLI, fused: Callable[..., Path], tmp_path: Path) -> None:
    text = {**REAL, "num_attention_heads": 28, "num_key_value_heads": 14}
    line = scaffold_cli(
        "new", "bagel", "--checkpoint", fused(text=text), "--patch", "--out", tmp_path / "out"
    ).refusal()
    assert "which do not go into 28 + 14 + 14 equal parts" in line
