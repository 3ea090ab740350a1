"""Values that are computed in float32 for a while go back to the dtype in which they came."""

from __future__ import annotations

import torch

from scaffold.port.denoiser import restore_precision

TEXT = '''
import torch


def turned(x, by):
    """Turn it."""
    x = x.to(torch.float32) * by
    x = x.to(torch.bfloat16)
    return x


def fixed(x, by):
    return (x * by).to(torch.bfloat16)
'''


def test_a_widened_argument_gets_its_own_dtype_back() -> None:
    space: dict[str, object] = {}
    exec(restore_precision(TEXT), space)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert space["turned"](torch.ones(2, dtype=dtype), 2.0).dtype == dtype  # type: ignore[operator]


def test_what_upstream_computes_in_one_dtype_alone_stays() -> None:
    assert "return (x * by).to(torch.bfloat16)" in restore_precision(TEXT)
    kept = TEXT.replace("x.to(torch.float32)", "x")
    assert restore_precision(kept) == kept
