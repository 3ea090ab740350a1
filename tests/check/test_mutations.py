"""The reference integration, broken in many ways: `check` finds what was broken, by a rule that stands for it."""

from __future__ import annotations

import functools
import traceback
from collections import Counter
from pathlib import Path

import pytest
from mutants import all_mutants
from mutants.edit import AnchorError, swap, text
from mutants.mutant import LAUNCH, MODEL, Mutant, mutant

from scaffold.check.catalogue import all_rules
from scaffold.check.checklist import entries
from scaffold.check.engine import check_targets
from scaffold.check.finding import Finding
from scaffold.check.model.project import Project
from scaffold.check.model.tree import MemoryTree
from scaffold.check.targets import Target

MUTANTS = all_mutants()
RATE = 0.95
EACH = 3  # mutants of every item of the checklist, and of every pitfall that text or headers show


@functools.cache
def reference_files() -> dict[str, str]:
    """Return the reference integration: path -> text, links as `MemoryTree` takes them."""
    root = Path(__file__).parents[2] / "reference_bagel"
    files = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            files[name] = f"-> {path.readlink()}"
        elif path.is_file():
            files[name] = path.read_text(encoding="utf-8")
    return files


def found(files: dict[str, str]) -> list[Finding]:
    """Return what all rules find in a tree."""
    project = Project(MemoryTree(files))
    return list(check_targets([Target(project, project.packages, whole=True)]).findings)


@functools.cache
def outcomes() -> list[tuple[Mutant, set[str], str | None]]:
    """Return each mutant with the rules that spoke, and the traceback if checking it raised."""
    results: list[tuple[Mutant, set[str], str | None]] = []
    for one in MUTANTS:
        files = one.tree(reference_files())
        try:
            results.append((one, {finding.rule for finding in found(files)}, None))
        except Exception:
            results.append((one, set(), traceback.format_exc(limit=-3)))
    return results


def test_reference_is_clean() -> None:
    findings = found(reference_files())
    assert not findings, "\n".join(f"{f.path}:{f.line} {f.rule} {f.message}" for f in findings)


def test_every_item_is_broken_in_several_ways() -> None:
    broken = Counter(f"pitfall {item}" if isinstance(item, int) else item for one in MUTANTS for item in one.items)
    rare = [entry.id for entry in entries() if entry.text_tells and broken[entry.id] < EACH]
    assert not rare, f"fewer than {EACH} mutants: {', '.join(rare)}"
    assert set(broken) <= {entry.id for entry in entries()}


def test_mutants_have_names_of_their_own_and_name_rules_that_are_there() -> None:
    names = Counter(one.name for one in MUTANTS)
    assert not [name for name, count in names.items() if count > 1]
    known = {rule.id for rule in all_rules()}
    unknown = {rule for one in MUTANTS for rule in one.rules} - known
    assert not unknown, f"no such rule: {', '.join(sorted(unknown))}"
    assert all(one.rules and one.edits for one in MUTANTS)


def test_checking_a_mutant_raises_nothing() -> None:
    raised = [f"{one.name}\n{error}" for one, _, error in outcomes() if error is not None]
    assert not raised, "\n".join(raised)


def test_mistakes_are_found_by_a_right_rule() -> None:
    missed = [
        f"{one.name} ({', '.join(map(str, one.items))}): expected {' or '.join(one.rules)},"
        f" found {', '.join(sorted(rules)) or 'nothing'}"
        for one, rules, _ in outcomes()
        if rules.isdisjoint(one.rules)
    ]
    share = 1 - len(missed) / len(MUTANTS)
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} mutants found ({share:.1%})", *missed, sep="\n  missed: ")
    assert share >= RATE, "\n".join(missed)


@pytest.mark.parametrize(
    "edit",
    [
        swap(MODEL, "BagelForTraining.forward", "self.no_such_layer", "self.layers"),
        swap(MODEL, "NoSuchClass.forward", "self.layers", "self.blocks"),
        text(LAUNCH, "no such override", ""),
    ],
)
def test_mutant_that_fits_no_more_is_an_error(edit: object) -> None:
    with pytest.raises(AnchorError):
        mutant("gone", ("M1",), "112", edit).tree(reference_files())  # type: ignore[arg-type]
