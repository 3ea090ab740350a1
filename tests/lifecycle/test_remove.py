"""``remove`` is the inverse of ``new``; what a person edited stays and is named."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import DOCS_INDEX, NEW, PACKAGE, REGISTRY, RELEASES, RUNNERS, snapshot, write_standin

from scaffold.spec.lock import seal

pytestmark = pytest.mark.upstream


@pytest.mark.parametrize("git", [False, True])
@pytest.mark.parametrize("release", RELEASES)
def test_checkout_is_as_it_was(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any], release: str, git: bool
) -> None:
    root = standin(release, git=git)
    before = snapshot(root)
    scaffold_cli(*NEW, "--verl-omni", root).success()
    assert len(snapshot(root)) > len(before)
    printed = scaffold_cli("remove", root / PACKAGE).success()
    assert snapshot(root) == before
    assert "next: " in printed


def test_folders_that_new_made_in_a_bare_checkout_go(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = standin()
    shutil.rmtree(root / "examples")
    shutil.rmtree(root / "tests/special_e2e")
    (root / "docs/examples/alpha/flowgrpo_trainer_alpha.md").unlink()
    before = snapshot(root)
    assert before["docs/examples/alpha"] == before["tests/pipelines"] == "folder"
    scaffold_cli(*NEW, "--verl-omni", root).success()
    scaffold_cli("remove", root / PACKAGE).success()
    assert snapshot(root) == before


def test_second_run_of_new_does_not_forget_the_folders(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = standin()
    before = snapshot(root)
    scaffold_cli(*NEW, "--verl-omni", root).success()
    once = snapshot(root)
    assert "nothing to do" in scaffold_cli(*NEW, "--verl-omni", root).success()
    assert snapshot(root) == once
    scaffold_cli(*NEW, "--verl-omni", root, "--vllm-omni", "0.30.0", "--allow-version-mismatch", "--force").success()
    scaffold_cli("remove", root / PACKAGE).success()
    assert snapshot(root) == before


@pytest.mark.parametrize("given", [".", PACKAGE, f"{PACKAGE}/scaffold.toml"])
def test_tree_of_its_own_goes_whole(
    output: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path, given: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(output("0.27.0rc1"), out, symlinks=True)
    printed = scaffold_cli("remove", out / given).success()
    assert "git apply --reverse" in printed
    assert not out.exists()


def test_compiled_modules_go_too(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    before = snapshot(write_standin(root.parent / "before", "main"))
    cache = root / PACKAGE / "__pycache__"
    cache.mkdir()
    (cache / f"common.{sys.implementation.cache_tag}.pyc").write_bytes(b"x")
    scaffold_cli("remove", root / PACKAGE).success()
    assert snapshot(root) == before


@pytest.mark.parametrize("option", [(), ("--dry-run",), ("--diff",)])
def test_edited_files_stop_it_before_anything_is_taken(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any], option: tuple[str, ...]
) -> None:
    root = package()
    edited = ["examples/flowgrpo_trainer/toy/README.md", f"{PACKAGE}/common.py", f"{PACKAGE}/scaffold.toml"]
    for path in edited:
        (root / path).write_text((root / path).read_text() + "# mine\n")
    before = snapshot(root)
    outcome = scaffold_cli("remove", root / PACKAGE, *option)
    assert outcome.code == 4
    assert outcome.err == (
        f"error: edited since they were rendered: {', '.join(edited)}; nothing was removed; "
        "--keep-edited keeps them and removes all else, --force removes them too\n"
    )
    assert "leave out --dry-run" not in outcome.out
    assert snapshot(root) == before


def test_both_ways_on_from_there_work(
    standin: Callable[..., Path], package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package()
    start = snapshot(standin(name="start"))
    spec, common = f"{PACKAGE}/scaffold.toml", f"{PACKAGE}/common.py"
    for path in (spec, common):
        (root / path).write_text((root / path).read_text() + "# mine\n")
    scaffold_cli("remove", root / PACKAGE).refusal(4)
    printed = scaffold_cli("remove", root / PACKAGE, "--keep-edited").success()
    assert f"edited, and kept: {common}, {spec}; " in printed
    left = snapshot(root)
    mine = {path for path in left.keys() - start.keys() if left[path] != "folder"}
    # Nothing names the package any more but what was kept.
    assert mine == {common, spec, f"{PACKAGE}/scaffold.lock.toml"}
    assert {path: found for path, found in left.items() if path in start} == start
    scaffold_cli("remove", root / PACKAGE).refusal(4)
    scaffold_cli("remove", root / PACKAGE, "--force").success()
    assert snapshot(root) == start


def test_keeping_and_taking_exclude_each_other(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    before = snapshot(root)
    assert "exclude each other" in scaffold_cli("remove", root / PACKAGE, "--force", "--keep-edited").refusal(2)
    assert snapshot(root) == before


def test_edited_files_are_kept_and_named(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    edited = root / PACKAGE / "common.py"
    edited.write_text(edited.read_text() + "MINE = 1\n")
    (root / PACKAGE / "notes.md").write_text("mine\n")
    printed = scaffold_cli("remove", root / PACKAGE, "--keep-edited").success()
    assert f"note: edited, and kept: {PACKAGE}/common.py; " in printed
    assert f"note: not rendered, and kept: {PACKAGE}/notes.md\n" in printed
    left = {path for path, found in snapshot(root / PACKAGE).items() if found != "folder"}
    assert left == {"common.py", "notes.md"}
    assert edited.read_text().endswith("MINE = 1\n")
    assert "toy_flow_grpo" not in (root / REGISTRY).read_text()


def test_force_takes_edited_files_but_not_others(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package()
    (root / PACKAGE / "common.py").write_text("MINE = 1\n")
    (root / PACKAGE / "notes.md").write_text("mine\n")
    scaffold_cli("remove", root / PACKAGE, "--force").success()
    assert [path.name for path in (root / PACKAGE).iterdir()] == ["notes.md"]


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_showing_writes_nothing(package: Callable[..., Path], scaffold_cli: Callable[..., Any], option: str) -> None:
    root = package()
    before = snapshot(root)
    printed = scaffold_cli("remove", root / PACKAGE, option).success()
    assert snapshot(root) == before
    assert ("deleted file mode" if option == "--diff" else "removed") in printed
    assert PACKAGE.rpartition("/")[2] in printed


def test_what_others_added_since_stays(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    for path, old, new in (
        (REGISTRY, "__all__ += list(omega", "__all__ += list(beta_flow_grpo.__all__)\n__all__ += list(omega"),
        (RUNNERS["main"], "gpu_smoke_summary", 'run_test 7 "later" \\\n    bash later.sh\n\ngpu_smoke_summary'),
        (DOCS_INDEX, "```\n\nLast", "examples/later.md\n```\n\nLast"),
    ):
        text = (root / path).read_text()
        assert old in text
        (root / path).write_text(text.replace(old, new))
    scaffold_cli("remove", root / PACKAGE).success()
    assert "beta_flow_grpo" in (root / REGISTRY).read_text()
    assert 'run_test 7 "later"' in (root / RUNNERS["main"]).read_text()
    assert "examples/later.md\n" in (root / DOCS_INDEX).read_text()
    for path in (REGISTRY, RUNNERS["main"], DOCS_INDEX):
        assert "toy" not in (root / path).read_text()


def test_removed_twice_is_said(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    scaffold_cli("remove", root / PACKAGE).success()
    line = scaffold_cli("remove", root / PACKAGE).refusal(2)
    assert "no such folder here" in line


def test_a_spec_cannot_have_other_files_removed(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    lock = root / PACKAGE / "scaffold.lock.toml"
    text = lock.read_text()
    for path in ("pyproject.toml", "../toy", "/etc/toy", ".git/toy"):
        lock.write_text(seal(text.replace("[files]\n", f'[files]\n"{path}" = "{"0" * 64}"\n')))
        before = snapshot(root)
        scaffold_cli("remove", root / PACKAGE, "--force").refusal(2)
        assert snapshot(root) == before


def test_several_packages_in_a_tree_are_listed(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    shutil.copytree(root / PACKAGE, root / "verl_omni/pipelines/other_flow_grpo")
    assert "toy_flow_grpo" in scaffold_cli("remove", root).refusal(2)
    assert "toy_flow_grpo" in scaffold_cli("remove", root / "verl_omni/pipelines/other_flow_grpo").refusal(2)


def test_a_link_in_the_place_of_a_folder_is_not_followed(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    root = package()
    example = root / "examples/flowgrpo_trainer/toy"
    outside = tmp_path / "outside"
    shutil.move(example, outside)
    example.symlink_to(outside)
    before = snapshot(outside)
    scaffold_cli("remove", root / PACKAGE).refusal(2)
    assert snapshot(outside) == before
    assert (root / PACKAGE / "common.py").exists()


@pytest.mark.parametrize("command", ["remove", "update"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[[[", "is not TOML"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"schema = 3\n", "has schema 3, this version reads 2; use the version of omni-scaffold that wrote it"),
        (b"schema = 1\n", "names.model is None"),
        (b"schema = 1\nnot_established = 5\n", "not_established is not a list of strings"),
        (b'schema = 1\n[names]\nmodel = "toy"\npackage = "toy_flow_grpo"\nprefix = "Toy"\n', "target.profile is None"),
    ],
)
def test_spec_that_cannot_be_read_is_one_line(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any], command: str, text: bytes, message: str
) -> None:
    root = package()
    (root / PACKAGE / "scaffold.toml").write_bytes(text)
    before = snapshot(root)
    line = scaffold_cli(command, PACKAGE, cwd=root).refusal(2)
    assert line.startswith(f"{PACKAGE}/scaffold.toml")
    assert message in line
    assert snapshot(root) == before


def test_package_may_be_named_through_links_and_parents(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    root = package()
    (tmp_path / "link").symlink_to(root / PACKAGE)
    (root / PACKAGE / "sub").mkdir()
    for given in (tmp_path / "link", tmp_path / "link/scaffold.toml", root / "docs/.." / PACKAGE / "sub/.."):
        assert "would change" in scaffold_cli("remove", given, "--dry-run").success()
    assert "would change" in scaffold_cli("remove", "..", "--dry-run", cwd=root / PACKAGE / "sub").success()


@pytest.mark.parametrize(
    "command", [("remove",), ("update",), ("drift", "BagelPipeline", "--to", "0.28.0", "--package")]
)
def test_empty_package_is_not_the_folder_one_is_in(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any], command: tuple[str, ...]
) -> None:
    root = package()
    before = snapshot(root)
    assert scaffold_cli(*command, "", cwd=root).refusal(2).startswith("PACKAGE is empty")
    assert snapshot(root) == before
