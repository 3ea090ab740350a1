"""What makes a package known beside the registry: the groups of smoke tests and the page of models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.plan.models_page import ModelsPageEdit
from scaffold.plan.runner import SmokeGroupEdit

CHECKOUT = Path(os.environ.get("VERL_OMNI_SRC", "/nonexistent"))
SCRIPT = "examples/flowgrpo_trainer/toy/run_toy_ocr_lora.sh"
GROUPS = SmokeGroupEdit("g.py", ("tests/special_e2e/build_toy_tiny_random.py", "examples/flowgrpo_trainer/toy/**"))
PAGE = ModelsPageEdit(
    "m.md",
    "Diffusion Image Models",
    "Toy",
    (("Rollout", "`ToyPipeline` of vLLM-Omni 0.30.0"),),
    (("Flow-GRPO (LoRA)", SCRIPT, "4×GPU"),),
)
TABLE = """\
GROUPS = {
    "ci-e2e-diffusion": 4,
}
GROUP_PATTERNS = {
    "ci-core": (
        "a/**",
    ),
    "ci-e2e-diffusion": (
        "b/**",
    ),
}
"""
MODELS = """\
# Models

## Diffusion Image Models

### One

Text.

---

## Diffusion Video Models
"""


@pytest.mark.parametrize("source", [TABLE, TABLE.replace('    "ci-core": (\n        "a/**",\n    ),\n', "")])
def test_patterns_stand_in_the_group_of_diffusion_once(source: str) -> None:
    added = GROUPS.apply(source)
    entries = "".join(f'        "{pattern}",\n' for pattern in GROUPS.patterns)
    assert added == source.replace('"b/**",\n', f'"b/**",\n{entries}')
    assert GROUPS.apply(added) == added
    assert GROUPS.revert(added) == source
    assert GROUPS.revert(source) == source


@pytest.mark.parametrize(("word", "narrow"), [("*omni*", "*omni[!g]*"), ("*omni[!v]*", "*omni[!gv]*")])
def test_a_word_of_another_group_does_not_take_the_packages_tests(word: str, narrow: str) -> None:
    table = TABLE.replace('"a/**"', f'"tests/special_e2e/{word}",\n        "tests/special_e2e/*thinker*"')
    files = ("tests/special_e2e/create_dummy_omnigen2_data.py", "tests/special_e2e/run_flowgrpo_omnigen2.sh")
    edit = SmokeGroupEdit("g.py", files[:1], files)
    added = edit.apply(table)
    assert f'"tests/special_e2e/{narrow}",' in added
    assert '"tests/special_e2e/*thinker*"' in added
    assert not any(fnmatchcase(file, f"tests/special_e2e/{narrow}") for file in files)
    assert fnmatchcase("tests/special_e2e/run_gspo_qwen3_omni_thinker_lora_smoke.sh", f"tests/special_e2e/{narrow}")
    assert edit.apply(added) == added
    assert edit.revert(added) == table


def test_a_table_without_the_group_is_said() -> None:
    for source in ("", TABLE.replace("ci-e2e-diffusion", "other"), TABLE.replace("GROUP_PATTERNS", "PATTERNS")):
        with pytest.raises(ScaffoldError, match=r"g\.py: expected patterns of ci-e2e-diffusion"):
            GROUPS.apply(source)
    with pytest.raises(ScaffoldError, match="cannot be written"):
        SmokeGroupEdit("g.py", ('a",),"b',)).apply(TABLE)


@pytest.mark.parametrize("source", [MODELS, MODELS.replace("\n", "\r\n"), MODELS.partition("\n\n---")[0] + "\n"])
def test_a_section_stands_below_its_heading_once(source: str) -> None:
    added = PAGE.apply(source)
    lines = added.splitlines()
    at = lines.index("### Toy")
    assert lines[at - 2 : at] == ["Text.", ""]
    assert lines[at + 4] == "| **Rollout** | `ToyPipeline` of vLLM-Omni 0.30.0 |"
    assert f"| Flow-GRPO (LoRA) | `{SCRIPT}` | 4×GPU |" in lines
    assert PAGE.apply(added) == added
    assert PAGE.revert(added) == source


def test_a_section_that_a_person_changed_stays() -> None:
    mine = PAGE.apply(MODELS).replace("4×GPU", "8×H200")
    assert PAGE.apply(mine) == mine
    assert PAGE.revert(mine) == mine


def test_a_page_without_the_heading_and_a_hostile_name_are_said() -> None:
    with pytest.raises(ScaffoldError, match=r"m\.md: expected the heading 'Diffusion Image Models'"):
        PAGE.apply("# Models\n")
    with pytest.raises(ScaffoldError, match="cannot be written"):
        ModelsPageEdit("m.md", PAGE.heading, "a\n## b", (), PAGE.scripts).apply(MODELS)


@pytest.mark.skipif(not CHECKOUT.is_dir(), reason="VERL_OMNI_SRC names no verl-omni checkout")
def test_a_change_of_the_launch_script_starts_the_group_of_diffusion_alone(tmp_path: Path) -> None:
    script = tmp_path / "select.py"
    source = (CHECKOUT / "tests/gpu_smoke/select_gpu_smoke_groups.py").read_text(encoding="utf-8")

    def chosen(text: str) -> list[str]:
        script.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, script, SCRIPT], capture_output=True, text=True, check=True)
        return [group["name"] for group in json.loads(done.stdout)["groups"]]

    assert len(chosen(source)) == 3
    assert chosen(GROUPS.apply(source)) == ["ci-e2e-diffusion"]
    page = (CHECKOUT / "docs/start/models.md").read_text(encoding="utf-8")
    assert PAGE.revert(PAGE.apply(page)) == page
