"""Small made-up pipelines, one convention each, in a source tree of their own."""

from __future__ import annotations

import textwrap
from pathlib import Path

from scaffold.inspect import Report, inspect_pipeline
from scaffold.upstream import locate

REQUEST = """
from dataclasses import dataclass, field


@dataclass
class SamplingParams:
    num_inference_steps: int | None = None
    guidance_scale: float = 0.0
    generator: object = None
    seed: int | None = None
    extra_args: dict = field(default_factory=dict)


@dataclass
class Request:
    prompts: list
    sampling_params: SamplingParams

    def __post_init__(self):
        if not self.sampling_params.guidance_scale:
            self.sampling_params.guidance_scale = 1.0


@dataclass
class Options:
    model: str = "somewhere"


@dataclass
class Output:
    output: object = None
"""
REGISTRY = """
_DIFFUSION_MODELS = {
    "MadeUpPipeline": ("made_up", "pipeline", "MadeUpPipeline"),
}
"""
HEAD = """
import math

import torch
from torch import nn
from transformers import AutoTokenizer

from vllm_omni.diffusion.request import Options, Output, Request
"""
NET = """

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.width = width
        self.proj = nn.Linear(width, width)

    def forward(self, x, t, cond):
        return self.proj(x + t + cond)
"""
PIPELINE = """

class {name}({bases}):
    def __init__(self, *, od_config: Options, prefix=""):
        super().__init__()
        self.net = Net()
        self.tokenizer = AutoTokenizer.from_pretrained(od_config.model)
{init}

    def encode(self, text):
        return self.tokenizer(text).input_ids

    def forward(self, req: Request):
        prompt = req.prompts[0]
        params = req.sampling_params
        steps = params.num_inference_steps
        scale = params.guidance_scale
        x = torch.randn((1, 16, 8), generator=params.generator)
        cond = self.encode(prompt.get("prompt"))
{loop}
        return Output(output=x)
"""
SIGMAS = "sigmas = torch.linspace(1.0, 0.0, steps + 1)\n"
EULER = SIGMAS + (
    "for i in range(steps):\n    v = self.net(x, sigmas[i], cond)\n    x = x + (sigmas[i + 1] - sigmas[i]) * v\n"
)


SOURCE = """
from dataclasses import dataclass


@dataclass
class Source:
    model_or_path: str
    subfolder: str | None = None
    prefix: str = ""
    allow_patterns_overrides: list | None = None
"""
TURNS = """
{before}
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
{body}
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""
BOTH = "c = self.net(x, sigmas[i], cond)\nu = self.net(x, sigmas[i], none)\n"


def turns(body: str, before: str = "") -> str:
    """A loop of which each turn makes ``v``; ``before`` stands above it."""
    return TURNS.format(before=before.strip(), body=textwrap.indent(textwrap.dedent(body).strip(), "    "))


def written(
    loop: str = EULER, init: str = "pass", *, net: str = NET, before: str = "", bases: str = "nn.Module", end: str = ""
) -> str:
    """The module of a pipeline whose ``forward`` runs ``loop``; ``before`` stands above its class, ``end`` below."""
    shape = PIPELINE.format(
        name="MadeUpPipeline",
        bases=bases,
        init=textwrap.indent(textwrap.dedent(init), " " * 8),
        loop=textwrap.indent(textwrap.dedent(loop), " " * 8),
    )
    return HEAD + net + textwrap.dedent(before) + shape + end


def look(
    root: Path,
    loop: str = EULER,
    *,
    init: str = "pass",
    before: str = "",
    bases: str = "nn.Module",
    modules: dict[str, str] | None = None,
    pipeline: str | None = None,
    task: str | None = None,
) -> Report:
    """Inspect what `written` gives, or ``pipeline``; ``modules`` stand beside it."""
    text = written(loop, init, before=before, bases=bases) if pipeline is None else pipeline
    files = {
        "__init__.py": "",
        "diffusion/__init__.py": "",
        "diffusion/models/__init__.py": "",
        "diffusion/models/made_up/__init__.py": "",
        "diffusion/request.py": REQUEST,
        "diffusion/registry.py": REGISTRY,
        "diffusion/models/made_up/pipeline.py": text,
    }
    files |= {f"diffusion/models/made_up/{name}": textwrap.dedent(code) for name, code in (modules or {}).items()}
    for name, code in files.items():
        path = root / "vllm_omni" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        compile(code, name, "exec")
        path.write_text(code, encoding="utf-8")
    return inspect_pipeline(locate(str(root)), "MadeUpPipeline", task=task)
