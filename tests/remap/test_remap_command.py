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
    edit(folder, "\nrules = [\n", "\nrules = [\n" + "".join(f"    {rule},\n" for rule in rules))


def rename(source: str, target: str) -> str:
    return f'{{ source = "{source}", target = "{target}", op = "rename" }}'


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
    assert {"from": "language_model.model.", "to": "", "matches": 787} in data["rules"]
    assert {"from": "vit_model.", "to": None, "matches": 421} in data["rules"]
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
            lambda keys: keys.update({"new.weight": (2, 2)}),
            {"covers"},
            r"covers: no rule matches the checkpoint key 'new\.weight'",
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
    ids=["removed", "added", "without a rule", "renamed", "reshaped", "target twice", "dead rule"],
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
    assert said.startswith("covers: bagel_model.py is not rendered from these rules yet: ")
    text = scaffold_cli("remap", package)
    assert text.code == 1
    assert "correct [checkpoint] in scaffold.toml and run `omni-scaffold update" in text.out.splitlines()[-1]
    assert re.search(r"the map does not hold: .*\b" + check, text.out)


def test_a_table_of_the_module_that_was_edited(scaffold_cli: CLI, package: Path) -> None:
    edit(package, '("vae2llm.", "vae2llm.")', '("vae2llm.", "llm2vae.")', "bagel_model.py")
    edit(package, '("llm2vae.", "llm2vae.")', '("llm2vae.", "vae2llm.")', "bagel_model.py")
    outcome = scaffold_cli("remap", package, "--format", "json")
    found, said = failed(outcome)
    assert {"covers", "shapes"} <= found
    cause, more = said.splitlines()
    assert re.fullmatch(
        r'covers: bagel_model\.py:\d+: \("llm2vae\.", "vae2llm\."\), \("vae2llm\.", "llm2vae\."\) stands here, and .*',
        cause,
    )
    assert more == "all else follows from it, or shows only once it is mended: 4 of shapes, 4 of invertible"
    # The map is that of the code.
    targets = {entry["source"]: entry["target"] for entry in json.loads(outcome.out)["entries"]}
    assert targets["vae2llm.bias"] == "llm2vae.bias"


def test_a_table_that_was_broken_is_one_cause_and_the_advice_works(scaffold_cli: CLI, package: Path) -> None:
    edit(package, '("language_model.model.", "")', '("language_model.modl.", "")', "bagel_model.py")
    outcome = scaffold_cli("remap", package)
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert lines[1] == "1223 keys: 9 mapped, 427 ignored, 787 unexplained; 796 parameters, 787 unfilled"
    row, good = '("language_model.modl.", "")', '("language_model.model.", "")'
    number = (package / "bagel_model.py").read_text().splitlines().index(f"    {row},") + 1
    assert lines[-4] == f"covers: bagel_model.py:{number}: {row} stands here, and {good} in scaffold.toml"
    assert (
        lines[-3]
        == "all else follows from it, or shows only once it is mended: 787 of covers, 1 of no_dead_rule, 787 of fills"
    )
    assert lines[-1] == f"next: put {good} back in bagel_model.py, line {number}"
    edit(package, row, good, "bagel_model.py")
    assert "787 unfilled" not in scaffold_cli("remap", package).success()


def test_a_table_with_a_row_of_its_own_that_holds(scaffold_cli: CLI, package: Path) -> None:
    row = '("language_model.model.norm.", "norm.")'
    edit(
        package,
        '    ("language_model.model.", ""),',
        f'    ("language_model.model.", ""),\n    {row},',
        "bagel_model.py",
    )
    outcome = scaffold_cli("remap", package)
    assert outcome.code == 1
    assert f"{row} is no rule of scaffold.toml\n" in outcome.out
    assert "follows from it" not in outcome.out
    assert f"next: take {row} out in bagel_model.py" in outcome.out
    assert (
        f"or make the same change in [[checkpoint.rules]] of scaffold.toml, and run `omni-scaffold update {package}"
        in (outcome.out)
    )
    edit(package, f"{row},\n", "\n", "bagel_model.py")
    scaffold_cli("remap", package).success()


IGNORED = '("connector.", "image understanding, not used for image generation")'


def started(package: Path, table: str) -> int:
    text = (package / "bagel_model.py").read_text(encoding="utf-8")
    return text[: text.index(f"{table}: tuple")].count("\n") + 1


def test_the_advice_names_the_table_that_a_row_goes_into(scaffold_cli: CLI, package: Path) -> None:
    edit(package, f"    {IGNORED},\n", "", "bagel_model.py")
    outcome = scaffold_cli("remap", package)
    at = started(package, "IGNORED_KEYS")
    assert f"covers: bagel_model.py:{at}: scaffold.toml has {IGNORED}, which is missing here" in outcome.out
    assert outcome.out.endswith(f"next: put {IGNORED} back into IGNORED_KEYS in bagel_model.py, line {at}\n")


def test_a_row_that_hides_another_is_to_be_taken_out(scaffold_cli: CLI, package: Path) -> None:
    row = '("time_embedder.", "not needed")'
    edit(package, f"    {IGNORED},\n", f"    {IGNORED},\n    {row},\n", "bagel_model.py")
    outcome = scaffold_cli("remap", package)
    assert f'{row} stands here and hides ("time_embedder.", "time_embedder.") of scaffold.toml' in outcome.out
    assert f"next: take {row} out of IGNORED_KEYS in bagel_model.py, line " in outcome.out
    # Moved from one table to the other, both have to be mended.
    edit(package, '    ("time_embedder.", "time_embedder."),\n', "", "bagel_model.py")
    outcome = scaffold_cli("remap", package)
    advice = f'take {row} out of IGNORED_KEYS, and put ("time_embedder.", "time_embedder.") back into KEY_MAP'
    assert f"next: {advice} in bagel_model.py, line " in outcome.out


def test_a_table_that_lost_a_row(scaffold_cli: CLI, package: Path) -> None:
    edit(package, '    ("vae2llm.", "vae2llm."),\n', "", "bagel_model.py")
    outcome = scaffold_cli("remap", package)
    assert 'scaffold.toml has ("vae2llm.", "vae2llm."), which is missing here' in outcome.out
    assert "2 unexplained; 796 parameters, 2 unfilled" in outcome.out


def test_a_spec_that_is_wrong_beside_a_table_that_is_right(scaffold_cli: CLI, package: Path) -> None:
    edit(package, 'source = "llm2vae.", target = "llm2vae."', 'source = "llm2va.", target = "llm2vae."')
    (package / "bagel_model.py").write_text((package / "bagel_model.py").read_text() + "# Ours.\n")
    outcome = scaffold_cli("remap", package)
    assert "1223 keys: 796 mapped, 427 ignored, 0 unexplained; 796 parameters, 0 unfilled" in outcome.out
    assert "next: give [[checkpoint.rules]] in scaffold.toml the rules of the code, then run " in outcome.out


def test_tables_that_cannot_be_read_are_said_to_be(scaffold_cli: CLI, package: Path) -> None:
    edit(package, '("language_model.model.", "")', '("language_model.model.", "", 3)', "bagel_model.py")
    outcome = scaffold_cli("remap", package)
    assert outcome.code == 1
    assert "bagel_model.py has no tables of rules that can be read; these counts are scaffold.toml's" in outcome.out
    assert "as plain tables into bagel_model.py again" in outcome.out.splitlines()[-1]


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
    add_rule(package, '{ source = "a.", op = "split", parts = ["b."] }')
    assert "takes two to 64 different parts" in scaffold_cli("remap", package).refusal()


def test_a_module_that_is_no_python(scaffold_cli: CLI, package: Path) -> None:
    (package / "bagel_model.py").write_text("class (:\n")
    assert re.search(r"bagel_model\.py:1 is not Python", scaffold_cli("remap", package).refusal())
