"""A checkpoint that has none of the files that the pipeline loads is named, before a GPU is rented for it."""

from __future__ import annotations

from typing import Any

import pytest

from scaffold.checkpoint.headers import CheckpointFile, CheckpointHeaders
from scaffold.inspect.facts import Evidence, Fact
from scaffold.new.loaded import weight_file_notes


class Told:
    """What a report says of the files."""

    class upstream:
        pipeline = "ToyPipeline"

    def __init__(self, files: list[str] | None, confidence: Any) -> None:
        self.files = Fact(files, (Evidence("vllm_omni/toy.py", 7),), confidence)

    def fact(self, key: str) -> Fact:
        assert key == "answers.checkpoint.files"
        return self.files


def notes(source: str, name: str, files: list[str] | None, confidence: str = "certain") -> list[str]:
    told: Any = Told(files, confidence)
    return weight_file_notes(told, CheckpointHeaders(source, (CheckpointFile(name, 1, 8),), ()))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("release", "transformer/diffusion_pytorch_model-00001-of-00002.safetensors"),
        ("transformer", "diffusion_pytorch_model.safetensors"),
        ("owner/name@main", "transformer/model.safetensors"),
    ],
)
def test_the_release_or_a_folder_of_it_is_no_news(source: str, name: str) -> None:
    assert notes(source, name, ["transformer/*.safetensors"]) == []


def test_another_checkpoint_is() -> None:
    assert notes("bagel", "ema.safetensors", ["transformer/*.safetensors"]) == [
        "ToyPipeline loads transformer/*.safetensors (vllm_omni/toy.py:7), and bagel has no such file: "
        "a rollout does not start with this checkpoint as it is"
    ]
    assert notes("bagel", "model-00001-of-00003.safetensors", ["ema.safetensors"])
    assert not notes("bagel", "ema.safetensors", ["*.safetensors"])


def test_files_that_are_not_certain_are_no_ground() -> None:
    assert notes("bagel", "ema.safetensors", ["transformer/*.safetensors"], "likely") == []
    assert notes("bagel", "ema.safetensors", None, "unknown") == []
