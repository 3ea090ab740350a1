"""The composed package for edits: its prefix in the source, its files, and what a spec of it may say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from overruled import alter

from scaffold.inspect import inspect_pipeline
from scaffold.upstream import locate
from tests.inspect.altered import MODEL, Copy
from tests.rendered_module import load

pytestmark = pytest.mark.upstream
VERSION = "0.30.0"
PACKAGE = "verl_omni/pipelines/bagel_edit_flow_grpo"


def prefix(source: str) -> dict[str, Any] | None:
    found = inspect_pipeline(locate(source), "BagelPipeline", task="edit").fact("detail.edit.prefix")
    return dict(found.value) if found.confidence == "certain" else None


@pytest.mark.parametrize("version", ["0.27.0rc1", VERSION])
def test_the_parts_of_the_prefix_are_read_off_the_source(version: str) -> None:
    assert prefix(version) == {
        "decoder": "language_model.model",
        "cached": "update_past_key_values",
        "sequence": "packed_query_sequence",
        "positions": "packed_query_position_ids",
        "parts": [
            {"of": "latents", "causal": False, "image": True, "place": "one"},
            {"of": "features", "causal": False, "image": False, "place": "one"},
            {"of": "text", "causal": True, "image": False, "place": "counted"},
        ],
    }
    assert inspect_pipeline(locate(version), "BagelPipeline").fact("detail.edit.prefix").confidence == "unknown"


ALTERED = {
    "features that attend causally": (
        "past_key_values=past_key_values,\n            update_past_key_values=True,\n            is_causal=False,\n",
        "past_key_values=past_key_values,\n            update_past_key_values=True,\n            is_causal=True,\n",
        "or gives them other places or attention",
    ),
    "images at counted positions": (
        "packed_position_ids.extend([curr_position_id] * (num_img_tokens + 2))",
        "packed_position_ids.extend(range(curr_position_id, curr_position_id + num_img_tokens + 2))",
        "",
    ),
}


@pytest.mark.parametrize("name", ALTERED)
def test_another_prefix_is_refused_in_a_line(scaffold_cli: Callable[..., Any], tmp_path: Path, name: str) -> None:
    before, after, reason = ALTERED[name]
    copy = Copy(locate(VERSION), tmp_path / "source")
    copy.replace(MODEL, before, after)
    source = str(copy.root)
    found = prefix(source)
    assert found is None or found["parts"] != (prefix(VERSION) or {})["parts"]
    command = ("new", "bagel_edit", "--pipeline", "BagelPipeline", "--vllm-omni", source, "--task", "edit")
    said = scaffold_cli(*command, "--patch", "--out", tmp_path / "out").refusal(3)
    assert "--task edit: BagelPipeline is composed" in said
    assert reason in said


def test_the_packages_own_tests_and_check_pass(
    bagel_edit: Path,
    scaffold_cli: Callable[..., Any],
    warm_python: Callable[..., Any],
    kit_environment: Callable[..., Any],
) -> None:
    tree = bagel_edit
    (tests,) = tree.glob("tests/pipelines/test_*_on_cpu.py")
    run = warm_python(["-m", "pytest", "-q", "-p", "no:cacheprovider", tests], env=kit_environment(tree))
    assert run.returncode == 0, run.stdout[-3000:]
    scaffold_cli("check", tree / PACKAGE).success()


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("", "", ""),
        ("lengths.amin(dim=0)", "lengths.amax(dim=0)", "a shorter reference image changes nothing"),
        (".shape[:2] != places.shape:", ".shape[:2] != places.mul_(0).shape:",
         "other positions of the reference image changes nothing"),
    ],
    ids=["as rendered", "lengths unread", "positions unread"],
)  # fmt: skip
def test_each_column_of_the_reference_reaches_the_velocity(
    bagel_edit: Path, tmp_path: Path, warm: None, right: str, wrong: str, reason: str
) -> None:
    from scaffold.verify.run import verify

    tree = Path(shutil.copytree(bagel_edit, tmp_path / "tree", symlinks=True))
    if right:
        path = tree / "verl_omni/pipelines/flow_grpo_runtime/references.py"
        text = path.read_text(encoding="utf-8")
        assert text.count(right) == 1
        path.write_text(text.replace(right, wrong), encoding="utf-8")
    (found,) = verify(tree / PACKAGE, select=("inputs-matter",)).checks
    assert found.status == ("fail" if reason else "pass"), found.reason
    assert reason in found.reason


def test_scripts_and_readme_ask_for_pictures(bagel_edit: Path) -> None:
    tree = bagel_edit
    for script in (*tree.glob("examples/*/*/run_*.sh"), *tree.glob("tests/special_e2e/run_*.sh")):
        assert "bagel_edit_agent_loop.yaml" in script.read_text()
    readme = next(tree.glob("examples/*/*/README.md")).read_text()
    assert "One picture a request" in readme
    assert "genrm_ocr" not in next(tree.glob("examples/*/*/run_*.sh")).read_text()
    assert not list(tree.glob("**/*_ocr*"))


class Characters:
    """A tokenizer that knows the markers and counts characters."""

    chat_template = None

    def __init__(self) -> None:
        self.ids = {"<|im_start|>": 1, "<|im_end|>": 2}

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self.ids.get(token)

    def convert_ids_to_tokens(self, number: int) -> str:
        return next(text for text, known in self.ids.items() if known == number)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [ord(character) for character in text]


def test_rows_have_a_picture_and_the_ids_of_the_instruction(
    bagel_edit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load(next(bagel_edit.glob("examples/*/data_process/*_prompts.py")), monkeypatch)
    (tmp_path / "cat.png").touch()

    def built(**record: Any) -> Any:
        return script.build_row({"prompt": "hat ", **record}, "train", 0, "x", str(tmp_path), Characters())

    row = built(image="cat.png")
    assert row["prompt_token_ids"] == [1, *map(ord, "hat"), 2]
    assert json.loads(row["extra_info"]["inputs"]) == {"image": str(tmp_path / "cat.png")}
    wrong = {"no image, which an edit needs": None, "which is no file": ["cat.png", "cat.png"], "is 'dog": "dog.png"}
    for reason, image in wrong.items():
        with pytest.raises(ValueError, match=reason):
            built(image=image)


def test_update_keeps_the_task(bagel_edit: Path, scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    tree = Path(shutil.copytree(bagel_edit, tmp_path / "tree", symlinks=True))
    before = {path: path.read_bytes() for path in sorted((tree / PACKAGE).iterdir())}
    for command in (("update", tree), ("update", tree, "--spec")):
        scaffold_cli(*command).success()
        assert {path: path.read_bytes() for path in sorted((tree / PACKAGE).iterdir())} == before


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ('task = "edit"\n', "", "architecture.references"),
        ('task = "edit"', 'task = "paint"', "upstream.task is 'paint'"),
        ('decoder = "language_model.model"', 'decoder = "a b"', "architecture.references"),
        ('sends = ["image"]', 'sends = ["audio"]', "media.sends"),
        ('image_position = "text_length"', 'image_position = "sequential"', "architecture.image_position"),
    ],
)
def test_a_spec_edited_to_something_else_is_refused(
    bagel_edit: Path,
    scaffold_cli: Callable[..., Any],
    tmp_path: Path,
    right: str,
    wrong: str,
    reason: str,
) -> None:
    tree = Path(shutil.copytree(bagel_edit, tmp_path / "tree", symlinks=True))
    spec = tree / PACKAGE / "scaffold.toml"
    alter(spec, right, wrong)
    assert reason in scaffold_cli("update", tree, "--spec").refusal(2)


def test_the_recipe_turns_the_branch_without_the_image_on_and_reads_no_words(
    scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    command = ("new", "bagel_edit", "--pipeline", "BagelPipeline", "--vllm-omni", VERSION, "--task", "edit")
    out = tmp_path / "out"
    scaffold_cli(*command, "--guidance", "cfg_img_scale=2.0", "--profile", "v0.2.0", "--patch", "--out", out).success()
    assert '"cfg_img_scale": 2.0' in (out / PACKAGE / "common.py").read_text()
    scaffold_cli("check", out / PACKAGE).success()
    said = scaffold_cli(*command, "--reward", "ocr", "--patch", "--out", tmp_path / "other").refusal(2)
    assert "--reward ocr reads words off pictures" in said
