"""The spec as a document: what is written is what is read."""

from __future__ import annotations

import pytest

from scaffold.errors import ScaffoldError
from scaffold.spec import IntegrationSpec


def test_a_spec_survives_its_file(reference_spec):
    text, lock = reference_spec.to_toml(), reference_spec.to_lock()
    again = IntegrationSpec.from_toml(text, lock=lock)
    assert again == reference_spec
    assert (again.to_toml(), again.to_lock()) == (text, lock)


def test_a_value_that_is_unknown_stays_unknown_and_is_listed():
    spec = IntegrationSpec({"schedule": {"shift": None, "steps": "n"}, "prompt": {"column": "x"}})
    text, lock = spec.to_files()
    assert '"schedule.shift"' in lock
    assert "# shift =  # " in text
    assert IntegrationSpec.from_toml(text, lock=lock).sections == spec.sections


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 1\nnames = ", "is not TOML"),
        ("schema = 99\n", "has schema 99"),
        ("[names]\nmodel = 'x'\n", "has schema None"),
        ("schema = 1\nnames = 3\n", "names is not a table"),
    ],
)
def test_what_is_no_spec_is_said(text, said):
    with pytest.raises(ScaffoldError, match=said) as caught:
        IntegrationSpec.from_toml(text, "edited.toml")
    assert caught.value.line.startswith("edited.toml")


def test_every_value_says_where_it_came_from(reference_spec):
    for section, values in reference_spec.sections.items():
        for key, value in values.items():
            if value is not None:
                assert f"{section}.{key}" in reference_spec.provenance, f"{section}.{key}"


def test_facts_are_cited_with_file_and_line(reference_spec):
    cited = [origin for origin in reference_spec.provenance.values() if origin.startswith("fact answers.")]
    assert len(cited) >= 10
    for origin in cited:
        assert "vllm_omni/" in origin, origin
        assert origin.split(";")[0].rpartition(":")[2].isdigit(), origin
