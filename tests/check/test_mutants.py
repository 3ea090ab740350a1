"""The reference integration with one mistake: whoever a row names sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from matrix import failing
from mutants import AnchorError, Mutant, mutants, reference_files

from scaffold.check.catalogue import all_rules
from scaffold.check.example import check_files
from scaffold.check.rules_page import entries

EACH = 3  # mutants of every item of the checklist, and of every pitfall that text shows


def test_reference_is_clean() -> None:
    assert not check_files(reference_files())


@pytest.mark.parametrize("one", [one for one in mutants() if one.rules], ids=lambda one: one.name)
def test_rules_find_it(one: Mutant) -> None:
    assert check_files(one.tree(reference_files()), one.rules), f"none of {', '.join(one.rules)} speaks"


RUN = [one for one in mutants() if one.contracts]


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, id=one.name, marks=[pytest.mark.table] if number else []) for number, one in enumerate(RUN)],
)
def test_contracts_fail_for_it(one: Mutant, warm: None) -> None:
    found = failing(one, one.contracts)
    assert found.keys() == set(one.contracts), found


def test_every_item_is_broken_in_several_ways() -> None:
    broken = Counter(item for one in mutants() for item in one.breaks)
    rare = [entry.id for entry in entries() if entry.text_tells and broken[entry.id] < EACH]
    assert not rare, f"fewer than {EACH} mutants: {', '.join(rare)}"
    assert set(broken) <= {entry.id for entry in entries()}


def test_rows_have_names_of_their_own_and_name_what_there_is(is_measured: Callable[[str], bool]) -> None:
    names = Counter(one.name for one in mutants())
    assert not [name for name, count in names.items() if count > 1]
    rules = {rule.id for rule in all_rules()}
    for one in mutants():
        assert one.edits, one.name
        assert one.rules or one.contracts, f"{one.name}: nobody has to see it"
        assert set(one.rules) <= rules, one.name
        assert all(map(is_measured, one.contracts)), one.name
        if not one.rules:
            one.tree(reference_files())


def test_mutant_that_fits_no_more_is_an_error() -> None:
    with pytest.raises(AnchorError):
        Mutant("gone", ("M1",), (("launch", "no such override", ""),)).tree(reference_files())
