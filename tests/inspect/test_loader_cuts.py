"""Keys whose beginning or end a loader takes away by name, and files that only an option streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import REQUEST, SOURCE, look, written


def _pipeline(rename: str) -> str:
    lines = "".join(f"            {line}\n" for line in rename.strip().splitlines())
    loader = "\n    def load_weights(self, weights):\n        held = dict(self.named_parameters())\n"
    loader += "        for name, weight in weights:\n" + lines + "            held[name].copy_(weight)\n"
    return written(end=loader)


@pytest.mark.parametrize(
    ("rename", "wanted"),
    [
        ('if name.endswith(".old.w"):\n    name = name.removesuffix(".old.w") + ".w"', [[".old.w", ".w"]]),
        ('if name.startswith("old."):\n    name = "new." + name.removeprefix("old.")', [["old.", "new."]]),
        ('if name.startswith("old."):\n    name = f"new.{name.removeprefix(\'old.\')}"', [["old.", "new."]]),
        ('name = name.removeprefix("old.")', [["old.", ""]]),
        ('name = name.removesuffix("_ema")\nprint(f"loading {name}")', [["_ema", ""]]),
    ],
)
def test_cut_and_put_on_is_one_rename(tmp_path: Path, rename: str, wanted: list[list[str]]) -> None:
    found = look(tmp_path, pipeline=_pipeline(rename))
    assert found.value("checkpoint.renames") == wanted


@pytest.mark.parametrize(
    "rename",
    [
        # Every key gets the new end, those without the old one, too.
        'name = name.removesuffix(".old") + ".new"',
        'if name.endswith(".other"):\n    name = name.removesuffix(".old") + ".new"',
        'if name.startswith("old."):\n    name = "a." + name.removeprefix("old.") + ".b"',
        'if name.endswith(".old"):\n    name = name.removesuffix(".old") + str(len(held))',
    ],
)
def test_other_ways_to_put_on_are_not_guessed(tmp_path: Path, rename: str) -> None:
    found = look(tmp_path, pipeline=_pipeline(rename))
    assert found.facts["answers.checkpoint.renames"].confidence == "unknown"


STREAMED = """
from vllm_omni.diffusion.models.made_up.loader import Source

self.weights_sources = [Source(model_or_path=od_config.model, subfolder="net", prefix="net.")]
if {cond}:
    self.weights_sources.append(Source(model_or_path=od_config.model, subfolder="reader", prefix="reader."))
"""


def _streamed(tmp_path: Path, cond: str) -> tuple[object, str]:
    found = look(tmp_path, init=STREAMED.format(cond=cond), modules={"loader.py": SOURCE})
    return found.value("checkpoint.files"), found.facts["answers.checkpoint.files"].confidence


def test_source_under_an_option_that_is_off_is_left_out(tmp_path: Path) -> None:
    assert "compression" not in REQUEST
    cond = "getattr(od_config, 'compression', None) is not None"
    assert _streamed(tmp_path, cond) == (["net/*.safetensors"], "certain")


def test_source_under_an_open_condition_is_not_certain(tmp_path: Path) -> None:
    files, confidence = _streamed(tmp_path, "__import__('os').path.isdir(od_config.model)")
    assert (files, confidence) == (["net/*.safetensors", "reader/*.safetensors"], "likely")


DIVIDED = """
    def load_weights(self, weights):
        held = dict(self.named_parameters())
        parts = [(".both.", ".one.", 0), (".both.", ".two.", 1)]
        halves = [(".pair.", ".joined.", 2, [(1, 1), (0, 1)], None)]
        for name, weight in weights:
            for target, source, shard in parts:
                if source in name:
                    name = name.replace(source, target)
                    held[name].weight_loader(held[name], weight, shard)
                    break
            for target, source, count, places, change in halves:
                if source in name:
                    name = name.replace(source, target)
                    size = weight.shape[0] // count
                    for place, number in places:
                        held[name].weight_loader(held[name], weight[number * size :], place)
"""


def test_number_of_pieces_is_no_shard(tmp_path: Path) -> None:
    text = _pipeline("pass")
    found = look(tmp_path, pipeline=text[: text.index("\n    def load_weights")] + DIVIDED)
    assert found.value("checkpoint.stacked") == [[".both.", ".one.", 0], [".both.", ".two.", 1]]
    # How one tensor fills two parts is not told by a row.
    assert found.facts["answers.checkpoint.stacked"].confidence == "likely"
