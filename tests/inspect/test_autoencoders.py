"""The autoencoder: its class however it is made, and none at all."""

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


@pytest.mark.parametrize("name", ["from_pretrained", "from_config"])
def test_class_that_adds_to_an_inherited_constructor(tmp_path: Path, name: str) -> None:
    init = f"self.vae = Spread.{name}(od_config.model).to('cpu')"
    found = look(tmp_path, EULER + "x = self.vae.decode(x)\n", init=init, before=READ.format(name=name))
    assert found.value("vae.class") == "Spread"
    assert found.fact("vae.class").evidence[0].line > found.fact("denoiser.class").evidence[-1].line


def test_none_at_all(tmp_path: Path) -> None:
    found = look(tmp_path, EULER).fact("vae.class")
    assert (found.value, found.confidence) == (None, "likely")


HELD = "from diffusers import AutoencoderKL\nself.vae = AutoencoderKL.from_pretrained(od_config.model).eval()\n"


@pytest.mark.parametrize("finish", ["pieces = [self.vae.decode(piece) for piece in req.pieces]\n", "x = self.end(x)\n"])
def test_one_that_is_held_but_whose_input_was_not_followed(tmp_path: Path, finish: str) -> None:
    found = look(tmp_path, EULER + finish, init=HELD + "self.end = AutoTokenizer.from_pretrained('x')")
    assert (found.value("vae.class"), found.fact("vae.class").confidence) == ("AutoencoderKL", "likely")


def test_two_that_differ_are_not_one(tmp_path: Path) -> None:
    init = HELD + "from diffusers import AutoencoderKLWan\nself.video_vae = AutoencoderKLWan.from_pretrained('x')"
    assert look(tmp_path, EULER, init=init).fact("vae.class").confidence == "unknown"


def test_pipeline_that_decodes_itself(tmp_path: Path) -> None:
    own = "class Decodes:\n    def decode(self, x):\n        return self.vae.decode(x)\n\n\n"
    loop = EULER + "x = self.decode(x)\n"
    found = look(tmp_path, loop, init=HELD, before=own, bases="nn.Module, Decodes")
    assert found.value("vae.class") == "AutoencoderKL"


def test_text_that_is_decoded_needs_no_autoencoder(tmp_path: Path) -> None:
    found = look(tmp_path, EULER + "words = self.tokenizer.decode(cond)\n").fact("vae.class")
    assert (found.value, found.confidence) == (None, "likely")
