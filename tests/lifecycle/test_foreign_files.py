"""A package may be a stranger's: nothing that is not its own goes because of what its ``scaffold.lock.toml`` lists."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import NEW, PACKAGE, snapshot
from overruled import overrule

from scaffold.render.runtime import is_runtime
from scaffold.render.tree import template_paths
from scaffold.spec import LOCK_NAME, SPEC_NAME
from scaffold.spec.lock import seal

pytestmark = pytest.mark.upstream

COMMANDS = [("remove",), ("remove", "--force"), ("update", "--spec"), ("update",), ("remove", "--dry-run")]
FOREIGN = [
    "README.md",
    "LICENSE",
    "verl_omni/pipelines/model_base.py",
    "verl_omni/pipelines/__init__.py",
    "examples/flowgrpo_trainer/toy/other.md",
    "tests/toy/test_toy.py",
    "docs/toy_flow_grpo.md",
]


@pytest.fixture
def listing(package: Callable[..., Path]) -> Callable[[str], Path]:
    """Return a function that gives a checkout whose package lists one more file, which is there."""

    def make(path: str) -> Path:
        root = package()
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if not (root / path).exists():
            (root / path).write_text("somebody's\n")
        lock = root / PACKAGE / LOCK_NAME
        digest = hashlib.sha256((root / path).read_bytes()).hexdigest()
        lock.write_text(seal(lock.read_text().replace("\n[files]\n", f'\n[files]\n"{path}" = "{digest}"\n')))
        return root

    return make


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("path", FOREIGN)
def test_files_of_others_are_refused(
    listing: Callable[[str], Path], scaffold_cli: Callable[..., Any], command: tuple[str, ...], path: str
) -> None:
    root = listing(path)
    before = snapshot(root)
    line = scaffold_cli(*command, root / PACKAGE).refusal(2)
    assert f"lists {path}, which is not a file of {PACKAGE}; restore it with git" in line
    assert snapshot(root) == before


@pytest.mark.parametrize("command", [("remove",), ("update", "--spec")], ids=" ".join)
def test_a_file_beside_the_rendered_ones_stays(
    listing: Callable[[str], Path], scaffold_cli: Callable[..., Any], command: tuple[str, ...]
) -> None:
    root = listing(f"{PACKAGE}/notes.py")
    scaffold_cli(*command, root / PACKAGE)
    assert (root / PACKAGE / "notes.py").read_text() == "somebody's\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", "e", "names.package is 'toy_flow_grpo'; it must be names.model and names.algorithm, e_flow_grpo"),
        ("model", "", "names.model: MODEL is empty"),
        ("model", "../toy", "names.model: MODEL '../toy' is a path, not a name"),
        ("algorithm", "e", "names.package is 'toy_flow_grpo'; it must be names.model and names.algorithm, toy_e"),
    ],
)
def test_names_of_another_package_are_refused(
    package: Callable[..., Path],
    scaffold_cli: Callable[..., Any],
    command: tuple[str, ...],
    key: str,
    value: str,
    message: str,
) -> None:
    root = package()
    spec = root / PACKAGE / "scaffold.toml"
    overrule(spec, f"names.{key}", f'"{value}"')
    before = snapshot(root)
    assert message in scaffold_cli(*command, root / PACKAGE).refusal(2)
    assert snapshot(root) == before


def test_every_rendered_path_is_one_of_the_templates(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = standin()
    before = set(snapshot(root))
    scaffold_cli(*NEW, "--verl-omni", root).success()
    made = {path for path in set(snapshot(root)) - before if not (root / path).is_dir() or (root / path).is_symlink()}
    own = {path for path in made if not is_runtime(path)} - {f"{PACKAGE}/{SPEC_NAME}", f"{PACKAGE}/{LOCK_NAME}"}
    assert own <= template_paths("toy", "toy_flow_grpo")


def test_a_lock_that_lacks_what_was_rendered_is_one_line(
    reference: Path, scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(reference, tmp_path / "tree", symlinks=True))
    (lock,) = root.rglob(LOCK_NAME)
    text, lacking = lock.read_text(), re.compile(r'(?<=\n\[rendered\]\nnames = \{ )display = "[^"]*", ')
    assert lacking.search(text)
    lock.write_text(seal(lacking.sub("", text)))
    before = snapshot(root)
    line = scaffold_cli("update", lock.parent, "--spec", "--force", "--packaged").refusal(2)
    assert f"{LOCK_NAME} does not say what was rendered: 'display'; restore it with git" in line
    assert snapshot(root) == before
