"""Packages for edits: reference images from the row of the data to the request, and guidance with their branches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from overruled import alter

from tests.rendered_module import load

pytestmark = pytest.mark.upstream
VERSION = "0.30.0"
NAMES = {"OmniGen2Pipeline": "omnigen2", "BooguImagePipeline": "boogu"}
CALLS = """
import importlib, json, sys, types
import torch
package = types.ModuleType("rendered")
package.__path__ = [sys.argv[1]]
sys.modules["rendered"] = package
from verl_omni.pipelines.flow_grpo_runtime import calls, records, replay
plan = importlib.import_module("rendered.common").CALLS


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(0.7))
        self.batches = []

    def forward(self, hidden_states, timestep, refs=None):
        # As one that pads: what it makes of a sample follows the most pixels of any in the batch.
        self.batches.append(len(hidden_states))
        seen = 0.0 if refs is None else max(sum(ref.numel() for ref in row) for row in refs)
        return self.weight * hidden_states + timestep.reshape(-1, 1, 1) + seen


def recorded(refs, count):
    recorder, denoiser = calls.CallRecorder(plan), Denoiser()
    sample, time = torch.randn(1, 4, 4), torch.tensor([0.5])
    recorder.watch(denoiser)
    recorder.begin(active=True)
    with torch.no_grad():
        given = [(time, refs), (time + 0.1, refs), (time + 0.2, None)]
        made = [denoiser(sample, *arguments) for arguments in given[:count]]
        target = made[0] if count == 1 else 2 * made[0] - made[1] if count == 2 else 4 * made[0] - 2 * made[1] - made[2]
    recorder.step(sample, target, keep=True)
    return records.read_record(recorder.finish({}, torch.tensor([1.0, 0.0]))), sample, made


def evaluated(*samples):
    latents, denoiser = torch.cat([sample for _, sample, _ in samples]), Denoiser()
    found = replay.DenoiserCalls(plan, [carried for carried, _, _ in samples], latents, 0)
    made = found.evaluate(denoiser, torch.float32)
    torch.testing.assert_close(made, torch.cat([one for _, _, predictions in samples for one in predictions]))
    return sorted(denoiser.batches)


def picture(*sides):
    return [[torch.randn(2, side, side) for side in sides]]


print(evaluated(recorded(picture(4), 3), recorded(picture(4), 3)))
for other in (picture(6), picture(4, 4)):
    print(evaluated(recorded(picture(4), 3), recorded(other, 3)))
print(evaluated(recorded(None, 2), recorded(None, 2)))
print(evaluated(recorded(picture(4), 3), recorded(None, 2)))
"""


@pytest.fixture(scope="module")
def trees(rendered: Callable[..., Path]) -> dict[str, Path]:
    """What `new --task edit` writes, by pipeline."""
    flags = ("--vllm-omni", VERSION, "--task", "edit")
    return {pipeline: rendered(name, "--pipeline", pipeline, *flags) for pipeline, name in NAMES.items()}


def package(tree: Path) -> Path:
    (found,) = tree.glob("verl_omni/pipelines/*_flow_grpo")
    return found


def inspected(scaffold_cli: Callable[..., Any], pipeline: str, *more: str) -> dict[str, Any]:
    command = ("inspect", pipeline, "--vllm-omni", VERSION, "--format", "json")
    return dict(json.loads(scaffold_cli(*command, *more).success()))


@pytest.mark.parametrize(
    ("pipeline", "conditions"),
    [
        ("OmniGen2Pipeline", ["ref_image_hidden_states"]),
        (
            "BooguImagePipeline",
            ["instruction_hidden_states", "instruction_attention_mask", "ref_image_hidden_states"],
        ),
    ],
)
def test_inspect_answers_for_the_task(scaffold_cli: Callable[..., Any], pipeline: str, conditions: list[str]) -> None:
    plain, edit = inspected(scaffold_cli, pipeline), inspected(scaffold_cli, pipeline, "--task", "edit")
    assert "edit" not in plain["answers"]
    assert edit["answers"]["edit"]["conditions"] == conditions
    assert edit["evidence"]["answers.edit.conditions"]
    assert set(edit["answers"]["cfg"]["scales"]) == {"guidance_scale", "guidance_scale_2"}
    assert inspected(scaffold_cli, pipeline, "--task", "generate") == plain
    text = scaffold_cli("inspect", pipeline, "--vllm-omni", VERSION, "--task", "edit").success()
    assert "What does it do with the images that a request brings?" in text
    assert f"--pipeline {pipeline} --task edit" in text


def test_samples_share_a_call_only_with_images_of_one_size(
    trees: dict[str, Path], warm_python: Callable[..., Any], kit_environment: Callable[..., Any]
) -> None:
    run = warm_python(["-c", CALLS, package(trees["OmniGen2Pipeline"])], env=kit_environment())
    assert run.returncode == 0, run.stderr[-2000:]
    same, larger, more, plain, mixed = run.stdout.splitlines()
    assert same == "[2, 4]"
    assert larger == more == "[2, 2, 2]"  # the branch without images is one call all the same
    assert plain == "[4]"
    assert mixed == "[2, 3]"  # a request without images beside one with some


@pytest.mark.parametrize("pipeline", NAMES)
def test_the_packages_own_tests_pass(
    trees: dict[str, Path], warm_python: Callable[..., Any], kit_environment: Callable[..., Any], pipeline: str
) -> None:
    (tests,) = trees[pipeline].glob("tests/pipelines/test_*_on_cpu.py")
    run = warm_python(["-m", "pytest", "-q", "-p", "no:cacheprovider", tests], env=kit_environment(trees[pipeline]))
    assert run.returncode == 0, run.stdout[-3000:]


class Server:
    async def generate(self, **kwargs: Any) -> dict[str, Any]:
        return kwargs


def test_rows_name_the_pictures(trees: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load(next(trees["OmniGen2Pipeline"].glob("examples/*/data_process/*_prompts.py")), monkeypatch)
    for name in ("cat.png", "hat.png"):
        (tmp_path / name).touch()

    def built(record: dict[str, Any]) -> Any:
        row = script.build_row({"prompt": "give it a hat", **record}, "train", 0, "x", str(tmp_path))
        assert row["prompt"] == [{"role": "user", "content": "give it a hat"}]
        return json.loads(row["extra_info"]["inputs"])

    assert built({"image": "cat.png"}) == {"image": str(tmp_path / "cat.png")}
    assert built({"image": ["cat.png", str(tmp_path / "hat.png")]})["image"][1] == str(tmp_path / "hat.png")
    lacking: tuple[dict[str, Any], ...] = ({}, {"image": None}, {"image": []})
    for wrong in lacking:
        with pytest.raises(ValueError, match="no image, which an edit needs"):
            built(wrong)
    with pytest.raises(ValueError, match="image is 'dog.png', which is no file"):
        built({"image": ["cat.png", "dog.png"]})


def test_the_request_gets_them_in_its_own_size(
    trees: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("PIL.Image")
    found = load(package(trees["OmniGen2Pipeline"]) / "agent_loop.py", monkeypatch)
    # Twice as wide as high, with stripes on either side that the request's square has no room for.
    picture = image.new("RGBA", (80, 40), "red")
    picture.paste("blue", (16, 0, 64, 40))
    picture.save(tmp_path / "wide.png")
    path = str(tmp_path / "wide.png")

    def sent(inputs: Any, **sampling: Any) -> Any:
        loop = found.OmniGen2AgentLoop(Server())
        return asyncio.run(loop.run(sampling, extra_info={"inputs": json.dumps(inputs)}))

    one = sent({"image": path}, width=16, height=16)["image_data"]
    assert (one.size, one.mode) == ((16, 16), "RGB")
    assert {one.getpixel((x, 8)) for x in (1, 8, 14)} == {(0, 0, 255)}
    assert sent({"image": path})["image_data"].size == (80, 40)
    assert sent({"image": path}, width=None, height=16)["image_data"].size == (80, 40)
    assert [kept.size for kept in sent({"image": [path, path]}, width=32, height=16)["image_data"]] == [(32, 16)] * 2
    with pytest.raises(ValueError, match="the row has no image to edit; it has"):
        sent({"picture": path})
    with pytest.raises(ValueError, match="is no file here"):
        sent({"image": [path, "gone.png"]})


@pytest.mark.parametrize("pipeline", NAMES)
def test_scripts_readme_and_spec_say_so(
    trees: dict[str, Path], scaffold_cli: Callable[..., Any], pipeline: str
) -> None:
    tree, folder = trees[pipeline], package(trees[pipeline])
    assert 'task = "edit"' in (folder / "scaffold.lock.toml").read_text()
    for script in (*tree.glob("examples/*/*/run_*.sh"), *tree.glob("tests/special_e2e/run_*.sh")):
        assert f"{NAMES[pipeline]}_agent_loop.yaml" in script.read_text()
    readme = next(tree.glob("examples/*/*/README.md")).read_text()
    assert "`image` is the path of the picture to change" in readme
    scaffold_cli("check", folder).success()


def test_update_keeps_the_task(trees: dict[str, Path], scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    import shutil

    bytecode = shutil.ignore_patterns("__pycache__")
    tree = Path(shutil.copytree(trees["OmniGen2Pipeline"], tmp_path / "tree", symlinks=True, ignore=bytecode))
    before = {path: path.read_bytes() for path in sorted(package(tree).iterdir())}
    for command in (("update", tree), ("update", tree, "--spec")):
        scaffold_cli(*command).success()
        assert {path: path.read_bytes() for path in sorted(package(tree).iterdir())} == before
    said = scaffold_cli(
        "new",
        "omnigen2",
        "--spec",
        package(tree) / "scaffold.toml",
        "--task",
        "edit",
        "--patch",
        "--out",
        tmp_path / "x",
    )
    assert "--task and --spec exclude each other" in said.refusal(2)


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ('task = "edit"', 'task = "paint"', "upstream.task is 'paint'"),
    ],
)
def test_a_spec_edited_to_something_else_is_refused(
    trees: dict[str, Path], scaffold_cli: Callable[..., Any], tmp_path: Path, right: str, wrong: str, reason: str
) -> None:
    import shutil

    tree = Path(shutil.copytree(trees["OmniGen2Pipeline"], tmp_path / "tree", symlinks=True))
    spec = package(tree) / "scaffold.toml"
    alter(spec, right, wrong)
    assert reason in scaffold_cli("update", tree, "--spec").refusal(2)


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        ("LancePipeline", "is composed, and what stands in the decoder's cache before the loop could not be followed"),
        ("SenseNovaU1Pipeline", "is composed, and what stands in the decoder's cache before the loop could not be"),
        ("HiDreamO1ImagePipeline", "takes no reference images: nothing that its denoiser is given is made of an image"),
        ("LingBotVideoPipeline", "makes video, no image"),
        ("MingImageLayeredDiffusionPipeline", "is also given what the engine's context of a call holds (vllm_omni/"),
        ("QwenImageEditPipeline", "loads through diffusers"),
    ],
)
def test_what_cannot_be_edited_with_is_refused_in_a_line(
    scaffold_cli: Callable[..., Any], tmp_path: Path, pipeline: str, reason: str
) -> None:
    command = ("new", "model", "--pipeline", pipeline, "--vllm-omni", VERSION, "--task", "edit")
    said = scaffold_cli(*command, "--patch", "--out", tmp_path / "out").refusal(3)
    assert reason in said
    assert said.count("\n") <= 1
    assert not (tmp_path / "out").exists()
