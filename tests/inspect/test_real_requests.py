"""What a real request leads to: not to an engine's trial runs, not to what is refused, not to what nobody asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from synthetic import EULER, look

TRIAL = """

    def is_trial(self):
        return self.request_id == "trial" or (isinstance(self.request_id, str) and self.request_id.startswith("trial/"))
"""
SIZES = "    guidance_scale: float = 0.0\n    height: int | None = None\n    width: int | None = None\n"
HELD = """
from diffusers import FlowMatchEulerDiscreteScheduler
self.scheduler = FlowMatchEulerDiscreteScheduler()
"""
TURNS = """
for t in self.scheduler.timesteps:
    x = self.scheduler.step(self.net(x, t, cond), t, x)[0]
"""


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with a name, by which it tells whether it is one of the engine's own."""
    request = synthetic.REQUEST.replace("    prompts: list\n", "    prompts: list\n    request_id: str\n")
    request = request.replace("    guidance_scale: float = 0.0\n", SIZES)
    head, mark, rest = request.partition("\n\n@dataclass\nclass Options")
    monkeypatch.setattr(synthetic, "REQUEST", head.rstrip() + TRIAL + mark + rest)


@pytest.mark.usefixtures("named")
def test_size_of_a_trial_run_is_no_default(tmp_path: Path) -> None:
    loop = """
if req.is_trial():
    return Output(output=torch.zeros((params.height or 64, params.width or 64)))
cond = cond + self.net.size(params.height or 480, params.width or self.net.width)
"""
    found = look(tmp_path, loop + EULER).value("detail.request.sizes")
    assert (found["height"], found["width"]) == (480, 8)


@pytest.mark.usefixtures("named")
def test_name_that_the_request_does_not_know(tmp_path: Path) -> None:
    loop = """
if req.request_id != "other":
    cond = cond + self.net.size(params.height or 480)
else:
    cond = cond + self.net.size(params.height or 64)
"""
    assert look(tmp_path, loop + EULER).value("detail.request.sizes")["height"] == 480


def test_setting_with_two_defaults(tmp_path: Path) -> None:
    loop = """
self.net.check(params.extra_args.get("bend", 10.0), params.extra_args.get("tail", 1.0))
self.net.check(params.extra_args.get("bend", 12.0), params.extra_args.get("tail", 1.0))
"""
    assert look(tmp_path, loop + EULER).value("detail.request.settings") == {"tail": 1.0}


def test_setting_whose_default_a_file_decides(tmp_path: Path) -> None:
    init = "import json\nself.bend = json.load(open(od_config.model + '/config.json')).get('bend', 3.0)"
    loop = 'self.net.check(params.extra_args.get("bend", self.bend), params.extra_args.get("tail", 1.0))\n'
    assert look(tmp_path, loop + EULER, init=init).value("detail.request.settings") == {"tail": 1.0}


def test_one_of_two_tables_that_is_not_known(tmp_path: Path) -> None:
    init = """
table = {"bend": 10.0} if od_config.get("fixed") else self.tokenizer.table()
self.bend = table.get("bend", 12.0)
"""
    loop = 'self.net.check(params.extra_args.get("bend", self.bend), params.extra_args.get("tail", 1.0))\n'
    assert look(tmp_path, loop + EULER, init=init).value("detail.request.settings") == {"tail": 1.0}


GUIDED = """
none = self.encode("")
{before}
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    c = self.net(x, sigmas[i], cond)
    u = self.net(x, sigmas[i], none)
    v = u + scale * (c - u)
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""
WITH_SECOND = "    guidance_scale: float = 0.0\n    own_scale: float | None = None\n"


def test_setting_that_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = synthetic.REQUEST.replace("    guidance_scale: float = 0.0\n", WITH_SECOND)
    monkeypatch.setattr(synthetic, "REQUEST", request)
    before = (
        "scale = params.extra_args.get('strength', 4.0)\nif params.own_scale is not None:\n    scale = params.own_scale"
    )
    found = look(tmp_path, GUIDED.format(before=before))
    assert found.value("cfg.scales") == {"own_scale": 4.0, "strength": 4.0}
    assert found.value("detail.cfg.others") == {"own_scale": ["strength"]}


def test_setting_that_a_function_returns_unless_it_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = synthetic.REQUEST.replace("    guidance_scale: float = 0.0\n", WITH_SECOND)
    monkeypatch.setattr(synthetic, "REQUEST", request)
    before = """

def scale_of(params):
    own = params.own_scale
    if own is None:
        return float(params.extra_args.get("strength", 4.0))
    return float(own)
"""
    found = look(tmp_path, GUIDED.format(before="scale = scale_of(params)"), before=before)
    assert found.value("cfg.scales") == {"own_scale": 4.0, "strength": 4.0}


def test_scale_that_is_taken_out_of_every_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = synthetic.REQUEST.replace("    guidance_scale: float = 0.0\n", WITH_SECOND) + (
        "\n\ndef fill(request):\n    request.sampling_params.own_scale = request.sampling_params.guidance_scale\n"
    )
    request = request.replace(
        "            self.sampling_params.guidance_scale = 1.0\n",
        "            self.sampling_params.guidance_scale = 1.0\n"
        "        if self.sampling_params.own_scale is None:\n"
        "            self.sampling_params.own_scale = self.sampling_params.guidance_scale\n",
    )
    monkeypatch.setattr(synthetic, "REQUEST", request)
    before = "scale = params.own_scale if params.own_scale is not None else 4.0"
    assert look(tmp_path / "kept", GUIDED.format(before=before)).value("cfg.branches") == 2
    before = f"if params.own_scale is not None:\n    params.own_scale = None\n{before}"
    assert look(tmp_path / "gone", GUIDED.format(before=before)).value("cfg.branches") is None


ERASED = """
if params.own_scale is not None:
    params.own_scale = None
scale = params.own_scale or {default}
guided = scale > 1 and prompt.get("negative_prompt") is not None
none = self.encode(prompt.get("negative_prompt"))
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    v = self.net(x, sigmas[i], cond)
    if guided:
        u = self.net(x, sigmas[i], none)
        v = u + scale * (v - u)
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""


def test_guidance_that_no_request_can_switch_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = synthetic.REQUEST.replace("    guidance_scale: float = 0.0\n", WITH_SECOND)
    monkeypatch.setattr(synthetic, "REQUEST", request)
    never = look(tmp_path / "never", ERASED.format(default="1.0"))
    assert (never.value("cfg.branches"), never.value("cfg.execution"), never.value("cfg.scales")) == (1, "none", {})
    open_one = look(tmp_path / "open", ERASED.format(default="4.0"))
    assert open_one.value("cfg.branches") is None


DISTILLED = """
self.fast = False
if "fast" in self.tokenizer.name:
    self.fast = True
else:
    raise NotImplementedError("only fast ones")
"""
ASKS = """
levels = FIXED if self.fast else None
if levels is None:
    self.scheduler.set_timesteps(steps or 40)
else:
    self.scheduler.set_timesteps(sigmas=levels)
self.net.check(steps or 40)
"""
IMPORTED = "\nfrom diffusers.utils import FIXED\n"


def test_option_without_which_nothing_is_constructed(tmp_path: Path) -> None:
    found = look(tmp_path, ASKS + TURNS, init=HELD + DISTILLED, before=IMPORTED)
    assert found.value("scheduler.steps") is None
    assert found.value("detail.request.sizes")["num_inference_steps"] is None


def test_option_that_may_be_either(tmp_path: Path) -> None:
    init = HELD + "self.fast = False\n"
    found = look(tmp_path, ASKS + TURNS, init=init, before=IMPORTED)
    assert (found.value("scheduler.steps"), found.value("detail.request.sizes")) == ("n", {"num_inference_steps": 40})


def test_what_every_request_must_fulfil_speaks_against_no_call(tmp_path: Path) -> None:
    loop = """
if prompt.get("hidden") is None:
    if self.tokenizer.strict:
        raise ValueError("hidden states are needed")
self.scheduler.set_timesteps(steps)
"""
    refused = """
if prompt.get("hidden") is None:
    raise ValueError("hidden states are needed")
self.scheduler.set_timesteps(steps)
"""
    for place, text in (("maybe", loop), ("always", refused)):
        assert look(tmp_path / place, text + TURNS, init=HELD).value("scheduler.steps") == "n"


def test_table_that_only_a_request_fills(tmp_path: Path) -> None:
    loop = """
hints = {}
for name in ("edge", "depth"):
    given = prompt.get(name)
    if given is not None:
        hints[name] = self.encode(given)
hints = hints if hints else None
if hints is None:
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    for i in range(steps):
        x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x, sigmas[i], cond)
    return Output(output=x)
sigmas = torch.linspace(1.0, 0.0, steps + 3)
for i in range(steps + 2):
    x = x + (sigmas[i + 1] - sigmas[i]) * self.net(x, sigmas[i], hints)
"""
    assert look(tmp_path, loop).value("scheduler.steps") == "n"


OWN = """

class Local:
    def __init__(self, count=1000):
        self.count = count

    def set_timesteps(self, num_inference_steps):
        self.timesteps = torch.unique(torch.linspace(1.0, 0.0, num_inference_steps + 1)[:-1])

    def step(self, model_output, timestep, sample):
        return sample + (self.next - timestep) * model_output, None
"""


def test_a_scheduler_of_the_source_may_walk_otherwise(tmp_path: Path) -> None:
    loop = "self.scheduler.set_timesteps(steps)\n" + TURNS
    known = look(tmp_path / "known", loop, init=HELD).fact("scheduler.steps")
    own = look(tmp_path / "own", loop, init="self.scheduler = Local()", before=OWN).fact("scheduler.steps")
    assert (known.value, known.confidence) == ("n", "certain")
    assert (own.value, own.confidence) in (("n", "likely"), (None, "unknown"))


def test_divisor_behind_a_flag_that_nobody_sets(tmp_path: Path) -> None:
    before = """
scale = params.guidance_scale
flag = params.extra_args.get("star", {default})
"""
    loop = GUIDED.replace(
        "    v = u + scale * (c - u)\n",
        "    if flag:\n        m = u * torch.sum(c * u) / (torch.sum(u * u) + 1e-8)\n        v = m + scale * (c - m)\n"
        "    else:\n        v = u + scale * (c - u)\n",
    )
    off = look(tmp_path / "off", loop.format(before=before.format(default="False")))
    assert off.value("detail.cfg.epsilon") is None
    on = look(tmp_path / "on", loop.format(before=before.format(default="True")))
    assert on.value("detail.cfg.epsilon") == 1e-08
