"""The table of the schedulers' parameters is what its generator reads from the wheels of diffusers."""

from __future__ import annotations

from pathlib import Path

import pytest

import scaffold.inspect
from scaffold.inspect.scheduler_signatures import agreed, main, read_signatures
from scaffold.upstream.source import FolderSource

TABLE = Path(scaffold.inspect.__path__[0]) / "scheduler_signatures.json"


@pytest.mark.upstream
def test_the_table_is_what_the_generator_writes(capsys: pytest.CaptureFixture[str]) -> None:
    main(["0.38.0", "0.40.0"])
    assert capsys.readouterr().out == TABLE.read_text(encoding="utf-8")


def test_what_releases_say_alike_is_kept(tmp_path: Path) -> None:
    for version, argument in (("1", "eta"), ("2", "noise")):
        folder = tmp_path / version / "diffusers" / "schedulers"
        folder.mkdir(parents=True)
        (folder / "scheduling_wave.py").write_text(
            "class WaveScheduler:\n"
            "    def set_timesteps(self, count, device=None): ...\n"
            f"    def step(self, output, sample, {argument}=0.0, *, generator=None): ...\n"
            "class OpenScheduler:\n    def step(self, output, **kwargs): ...\n"
            "class WaveSchedulerOutput:\n    def step(self): ...\n"
        )
    one, two = (read_signatures(FolderSource(tmp_path / version, version, version)) for version in ("1", "2"))
    assert one["WaveScheduler"]["step"] == ["output", "sample", "eta", "generator"]
    assert one["OpenScheduler"] == {}
    assert agreed([one, two]) == {"WaveScheduler": {"set_timesteps": ["count", "device"]}}
    assert agreed([one, one])["WaveScheduler"]["step"][2] == "eta"
