"""What is replaced for a block is as before after it; the product has no library of mocks."""

from __future__ import annotations

import ast
import types
from contextlib import suppress

import pytest
from own_code import nodes, trees

from scaffold.attributes import with_attribute, with_entries


class Base:
    value = 1


class Derived(Base):
    own = 2


def test_an_attribute_is_as_before_also_after_an_error_and_where_it_is_inherited() -> None:
    with suppress(KeyError), with_attribute(Derived, "value", 5), with_attribute(Derived, "own", 6):
        assert (Derived.value, Base.value, Derived.own) == (5, 1, 6)
        raise KeyError
    assert (Derived.value, Derived.own) == (1, 2)
    assert "value" not in vars(Derived)


def test_what_is_not_there_is_an_error_unless_it_may_be_made() -> None:
    module = types.ModuleType("module")
    with pytest.raises(AttributeError), with_attribute(module, "absent", 1):
        pass
    with with_attribute(module, "absent", 1, create=True):
        assert module.absent == 1
    assert not hasattr(module, "absent")


def test_entries_are_as_before() -> None:
    mapping = {"a": 1, "b": 2}
    with with_entries(mapping, {"a": 5, "c": 6}):
        assert mapping == {"a": 5, "b": 2, "c": 6}
        del mapping["b"]
    assert mapping == {"a": 1, "b": 2}


def test_the_product_has_no_mocks() -> None:
    found = {
        name
        for name, tree in trees().items()
        for node in nodes(tree)
        if "unittest" in (getattr(node, "module", "") or "")
        or (isinstance(node, ast.Import) and any(alias.name.startswith("unittest") for alias in node.names))
    }
    assert found == set()
