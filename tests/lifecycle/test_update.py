"""``update`` gives what ``new`` would give, with a person's edits in it; what cannot be merged is never called done."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import NEW, PACKAGE, RELEASES, RUNNERS, commit, snapshot, write_standin
from overruled import overrule

from scaffold.render.runtime import FOLDER as RUNTIME
from scaffold.spec import read_spec
from scaffold.spec.lock import seal

pytestmark = pytest.mark.upstream

ROLLOUT = f"{PACKAGE}/vllm_omni_rollout_adapter.py"
COMMON = f"{PACKAGE}/common.py"
SPEC = f"{PACKAGE}/scaffold.toml"
SCHEDULER = "class _ToySchedulerAdapter(ComposedScheduler):"
VERSIONS = ["0.22.0", "0.24.0", "0.27.0rc1", "0.28.0", "0.30.0"]


@pytest.fixture
def tree(output: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies the output for a version."""

    def copy(version: str, *options: str) -> Path:
        return Path(shutil.copytree(output(version, *options), tmp_path / "out", symlinks=True))

    return copy


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new))


# From the oldest on, and from the newest back.
STEPS = list(zip(VERSIONS, [*VERSIONS[1:], VERSIONS[0]], strict=True))


@pytest.mark.parametrize(
    ("before", "after"), [STEPS[0], *(pytest.param(*step, marks=pytest.mark.table) for step in STEPS[1:-1]), STEPS[-1]]
)
def test_unedited_package_becomes_what_new_renders(
    tree: Callable[..., Path], output: Callable[..., Path], scaffold_cli: Callable[..., Any], before: str, after: str
) -> None:
    out = tree(before)
    scaffold_cli("update", out, "--vllm-omni", after).success()
    assert snapshot(out) == snapshot(output(after))


def test_edits_are_merged(
    tree: Callable[..., Path], output: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    out = tree("0.22.0")
    edit(out / ROLLOUT, SCHEDULER, f"MINE = 1\n\n\n{SCHEDULER}")
    edit(out / COMMON, "SCHEDULE_SHIFT = 3.0", "SCHEDULE_SHIFT = 3.0  # mine")
    (out / PACKAGE / "extra.py").write_text("EXTRA = 1\n")
    printed = scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    assert "merged with your edits" in printed
    expected = (output("0.30.0") / ROLLOUT).read_text()
    assert (out / ROLLOUT).read_text() == expected.replace(SCHEDULER, f"MINE = 1\n\n\n{SCHEDULER}")
    assert "SCHEDULE_SHIFT = 3.0  # mine" in (out / COMMON).read_text()
    assert (out / PACKAGE / "extra.py").read_text() == "EXTRA = 1\n"
    again = snapshot(out)
    assert "nothing to do" in scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    assert snapshot(out) == again


def test_there_and_back_keeps_the_edits(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.27.0rc1")
    edit(out / ROLLOUT, SCHEDULER, f"MINE = 1\n\n\n{SCHEDULER}")
    before = snapshot(out)
    for version in ("0.30.0", "0.22.0", "0.27.0rc1"):
        scaffold_cli("update", out, "--vllm-omni", version).success()
    assert snapshot(out) == before


def conflicting(out: Path) -> None:
    edit(out / ROLLOUT, "more_steps=-1,", "more_steps=-2,")


def test_conflicts_are_marked_and_never_called_done(
    tree: Callable[..., Path], scaffold_cli: Callable[..., Any], output: Callable[..., Path]
) -> None:
    out = tree("0.22.0")
    conflicting(out)
    outcome = scaffold_cli("update", out, "--vllm-omni", "0.30.0")
    assert outcome.code == 4
    assert re.match(rf"error: not done: conflict markers in: {ROLLOUT}; ", outcome.err)
    assert "updated" not in outcome.out
    assert "conflict markers" in outcome.out
    text = (out / ROLLOUT).read_text()
    assert re.search(r"^<<<<<<< edited here$", text, re.MULTILINE)
    assert re.search(r"^>>>>>>> rendered from vllm-omni 0\.30\.0$", text, re.MULTILINE)
    assert "more_steps=-2," in text
    # Everything else is there.
    assert (out / "examples/flowgrpo_trainer/toy/README.md").read_text() == (
        output("0.30.0") / "examples/flowgrpo_trainer/toy/README.md"
    ).read_text()
    before = snapshot(out)
    line = scaffold_cli("update", out, "--vllm-omni", "0.30.0").refusal(4)
    assert f"still in {ROLLOUT}" in line
    assert snapshot(out) == before


def test_resolved_conflict_is_the_new_state(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.22.0")
    conflicting(out)
    assert scaffold_cli("update", out, "--vllm-omni", "0.30.0").code == 4
    text = re.sub(r"<<<<<<< .*?\n=======\n(.*?)>>>>>>> [^\n]*\n", r"\1", (out / ROLLOUT).read_text(), flags=re.DOTALL)
    ast.parse(text)
    (out / ROLLOUT).write_text(text)
    assert "nothing to do" in scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_showing_writes_nothing(tree: Callable[..., Path], scaffold_cli: Callable[..., Any], option: str) -> None:
    out = tree("0.22.0")
    before = snapshot(out)
    printed = scaffold_cli("update", out, "--vllm-omni", "0.30.0", option).success()
    assert ("more_steps=-1" if option == "--diff" else "changed") in printed
    assert snapshot(out) == before
    conflicting(out)
    before = snapshot(out)
    outcome = scaffold_cli("update", out, "--vllm-omni", "0.30.0", option)
    assert outcome.code == 4
    assert "nothing was written" in outcome.err
    assert snapshot(out) == before


def test_deleted_file_stays_away_and_is_named(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.22.0")
    (out / ROLLOUT).unlink()
    (out / COMMON).unlink()
    outcome = scaffold_cli("update", out, "--vllm-omni", "0.30.0")
    assert outcome.code == 4
    assert f"look at: {ROLLOUT};" in outcome.err
    assert not (out / ROLLOUT).exists()
    assert not (out / COMMON).exists()
    outcome = scaffold_cli("update", out, "--vllm-omni", "0.30.0")
    assert "nothing to do" in outcome.out
    # The rules find what is missing.
    assert outcome.code == 1


def recorded(out: Path, digest: str) -> None:
    """Let the rollout adapter have been rendered with this digest."""
    lock = (out / SPEC).with_name("scaffold.lock.toml")
    lock.write_text(seal(re.sub(rf'("{re.escape(ROLLOUT)}" = )"[0-9a-f]+"', rf'\g<1>"{digest}"', lock.read_text())))


def test_unknown_base_is_refused_then_forced(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.22.0")
    conflicting(out)
    # Another version of the tool rendered it: no digest fits what this one renders.
    recorded(out, "0" * 64)
    before = snapshot(out)
    outcome = scaffold_cli("update", out, "--vllm-omni", "0.30.0")
    assert outcome.code == 4
    assert "cannot be reproduced" in outcome.err
    assert snapshot(out) == before
    outcome = scaffold_cli("update", out, "--vllm-omni", "0.30.0", "--force")
    assert outcome.code == 4
    text = (out / ROLLOUT).read_text()
    assert "<<<<<<< edited here" in text
    # Without a base only what differs is in conflict.
    assert text.count("class ToyPipelineWithLogProb") == 1


def test_base_comes_from_gits_history(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.22.0")
    marker = "# as another version of the tool rendered it\n"
    older = (out / ROLLOUT).read_text() + marker
    digest = hashlib.sha256(older.encode()).hexdigest()
    (out / ROLLOUT).write_text(older)
    recorded(out, digest)
    commit(out, "rendered")
    edit(out / ROLLOUT, SCHEDULER, f"MINE = 1\n\n\n{SCHEDULER}")
    commit(out, "edited")
    scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    text = (out / ROLLOUT).read_text()
    assert "MINE = 1\n" in text
    assert marker not in text
    assert "more_steps" not in text


def test_edited_spec_and_edited_file_are_merged(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.27.0rc1")
    edit(out / SPEC, "\nshift = 3.0 ", "\nshift = 1.75 ")
    text = (out / COMMON).read_text()
    (out / COMMON).write_text(text + "\n\nMINE = 1\n")
    scaffold_cli("update", out, "--spec").success()
    assert (out / COMMON).read_text() == text.replace("3.0", "1.75") + "\n\nMINE = 1\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\nshift = 3.0 ", "\nshift = -1 ", "schedule.shift"),
        ("[schedule]\n", '[schedule]\nsteps = "seven"\n', "steps"),
        ("schema = 2\n", "schema = 3\n", "schema 3"),
        ('package = "toy_flow_grpo"', 'package = "other_flow_grpo"', "other_flow_grpo"),
    ],
)
def test_wrong_spec_changes_nothing(
    tree: Callable[..., Path], scaffold_cli: Callable[..., Any], old: str, new: str, message: str
) -> None:
    out = tree("0.27.0rc1")
    text = (out / SPEC).read_text()
    (out / SPEC).write_text(text.replace(old, new))
    before = snapshot(out)
    assert message in scaffold_cli("update", out, "--spec").refusal(2)
    assert snapshot(out) == before


def test_value_of_a_person_survives_an_update(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.22.0")
    edit(out / SPEC, "noise_level = 0.7", "noise_level = 0.55")
    scaffold_cli("update", out, "--spec").success()
    scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    assert "noise_level = 0.55" in (out / SPEC).read_text()
    assert "noise_level=0.55" in (out / "examples/flowgrpo_trainer/toy/run_toy_ocr_lora.sh").read_text()
    assert "more_steps" not in (out / ROLLOUT).read_text()


def test_value_that_both_changed_is_a_conflict(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.22.0")
    overrule(out / SPEC, "schedule.request_offset", "1")
    scaffold_cli("update", out, "--spec").success()
    before = snapshot(out)
    line = scaffold_cli("update", out, "--vllm-omni", "0.30.0").refusal(4)
    assert "schedule.request_offset (here 1, upstream from -1 to 0)" in line
    assert snapshot(out) == before
    assert "keeps your value" in scaffold_cli("update", out, "--vllm-omni", "0.30.0", "--force").success()
    assert "request_offset = 1" in (out / SPEC).read_text()


def test_checkouts_pin_is_the_default(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package("v0.2.0")
    assert "nothing to do" in scaffold_cli("update", root / PACKAGE).success()
    edit(root / "pyproject.toml", "vllm-omni==0.24.0", "vllm-omni==0.30.0")
    printed = scaffold_cli("update", root / PACKAGE).success()
    assert "from vllm-omni 0.24.0 to 0.30.0" in printed


@pytest.mark.parametrize(
    ("before", "after"),
    [("v0.1.0", "v0.2.0"), pytest.param("v0.2.0", "main", marks=pytest.mark.table), ("main", "v0.1.0")],
)
def test_checkout_that_moved_to_another_release(
    written: dict[str, Path], tmp_path: Path, scaffold_cli: Callable[..., Any], before: str, after: str
) -> None:
    """The package was committed on one release, then the checkout was rebased onto another."""
    root = write_standin(tmp_path / "moved", after)
    package = written[before]
    for name in (PACKAGE, RUNTIME, "examples/flowgrpo_trainer/toy", "docs/examples/toy"):
        if (package / name).exists():
            shutil.copytree(package / name, root / name, symlinks=True)
    for name in ("examples/flowgrpo_trainer/data_process", "tests/special_e2e", "tests/pipelines"):
        for file in (package / name).iterdir():
            if "toy" in file.name:
                (root / name).mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, root / name)
    wired = written[before] / "verl_omni/pipelines/__init__.py"
    shutil.copy2(wired, root / "verl_omni/pipelines/__init__.py")
    outcome = scaffold_cli("update", root / PACKAGE, "--vllm-omni", RELEASES[after])
    assert outcome.code in (0, 1), outcome.err  # 1: what the rules say of a release is not this test's business
    expected, actual = snapshot(written[after]), snapshot(root)
    if before == "main":
        # Links are a matter of the release: the older one has no pages, and the link that was rendered is gone.
        assert not (root / "docs/examples/toy/flowgrpo_trainer_toy.md").is_symlink()
    for path in expected:
        if not path.startswith(SPEC.removesuffix("toml")):  # what a person may reorder, and its digest
            assert actual.get(path) == expected[path], path
    assert "toy" in (root / RUNNERS[after]).read_text()


def test_file_in_the_way_is_a_conflict(
    written: dict[str, Path], package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package("v0.2.0")
    link = root / "docs/examples/toy/flowgrpo_trainer_toy.md"
    lock = (root / SPEC).with_name("scaffold.lock.toml")
    name = link.relative_to(root).as_posix()
    lock.write_text(seal(re.sub(rf'"{re.escape(name)}" = "[0-9a-f]+"\n', "", lock.read_text())))
    link.unlink()
    link.write_text("mine\n")
    before = snapshot(root)
    outcome = scaffold_cli("update", root / PACKAGE)
    assert outcome.code == 4
    assert f"{name} (in the way of a new file)" in outcome.err
    assert snapshot(root) == before


def test_pipeline_that_is_gone_is_refused_and_nothing_changes(
    tree: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    out = tree("0.27.0rc1")
    empty = tmp_path / "upstream/vllm_omni/diffusion"
    empty.mkdir(parents=True)
    for name in ("vllm_omni/__init__.py", "vllm_omni/diffusion/__init__.py"):
        (tmp_path / "upstream" / name).write_text("")
    (empty / "registry.py").write_text("_DIFFUSION_MODELS = {}\n")
    before = snapshot(out)
    assert "no pipeline 'BagelPipeline'" in scaffold_cli("update", out, "--vllm-omni", tmp_path / "upstream").refusal(2)
    assert snapshot(out) == before


def test_package_of_a_folder_needs_from(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.27.0rc1")
    overrule(out / SPEC, "upstream.version", '"from somewhere"')
    assert "--from" in scaffold_cli("update", out, "--vllm-omni", "0.30.0").refusal(2)
    scaffold_cli("update", out, "--vllm-omni", "0.30.0", "--from", "0.27.0rc1").success()


def test_spec_and_version_exclude_each_other(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    assert "--spec" in scaffold_cli("update", tree("0.27.0rc1"), "--spec", "--vllm-omni", "0.30.0").refusal(2)


def test_package_from_a_checkpoint_keeps_its_sizes(
    scaffold_cli: Callable[..., Any], tmp_path: Path, small_checkpoint: Callable[[Path], Path]
) -> None:
    checkpoint = small_checkpoint(tmp_path / "checkpoint")
    out, expected = tmp_path / "out", tmp_path / "expected"
    scaffold_cli(*NEW, "--checkpoint", checkpoint, "--vllm-omni", "0.24.0", "--patch", "--out", out).success()
    scaffold_cli(*NEW, "--checkpoint", checkpoint, "--vllm-omni", "0.30.0", "--patch", "--out", expected).success()
    shutil.rmtree(checkpoint)
    scaffold_cli("update", out, "--vllm-omni", "0.30.0").success()
    assert snapshot(out) == snapshot(expected)


def test_package_of_a_newer_tool_is_refused(tree: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    out = tree("0.27.0rc1")
    from scaffold import __version__

    overrule(out / SPEC, "tool.version", '"99.0"')
    before = snapshot(out)
    assert f"was written by omni-scaffold 99.0, this is {__version__}" in scaffold_cli("update", out).refusal(2)
    assert snapshot(out) == before
    scaffold_cli("update", out, "--force").success()
    assert "99.0" not in (out / SPEC).read_text()
    assert read_spec(out / SPEC).spec.value("tool.version") == __version__


def test_file_name_that_is_no_utf8_is_printed(package: Callable[..., Path]) -> None:
    root = package()
    commit(root, "all")
    name = b"caf\xe9.txt"
    (root / os.fsdecode(name)).write_text("mine\n")
    for environment in ({"PYTHONIOENCODING": "utf-8:strict"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}):
        options = ["--vllm-omni", "0.30.0", "--allow-version-mismatch", "--dry-run"]
        command = [sys.executable, "-m", "scaffold", "update", str(root / PACKAGE), *options]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"caf\\udce9.txt") == 1
        assert done.stdout.count("\u251c".encode()) > 9


@pytest.mark.parametrize("flag", ["--vllm-omni", "--from"])
def test_empty_version_is_no_wish_for_the_default(
    tree: Callable[..., Path], scaffold_cli: Callable[..., Any], flag: str
) -> None:
    assert scaffold_cli("update", tree("0.27.0rc1"), flag, "").refusal(2).startswith(f"{flag} is empty")


def test_partial_package_is_rendered_from_its_own_spec(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    scaffold_cli("new", "omnigen2", "--vllm-omni", "0.30.0", "--patch", "--out", out).success()
    before = snapshot(out)
    assert "nothing to do" in scaffold_cli("update", out, "--spec").out
    assert snapshot(out) == before


def test_conflicts_are_said_where_nobody_reads_the_output_to_its_end(tree: Callable[..., Path]) -> None:
    out = tree("0.22.0")
    conflicting(out)
    command = [sys.executable, "-m", "scaffold", "update", str(out), "--vllm-omni", "0.30.0"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: not done: conflict markers in")
    assert done.stderr.count("\n") == 1
