"""The autoencoder: its class however it is made, the sizes that the noise tells, and none at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, look

READ = """
from diffusers import AutoencoderKL


class Spread(AutoencoderKL):
    @classmethod
    def {name}(cls, *args, **kwargs):
        model = super().{name}(*args, **kwargs)
        model.spread = True
        return model
"""
NOISE = "x = torch.randn((1, 16, {rows}, {columns}))\n" + EULER + "x = self.vae.decode(x)\n"


@pytest.mark.parametrize("name", ["from_pretrained", "from_config"])
def test_class_that_adds_to_an_inherited_constructor(tmp_path: Path, name: str) -> None:
    init = f"self.vae = Spread.{name}(od_config.model).to('cpu')"
    found = look(tmp_path, EULER + "x = self.vae.decode(x)\n", init=init, before=READ.format(name=name))
    assert found.value("vae.class") == "Spread"
    assert found.fact("vae.class").evidence[0].line > found.fact("denoiser.class").evidence[-1].line


@pytest.mark.parametrize(
    ("rows", "columns", "stride"),
    [
        ("height // 8", "width // 8", 8),
        ("2 * (height // 32)", "2 * (width // 32)", 16),
        ("height // 8", "width // 16", None),
        ("64", "64", None),
        ("height // self.vae.factor", "width // self.vae.factor", None),
    ],
)
def test_sizes_of_the_noise(tmp_path: Path, rows: str, columns: str, stride: int | None) -> None:
    init = "from diffusers import AutoencoderKL\nself.vae = AutoencoderKL.from_pretrained(od_config.model)"
    sides = 'height, width = params.extra_args.get("height", 512), params.extra_args.get("width", 512)\n'
    found = look(tmp_path, sides + NOISE.format(rows=rows, columns=columns), init=init)
    assert found.value("vae.downsample") == stride
    assert found.value("vae.channels") == 16


def test_channels_that_a_checkpoint_decides(tmp_path: Path) -> None:
    init = "from diffusers import AutoencoderKL\nself.vae = AutoencoderKL.from_pretrained(od_config.model)\n"
    init += "from vllm_omni.diffusion.models.made_up.sizes import Sizes\nself.sizes = Sizes()"
    loop = NOISE.replace("16,", "self.sizes.channels,").format(rows="8", columns="8")
    found = look(tmp_path, loop, init=init, modules={"sizes.py": "class Sizes:\n    channels = 16\n"})
    assert found.value("vae.class") == "AutoencoderKL"
    assert found.fact("vae.channels").confidence == "unknown"


def test_none_at_all(tmp_path: Path) -> None:
    found = look(tmp_path, EULER).fact("vae.class")
    assert (found.value, found.confidence) == (None, "likely")


def test_one_that_is_held_but_not_followed(tmp_path: Path) -> None:
    init = "from diffusers import AutoencoderKL\nself.vae = AutoencoderKL.from_pretrained(od_config.model)"
    assert look(tmp_path, EULER, init=init).fact("vae.class").confidence == "unknown"
