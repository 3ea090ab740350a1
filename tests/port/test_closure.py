"""What a port carries over, what it leaves out, and what raises."""

from __future__ import annotations

import pytest
import torch

from scaffold.errors import ScaffoldError
from tests.port.conftest import HEAD, PortText, Run, line_of

IMPORTS = (
    HEAD
    + """
from vllm.distributed import get_tensor_model_parallel_world_size, tensor_model_parallel_all_reduce
from vllm.logger import init_logger
from vllm_omni.diffusion.forward_context import get_forward_context, is_forward_context_available
from vllm_omni.platforms import current_omni_platform

logger = init_logger(__name__)
"""
)


def test_other_files_and_bases_come_along(port_text: PortText, run: Run) -> None:
    port = port_text(
        HEAD
        + """
from vllm_omni.diffusion.models.other.base import SIZE, Base, helper


class Model(Base):
    def forward(self, x):
        return super().forward(x) + helper(x) + SIZE
""",
        {
            "vllm_omni/diffusion/models/other/base.py": """
import math
import torch.nn as nn

SIZE = 4 * math.floor(2.5)
UNUSED = SIZE + 1


def helper(x):
    return x * SIZE


class Base(nn.Module):
    _sp_plan = {"x": UNUSED}

    def forward(self, x):
        return self._inner(x)

    def _inner(self, x):
        return -x

    def never_called(self):
        raise RuntimeError
""",
        },
    )
    assert torch.equal(run(port).Model()(torch.ones(2)), torch.full((2,), 15.0))
    assert port.derived_from == (
        "vllm_omni/diffusion/models/other/base.py",
        "vllm_omni/diffusion/models/small/first.py",
    )
    assert "never_called" not in port.source
    assert "UNUSED" not in port.source
    assert set(port.classes) == {"Base", "Model"}
    assert "vllm-omni 9.9.9" in port.text


def test_equal_names_of_two_files_stay_apart(port_text: PortText, run: Run) -> None:
    port = port_text(
        HEAD
        + """
from . import second
from .second import double


def scale(x):
    return x + 1


class Model(nn.Module):
    def forward(self, x):
        return scale(x) * double(x) + second.scale(x)
""",
        {"second.py": "def scale(x):\n    return 10 * x\n\n\ndef double(x):\n    return scale(x) * 2\n"},
    )
    assert run(port).Model()(2) == 3 * 40 + 20


def test_branches_of_several_devices_are_left_out(port_text: PortText, run: Run) -> None:
    port = port_text(
        IMPORTS
        + """

class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.tp_size = get_tensor_model_parallel_world_size()
        if heads % self.tp_size != 0:
            raise ValueError("heads")
        self.heads = heads // self.tp_size

    def forward(self, x):
        logger.info("shape %s", x.shape)
        if self.tp_size > 1 and is_forward_context_available():
            x = get_forward_context().gather(x)
        elif current_omni_platform.is_npu():
            x = torch.ops.npu.fast(x)
        y = tensor_model_parallel_all_reduce(x) if self.tp_size > 1 else x
        return y * self.heads
"""
    )
    assert run(port).Model(3)(torch.tensor(2.0)) == 6.0
    assert not port.gaps


def test_what_the_engine_would_hand_over_is_noted(port_text: PortText, run: Run) -> None:
    text = (
        IMPORTS
        + """

class Model(nn.Module):
    def forward(self, x):
        return self.given(x)

    def given(self, x):
        reference = get_forward_context().ref_latent if is_forward_context_available() else None
        if reference is not None:
            x = x + reference
        return x
"""
    )
    port = port_text(text)
    assert run(port).Model()(2.0) == 2.0
    assert [(entry.what, entry.line) for entry in port.assumptions] == [
        ("get_forward_context().ref_latent", line_of(text, "reference = "))
    ]


def test_what_has_no_counterpart_raises_at_its_place(port_text: PortText, run: Run) -> None:
    text = (
        IMPORTS
        + """
from vllm_omni.diffusion.kv import PagedCache


class Model(nn.Module):
    def forward(self, x, cached):
        if cached:
            cache = PagedCache(x)
            x = cache.read()
        return x
"""
    )
    port = port_text(text, {"vllm_omni/diffusion/kv.py": "class PagedCache:\n    pass\n"})
    model = run(port).Model()
    assert model(1, False) == 1
    with pytest.raises(NotImplementedError, match="PagedCache has no counterpart in plain torch"):
        model(1, True)
    assert [(gap.what, gap.file, gap.line) for gap in port.gaps] == [
        ("PagedCache", "vllm_omni/diffusion/models/small/first.py", line_of(text, "cache = PagedCache"))
    ]


def test_gradients_are_not_turned_off(port_text: PortText, run: Run) -> None:
    port = port_text(
        HEAD
        + """

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        with torch.no_grad():
            self.linear.weight.zero_()

    @torch.no_grad()
    def forward(self, x):
        with torch.inference_mode():
            return self._inner(x)

    @torch.inference_mode()
    def _inner(self, x):
        hidden = self.linear(x) + x
        later = hidden * hidden
        hidden[:, :1].add_(later[:, :1])
        return hidden
"""
    )
    model = run(port).Model()
    x = torch.ones(1, 2)
    with torch.no_grad():
        model.linear.bias.zero_()
    found = model(x)
    found.sum().backward()
    assert torch.equal(found.detach(), torch.tensor([[2.0, 1.0]]))
    assert model.linear.weight.grad is not None


def test_methods_beside_forward_are_kept_on_request(port_text: PortText, run: Run) -> None:
    text = HEAD + "\n\nclass Model(nn.Module):\n    @staticmethod\n    def table(n):\n        return list(range(n))\n"
    assert "table" not in port_text(text).source
    assert run(port_text(text, keep=("table",))).Model.table(3) == [0, 1, 2]


def test_layer_classes_are_those_in_lists(port_text: PortText) -> None:
    port = port_text(
        HEAD
        + """

class Inner(nn.Module):
    pass


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Inner() for _ in range(2)])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x):
        return x
"""
    )
    assert port.layer_classes == ("Block",)
    assert port.inputs == ("x",)


def test_a_class_that_is_not_there(port_text: PortText) -> None:
    with pytest.raises(ScaffoldError, match="has no class Model"):
        port_text("class Other:\n    pass\n")


def test_fields_keep_their_place_whatever_their_type(port_text: PortText, run: Run) -> None:
    port = port_text(
        IMPORTS
        + """
from dataclasses import dataclass

from vllm_omni.diffusion.kv import PagedCache


@dataclass
class Sizes:
    first: PagedCache
    second: int = 2


class Model(nn.Module):
    def forward(self, x):
        return Sizes(x, second=3)
""",
        {"vllm_omni/diffusion/kv.py": "class PagedCache:\n    pass\n"},
    )
    found = run(port).Model()(1)
    assert (found.first, found.second) == (1, 3)


def test_the_group_of_a_pipeline_of_devices_and_its_layers(port_text: PortText, run: Run) -> None:
    port = port_text(
        IMPORTS
        + """
from vllm.distributed import get_pp_group
from vllm.attention import AttentionType
from vllm.model_executor.models.utils import PPMissingLayer, make_layers
from vllm_omni.diffusion.distributed.utils import get_local_device


class Block(nn.Module):
    def __init__(self, prefix):
        super().__init__()
        self.name = prefix
        self.kind = AttentionType.ENCODER_DECODER

    def forward(self):
        return self.name, self.kind


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.device = get_local_device()
        if get_pp_group().is_first_rank:
            self.start, self.end, self.blocks = make_layers(depth, lambda prefix: Block(prefix), prefix="blocks")
        else:
            self.blocks = PPMissingLayer()
        current_omni_platform.reset_diffusion_fused_moe_forward_context()
""",
        {"vllm_omni/diffusion/distributed/utils.py": "def get_local_device():\n    raise RuntimeError\n"},
    )
    assert not port.gaps
    assert port.layer_classes == ("Block",)
    model = run(port).Model(2)
    assert (model.start, model.end) == (0, 2)
    assert [block() for block in model.blocks] == [
        ("blocks.0", "encoder_decoder"),
        ("blocks.1", "encoder_decoder"),
    ]
