"""Sizes that a package's classes have themselves for what a checkpoint's file leaves out."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from scaffold.verify.subject.geometry import candidates
from scaffold.verify.subject.own_loading import OwnLoading

PACKAGE = """
import json
from dataclasses import dataclass
from pathlib import Path

from the_library import LibraryWidth
from torch import nn


@dataclass
class Width:
    breadth: int = 2048
    heads: int = 16


@dataclass
class Grid:
    edge: int = 64


class Net(nn.Module):
    def __init__(self, width, grid):
        super().__init__()
        self.width = width
        self.layer = nn.Linear(width.breadth, width.heads)
        self.places = nn.Embedding(grid.edge, width.breadth)


class Training:
    @classmethod
    def build_module(cls, model_config, torch_dtype):
        data = json.loads((Path(model_config.local_path) / "plan.json").read_text())
        return Net(WIDTH, Grid())
"""
LIBRARY = """
import copy


class LibraryWidth:
    def __init__(self, breadth=512, heads=8, **others):
        self.breadth, self.heads, self.others = breadth, heads, others

    @classmethod
    def from_dict(cls, values):
        made = cls(**values)
        made.source = values
        return copy.deepcopy(made)
"""
# How the width is made of the file, and the sizes that then stand in it.
WAYS = {
    "a section spread as it is": ('Width(**data["width"])', {"breadth": 2048, "heads": 16}),
    "keys looked for": (
        'Width(**{key: data["width"][key] for key in ("breadth", "heads") if key in data["width"]})',
        {"breadth": 2048, "heads": 16},
    ),
    "one key read, one from the code": ('Width(heads=data["width"]["heads"])', {"heads": 32}),
    "one key asked for, with a default": ('Width(heads=data["width"].get("heads", 8))', {"heads": 8}),
    "sizes in the code": ("Width(8, 4)", {}),
    "a library's configuration": ('LibraryWidth.from_dict(data["width"])', {"breadth": 512, "heads": 8}),
}


@pytest.fixture
def loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], OwnLoading]]:
    """Return a function that reads a package which makes its width in one way."""

    def read(width: str) -> OwnLoading:
        folder = tmp_path / "own_loading_package"
        folder.mkdir()
        (folder / "__init__.py").write_text(PACKAGE.replace("WIDTH", width))
        (tmp_path / "the_library.py").write_text(LIBRARY)
        monkeypatch.syspath_prepend(str(tmp_path))
        package: Any = importlib.import_module("own_loading_package")
        subject = SimpleNamespace(
            folder=folder,
            package=package,
            job={"checkpoint": None},
            module_class=package.Net,
            training=package.Training,
            settings_without_image=lambda local_path: SimpleNamespace(local_path=local_path),
        )
        return OwnLoading(subject)

    yield read
    sys.modules.pop("own_loading_package", None)
    sys.modules.pop("the_library", None)


@pytest.mark.parametrize("way", WAYS)
def test_defaults_of_a_class_are_sizes_of_the_section_that_it_is_made_of(
    way: str, loading: Callable[[str], OwnLoading]
) -> None:
    width, sizes = WAYS[way]
    found = loading(width)
    assert found.values == {f"plan.json:.width.{name}": value for name, value in sizes.items()}
    small = dict.fromkeys(found.values, 4)
    assert found.documents(small).get("plan.json", {}).get("width", {}) == dict.fromkeys(sizes, 4)
    (made, grid), _ = found.arguments(small)
    assert {name: getattr(made, name) for name in sizes} == dict.fromkeys(sizes, 4)
    assert grid.edge == 64, "no file leads to it"


def test_channels_of_projections_that_are_parts_of_children() -> None:
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear
    module = torch.nn.Module()
    module.into = torch.nn.Sequential(linear(768, 8), linear(8, 32))
    module.layers = torch.nn.ModuleList([linear(32, 32)])
    module.out = torch.nn.Sequential(linear(32, 768))
    found = [image.shape[1] for image in candidates(SimpleNamespace(), module, {})]
    assert found[0] == 768
