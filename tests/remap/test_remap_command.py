"""``omni-scaffold remap`` on the worked example: the proof holds, and each way to break it is named, exit code 1."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

Shapes = dict[str, tuple[int, ...]]
CLI = Callable[..., Any]
LAYER = "language_model.model.layers.3."
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
TEXT = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
}
CHECKS = ("covers", "fills", "injective", "no_dead_rule", "invertible", "shapes")


@pytest.fixture
def package(reference: Path, tmp_path: Path) -> Path:
    """Return a copy of the rendered package whose vllm-omni cannot be had: the first two sides of the proof alone."""
    folder = tmp_path / "package"
    shutil.copytree(reference / PACKAGE, folder)
    edit(folder, 'version = "0.27.0rc1"', 'version = "from nowhere"')
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[Shapes], Path]:
    """Return a function that writes a checkpoint of real size without data."""

    def write(shapes: Shapes) -> Path:
        folder = tmp_path / "checkpoint"
        folder.mkdir(exist_ok=True)
        header, position = {}, 0
        for name, shape in shapes.items():
            end = position + 2 * prod(shape)
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [position, end]}
            position = end
        raw = json.dumps(header).encode()
        with (folder / "ema.safetensors").open("wb") as stream:
            stream.write(len(raw).to_bytes(8, "little") + raw)
            stream.truncate(8 + len(raw) + position)
        (folder / "llm_config.json").write_text(json.dumps(TEXT))
        (folder / "config.json").write_text(json.dumps({"vae_config": {"z_channels": 16, "downsample": 8}}))
        return folder

    return write


def edit(folder: Path, old: str, new: str, file: str = "scaffold.toml", count: int = 1) -> None:
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="utf-8")


def add_rule(folder: Path, *rules: str) -> None:
    """Write rules before those of the spec; the module's table stays as it was."""
    edit(folder, "[[checkpoint.rules]]", "\n".join(rules) + "\n[[checkpoint.rules]]")


def rename(source: str, target: str) -> str:
    return f'[[checkpoint.rules]]\nsource = "{source}"\ntarget = "{target}"\nop = "rename"\n'


def failed(outcome: Any) -> tuple[set[str], str]:
    """Return the checks that do not hold, by the JSON on stdout, and what stderr names."""
    assert outcome.code == 1, outcome.err
    data = json.loads(outcome.out)
    assert list(data) == ["schema", "counts", "rules", "proof", "entries"]
    assert set(data["proof"]) == {*CHECKS, "engine", "lora"}
    return {check for check, holds in data["proof"].items() if holds is False}, outcome.err


@pytest.mark.upstream
def test_it_holds_with_all_three_sides(scaffold_cli: CLI, reference: Path, real: Any) -> None:
    outcome = scaffold_cli("remap", reference / PACKAGE, "--format", "json")
    data = json.loads(outcome.success())
    assert data["schema"] == 1
    assert data["proof"] == {**dict.fromkeys(CHECKS, True), "engine": True, "lora": True}
    assert data["counts"] == {
        "checkpoint": 1223,
        "mapped": 796,
        "ignored": 427,
        "unexplained": 0,
        "parameters": 796,
        "unfilled": 0,
    }
    assert {entry["source"] for entry in data["entries"]} == set(real.tensors)
    assert all(list(entry) == ["source", "target", "shape", "dtype", "op"] for entry in data["entries"])


@pytest.mark.upstream
def test_a_pipeline_is_inferred(scaffold_cli: CLI, keys: Shapes, checkpoint: Callable[[Shapes], Path]) -> None:
    text = scaffold_cli("remap", "bagel", "--vllm-omni", "0.27.0rc1").success()
    assert "no --checkpoint" in text
    assert "language_model.model.layers.{0..27}.mlp.up_proj.weight" in text
    assert re.search(r"rules of upstream's loader that match no key here .*\n  module\. \(vllm_omni/.*:\d+\)", text)
    assert text.splitlines()[-2] == "nothing speaks against the map; unknown: lora"
    lost = {name: shape for name, shape in keys.items() if name != f"{LAYER}mlp_moe_gen.up_proj.weight"}
    outcome = scaffold_cli(
        *("remap", "BagelPipeline", "--checkpoint", checkpoint(lost), "--vllm-omni", "0.27.0rc1", "--format", "json")
    )
    checks, said = failed(outcome)
    assert checks == {"fills"}
    assert "'layers.3.mlp_moe_gen.up_proj.weight'" in said


def test_a_checkpoint_of_real_sizes(
    scaffold_cli: CLI, package: Path, keys: Shapes, checkpoint: Callable[[Shapes], Path]
) -> None:
    outcome = scaffold_cli("remap", package, "--checkpoint", checkpoint(keys))
    text = outcome.success()
    assert "1223 keys: 796 mapped, 427 ignored, 0 unexplained; 796 parameters, 0 unfilled" in text
    assert "engine and lora unknown" in text
    assert text.splitlines()[-2] == "nothing speaks against the map; unknown: engine, lora"
    assert "defaults" not in text


@pytest.mark.parametrize(
    ("change", "checks", "message"),
    [
        (
            lambda keys: keys.pop(f"{LAYER}mlp.up_proj.weight"),
            {"fills"},
            r"fills: no key fills the parameter 'layers\.3\.mlp\.up_proj\.weight' of shape \[18944, 3584\]",
        ),
        (
            lambda keys: keys.update({f"{LAYER}mlp.extra.weight": (2, 2)}),
            {"covers"},
            r"covers: .*layers\.3\.mlp\.extra\.weight' becomes 'layers\.3\.mlp\.extra\.weight', which is no parameter",
        ),
        (
            lambda keys: keys.update({f"{LAYER}mlp.up_projection.weight": keys.pop(f"{LAYER}mlp.up_proj.weight")}),
            {"covers", "fills"},
            r"fills: .*'layers\.3\.mlp\.up_proj\.weight'.* nearest unmatched name of that shape is "
            r"'language_model\.model\.layers\.3\.mlp\.up_projection\.weight'",
        ),
        (
            lambda keys: keys.update({f"{LAYER}mlp.up_proj.weight": (18944, 3583)}),
            {"shapes"},
            r"shapes: .*layers\.3\.mlp\.up_proj\.weight' has shape \[18944, 3583\], its parameter .*\[18944, 3584\]",
        ),
        (
            lambda keys: keys.update({"language_model.model.vae2llm.bias": (3584,)}),
            {"injective"},
            r"injective: 'vae2llm\.bias' and 'language_model\.model\.vae2llm\.bias' both become 'vae2llm\.bias'",
        ),
        (
            lambda keys: [keys.pop(name) for name in list(keys) if name.startswith("connector.")],
            {"no_dead_rule"},
            r"no_dead_rule: the rule 'connector\.' matches no key",
        ),
    ],
    ids=["removed", "added", "renamed", "reshaped", "target twice", "dead rule"],
)
def test_a_checkpoint_that_does_not_fit(
    change: Callable[[Shapes], Any],
    checks: set[str],
    message: str,
    scaffold_cli: CLI,
    package: Path,
    keys: Shapes,
    checkpoint: Callable[[Shapes], Path],
) -> None:
    altered = dict(keys)
    change(altered)
    outcome = scaffold_cli("remap", package, "--checkpoint", checkpoint(altered), "--format", "json")
    found, said = failed(outcome)
    assert found == checks
    assert re.search(message, said), said


@pytest.mark.parametrize(
    ("rules", "check", "message"),
    [
        (
            (
                rename("language_model.model.layers.{n}.mlp.gate_proj.", "layers.{n}.mlp.up_proj."),
                rename("language_model.model.layers.{n}.mlp.up_proj.", "layers.{n}.mlp.gate_proj."),
            ),
            "engine",
            r"engine: 'language_model\.model\.layers\.\d+\.mlp\.gate_proj\.weight' becomes "
            r"'layers\.\d+\.mlp\.up_proj\.weight', whose name .*mlp\.up_proj\.weight' bears.*look exchanged",
        ),
        (
            (
                rename("language_model.model.norm.", "norm_moe_gen."),
                rename("language_model.model.norm_moe_gen.", "norm."),
            ),
            "engine",
            r"engine: 'language_model\.model\.norm\.weight' becomes 'norm_moe_gen\.weight', whose name .* exchanged",
        ),
        ((rename("vae2llm.", "llm2vae."),), "injective", r"injective: .*both become 'llm2vae\.(weight|bias)'"),
        ((rename("audio.", "audio."),), "no_dead_rule", r"no_dead_rule: the rule 'audio\.' matches no key"),
    ],
    ids=["gate and up", "two norms", "target twice", "dead rule"],
)
def test_rules_of_the_spec_that_are_wrong(
    rules: tuple[str, ...], check: str, message: str, scaffold_cli: CLI, package: Path
) -> None:
    add_rule(package, *rules)
    found, said = failed(scaffold_cli("remap", package, "--format", "json"))
    assert check in found
    assert re.search(message, said), said
    assert "have other rules" in said
    text = scaffold_cli("remap", package)
    assert text.code == 1
    assert re.search(r"the map does not hold: .*\b" + check, text.out)


def test_a_table_of_the_module_that_was_edited(scaffold_cli: CLI, package: Path) -> None:
    edit(package, '("vae2llm.", "vae2llm.")', '("vae2llm.", "llm2vae.")', "bagel_model.py")
    edit(package, '("llm2vae.", "llm2vae.")', '("llm2vae.", "vae2llm.")', "bagel_model.py")
    found, said = failed(scaffold_cli("remap", package, "--format", "json"))
    assert {"covers", "shapes"} <= found
    assert "bagel_model.py and scaffold.toml have other rules for 'llm2vae.'" in said or "'vae2llm.'" in said
    assert re.search(r"shapes: bagel_model\.py: 'vae2llm\.weight' has shape \[3584, 64\]", said), said


def test_the_table_of_the_readme_is_the_same_data(scaffold_cli: CLI, reference: Path, package: Path) -> None:
    readme = (reference / "examples/flowgrpo_trainer/bagel/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`|]+?)…?` \| (?:`([^`|]+)`|not loaded: ([^|]+?)) \| (\d+) \|$", readme, re.M)
    data = json.loads(scaffold_cli("remap", package, "--format", "json").out)
    drops = {rule["from"]: rule["matches"] for rule in data["rules"] if rule["to"] is None}
    assert {source: int(count) for source, target, _, count in rows if not target} == drops
    mapped = {entry["source"]: entry["target"] for entry in data["entries"] if entry["target"] is not None}
    spread = {}
    for source, target, _, _ in rows:
        if target:
            spread.update(zip(unfolded(source), unfolded(target), strict=True))
    assert spread == mapped


def unfolded(pattern: str) -> list[str]:
    """Return the names that a folded one stands for."""
    found = re.search(r"\{([^}]+)\}", pattern)
    if found is None:
        return [pattern]
    numbers: list[int] = []
    for part in found[1].split(","):
        first, _, last = part.partition("..")
        numbers += range(int(first), int(last or first) + 1)
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [name for number in numbers for name in unfolded(f"{before}{number}{after}")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("./nowhere",), "there is no package at ./nowhere"),
        ((".",), "has no scaffold.toml"),
        (("bagel", "--checkpoint", ""), "--checkpoint is empty"),
        (("bagel", "--checkpoint", "./nothing"), "no such folder here: ./nothing"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], message: str, scaffold_cli: CLI, tmp_path: Path) -> None:
    assert message in scaffold_cli("remap", *arguments, cwd=tmp_path).refusal()


def test_a_rule_that_is_malformed(scaffold_cli: CLI, package: Path) -> None:
    add_rule(package, '[[checkpoint.rules]]\nsource = "a."\nop = "split"\nparts = ["b."]\n')
    assert "takes two to 64 different parts" in scaffold_cli("remap", package).refusal()


def test_a_module_that_is_no_python(scaffold_cli: CLI, package: Path) -> None:
    (package / "bagel_model.py").write_text("class (:\n")
    assert re.search(r"bagel_model\.py:1 is not Python", scaffold_cli("remap", package).refusal())
