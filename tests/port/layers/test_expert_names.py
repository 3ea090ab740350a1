"""``make_expert_params_mapping``: which weights of a checkpoint are an expert's."""

from __future__ import annotations

from tests.port.conftest import HEAD, PortText, execute

TEXT = (
    HEAD
    + """
from vllm.model_executor.layers.fused_moe import FusedMoE


class Model(nn.Module):
    def forward(self):
        return FusedMoE.make_expert_params_mapping(
            self,
            ckpt_gate_proj_name="gate",
            ckpt_down_proj_name="down",
            ckpt_up_proj_name="up",
            num_experts=2,
            num_redundant_experts=0,
        )
"""
)


def test_each_expert_has_three_rows(port_text: PortText) -> None:
    port = port_text(TEXT)
    assert not port.gaps
    assert execute(port).Model()() == [
        ("experts.w13_", "experts.0.gate.", 0, "w1"),
        ("experts.w2_", "experts.0.down.", 0, "w2"),
        ("experts.w13_", "experts.0.up.", 0, "w3"),
        ("experts.w13_", "experts.1.gate.", 1, "w1"),
        ("experts.w2_", "experts.1.down.", 1, "w2"),
        ("experts.w13_", "experts.1.up.", 1, "w3"),
    ]


def test_a_name_that_is_not_given_is_named(port_text: PortText) -> None:
    port = port_text(TEXT.replace('            ckpt_up_proj_name="up",\n', ""))
    assert [gap.what for gap in port.gaps] == ["names of experts' weights that are not given"]
