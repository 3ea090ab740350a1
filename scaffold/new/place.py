"""Puts into a spec where its integration lies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.spec.derived import digest

if TYPE_CHECKING:
    from scaffold.spec import IntegrationSpec
    from scaffold.target import ContractProfile

_PLACED = (
    "layout",
    "runtime",
    "example_readme",
    "docs_link",
    "docs_index",
    "smoke_runner",
    "smoke_groups",
    "models_page",
)


def with_place(spec: IntegrationSpec, profile: ContractProfile) -> IntegrationSpec:
    """Return the spec for the profile's layout; one that was made for it stays as it is."""
    target, wanted = spec.sections["target"], profile.context(str(spec.value("names.model")))
    if all(target.get(name) == wanted.get(name) for name in ("layout", "runtime")):
        return spec
    names = [f"target.{name}" for name in _PLACED]
    mine = {name: wanted[name] for name in _PLACED if name in wanted}
    kept = {name: value for name, value in target.items() if name not in _PLACED}
    origin = f"contract profile {profile.name}"
    return replace(
        spec,
        sections={**spec.sections, "target": {**kept, **mine}},
        provenance={
            **{name: value for name, value in spec.provenance.items() if name not in names},
            **{f"target.{name}": origin for name, value in mine.items() if value is not None},
        },
        derived={
            **{name: value for name, value in spec.derived.items() if name not in names},
            **{f"target.{name}": digest(value) for name, value in mine.items() if value is not None},
        },
    )
