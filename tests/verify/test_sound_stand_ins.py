"""Libraries that prepare sounds, stood in for: a caller finds files and numbers where the real ones put them."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

import numpy

from scaffold.verify.rollout.engine_side import sound

NAMES = ("audio_separator", "audio_separator.separator", "pyloudnorm", "pyloudnorm.normalize")


@pytest.fixture
def served() -> Iterator[None]:
    before = {name: sys.modules.pop(name, None) for name in NAMES}
    sound.stand_in()
    yield
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


@pytest.mark.usefixtures("served")
def test_the_stem_is_the_sound_in_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    found: Any = importlib.import_module("audio_separator.separator")
    (tmp_path / "speech.wav").write_bytes(b"sound")
    separator = found.Separator(output_dir=tmp_path / "stems", output_single_stem="vocals", model_file_dir="/nowhere")
    separator.load_model("any.onnx")
    (name,) = separator.separate(str(tmp_path / "speech.wav"))
    assert (tmp_path / "stems" / name).read_bytes() == b"sound"
    assert (tmp_path / "speech.wav").exists()


@pytest.mark.usefixtures("served")
def test_a_sound_gets_the_loudness_that_is_asked_for() -> None:
    found: Any = importlib.import_module("pyloudnorm")
    sounds = 0.05 * numpy.random.default_rng(1).standard_normal(16_000).astype("float32")
    meter = found.Meter(16_000)
    louder = found.normalize.loudness(sounds, meter.integrated_loudness(sounds), -23.0)
    assert math.isclose(meter.integrated_loudness(louder), -23.0, abs_tol=1e-4)
    assert meter.integrated_loudness(numpy.zeros(100, dtype="float32")) == -math.inf


def test_a_library_that_is_there_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyloudnorm.py").write_text("REAL = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    sound.stand_in()
    try:
        assert importlib.import_module("pyloudnorm").REAL
        assert "pyloudnorm.normalize" not in sys.modules
    finally:
        for name in NAMES:
            sys.modules.pop(name, None)
