"""``checkpoint.computed`` of a spec: a parameter that the module computes, demanded by nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.spec import LOCK_NAME, IntegrationSpec, read_spec

CLI = Callable[..., Any]
TABLE = "latent_pos_embed.pos_embed"
PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
DROP = {"source": "latent_pos_embed.", "op": "drop", "reason": "computed by the module"}


@pytest.fixture
def spec_file(reference: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the golden spec with a list of computed parameters, their rule a drop."""

    def write(computed: Any, *, drop: bool = True) -> Path:
        spec = read_spec(reference / PACKAGE / "scaffold.toml").spec
        section = dict(spec.sections["checkpoint"])
        section["computed"] = computed
        if drop:
            section["rules"] = [DROP if rule["source"] == "latent_pos_embed." else rule for rule in section["rules"]]
        path = tmp_path / "spec.toml"
        made = IntegrationSpec({**spec.sections, "checkpoint": section})
        path.write_text(made.to_toml(), encoding="utf-8")
        path.with_name(LOCK_NAME).write_text(made.to_lock(), encoding="utf-8")
        return path

    return write


def render(scaffold_cli: CLI, spec: Path, out: Path) -> Path:
    scaffold_cli("new", "bagel", "--spec", spec, "--patch", "--out", out).success()
    return out


def test_it_is_neither_loaded_nor_saved_nor_sent(
    scaffold_cli: CLI, spec_file: Callable[..., Path], tmp_path: Path, kit_passes: Callable[..., None]
) -> None:
    tree = render(scaffold_cli, spec_file([TABLE]), tmp_path / "out")
    module = (tree / PACKAGE / "bagel_model.py").read_text(encoding="utf-8")
    assert f'computed=("{TABLE}",)' in module
    readme = (tree / "examples/flowgrpo_trainer/bagel/README.md").read_text(encoding="utf-8")
    assert f"| computed by the module | `{TABLE}` | |" in readme
    kit_passes(tree)


def test_a_checkpoint_that_has_it_all_the_same(
    scaffold_cli: CLI,
    spec_file: Callable[..., Path],
    tmp_path: Path,
    tiny_checkpoint: Callable[..., Path],
    kit_environment: Callable[..., dict[str, str]],
    warm_python: Callable[..., Any],
) -> None:
    tree = render(scaffold_cli, spec_file([TABLE], drop=False), tmp_path / "out")
    name = f"{PACKAGE.replace('/', '.')}.bagel_model"
    code = f"from {name} import BagelForTraining as M; M.from_pretrained({str(tiny_checkpoint())!r})"
    done = warm_python(["-c", code], env=kit_environment(tree))
    assert done.returncode != 0
    assert f"has tensors for ['{TABLE}'], which BagelForTraining computes" in done.stderr


def test_the_proof_knows_it(
    scaffold_cli: CLI,
    spec_file: Callable[..., Path],
    tmp_path: Path,
    tiny_checkpoint: Callable[..., Path],
) -> None:
    tree = render(scaffold_cli, spec_file([TABLE]), tmp_path / "out")
    given = ("remap", tree, "--format", "json", "--checkpoint")
    data = json.loads(scaffold_cli(*given, tiny_checkpoint({"time_embedder.mlp.0.weight": (96, 256)})).success())
    assert data["proof"]["fills"] is True
    assert data["counts"]["parameters"] == data["counts"]["mapped"] + 1


@pytest.mark.parametrize("computed", [["embed_tokens.weight"], [TABLE, TABLE], TABLE, [3], {"a": 1}])
def test_only_what_the_module_computes(
    computed: Any, scaffold_cli: CLI, spec_file: Callable[..., Path], tmp_path: Path
) -> None:
    line = scaffold_cli("new", "bagel", "--spec", spec_file(computed), "--patch", "--out", tmp_path / "out").refusal()
    assert "checkpoint.computed is" in line
    assert f"it must be ['{TABLE}'], all that the module computes" in line
