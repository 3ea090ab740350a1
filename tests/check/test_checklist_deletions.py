"""Each item of the guide's checklist, taken out of the reference and of verl-omni's own BAGEL, is missed by a rule."""

from __future__ import annotations

import os
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest
from deletions import DELETIONS, PACKAGE, Deletion, Files
from mutants import reference_files

from scaffold.check.catalogue import all_rules
from scaffold.check.example import check_files
from scaffold.check.rules_page import entries

# Each other worker would read verl-omni, and check it as it is, once more.
pytestmark = pytest.mark.xdist_group("deletions")
TREES = ("the reference", "verl-omni")
_OTHERS = ("verl_omni/pipelines/schedulers", "verl_omni/workers", "tests/gpu_smoke", "tests/npu_smoke")
_SUFFIXES = (".py", ".sh", ".md", ".yaml", ".toml")


@lru_cache(maxsize=2)
def _tree(name: str) -> Files:
    if name == TREES[0]:
        return dict(reference_files())
    source = os.environ.get("VERL_OMNI_SRC")
    if not source or not Path(source, PACKAGE).is_dir():
        pytest.skip("VERL_OMNI_SRC names no checkout with BAGEL")
    found = {}
    for path in sorted(Path(source).rglob("*")):
        key = path.relative_to(source).as_posix()
        own = "bagel" in key or key.startswith(_OTHERS) or key == "pyproject.toml"
        own |= key.startswith("verl_omni/pipelines/") and key.count("/") == 2
        if own and path.is_file() and path.suffix in _SUFFIXES and ".git/" not in key:
            found[key] = f"-> {path.readlink()}" if path.is_symlink() else path.read_text(encoding="utf-8")
    return found


@lru_cache(maxsize=2)
def _before(name: str) -> Counter[tuple[str, str]]:
    return Counter((f.rule, f.message) for f in check_files(_tree(name)))


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("deletion", DELETIONS, ids=lambda one: f"{one.item}-{one.what}")
def test_what_is_taken_out_is_missed(deletion: Deletion, tree: str) -> None:
    files = dict(_tree(tree))
    if not deletion.edit(files):
        pytest.skip(f"{tree} has no such thing")
    right = sorted({rule.id for rule in all_rules() if deletion.item in rule.checklist} | set(deletion.rules))
    new = Counter((f.rule, f.message) for f in check_files(files, right)) - _before(tree)
    assert {rule for rule, _ in new} & set(right), f"none of {', '.join(right)} speaks"


def test_every_item_is_tried() -> None:
    items = {entry.id for entry in entries() if entry.part}
    assert items - {deletion.item for deletion in DELETIONS} == {"R4"}, "R4 is no thing that could be taken out"
