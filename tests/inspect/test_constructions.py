"""Where a pipeline's components come from: constructors that check, modules that are moved, loaders that build."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, look, written

CHECKS = [
    "paths = Paths()\nif paths.model is None:\n    raise ValueError('no model')",
    "import os\nmissing = [k for k in ('a', 'b') if k not in os.environ]\nif missing:\n    raise ValueError(missing)",
    "self.check(Paths())",
]
BEFORE = """
from dataclasses import dataclass


@dataclass
class Paths:
    model: str | None = None


class Checks:
    def check(self, paths):
        if not paths.model:
            raise ValueError("no model")
"""
VAE = "\nfrom diffusers import AutoencoderKL\nself.vae = AutoencoderKL.from_pretrained(od_config.model)"
DECODE = EULER + "x = self.vae.decode(x)\n"


@pytest.mark.parametrize("check", CHECKS)
def test_constructor_that_refuses_what_nobody_gave(tmp_path: Path, check: str) -> None:
    found = look(tmp_path, DECODE, init=check + VAE, before=BEFORE, bases="nn.Module, Checks")
    assert found.value("vae.class") == "AutoencoderKL"


@pytest.mark.parametrize("move", ["self.net.to('cpu')", "self.net.eval().requires_grad_(False)", "self.net.half()"])
def test_module_that_is_moved_stays_what_it_is(tmp_path: Path, move: str) -> None:
    found = look(tmp_path, EULER, init=f"self.net = {move}")
    assert (found.value("denoiser.class"), found.value("denoiser.method")) == ("Net", "forward")


def test_module_with_a_method_to_of_its_own(tmp_path: Path) -> None:
    before = """

class Moved(Net):
    def to(self, *args, **kwargs):
        self.moved = True
        return super().to(*args, **kwargs)
"""
    found = look(tmp_path, EULER, init="self.net = Moved().to('cpu')", before=before)
    assert found.value("denoiser.class") == "Moved"


def _without_net() -> str:
    return written().replace("        self.net = Net()\n", "")


def test_components_that_the_loader_makes(tmp_path: Path) -> None:
    loader = (
        "\n    def load_weights(self, weights):\n        net = Net()\n        self.net = net\n        return set()\n"
    )
    found = look(tmp_path, pipeline=_without_net() + loader)
    assert found.value("denoiser.class") == "Net"


def test_component_that_nobody_sets_has_no_known_class(tmp_path: Path) -> None:
    found = look(tmp_path, pipeline=_without_net())
    assert found.fact("denoiser.class").confidence == "unknown"
    assert found.fact("denoiser.method").confidence == "unknown"


def test_helper_of_a_turn_is_no_denoiser(tmp_path: Path) -> None:
    before = """

class Preparation:
    def prepare(self, x, t):
        return {"x": x, "t": t}
"""
    loop = EULER.replace("self.net(x, sigmas[i], cond)", "self.model(**Preparation().prepare(x, sigmas[i]))")
    found = look(tmp_path, loop, before=before, init="self.model = od_config.model")
    assert found.value("denoiser.class") is None


def test_layers_of_a_denoiser_that_is_read_from_a_folder(tmp_path: Path) -> None:
    before = """
from diffusers import ModelMixin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)


class Read(ModelMixin):
    def __init__(self, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(depth)])

    def forward(self, x, t, cond):
        for layer in self.layers:
            x = layer.proj(x + t + cond)
        return x
"""
    init = "self.net = Read.from_pretrained(od_config.model, subfolder='denoiser')"
    found = look(tmp_path, EULER, init=init, before=before)
    assert found.value("layers.classes") == ["Layer"]
    assert found.value("checkpoint.files") == ["denoiser/*.safetensors"]
