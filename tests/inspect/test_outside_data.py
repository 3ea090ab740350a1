"""Values that the source leaves to a file: no default is taken for one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import look

from scaffold.checkpoint import CheckpointHeaders
from scaffold.inspect import Fact, inspect_pipeline
from scaffold.inspect.sources import lines_of
from scaffold.upstream import locate

BEFORE = """
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import yaml

DEFAULTS = {"shift": 4.0, "width": 8}


@dataclasses.dataclass
class Config:
    shift: float = 4.0
    width: int = 8

    @classmethod
    def read(cls, path):
        with open(path) as handle:
            raw = json.load(handle)
        names = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in raw.items() if k in names})


class Plain:
    shift = 4.0

    def __init__(self, width=8, **others):
        self.width = width
        for name, value in others.items():
            setattr(self, name, value)


class Written:
    def __init__(self, shift=4.0, *, width=8):
        self.shift, self.width = shift, width


def make(shift=4.0, width=8):
    return Config(shift, width)
"""
READ = "import os\nraw = json.load(open(os.path.join(od_config.model, 'config.json')))\n"
LOOP = """
n = req.sampling_params.num_inference_steps
sigmas = torch.linspace(1, 0, n + 1)
sigmas = SHIFT * sigmas / (1 + (SHIFT - 1) * sigmas)
x = torch.randn(1, 4, 8)
for i in range(n):
    v = self.net(x, sigmas[i])
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""
FILLED = {
    "spread": "self.cfg = Config(**raw)",
    "spread into a constructor": "self.cfg = Written(**raw)",
    "spread behind a position": "self.cfg = Written(width=4, **raw)",
    "spread into a function": "self.cfg = make(**raw)",
    "filtered": "self.cfg = Config(**{k: v for k, v in raw.items() if k in ('shift', 'width')})",
    "copied": "self.cfg = Config(**dict(raw))",
    "a part": "self.cfg = Config(**raw['model'])",
    "merged with defaults": "self.cfg = Config(**{**DEFAULTS, **raw})",
    "merged by an operator": "self.cfg = Config(**(DEFAULTS | raw))",
    "class method": "self.cfg = Config.read(os.path.join(od_config.model, 'config.json'))",
    "attributes in a loop": "self.cfg = Config()\nfor k, v in raw.items():\n    setattr(self.cfg, k, v)",
    "attributes that are there": (
        "self.cfg = Config()\nfor k, v in raw.items():\n    if hasattr(self.cfg, k):\n        setattr(self.cfg, k, v)"
    ),
    "fields in a loop": (
        "self.cfg = Config()\nfor f in dataclasses.fields(Config):\n"
        "    if f.name in raw:\n        setattr(self.cfg, f.name, raw[f.name])"
    ),
    "its dictionary": "self.cfg = Config()\nself.cfg.__dict__.update(raw)",
    "its variables": "self.cfg = Config()\nvars(self.cfg).update(raw)",
    "constructor that sets what it gets": "self.cfg = Plain(**raw)",
    "replaced": "self.cfg = dataclasses.replace(Config(), **raw)",
    "namespace": "self.cfg = SimpleNamespace(**{**DEFAULTS, **raw})",
    "text of a file": "self.cfg = Config(**json.loads(Path(od_config.model, 'config.json').read_text()))",
    "YAML": "self.cfg = Config(**yaml.safe_load(open(od_config.model + '/config.yaml')))",
}
DICTIONARIES = {
    "updated": "self.cfg = dict(DEFAULTS)\nself.cfg.update(raw)",
    "merged": "self.cfg = {**DEFAULTS, **raw}",
    "merged in place": "self.cfg = dict(DEFAULTS)\nself.cfg |= raw",
    "item by item": "self.cfg = dict(DEFAULTS)\nfor k, v in raw.items():\n    self.cfg[k] = v",
}


def shift(tmp_path: Path, init: str, read: str) -> Fact:
    report = look(tmp_path, LOOP.replace("SHIFT", read), init=READ + init, before=BEFORE)
    return report.facts["answers.scheduler.shift"]


@pytest.mark.parametrize("init", FILLED.values(), ids=FILLED)
def test_object_that_a_file_fills(tmp_path: Path, init: str) -> None:
    found = shift(tmp_path, init, "self.cfg.shift")
    assert (found.value, found.confidence) in ((4.0, "likely"), (None, "unknown"))


@pytest.mark.parametrize("init", DICTIONARIES.values(), ids=DICTIONARIES)
def test_dictionary_that_a_file_fills(tmp_path: Path, init: str) -> None:
    found = shift(tmp_path, init, "self.cfg['shift']")
    assert (found.value, found.confidence) in ((4.0, "likely"), (None, "unknown"))


@pytest.mark.parametrize(
    "init",
    [
        "self.cfg = Config()",
        "self.cfg = Config(**{'width': 4})",
        "self.cfg = Config(**raw)\nself.cfg.shift = 4.0",
        "self.cfg = Config(**{**raw, 'shift': 4.0})",
        "self.cfg = Written(4.0, **raw)",
        "self.cfg = Written(shift=4.0, **raw)",
    ],
)
def test_value_that_the_source_gives_stays_certain(tmp_path: Path, init: str) -> None:
    found = shift(tmp_path, init, "self.cfg.shift")
    assert (found.value, found.confidence) == (4.0, "certain")


def test_a_number_of_steps_that_a_file_may_say_is_no_more_than_likely(tmp_path: Path) -> None:
    body = LOOP.replace("SHIFT", "self.cfg.shift").replace(
        "num_inference_steps", "num_inference_steps or self.cfg.width"
    )
    report = look(tmp_path, body, init=f"{READ}self.cfg = Config(**raw)", before=BEFORE)
    for key, value in (("scheduler.default_steps", 8), ("request.sizes", {"num_inference_steps": 8})):
        found = report.facts[f"detail.{key}"]
        assert (found.value, found.confidence) == (value, "likely")


def test_what_the_given_checkpoint_says_goes_before_the_default(tmp_path: Path) -> None:
    look(tmp_path, LOOP.replace("SHIFT", "self.cfg.shift"), init=f"{READ}self.cfg = Config(**raw)", before=BEFORE)
    headers = CheckpointHeaders("given", (), (), {"config.json": {"shift": 7.0}})
    report = inspect_pipeline(locate(str(tmp_path)), "MadeUpPipeline", headers)
    found = report.facts["answers.scheduler.shift"]
    assert (found.value, found.confidence) == (7.0, "likely")
    assert "given/config.json" in {place.file for place in found.evidence}
    shown = lines_of(report, locate(str(tmp_path)), "scheduler.shift")["evidence"]
    assert [place["lines"] for place in shown if place["file"] == "given/config.json"] == [[]]
