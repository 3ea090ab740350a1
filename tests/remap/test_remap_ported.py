"""`remap` on a package with a ported denoiser: the LoRA targets are proved, and nothing else is said to hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.remap.command.ported import names

pytestmark = pytest.mark.upstream


@pytest.fixture(scope="module")
def package(scaffold_cli: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("remap") / "out"
    command = ("new", "omni_gen2", "--pipeline", "OmniGen2Pipeline", "--vllm-omni", "0.30.0", "--out", out)
    scaffold_cli(*command).success()
    return out / "verl_omni/pipelines/omni_gen2_flow_grpo"


def proof(cli: Callable[..., Any], package: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    done = cli("remap", package, "--format", "json", *options)
    return done.code, json.loads(done.out)["proof"], done.err


def test_the_packages_own_targets_hold(scaffold_cli: Callable[..., Any], package: Path) -> None:
    code, found, _ = proof(scaffold_cli, package)
    assert code == 0
    assert found.pop("lora") is True
    assert set(found.values()) == {None}
    text = scaffold_cli("remap", package).success()
    assert "8 targets name 32 of 32 linear layers" in " ".join(text.split())
    assert "the map is proved" not in text


@pytest.mark.parametrize(
    ("target", "complaint"),
    [("to_qq", "no linear layer of the ported module is called 'to_qq'"), ("linear_1", "names 'norm_out.linear_1'")],
)
def test_a_target_that_does_not_fit_fails(
    scaffold_cli: Callable[..., Any], package: Path, target: str, complaint: str
) -> None:
    code, found, said = proof(scaffold_cli, package, "--lora-targets", f"to_k,{target}")
    assert (code, found["lora"]) == (1, False)
    assert complaint in said


def test_layers_that_the_engine_does_not_have_fail(
    scaffold_cli: Callable[..., Any], package: Path, tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / package.name
    shutil.copytree(package, copy)
    file = copy / "omni_gen2_denoiser.py"
    file.write_text(file.read_text(encoding="utf-8").replace("self.to_q = ", "self.to_query = "), encoding="utf-8")
    code, found, said = proof(scaffold_cli, copy, "--lora-targets", "to_query,to_k")
    assert (code, found["lora"]) == (1, False)
    assert "the engine's OmniGen2Transformer2DModel has no linear layer" in said


def test_without_the_hook_lora_reaches_nothing(scaffold_cli: Callable[..., Any], package: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / package.name
    shutil.copytree(package, copy)
    file = copy / "vllm_omni_rollout_adapter.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("def map_lora_update_to_engine", "def map_lora"), encoding="utf-8")
    code, found, said = proof(scaffold_cli, copy)
    assert (code, found["lora"]) == (1, False)
    assert "map_lora_update_to_engine" in said


def copied(package: Path, folder: Path, *edits: tuple[str, str]) -> Path:
    """A copy of a package whose ``scaffold.toml`` was edited."""
    import re
    import shutil

    copy = folder / package.name
    shutil.copytree(package, copy)
    spec = copy / "scaffold.toml"
    text = spec.read_text(encoding="utf-8")
    for pattern, instead in edits:
        text, count = re.subn(pattern, instead, text, count=1, flags=re.DOTALL | re.MULTILINE)
        assert count == 1, pattern
    spec.write_text(text, encoding="utf-8")
    return copy


def test_nothing_proved_is_no_success(scaffold_cli: Callable[..., Any], package: Path, tmp_path: Path) -> None:
    copy = copied(package, tmp_path, (r"^targets = \[[^]]*\]$", "targets = []"))
    said = scaffold_cli("remap", copy).refusal(3)
    assert "nothing can be proved" in said
    assert "no LoRA targets are named" in said
    assert "--lora-targets" in said
    code, found, _ = proof(scaffold_cli, copy, "--lora-targets", "to_q")
    assert (code, found["lora"]) == (0, True)


def test_what_is_left_to_write_is_said(scaffold_cli: Callable[..., Any], package: Path, tmp_path: Path) -> None:
    def entry(key: str, what: str) -> str:
        rest = f'at = "a.py:1"\nwhere = "x.py"\nmessage = "port {key}"'
        return f'[[grade.missing]]\nkey = "{key}"\nwhat = "{what}"\n{rest}\n'

    more = entry("key_map", "the map from keys to parameters") + entry("lora_sync", "how LoRA reaches the layers")
    copy = copied(
        package, tmp_path, (r'^sync = "fold"', 'sync = "missing"'), (r"^missing = \[\]\n", ""), (r"\Z", f"\n{more}")
    )
    text = scaffold_cli("remap", copy).out
    assert "keys unknown: the map from keys to parameters is still to be written" in " ".join(text.split())
    assert text.splitlines()[-1] == "next: write what the package's README lists, and run this again"


def test_a_checkpoint_is_verifys_to_load(scaffold_cli: Callable[..., Any], package: Path, tmp_path: Path) -> None:
    assert "leave out --checkpoint" in scaffold_cli("remap", package, "--checkpoint", tmp_path).refusal(2)


@pytest.mark.parametrize(
    ("target", "path", "expected"),
    [
        ("to_q", ("layers", "*", "attn", "to_q"), True),
        ("q", ("layers", "*", "attn", "to_q"), False),
        ("to_out.0", ("layers", "*", "to_out", "0"), True),
        ("injector.3.to_q", ("injector", "*", "to_q"), True),
        ("injector.x.to_q", ("injector", "*", "to_q"), False),
    ],
)
def test_names_are_peft_s(target: str, path: tuple[str, ...], expected: bool) -> None:
    assert names(target, path) is expected
