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


def test_channels_spread_over_pixels_before_decoding(tmp_path: Path) -> None:
    init = "from diffusers import AutoencoderKL\nself.vae = AutoencoderKL.from_pretrained(od_config.model)"
    sides = 'height, width = params.extra_args.get("height", 512), params.extra_args.get("width", 512)\n'
    spread = "x = x.reshape(1, 4, 2, 2, height // 16, width // 16).permute(0, 1, 4, 2, 5, 3)\n"
    loop = NOISE.format(rows="height // 16", columns="width // 16").replace("x = self.vae", f"{spread}x = self.vae")
    found = look(tmp_path, sides + loop, init=init)
    assert found.value("vae.class") == "AutoencoderKL"
    assert found.fact("vae.downsample").confidence == "unknown"


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


HELD = "from diffusers import AutoencoderKL\nself.vae = AutoencoderKL.from_pretrained(od_config.model).eval()\n"


@pytest.mark.parametrize(
    ("finish", "confidence"),
    [("pieces = [self.vae.decode(piece) for piece in req.pieces]\n", "certain"), ("x = self.finish(x)\n", "likely")],
)
def test_one_that_is_held_but_whose_input_was_not_followed(tmp_path: Path, finish: str, confidence: str) -> None:
    found = look(tmp_path, EULER + finish, init=HELD + "self.finish = AutoTokenizer.from_pretrained('x')")
    assert (found.value("vae.class"), found.fact("vae.class").confidence) == ("AutoencoderKL", confidence)


def test_two_that_differ_are_not_one(tmp_path: Path) -> None:
    init = HELD + "from diffusers import AutoencoderKLWan\nself.video_vae = AutoencoderKLWan.from_pretrained('x')"
    assert look(tmp_path, EULER, init=init).fact("vae.class").confidence == "unknown"


TABLE = """
from dataclasses import dataclass, replace
from diffusers import AutoencoderKL, AutoencoderKLWan


@dataclass
class Parts:
    vae_cls: type = AutoencoderKL


PLAIN = Parts(vae_cls=AutoencoderKL)
PARTS = {{("a", "1"): PLAIN, ("b", "1"): replace(PLAIN), ("a", "2"): Parts(vae_cls={other})}}
"""


@pytest.mark.parametrize(("other", "name"), [("AutoencoderKL", "AutoencoderKL"), ("AutoencoderKLWan", None)])
def test_one_of_a_table_of_parts(tmp_path: Path, other: str, name: str | None) -> None:
    init = "parts = PARTS[(od_config.model, '1')]\nself.vae = parts.vae_cls.from_pretrained(od_config.model)"
    found = look(tmp_path, EULER + "x = self.vae.decode(x)\n", init=init, before=TABLE.format(other=other))
    assert found.value("vae.class") == name
    assert found.fact("vae.class").confidence == ("unknown" if name is None else "likely")


def test_pipeline_that_decodes_itself(tmp_path: Path) -> None:
    own = "class Decodes:\n    def decode(self, x):\n        return self.vae.decode(x)\n\n\n"
    loop = EULER + "x = self.decode(x)\n"
    found = look(tmp_path, loop, init=HELD, before=own, bases="nn.Module, Decodes")
    assert found.value("vae.class") == "AutoencoderKL"


def test_text_that_is_decoded_needs_no_autoencoder(tmp_path: Path) -> None:
    found = look(tmp_path, EULER + "words = self.tokenizer.decode(cond)\n").fact("vae.class")
    assert (found.value, found.confidence) == (None, "likely")


@pytest.mark.parametrize(
    ("packed", "channels"), [("(1, 16, 8, 8)", 16), ("(1, 4 * 4, 8, 8)", None), ("(1, 1, 16, 8, 8)", None)]
)
def test_channels_of_noise_that_is_packed_into_tokens(tmp_path: Path, packed: str, channels: int | None) -> None:
    loop = f"x = torch.randn({packed})\nx = x.view(1, 16, 4, 2, 4, 2).permute(0, 2, 4, 1, 3, 5).reshape(1, 16, 64)\n"
    found = look(tmp_path, loop + EULER + "x = self.vae.decode(x.view(1, 16, 8, 8))\n", init=HELD)
    assert found.value("detail.scheduler.sample_rank") == 3
    assert found.value("vae.channels") == channels
