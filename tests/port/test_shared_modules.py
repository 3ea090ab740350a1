"""A class that is handed modules of another one: their parameters have two names, and the port says so."""

from __future__ import annotations

import pytest

from tests.port.conftest import HEAD, PortText, Run

TEXT = (
    HEAD
    + """
class Body(nn.Module):
    def __init__(self, layers, scale=1.0):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2)])
        self.body = Body(self.layers)

    def forward(self, x):
        return self.body(x)
"""
)


def test_modules_that_are_handed_on(port_text: PortText, run: Run) -> None:
    port = port_text(TEXT)
    assert port.shared
    names = set(run(port).Model().state_dict())
    assert {"layers.0.weight", "body.layers.0.weight"} <= names


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Body(self.layers)", "Body(nn.ModuleList([nn.Linear(2, 2)]))"),
        ("Body(self.layers)", "nn.Sequential(*self.layers)"),
        ("self.body = Body(self.layers)", "self.size = float(2)\n        self.body = Body([], self.size)"),
    ],
)
def test_modules_of_their_own(port_text: PortText, old: str, new: str) -> None:
    assert not port_text(TEXT.replace(old, new)).shared
