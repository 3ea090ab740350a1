"""What runs where a request sets nothing, of several classes, loops, shifts and numbers that a pipeline has."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import look

TWO_CLASSES = "from somewhere import First, Second, read"
STEP = """
for t in self.scheduler.timesteps:
    v = self.net(x, t, cond)
    x = self.scheduler.step(v, t, x)[0]
"""
REBUILT = "if {test}:\n    self.scheduler = First()\n"


def test_class_of_two_that_nothing_decides(tmp_path: Path) -> None:
    rebuilt = REBUILT.format(test='params.extra_args.get("way") != self.way')
    found = look(tmp_path, rebuilt + STEP, init="self.way = read()\nself.scheduler = Second()", before=TWO_CLASSES)
    assert (found.value("scheduler.class"), found.fact("scheduler.class").confidence) == (None, "unknown")
    assert found.value("scheduler.arguments") == PLAIN


def test_class_of_one_that_is_made_anew(tmp_path: Path) -> None:
    rebuilt = REBUILT.format(test='params.extra_args.get("way") != self.way')
    found = look(tmp_path, rebuilt + STEP, init="self.way = read()\nself.scheduler = First()", before=TWO_CLASSES)
    assert found.value("scheduler.class") == "First"


@pytest.mark.parametrize(("default", "name"), [("one", "First"), ("two", "Second")])
def test_class_that_a_default_decides(tmp_path: Path, default: str, name: str) -> None:
    chosen = f"""
    way = str(params.extra_args.get("way", "{default}")).strip().lower()
    self.scheduler = First() if way == "one" else Second()
    """
    found = look(tmp_path, "if True:" + chosen + STEP, before=TWO_CLASSES)
    assert found.value("scheduler.class") == name


LOOPS = """
if {test}:
    for t in self.scheduler.timesteps:
        x = self.scheduler.step(self.net(x, t, cond), t, x, extra=steps)[0]
else:
    for t in self.scheduler.timesteps:
        x = self.scheduler.step(self.net(x, t, cond), t, x)[0]
"""
PLAIN = ["model_output", "timestep", "sample"]


@pytest.mark.parametrize(
    ("test", "opted"),
    [
        ('params.extra_args.get("more", False)', False),
        ('not params.extra_args.get("less", True)', False),
        ('params.extra_args.get("level", 3.0) > 1.0', True),
        ('params.extra_args.get("level", 1.0) > 1.0', False),
    ],
)
def test_loop_that_runs_by_default(tmp_path: Path, test: str, opted: bool) -> None:
    init = "self.scheduler = Scheduler()"
    found = look(tmp_path, LOOPS.format(test=test), init=init, before="from somewhere import Scheduler")
    assert found.value("scheduler.arguments") == ([*PLAIN, "extra"] if opted else PLAIN)


COUNTED = """
none = self.encode("")
other = self.encode("other")
sigmas = torch.linspace(1.0, 0.0, {steps} + 1)
for i in range({steps}):
    c = self.net(x, sigmas[i], cond)
    u = self.net(x, sigmas[i], none)
    w = self.net(x, sigmas[i], other)
    x = x + (sigmas[i + 1] - sigmas[i]) * ({combined})
"""


@pytest.mark.parametrize(
    ("combined", "branches", "scales"),
    [
        ("u + scale * (c - u)", 2, {"guidance_scale": 1.0}),
        ("u + scale * (c - u) + 1.5 * (c - w)", None, {"guidance_scale": 1.0}),
        ('u + scale * (c - u) + params.extra_args.get("second", 2.0) * (c - w)', None, None),
        ("u + scale * (c - u) + 0.5 * (c - u)", 2, {"guidance_scale": 1.0}),
    ],
)
def test_every_prediction_is_counted(tmp_path: Path, combined: str, branches: int | None, scales: object) -> None:
    found = look(tmp_path, COUNTED.format(combined=combined, steps="steps"))
    assert (found.value("cfg.branches"), found.value("cfg.scales")) == (branches, scales)


@pytest.mark.parametrize(
    ("put", "steps", "scales"),
    [
        ("", "n", {"guidance_scale": 1.0}),
        ("if params.num_inference_steps is None:\n    params.num_inference_steps = 50", "n", {"guidance_scale": 1.0}),
        ("params.num_inference_steps = self.made.number", None, {"guidance_scale": 1.0}),
        ("params.num_inference_steps = params.num_inference_steps or 4", "n", {"guidance_scale": 1.0}),
        ("params.guidance_scale = self.made.scale", "n", None),
        ("if params.seed is not None:\n    params.seed = None\nscale = params.seed or 4.0", "n", None),
        ("if params.seed is not None:\n    print(params.seed)\nscale = params.seed or 4.0", "n", {"seed": 4.0}),
    ],
)
def test_field_that_is_overwritten(tmp_path: Path, put: str, steps: str | None, scales: object) -> None:
    loop = f"scale = 0.0\n{put}\n{'' if 'seed' in put else 'scale = params.guidance_scale'}\n" + COUNTED.format(
        combined="u + scale * (c - u)", steps="params.num_inference_steps"
    )
    found = look(tmp_path, loop, init="self.made = Made()", before="from somewhere import Made")
    assert (found.value("scheduler.steps"), found.value("cfg.scales")) == (steps, scales)
