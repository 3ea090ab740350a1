"""The rendered denoiser_calls.py, loaded from the package of a ported denoiser, and what its tests have in common."""

from __future__ import annotations

import sys
import types
from functools import cache
from typing import Any

import pytest
import torch

from scaffold.grade import specify
from scaffold.inspect import inspect_pipeline
from scaffold.new import render_package
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import locate

GUIDANCE = {"guidance_scale": 3.0}


@cache
def source() -> str:
    upstream = locate("0.30.0")
    report = inspect_pipeline(upstream, "OmniGen2Pipeline")
    graded = specify(SpecRequest(report, derive_names("omnigen2"), default_profile()), upstream)
    files, _ = render_package(graded.spec, [], None, graded.port)
    return next(file.content for path, file in files.items() if path.endswith("/denoiser_calls.py"))


def load_calls(monkeypatch: pytest.MonkeyPatch, right: str = "", wrong: str = "") -> types.ModuleType:
    """The rendered module; with one text of it replaced, where one is given."""
    text = source()
    assert not right or text.count(right) == 1
    module = types.ModuleType("denoiser_calls")
    monkeypatch.setitem(sys.modules, "denoiser_calls", module)  # dataclasses look their module up
    exec(compile(text.replace(right, wrong) if right else text, "denoiser_calls.py", "exec"), module.__dict__)
    return module


def guide(conditional: torch.Tensor, unconditional: torch.Tensor | None) -> torch.Tensor:
    return conditional if unconditional is None else unconditional + 3.0 * (conditional - unconditional)


def replayed(calls: types.ModuleType, content: bytes, latents: torch.Tensor, step: int, denoiser: Any) -> torch.Tensor:
    both = [
        calls.DenoiserCalls(calls.read_calls([content]), latents, step, GUIDANCE, conditional=value).evaluate(
            denoiser, torch.float32
        )
        for value in (True, False)
    ]
    return guide(*both)
