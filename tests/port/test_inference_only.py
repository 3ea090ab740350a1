"""Code that runs in inference alone is left out of a port with one line a kind, and nobody is asked to port it."""

from __future__ import annotations

import re

import pytest

from scaffold.grade.ported_spec import _left_out
from tests.port.conftest import HEAD, PortText

GRAPHS = "vllm_omni/diffusion/models/other/graphs.py"
FILES = {
    GRAPHS: """
import torch
from vllm.lora.layers import BaseLayerWithLoRA
from vllm_omni.platforms import current_omni_platform


def replay(entry, x):
    if x.device.type != "cuda":
        return None
    with torch.cuda.graph(entry, pool=current_omni_platform.get_global_graph_pool()):
        return x


def wrapped(module):
    return any(isinstance(m, BaseLayerWithLoRA) for m in module.modules())
""",
    "vllm_omni/diffusion/models/other/kernels.py": """
from vllm.triton_utils import HAS_TRITON, tl, triton


@triton.jit
def _kernel(x_ptr, size: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr))


def doubled(x, validated=False):
    if not validated:
        return x * 2
    _kernel[(triton.cdiv(x.numel(), 1024),)](x, 1024)
    return x
""",
}
MODEL = (
    HEAD
    + """
from vllm_omni.diffusion.models.other.graphs import replay, wrapped
from vllm_omni.diffusion.models.other.kernels import doubled
from vllm_omni.diffusion.attention.mystery import mystery


def _turned(x):
    import torch_npu

    return torch_npu.npu_rotary_mul(x.float())


class Model(nn.Module):
    def forward(self, x):
        if x.device.type == "npu":
            return _turned(x)
        if wrapped(self):
            return replay(None, x)
        return doubled(x)

    def asked(self, x):
        return mystery(x)
"""
)


def test_kernels_and_graphs_are_left_out_with_a_line_a_kind(port_text: PortText) -> None:
    port = port_text(MODEL, FILES)
    kinds = {gap.left_out for gap in port.gaps}
    assert kinds == {"CUDA graphs", "Triton kernels", "kernels of NPUs"}
    lines = _left_out(port)
    assert len(lines) == 3
    graphs = next(line for line in lines if line.startswith("CUDA graphs: "))
    assert graphs.startswith(f"CUDA graphs: {GRAPHS}:")
    assert graphs.count(GRAPHS) == 1
    # It is said where it raises, in words that ask nobody to port it.
    assert "is left out: CUDA graphs are for inference" in re.sub(r'"\n *"', "", port.source)
    assert ": port " not in port.source


def test_what_is_no_such_code_is_still_asked_for(port_text: PortText) -> None:
    port = port_text(MODEL.replace("return doubled(x)", "return self.asked(doubled(x))"), FILES)
    asked = [gap for gap in port.gaps if gap.left_out is None]
    assert [gap.what for gap in asked] == ["mystery"]
    assert asked[0].message in port.source


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("from vllm.triton_utils import tl", "Triton kernels"),
        ("import triton.language as tl", "Triton kernels"),
        ("import torch_npu as tl", "kernels of NPUs"),
        ("from lengths import tl", None),
    ],
)
def test_a_library_is_known_by_where_it_is_imported_from(line: str, kind: str | None) -> None:
    import ast

    from scaffold.port.reading import inference_kind

    assert inference_kind(ast.parse(f"{line}\ndef f(x):\n    return other(x, tl)\n"), 3) == kind


@pytest.mark.parametrize("name", ["Module", "nn.Module"])
def test_a_module_with_layers_that_captures_is_asked_for(name: str) -> None:
    import ast

    from scaffold.port.reading import inference_kind

    text = f"class A({name}):\n    def f(self):\n        g = torch.cuda.CUDAGraph()\n        return other(g)\n"
    assert inference_kind(ast.parse(text), 4) is None
    assert inference_kind(ast.parse(text.replace(f"({name})", "")), 4) == "CUDA graphs"
