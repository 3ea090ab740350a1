"""The report as JSON and as text, and answers from small made-up sources."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from scaffold.inspect import Report, inspect_pipeline
from scaffold.inspect.program.values import Const, Seq
from scaffold.inspect.questions import vae
from scaffold.inspect.report import SHOWN
from scaffold.inspect.text import UNKNOWN_MARK, print_report
from scaffold.upstream import locate

REGISTRY = '_DIFFUSION_MODELS = {"TinyPipeline": ("tiny", "pipeline", "Tiny")}\n'
TINY = """
import torch
from torch import nn
from vllm_omni.request import Request


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x, t, ids):
        for block in self.blocks:
            x = block(x + t)
        return x


class Block(nn.Module):
    def forward(self, x):
        return x


class Tiny(nn.Module):
    def __init__(self, *, od_config=None):
        super().__init__()
        self.net = Net()

    def forward(self, req: Request):
        steps = req.sampling_params.num_inference_steps or 20
        scale = req.sampling_params.extra_args.get("pull", 2.5)
        sigmas = torch.linspace(1.0, 0.0, steps + 1)
        x = torch.randn(1, 4, 8, 8)
        for i in range(steps):
            cond = self.net(x, sigmas[i], req.prompts[0])
            uncond = self.net(x, sigmas[i], None)
            v = uncond + scale * (cond - uncond)
            x = x + (sigmas[i + 1] - sigmas[i]) * v
        return x
"""
REQUEST = """
from dataclasses import dataclass, field


@dataclass
class Sampling:
    num_inference_steps: int | None = None
    extra_args: dict = field(default_factory=dict)


@dataclass
class Request:
    prompts: list[str]
    sampling_params: Sampling
"""


def tiny(root: Path, pipeline: str = TINY) -> Path:
    models = root / "vllm_omni/diffusion/models/tiny"
    models.mkdir(parents=True)
    for package in (root / "vllm_omni", root / "vllm_omni/diffusion", models):
        (package / "__init__.py").write_text("")
    (root / "vllm_omni/diffusion/registry.py").write_text(REGISTRY)
    (root / "vllm_omni/request.py").write_text(REQUEST)
    (models / "pipeline.py").write_text(pipeline)
    return root


def look(root: Path, pipeline: str = TINY) -> Report:
    return inspect_pipeline(locate(str(tiny(root, pipeline))), "tiny")


def test_plain_inline_pipeline(tmp_path: Path) -> None:
    report = look(tmp_path)
    assert report.value("scheduler.inline") is True
    assert report.value("scheduler.steps") == "n"
    assert report.value("scheduler.direction") == "descending"
    assert report.value("scheduler.shift") == 1.0
    assert report.value("cfg.scales") == {"pull": 2.5}
    assert (report.value("cfg.branches"), report.value("cfg.execution")) == (2, "sequential")
    assert (report.value("denoiser.class"), report.value("denoiser.params")) == ("Net", ["x", "t", "ids"])
    assert report.value("layers.classes") == ["Block"]
    assert report.value("detail.scheduler.sample_rank") == 4
    assert report.verdict["path"] == "non_diffusers"


@pytest.mark.parametrize(
    "read",
    [
        'extra.get("pull") or 2.5',
        'extra.get("pull", 2.5)',
        'extra["pull"] if "pull" in extra else 2.5',
        'float(extra.get("pull")) if extra.get("pull") is not None else 2.5',
        'extra.get("pull")\n        if scale is None:\n            scale = 2.5',
        'getattr(req.sampling_params, "extra_args", {}).get("pull", DEFAULT)',
        'extra.get("pull", Knobs().pull)',
        'extra.get("pull", self.pull)',
    ],
)
def test_default_of_a_scale_however_it_is_written(tmp_path: Path, read: str) -> None:
    source = TINY.replace('req.sampling_params.extra_args.get("pull", 2.5)', read)
    source = source.replace("        scale =", "        extra = req.sampling_params.extra_args\n        scale =", 1)
    source = source.replace("\n\nclass Net", "\nDEFAULT = 5 / 2\n\n\nclass Knobs:\n    pull = 2.5\n\n\nclass Net")
    source = source.replace("        self.net = Net()", "        self.net = Net()\n        self.pull = DEFAULT")
    report = look(tmp_path, source)
    assert report.value("cfg.scales") == {"pull": 2.5}
    assert "pull" in report.value("prompt.extra_args")


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        ("num_inference_steps or 20", "num_inference_steps", "n"),
        ("steps + 1)", "steps)[:-1]", None),
        ("range(steps)", "range(len(sigmas) - 1)", "n"),
        ("range(steps)", "range(steps - 1)", "n-1"),
        ("range(steps)", "range(1, steps)", "n-1"),
        ("range(steps)", "range(20)", None),
    ],
)
def test_turns_of_the_loop(tmp_path: Path, old: str, new: str, steps: str | None) -> None:
    found = look(tmp_path, TINY.replace(old, new)).value("scheduler.steps")
    assert found == (steps if steps is not None or "range" in old else "n")


def test_json_has_every_key_and_null_for_unknown(tmp_path: Path) -> None:
    shown = look(tmp_path, "class Tiny:\n    def forward(self, req):\n        return None\n").to_json()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["schema"] == 1
    assert shown["verdict"]["path"] == "refused"
    assert shown["answers"]["scheduler"]["steps"] is None
    assert shown["answers"]["tokens"] == {}
    assert shown["confidence"]["answers.scheduler.steps"] == "unknown"
    assert shown["evidence"]["answers.scheduler.steps"] == []
    assert not [k for k in shown["evidence"] if k.startswith("detail.")]
    assert shown["details"]["cfg"]["formula"] is None
    assert shown["confidence"]["details.cfg.formula"] == "unknown"


def test_json_details_are_those_of_the_facts(tmp_path: Path) -> None:
    report = look(tmp_path)
    shown = report.to_json()
    for name, fact in SHOWN.items():
        question, _, key = name.partition(".")
        assert shown["details"][question][key] == report.value(fact)
        assert len(shown["evidence"][f"details.{name}"]) == len(report.fact(fact).evidence)
    assert shown["details"]["scheduler"]["loop"] is not None


@pytest.mark.parametrize(
    "source",
    [
        "class Tiny:\n    pass\n",
        "class Tiny:\n    def forward(self, req):\n        return self.forward(req)\n",
        "class Tiny:\n    def forward(self, *args, **kwargs):\n        return [x for x in args for y in x]\n",
        "class Tiny(Tiny2):\n    x: int = undefined_name\n    def forward(self, req):\n        return self.x\n",
        "class A:\n    pass\nclass Tiny(A, A):\n    def forward(self, req):\n        raise ValueError\n",
        "import vllm_omni.nothing as n\nclass Tiny(n.Base):\n"
        "    def forward(self, req):\n        return n.f(**req.x)\n",
        "from .pipeline import Tiny as Tiny\nX = X\nclass Tiny:\n    def forward(self, req):\n        return X\n",
        "class Tiny:\n    def forward(self, req):\n"
        "        d = {}\n        d[[]] = 1\n        while True:\n            d = {**d}\n",
        "class Tiny:\n    def forward(self, req):\n        x = 10 ** 10 ** 10\n        return 'a' * 10**9 + 'b' % ()\n",
        "class Tiny:\n    def forward(self, req):\n        x = " + "(" * 150 + "1" + ")" * 150 + "\n        return x\n",
        "class Tiny:\n    def forward(self, req):\n"
        "        x = []\n        x.append(x)\n        return x * 3 + x[0][0]\n",
        "class Tiny:\n    def forward(self, req):\n        match req:\n            case 1:\n                return 2\n",
    ],
)
def test_odd_sources_end_with_a_verdict(tmp_path: Path, source: str) -> None:
    report = look(tmp_path, source)
    assert report.verdict["path"] == "refused"


def test_deep_expression_does_not_escape(tmp_path: Path) -> None:
    body = "x" + " + x" * 900
    report = look(tmp_path, f"class Tiny:\n    def forward(self, x):\n        return {body}\n")
    assert report.verdict["path"] == "refused"


def test_text_report(tmp_path: Path) -> None:
    report = look(tmp_path)
    console = Console(file=io.StringIO(), width=140, record=True)
    print_report(report, console=console)
    shown = console.export_text()
    assert "Tiny" in shown
    assert "pull: 2.5" in shown
    assert "pipeline.py:" in shown
    assert UNKNOWN_MARK in shown
    assert "non_diffusers" in shown
    assert str(tmp_path) not in shown


def test_a_question_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(program: object) -> object:
        raise TypeError("no answer")

    monkeypatch.setattr(vae, "answers", failing)
    report = look(tmp_path)
    assert report.fact("answers.vae.class").confidence == "unknown"
    console = Console(file=io.StringIO(), width=120)
    print_report(report, console=console)
    assert isinstance(console.file, io.StringIO)
    assert "vae was not answered: TypeError: no answer" in console.file.getvalue()


def test_text_report_as_picture(tmp_path: Path) -> None:
    report = look(tmp_path / "a")
    print_report(report, svg=tmp_path / "report.svg")
    assert "<svg" in (tmp_path / "report.svg").read_text()


@dataclass
class File:
    name: str
    tensors: int
    data_bytes: int


@dataclass
class Tensor:
    dtype: str


@dataclass
class Headers:
    files: tuple[File, ...]
    tensors: dict[str, Tensor]
    total_bytes: int
    configs: dict[str, dict[str, int]] = field(default_factory=dict)


def test_checkpoint_headers_are_shown(tmp_path: Path) -> None:
    names = [f"layers.{i}.proj.weight" for i in range(3)]
    headers = Headers((File("a.safetensors", 3, 4096),), dict.fromkeys(names, Tensor("BF16")), 4096)
    source = locate(str(tiny(tmp_path)))
    report = inspect_pipeline(source, "tiny", headers)  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=140, record=True)
    print_report(report, console=console)
    shown = console.export_text()
    assert "layers.{0..2}.proj.weight" in shown
    assert "a.safetensors" in shown
    assert "3 BF16" in shown
    assert "4,096" in shown


def test_a_value_that_leads_back_to_itself_is_told_in_a_line() -> None:
    filled = Seq("list", [])
    filled.items += [filled] * 40 + [Const("x" * 4000)]
    assert repr(filled) == "Seq(kind='list', exact=True, depth=0)"
    assert len(repr(Const("x" * 4000))) < 100
