"""[checkpoint] is worked out once for a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from scaffold.grade import compose
from scaffold.inspect import inspect_pipeline
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.spec.sections import checkpoint
from scaffold.target import default_profile
from scaffold.upstream import DEFAULT_VERSION, locate


@pytest.mark.upstream
def test_a_spec_that_is_composed_again_infers_no_key_map(monkeypatch: pytest.MonkeyPatch) -> None:
    source, asked = locate(DEFAULT_VERSION), []

    def inferred(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return infer(*arguments, **options)

    infer = checkpoint.infer_key_map
    monkeypatch.setattr(checkpoint, "infer_key_map", inferred)
    monkeypatch.setattr(checkpoint, "_LAST", [])
    report = inspect_pipeline(source, "BagelPipeline")
    request = SpecRequest(report, derive_names("bagel"), default_profile())
    first = compose.__wrapped__(request, source)  # type: ignore[attr-defined]  # not one of another test's
    once = len(asked)
    assert compose.__wrapped__(request, source) == first  # type: ignore[attr-defined]
    assert (once > 0, len(asked)) == (True, once)
