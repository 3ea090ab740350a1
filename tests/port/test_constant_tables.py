"""Tables that the pipeline makes of its denoiser alone become a function of the denoiser."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.port.conftest import HEAD, PortText, Run

SOURCE = (
    HEAD
    + """

def turned(length, base):
    return torch.arange(float(length)) / base


class Rotary(nn.Module):
    @staticmethod
    def table(lengths, base):
        return [turned(length, base) for length in lengths]


class Model(nn.Module):
    def __init__(self, lengths=(2, 3)):
        super().__init__()
        self.config = Settings(lengths)
        self.rotary = Rotary()
        self.linear = nn.Linear(2, 2)

    def forward(self, x, freqs, other=None):
        return self.linear(x) + freqs[0]


class Settings:
    def __init__(self, lengths):
        self.lengths = lengths


class Pipeline(nn.Module):
    def __init__(self, *, od_config, prefix=""):
        super().__init__()
        self.transformer = Model()

    def forward(self, x, lengths):
        freqs = Rotary.table(self.transformer.config.lengths, base=4.0)
        return self.transformer(x, freqs)
"""
)
CALL = "Rotary.table(self.transformer.config.lengths, base=4.0)"


def test_a_table_of_the_configuration_is_computed_by_a_function(port_text: PortText, run: Run) -> None:
    port = port_text(SOURCE, keep=("table",), pipeline="Pipeline")
    assert port.tables
    ported = run(port)
    denoiser, _ = ported.build_denoiser(SimpleNamespace())
    made = ported.constant_tables(denoiser)
    assert [table.tolist() for table in made["freqs"]] == [[0.0, 0.25], [0.0, 0.25, 0.5]]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (CALL, "Rotary.table(lengths, base=4.0)"),
        (CALL, "Rotary.table((2, 3), base=4.0)"),
        (CALL, "Rotary.table(self.lengths, base=4.0)"),
        (CALL, "self.table(self.transformer.config.lengths)"),
        ("freqs = ", "tables = "),
    ],
    ids=["of the request", "of constants", "of the pipeline", "by the pipeline", "no argument"],
)
def test_anything_else_is_carried(port_text: PortText, right: str, wrong: str) -> None:
    assert SOURCE.count(right) == 1
    port = port_text(SOURCE.replace(right, wrong), keep=("table",), pipeline="Pipeline")
    assert not port.tables
    assert "constant_tables" not in port.source
