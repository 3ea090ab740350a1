"""``update`` says what changed by value, and in which files; what documents state follows the values."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import PACKAGE

from scaffold.spec.lock import seal

pytestmark = pytest.mark.upstream

SPEC = f"{PACKAGE}/scaffold.toml"
EXAMPLE = "examples/flowgrpo_trainer/toy"


@pytest.fixture
def out(output: Callable[..., Path], tmp_path: Path) -> Path:
    """Return a copy of a composed package."""
    return Path(shutil.copytree(output("0.27.0rc1"), tmp_path / "out", symlinks=True))


def set_value(path: Path, key: str, value: str) -> None:
    text, count = re.subn(rf"(?m)^{key} = [^#\n]*", f"{key} = {value}  ", path.read_text())
    assert count == 1
    path.write_text(text)


def changes(printed: str) -> list[str]:
    """Return the lines that name a value: those behind the tree."""
    return [
        line for line in printed.splitlines() if re.match(r"[a-z][\w.]* .+ to .+ (in|together with) [\w., ]+$", line)
    ]


def test_each_value_is_a_line_with_its_files(out: Path, scaffold_cli: Callable[..., Any]) -> None:
    set_value(out / SPEC, "cfg_text_scale", "5.0")
    set_value(out / SPEC, "learning_rate", "0.0002")
    set_value(out / SPEC, "clip_ratio", "1e-05")  # as it was
    wanted = [
        "cfg_text_scale 4.0 to 5.0 in README.md, common.py",
        "recipe.learning_rate 0.0001 to 0.0002 in README.md, run_toy_ocr_lora.sh, run_flowgrpo_toy.sh",
    ]
    assert changes(scaffold_cli("update", out, "--spec", "--dry-run").success()) == wanted
    assert changes(scaffold_cli("update", out, "--spec").success()) == wanted
    # Rendered now: the next change is told from these.
    set_value(out / SPEC, "cfg_text_scale", "6.0")
    answer = json.loads(scaffold_cli("update", out, "--spec", "--format", "json").success())
    files = [f"{EXAMPLE}/README.md", f"{PACKAGE}/common.py"]
    assert answer["values"] == [{"key": "cfg.defaults.cfg_text_scale", "old": 5.0, "new": 6.0, "files": files}]
    assert changes(scaffold_cli("update", out, "--spec").success()) == []


def test_fact_that_upstream_changed_is_said_too(
    output: Callable[..., Path], tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    out = Path(shutil.copytree(output("0.22.0"), tmp_path / "out", symlinks=True))
    printed = scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    assert "schedule.request_offset -1 to 0 in README.md, vllm_omni_rollout_adapter.py" in changes(printed)


def test_value_that_goes_with_others_alone_is_said_to_do_so(out: Path, scaffold_cli: Callable[..., Any]) -> None:
    set_value(out / SPEC, "num_inference_steps", "60")
    set_value(out / SPEC, "sde_window_range", "[20, 40]")
    printed = scaffold_cli("update", out, "--spec").success()
    assert "recipe.num_inference_steps 15 to 60 together with others" in changes(printed)
    assert (
        "recipe.sde_window_range [0, 7] to [20, 40] in README.md, run_toy_ocr_lora.sh, run_flowgrpo_toy.sh"
        in changes(printed)
    )


def test_lock_of_an_older_version_does_not_have_them(out: Path, scaffold_cli: Callable[..., Any]) -> None:
    lock = out / PACKAGE / "scaffold.lock.toml"
    lock.write_text(seal(re.sub(r"(?ms)^\[rendered\]\n.*?(?=^\[provenance\]\n)", "", lock.read_text())))
    set_value(out / SPEC, "cfg_text_scale", "5.0")
    printed = scaffold_cli("update", out, "--spec").success()
    assert "scaffold.lock.toml is of an older omni-scaffold: it does not have the values of before" in printed
    assert changes(printed) == []
    assert "[rendered.cfg.defaults]" in lock.read_text()


def test_sentences_of_a_ported_readme_follow(
    rendered: Callable[..., Path], tmp_path: Path, scaffold_cli: Callable[..., Any]
) -> None:
    source = rendered("omnigen2", "--vllm-omni", "0.30.0")
    out = Path(shutil.copytree(source, tmp_path / "out", symlinks=True))
    folder, readme = (f"{place}/omnigen2" for place in ("verl_omni/pipelines", "examples/flowgrpo_trainer"))
    spec, text = out / f"{folder}_flow_grpo/scaffold.toml", out / f"{readme}/README.md"
    told = " ".join(text.read_text().split())
    assert "of every layer: all linear layers of the denoiser's layers. Take out" in told
    assert "| its settings | `guidance_scale` `4.0` |" in told
    set_value(spec, "guidance_scale", "5.0")
    set_value(spec, "targets", '["to_q", "to_k", "to_v", "feed_forward.linear_1", "linear_3", "linear"]')
    printed = changes(scaffold_cli("update", out, "--spec").success())
    told = " ".join(text.read_text().split())
    assert "linear layers of the denoiser's layers, but not `attn.to_out.0`, `feed_forward.down_proj`. Take out" in told
    assert "| its settings | `guidance_scale` `5.0` |" in told
    assert any(line.startswith("guidance_scale 4.0 to 5.0 in README.md, common.py") for line in printed)
    assert any(line.startswith("lora.targets another to another in README.md, run_omnigen2_ocr") for line in printed)
