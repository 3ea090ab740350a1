"""Plans over small trees built from dictionaries; with VERL_OMNI_SRC also over clones of the real releases."""

import os
import subprocess
import sys
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.plan import Plan, plan_checkout, plan_output, wiring_edits
from scaffold.plan.edits import FileEdit
from scaffold.plan.hooks import REGISTRY, RegistryEdit
from scaffold.plan.sketch import patch
from scaffold.render import RenderedFile, derive_names
from scaffold.target import Checkout, profile_by_name, profiles

REAL = os.environ.get("VERL_OMNI_SRC")
RELEASES = {"v0.1.0": "v0.1.0", "v0.2.0": "v0.2.0", "main": "HEAD"}

FILES = {
    "verl_omni/pipelines/toy_flow_grpo/__init__.py": RenderedFile("X = 1\n"),
    "tests/special_e2e/run_flowgrpo_toy.sh": RenderedFile("#!/bin/sh\n", executable=True),
    "docs/examples/toy/flowgrpo_trainer_toy.md": RenderedFile(link_to="../../../examples/toy/README.md"),
    "examples/toy/README.md": RenderedFile("# Toy\n"),
}
STANDIN = {
    REGISTRY: "from . import (\n    one,\n)\nfrom .one import *  # noqa: F401, F403\n\n__all__ = list(one.__all__)\n",
    "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh": 'run_test 0 "a" \\\n    bash a.sh\n\nsummary\n',
    "docs/index.md": "```{toctree}\n:maxdepth: 2\n:caption: Examples\n\nexamples/a.md\n```\n",
}


def wired(profile: str = "main", model: str = "toy", files: dict[str, RenderedFile] = FILES) -> tuple[FileEdit, ...]:
    context = {"names": asdict(derive_names(model)), "target": profile_by_name(profile).context(model)}
    return wiring_edits(files, context)


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def snapshot(root: Path) -> dict[str, tuple[str, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[path.relative_to(root).as_posix()] = ("link", str(path.readlink()).encode())
        elif path.is_file():
            kind = "executable" if os.access(path, os.X_OK) else "file"
            found[path.relative_to(root).as_posix()] = (kind, path.read_bytes())
        else:
            found[path.relative_to(root).as_posix()] = ("folder", b"")
    return found


def git(root: Path, *arguments: str, text: str | None = None) -> str:
    command = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout


def test_output_is_the_tree_and_the_patch(tmp_path: Path) -> None:
    root = tmp_path / "new" / "out"
    plan = plan_output(FILES, wired(), root)
    assert not root.exists()
    assert plan.commit() == tuple(sorted([*FILES, "verl_omni.patch"]))
    found = snapshot(root)
    assert found["tests/special_e2e/run_flowgrpo_toy.sh"] == ("executable", b"#!/bin/sh\n")
    assert found["docs/examples/toy/flowgrpo_trainer_toy.md"] == ("link", b"../../../examples/toy/README.md")
    assert {path for path, (kind, _) in found.items() if kind != "folder"} == {*FILES, "verl_omni.patch"}


def test_output_twice_changes_nothing(tmp_path: Path) -> None:
    plan_output(FILES, wired(), tmp_path / "out").commit()
    (tmp_path / "out" / "examples" / "__pycache__").mkdir()
    (tmp_path / "out" / "examples" / "__pycache__" / "x.pyc").write_text("")
    before = snapshot(tmp_path)
    plan = plan_output(FILES, wired(), tmp_path / "out")
    assert plan.pending == ()
    assert plan.diff() == ""
    assert plan.commit() == ()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("other", [{"examples/toy/README.md": "mine\n"}, {"mine.txt": "x"}])
def test_output_over_other_content_is_refused(tmp_path: Path, other: dict[str, str]) -> None:
    write(tmp_path, other)
    before = snapshot(tmp_path)
    plan = plan_output(FILES, wired(), tmp_path)
    with pytest.raises(ScaffoldError, match=f"exists with other content: {next(iter(other))}") as caught:
        plan.commit()
    assert caught.value.exit_code == 2
    assert snapshot(tmp_path) == before
    plan_output(FILES, wired(), tmp_path, force=True).commit()
    assert (tmp_path / "examples/toy/README.md").read_text() == "# Toy\n"
    if "mine.txt" in other:
        assert (tmp_path / "mine.txt").read_text() == "x"


def test_checkout_gets_files_and_edits_in_place(tmp_path: Path) -> None:
    write(tmp_path, STANDIN)
    edits = wired()
    plan = plan_checkout(FILES, edits, tmp_path)
    assert {change.path: change.action for change in plan.changes} == {
        **dict.fromkeys(FILES, "create"),
        **dict.fromkeys(STANDIN, "edit"),
    }
    plan.commit()
    for path, text in STANDIN.items():
        mine = next(edit for edit in edits if edit.path == path)
        assert (tmp_path / path).read_text() == mine.apply(text)
    again = plan_checkout(FILES, edits, tmp_path)
    assert {change.action for change in again.changes} == {"same"}
    assert again.commit() == ()


def test_a_file_nobody_edited_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, {**STANDIN, "examples/toy/README.md": "# Older\n"})
    known = {"examples/toy/README.md": sha256(b"# Older\n").hexdigest()}
    plan_checkout(FILES, wired(), tmp_path, known=known).commit()
    assert (tmp_path / "examples/toy/README.md").read_text() == "# Toy\n"


def test_a_lost_executable_bit_comes_back(tmp_path: Path) -> None:
    write(tmp_path, STANDIN)
    plan_checkout(FILES, wired(), tmp_path).commit()
    script = tmp_path / "tests/special_e2e/run_flowgrpo_toy.sh"
    script.chmod(0o640)
    plan = plan_checkout(FILES, wired(), tmp_path)
    assert plan.diff().splitlines()[1:] == ["old mode 100644", "new mode 100755"]
    plan.commit()
    assert script.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("mode", [0o604, 0o444])
def test_edited_files_keep_their_permissions(tmp_path: Path, mode: int) -> None:
    write(tmp_path, STANDIN)
    (tmp_path / REGISTRY).chmod(mode)
    plan_checkout(FILES, wired(), tmp_path).commit()
    assert (tmp_path / REGISTRY).stat().st_mode & 0o777 == mode
    assert "toy_flow_grpo" in (tmp_path / REGISTRY).read_text()


BROKEN = {
    "missing": (None, "expected a file of the checkout, found nothing"),
    "shape": (b"x = 1\n", "expected a `from . import"),
    "encoding": (b"# \xff\n", "is not UTF-8 text"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_misshapen_checkout_is_said(tmp_path: Path, case: str) -> None:
    content, message = BROKEN[case]
    write(tmp_path, STANDIN)
    (tmp_path / REGISTRY).unlink()
    if content is not None:
        (tmp_path / REGISTRY).write_bytes(content)
    with pytest.raises(ScaffoldError, match=message) as caught:
        plan_checkout(FILES, wired(), tmp_path)
    assert REGISTRY in caught.value.line


ESCAPES = ["../x", "/etc/x", "a/../../x", "a//b", "./a", "", "a\\b", ".git/hooks/x", "a\0b"]


@pytest.mark.parametrize("path", ESCAPES)
def test_paths_that_leave_are_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    for root in (tmp_path / "in", tmp_path / "new"):
        with pytest.raises(ScaffoldError, match="does not stay inside"):
            plan_output({path: RenderedFile("x")}, (), root)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_linked_parents_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = write(tmp_path / "root", STANDIN)
    (root / "examples").symlink_to(outside)
    with pytest.raises(ScaffoldError, match="examples is a link"):
        plan_checkout(FILES, wired(), root)
    assert list(outside.iterdir()) == []


def test_tree_shows_what_will_be(tmp_path: Path) -> None:
    write(tmp_path, {**STANDIN, "examples/toy/README.md": "# Toy\n"})
    assert plan_checkout(FILES, wired(), tmp_path).tree() == (
        "├── docs/\n"
        "│   ├── examples/\n"
        "│   │   └── toy/\n"
        "│   │       └── flowgrpo_trainer_toy.md     new\n"
        "│   └── index.md                            changed\n"
        "├── examples/\n"
        "│   └── toy/\n"
        "│       └── README.md                       same\n"
        "├── tests/\n"
        "│   ├── gpu_smoke/\n"
        "│   │   └── run_gpu_smoke_diffusion_e2e.sh  changed\n"
        "│   └── special_e2e/\n"
        "│       └── run_flowgrpo_toy.sh             new\n"
        "└── verl_omni/\n"
        "    └── pipelines/\n"
        "        ├── __init__.py                     changed\n"
        "        └── toy_flow_grpo/\n"
        "            └── __init__.py                 new\n"
    )


def test_git_takes_the_diff_and_arrives_at_the_same_tree(tmp_path: Path) -> None:
    files = {**FILES, "empty.txt": RenderedFile(""), "open.txt": RenderedFile("no newline")}
    roots = [write(tmp_path / name, {**STANDIN, "open.txt": "old\nx", "gone": ""}) for name in ("git", "plan")]
    plan = plan_checkout(files, wired(), roots[1], force=True)
    assert plan.diff() == plan_checkout(files, wired(), roots[1], force=True).diff()
    git(roots[0], "init", "-q")
    git(roots[0], "apply", "-", text=plan.diff())
    plan.commit()
    left = {path: state for path, state in snapshot(roots[0]).items() if not path.startswith(".git")}
    assert left == snapshot(roots[1])


def test_diff_of_a_link_that_becomes_a_file_applies(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    git(tmp_path, "init", "-q")
    plan = plan_checkout({"a": RenderedFile("file\n")}, (), tmp_path, force=True)
    git(tmp_path, "apply", "-", text=plan.diff())
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "a").read_text() == "file\n"


@pytest.mark.parametrize("profile", RELEASES)
@pytest.mark.parametrize("model", ["aria", "toy", "zz", "sd10"])
def test_packaged_patch_has_no_filler_and_all_edits(profile: str, model: str, tmp_path: Path) -> None:
    files = _model_files(profile, model)
    plan_output(files, wired(profile, model, files), tmp_path, profile=profile_by_name(profile)).commit()
    text = (tmp_path / "verl_omni.patch").read_text()
    added = [line[1:] for line in text.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert f"    {model}_flow_grpo," in added
    assert f"from .{model}_flow_grpo import *  # noqa: F401, F403" in added
    assert f"__all__ += list({model}_flow_grpo.__all__)" in added
    assert any(f"run_flowgrpo_{model}.sh" in line for line in added)
    assert (f"examples/{model}/flowgrpo_trainer_{model}.md" in added) == (profile != "v0.1.0")


class Parsed:
    """A registration that the sketch does not know for one: the text is parsed, as a checkout's is."""

    def __init__(self, package: str) -> None:
        edit = RegistryEdit(package)
        self.path, self.apply, self.revert = edit.path, edit.apply, edit.revert


@pytest.mark.parametrize("package", ["aaa_flow_grpo", "bagel_flow_grpo2", "qwen_image_dpo2", "sd10_x", "zz_dpo"])
def test_a_drawn_registry_takes_a_package_as_a_parsed_one_does(package: str) -> None:
    for profile in profiles():
        assert patch(profile, [RegistryEdit(package)]) == patch(profile, [Parsed(package)])


def test_every_package_of_a_release_can_be_patched_in(tmp_path: Path) -> None:
    for profile in profiles():
        for package in profile.sketch["registry"]["packages"]:
            plan = plan_output({}, [RegistryEdit(package)], tmp_path / "out", profile=profile)
            assert plan.diff().count(package) >= 3


@pytest.mark.skipif(not REAL, reason="VERL_OMNI_SRC names no verl-omni checkout")
@pytest.mark.parametrize("profile", RELEASES)
@pytest.mark.parametrize("model", ["aria", "bagel_scaffold", "zz", "sd10"])
@pytest.mark.parametrize("tool", ["git", "patch"])
def test_packaged_patch_applies_to_the_real_release(tmp_path: Path, profile: str, model: str, tool: str) -> None:
    root = _clone(tmp_path / "clone", profile)
    files = _model_files(profile, model)
    edits = wired(profile, model, files)
    plan_output(files, edits, tmp_path / "out", profile=profile_by_name(profile)).commit()
    text = (tmp_path / "out" / "verl_omni.patch").read_text()
    before = {edit.path: (root / edit.path).read_text() for edit in edits}
    if tool == "git":
        git(root, "apply", "-", text=text)
    else:
        command = ["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", "-s"]
        subprocess.run(command, cwd=root, input=text, text=True, check=True)
    for edit in edits:
        assert (root / edit.path).read_text() == edit.apply(before[edit.path])
    assert len(git(root, "status", "--porcelain").splitlines()) == len(before)


@pytest.mark.skipif(not REAL, reason="VERL_OMNI_SRC names no verl-omni checkout")
@pytest.mark.parametrize("profile", RELEASES)
def test_packaged_patch_of_a_package_that_the_release_has(tmp_path: Path, profile: str) -> None:
    """It is refused while the package is registered, and applies once that is undone."""
    root = _clone(tmp_path / "clone", profile)
    files = _model_files(profile, "bagel")
    edits = wired(profile, "bagel", files)
    plan_output(files, edits, tmp_path / "out", profile=profile_by_name(profile)).commit()
    text = (tmp_path / "out" / "verl_omni.patch").read_text()
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "apply", "-", text=text)
    for edit in edits:
        (root / edit.path).write_text(edit.revert((root / edit.path).read_text()))
    before = {edit.path: (root / edit.path).read_text() for edit in edits}
    git(root, "apply", "-", text=text)
    for edit in edits:
        assert (root / edit.path).read_text() == edit.apply(before[edit.path])


@pytest.mark.skipif(not REAL, reason="VERL_OMNI_SRC names no verl-omni checkout")
@pytest.mark.parametrize("profile", RELEASES)
def test_real_checkout_gets_only_the_planned_changes(tmp_path: Path, profile: str) -> None:
    root = _clone(tmp_path / "clone", profile)
    checkout = Checkout.open(root)
    files = _model_files(profile, "toy")
    context = {"names": asdict(derive_names("toy")), "target": checkout.profile.context("toy")}
    edits = wiring_edits(files, context)
    plan: Plan = plan_checkout(files, edits, root)
    plan.commit()
    changed = {line[3:] for line in git(root, "status", "--porcelain", "-uall").splitlines()}
    assert changed == {change.path for change in plan.changes}
    for edit in edits:
        text = (root / edit.path).read_text()
        assert edit.revert(text) == git(root, "show", f"HEAD:{edit.path}")
        if edit.path.endswith(".sh"):
            subprocess.run(["bash", "-n", edit.path], cwd=root, check=True)
    if profile == "main":
        git(root, "add", "-A")
        check = [sys.executable, "tests/special_sanity/check_example_docs_symlinks.py"]
        subprocess.run(check, cwd=root, check=True, capture_output=True)


def _model_files(profile: str, model: str) -> dict[str, RenderedFile]:
    target = profile_by_name(profile).context(model)
    files = {
        f"verl_omni/pipelines/{model}_flow_grpo/__init__.py": RenderedFile("X = 1\n"),
        f"tests/special_e2e/run_flowgrpo_{model}.sh": RenderedFile("#!/bin/sh\n", executable=True),
        str(target["example_readme"]): RenderedFile("# A\n\nLast updated: 01/01/2026\n"),
    }
    if target["docs_link"]:
        link = f"../../../{target['example_readme']}"
        files[str(target["docs_link"])] = RenderedFile(link_to=link)
    return files


def _clone(root: Path, profile: str) -> Path:
    assert REAL
    commit = git(Path(REAL), "rev-parse", RELEASES[profile]).strip()
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", REAL, str(root)], check=True)
    git(root, "-c", "advice.detachedHead=false", "checkout", "-q", commit)
    return root
