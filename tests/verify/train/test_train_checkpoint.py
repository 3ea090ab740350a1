"""The tiny checkpoint of a run has the settings of the checkpoint that is named."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaffold.verify.train import level, tiny_checkpoint


@pytest.mark.parametrize("mine", [True, False])
def test_the_package_alone_has_the_settings_of_the_checkpoint(
    mine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def plan(package: Any, environment: Any, checkpoint: Path | None, folder: Path) -> Any:
        asked.append(checkpoint)
        return SimpleNamespace(tiny=None)

    monkeypatch.setattr(tiny_checkpoint, "make_plan", plan)
    monkeypatch.setattr(level.Setting, "_cpu_environment", lambda _: None)
    own, other = (SimpleNamespace(name=name, spec={"port": {}}) for name in ("own", "other"))
    request = level.TrainRequest(model=tmp_path / "released")
    setting: Any = level.Setting(
        *(own, other, None, None, tmp_path, tmp_path, tmp_path, request, print, []),  # type: ignore[arg-type]
    )
    assert setting.checkpoint(own if mine else other, "float32") is None
    assert asked == [tmp_path / "released" if mine else None]
