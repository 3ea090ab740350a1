"""What has no counterpart raises where it is used: no module fails to be imported, and nothing is lost silently."""

from __future__ import annotations

import pytest
import torch

from tests.port.conftest import HEAD, PortText, execute, line_of

GLOBALS = (
    HEAD
    + """
from vllm.somewhere import KERNELS, Registry
from vllm.model_executor.layers.layernorm import RMSNorm

TABLE = {"fast": KERNELS}
NAMES = ["fast", *TABLE]
SIZE = 3


class Model(nn.Module):
    def forward(self, x, fast=False):
        if fast:
            x = x * len(NAMES)
        return x * SIZE
"""
)


def test_a_global_without_a_counterpart_raises_where_it_is_read(port_text: PortText) -> None:
    port = port_text(GLOBALS)
    model = execute(port).Model()
    assert model(torch.ones(2)).tolist() == [3.0, 3.0]
    with pytest.raises(NotImplementedError, match="KERNELS: port "):
        model(torch.ones(2), fast=True)
    assert [(gap.what, gap.line) for gap in port.gaps] == [("KERNELS", line_of(GLOBALS, "len(NAMES)"))]
    assert "TABLE" not in port.source


DERIVED = (
    HEAD
    + """
from vllm_omni.diffusion.attention.layer import Attention
from vllm_omni.diffusion.distributed.comm import Exchange
from vllm.model_executor.layers.linear import LinearBase


class Local(Attention):
    def run(self, x):
        return x


class Nearer(Local):
    pass


class Other(LinearBase):
    pass


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        if kind == "local":
            self.attention = Nearer(2, 4)
        elif kind == "other":
            self.attention = Other()
        elif kind == "exchange":
            self.attention = Exchange.apply(1)
        self.scale = 2.0

    def forward(self, x):
        return x * self.scale
"""
)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("local", "Attention as a base of Nearer"),
        ("other", "LinearBase as a base of Other"),
        ("exchange", "Exchange.apply"),
    ],
)
def test_a_class_above_a_layer_of_the_engines_is_a_gap(port_text: PortText, kind: str, what: str) -> None:
    exchange = {"vllm_omni/diffusion/distributed/comm.py": "class Exchange:\n    pass\n"}
    module = execute(port_text(DERIVED, exchange))
    assert module.Model("none")(3.0) == 6.0
    with pytest.raises(NotImplementedError, match=f"^{what}: port "):
        module.Model(kind)
    assert not hasattr(module, "Nearer")
    assert not hasattr(module, "Exchange")


ANSWERED = (
    HEAD
    + """
import inspect

from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.models.utils import PPMissingLayer, maybe_prefix
from vllm_omni.diffusion.forward_context import get_forward_context, is_forward_context_available
from vllm_omni.diffusion.offloader.config import OffloadStrategy, resolve_offload_strategy

PARAMETERS = inspect.signature(RMSNorm.__init__).parameters


def norm(width, **options):
    if "has_weight" in PARAMETERS:
        options["has_weight"] = False
    return RMSNorm(width, **options)


class Model(nn.Module):
    def __init__(self, config=None, prefix=""):
        super().__init__()
        self.name = maybe_prefix(prefix, "inner")
        self.plain = resolve_offload_strategy(config) == OffloadStrategy.NONE
        self.norm = norm(4, eps=0.0)
        self.absent = PPMissingLayer()

    def forward(self, x, groups=1):
        context = get_forward_context() if is_forward_context_available() else None
        if groups > 1 and context is not None:
            context.split = False
        if context is not None and context.sp_padding > 0:
            x = x[:, : -context.sp_padding]
        return self.norm(self.absent(x)) if self.plain else -x
"""
)


def test_what_one_device_answers(port_text: PortText) -> None:
    port = port_text(ANSWERED)
    assert (port.gaps, port.assumptions) == ((), ())
    module = execute(port)
    assert module.Model().name == "inner"
    assert module.Model(prefix="outer").name == "outer.inner"
    model = module.Model()
    assert "self.plain" not in port.source
    assert not list(model.parameters())
    x = torch.tensor([[1.0, 2.0, 2.0, 4.0]])
    torch.testing.assert_close(model(x), x / 2.5)


def test_a_context_whose_content_is_read_is_still_an_assumption(port_text: PortText) -> None:
    read = "        if context is not None:\n            x = x + context.shift\n        if groups > 1"
    text = ANSWERED.replace("    def forward(self", "    def other(self", 1).replace("        if groups > 1", read)
    port = port_text(text + "\n    def forward(self, x):\n        return self.other(x)\n")
    assert [entry.what for entry in port.assumptions] == ["is_forward_context_available"]


def test_a_context_that_is_only_written_to_brings_nothing_in(port_text: PortText) -> None:
    read = """        if context is not None and context.sp_padding > 0:
            x = x[:, : -context.sp_padding]
"""
    assert read in ANSWERED
    assert not port_text(ANSWERED.replace(read, "")).assumptions
