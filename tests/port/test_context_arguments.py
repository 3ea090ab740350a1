"""What the method that predicts reads from the engine's context of a forward pass becomes an argument of the port's."""

from __future__ import annotations

import pytest

from tests.port.conftest import PortText, Run

CONTEXT = {
    "vllm_omni/diffusion/forward_context.py": """
_context = None


def get_forward_context():
    return _context


def is_forward_context_available():
    return _context is not None
"""
}
HEAD = """
import torch
from torch import nn

from vllm_omni.diffusion.forward_context import get_forward_context, is_forward_context_available

"""
HELD = """
class Model(nn.Module):
    def forward(self, x, scale=1.0):
        shift = None
        if is_forward_context_available():
            context = get_forward_context()
            if context.reference is not None:
                shift = context.reference * context.weight
        return x * scale if shift is None else x * scale + shift
"""
AT_ONCE = """
class Model(nn.Module):
    def forward(self, x):
        reference = get_forward_context().reference if is_forward_context_available() else None
        return x if reference is None else x + reference
"""


def test_what_is_read_through_a_name(port_text: PortText, run: Run) -> None:
    import torch

    port = port_text(HEAD + HELD, CONTEXT)
    assert port.context == (("reference", "reference"), ("weight", "weight"))
    assert port.context_module == "vllm_omni.diffusion.forward_context"
    assert port.inputs == ("x", "scale", "reference", "weight")
    assert (port.assumptions, port.gaps) == ((), ())
    model = run(port).Model()
    x = torch.ones(2)
    assert model(x, scale=3.0).tolist() == [3.0, 3.0]
    assert model(x, reference=2 * x, weight=5.0).tolist() == [11.0, 11.0]


def test_a_name_that_the_method_has_already(port_text: PortText, run: Run) -> None:
    import torch

    port = port_text(HEAD + AT_ONCE, CONTEXT)
    assert port.context == (("reference", "context_reference"),)
    model = run(port).Model()
    assert model(torch.ones(1)).item() == 1.0
    assert model(torch.ones(1), context_reference=torch.ones(1)).item() == 2.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("context.reference * context.weight", "combine(context)"),  # handed on
        ("context.weight", "context.sp_size"),  # groups of devices have their answers
    ],
)
def test_a_context_that_is_used_otherwise_is_taken_as_absent(port_text: PortText, old: str, new: str) -> None:
    text = HEAD + "def combine(context):\n    return context.reference\n\n" + HELD.replace(old, new)
    port = port_text(text, CONTEXT)
    assert port.context == ()
    assert {taken.what for taken in port.assumptions} == {"get_forward_context().reference"}
    assert port.inputs == ("x", "scale")


def test_what_another_module_reads_stays_an_assumption(port_text: PortText) -> None:
    inner = HELD.replace("class Model", "class Inner")
    outer = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)
"""
    port = port_text(HEAD + inner + outer, CONTEXT)
    assert port.context == ()
    assert port.assumptions
