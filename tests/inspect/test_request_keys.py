"""Which keys of a request are read, and which of them holds the words that are encoded."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, look

KEY = "detail.prompt.key"


def test_keys_that_are_read_through_a_cast(tmp_path: Path) -> None:
    loop = 'import typing\ngiven = typing.cast(dict, req.prompts[0])\nextra = given.get("style")\n' + EULER
    assert look(tmp_path, loop).value("prompt.prompt_keys") == ["prompt", "style"]


def test_extra_arguments_that_are_only_asked_for_where_there_are_some(tmp_path: Path) -> None:
    loop = 'if params.extra_args:\n    scale = params.extra_args.get("strength", scale)\n' + EULER
    found = look(tmp_path, loop).fact("prompt.extra_args")
    assert (found.value, found.confidence) == (["strength"], "likely")
    assert look(tmp_path / "none", EULER).fact("prompt.extra_args").value == []
    followed = look(tmp_path / "followed", 'scale = params.extra_args.get("strength", scale)\n' + EULER)
    assert followed.fact("prompt.extra_args").confidence == "certain"


@pytest.mark.parametrize(
    ("first", "key"),
    [
        ('self.encode(prompt.get("extra", {}).get("glyphs"))', "prompt"),
        ('self.encode(prompt.get("picture_words"))', "prompt"),
        ('self.encode(prompt.get("negative_prompt", ""))', "prompt"),
    ],
)
def test_own_prompt_holds_the_words_whatever_is_encoded_first(tmp_path: Path, first: str, key: str) -> None:
    assert look(tmp_path, EULER.replace("sigmas =", f"glyphs = {first}\nsigmas =", 1)).value(KEY) == key


PIPELINE = """
import torch
from torch import nn
from transformers import AutoTokenizer

from vllm_omni.diffusion.request import Options, Output, Request


class Net(nn.Module):
    def forward(self, x, t, cond):
        return x + t + cond


class MadeUpPipeline(nn.Module):
    def __init__(self, *, od_config: Options, prefix=""):
        super().__init__()
        self.net = Net()
        self.tokenizer = AutoTokenizer.from_pretrained(od_config.model)

    def forward(self, req: Request):
        prompt, steps = req.prompts[0], 4
        x = torch.randn((1, 16, 8))
        cond = self.tokenizer({words}).input_ids
        sigmas = torch.linspace(1.0, 0.0, steps + 1)
        for i in range(steps):
            v = self.net(x, sigmas[i], cond)
            x = x + (sigmas[i + 1] - sigmas[i]) * v
        return Output(output=x)
"""


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ('prompt.get("caption")', "caption"),
        ('prompt["extra"].get("glyphs")', None),
        ('prompt.get("title") + prompt.get("caption")', None),
    ],
)
def test_other_key_that_holds_the_words(tmp_path: Path, words: str, key: str | None) -> None:
    assert look(tmp_path, pipeline=PIPELINE.replace("{words}", words)).value(KEY) == key
