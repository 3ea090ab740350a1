"""The reference integration, broken in many ways: `check` finds what was broken, by a rule that stands for it."""

from __future__ import annotations

from collections import Counter

import pytest
from mutants import all_mutants
from mutants.edit import AnchorError, Edit, swap, text
from mutants.mutant import LAUNCH, MODEL, mutant
from mutants.outcome import Outcome, found, outcomes, reference_files

from scaffold.check.catalogue import all_rules
from scaffold.check.checklist import entries

RATE = 0.95
EACH = 3  # mutants of every item of the checklist, and of every pitfall that text or headers show


@pytest.fixture(scope="module")
def results() -> list[Outcome]:
    """Check all mutants once."""
    return outcomes()


def test_reference_is_clean() -> None:
    findings = found(reference_files())
    assert not findings, "\n".join(f"{f.path}:{f.line} {f.rule} {f.message}" for f in findings)


def test_every_item_is_broken_in_several_ways() -> None:
    broken = Counter(f"pitfall {item}" if isinstance(item, int) else item for m in all_mutants() for item in m.items)
    rare = [entry.id for entry in entries() if entry.text_tells and broken[entry.id] < EACH]
    assert not rare, f"fewer than {EACH} mutants: {', '.join(rare)}"
    assert set(broken) <= {entry.id for entry in entries()}


def test_mutants_have_names_of_their_own_and_name_rules_that_are_there() -> None:
    names = Counter(one.name for one in all_mutants())
    assert not [name for name, count in names.items() if count > 1]
    known = {rule.id for rule in all_rules()}
    unknown = {rule for one in all_mutants() for rule in one.rules} - known
    assert not unknown, f"no such rule: {', '.join(sorted(unknown))}"
    assert all(one.rules and one.edits for one in all_mutants())


def test_every_mutant_can_be_made(results: list[Outcome]) -> None:
    lost = [result.lost for result in results if result.lost is not None]
    assert not lost, "\n".join(lost)


def test_checking_a_mutant_raises_nothing(results: list[Outcome]) -> None:
    raised = [f"{m.name}\n{r.raised}" for m, r in zip(all_mutants(), results, strict=True) if r.raised is not None]
    assert not raised, "\n".join(raised)


def test_mistakes_are_found_by_a_right_rule(results: list[Outcome]) -> None:
    missed = [
        f"{one.name} ({', '.join(map(str, one.items))}): expected {' or '.join(one.rules)},"
        f" found {', '.join(sorted(result.rules)) or 'nothing'}"
        for one, result in zip(all_mutants(), results, strict=True)
        if result.rules.isdisjoint(one.rules)
    ]
    share = 1 - len(missed) / len(results)
    print(f"{len(results) - len(missed)} of {len(results)} mutants found ({share:.1%})", *missed, sep="\n  missed: ")
    assert share >= RATE, "\n".join(missed)


@pytest.mark.parametrize(
    "edit",
    [
        swap(MODEL, "BagelForTraining.forward", "self.no_such_layer", "self.layers"),
        swap(MODEL, "NoSuchClass.forward", "self.layers", "self.blocks"),
        text(LAUNCH, "no such override", ""),
    ],
)
def test_mutant_that_fits_no_more_is_an_error(edit: Edit) -> None:
    with pytest.raises(AnchorError):
        mutant("gone", ("M1",), "112", edit).tree(reference_files())
