"""The deploy configuration is no list of stages.

vllm-omni reads the file when the rollout workers start, after the trainer has loaded its module on every rank. A file
that is no YAML ends the run there; one without ``stages`` may start a default pipeline that is not the model's.

    levels:
      - stage_id: 0

Instead: ``stages:`` with one entry for each stage.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC515"
NAME = "unreadable-deploy-config"
SEVERITY = "error"
CHECKLIST = ("W4",)
APPLIES = Applies()
HELP = "give the file a list of stages, each with a stage_id"


_KEY = re.compile(r"(stages|stage_args)\s*:\s*(\[.*)?(#.*)?$")


def check(package: Package) -> Hits:
    """Read the YAML files that the scripts hand to vllm-omni, line by line."""
    for file in package.deploy_configs:
        if "deploy" not in file.name and "stage" not in file.name:
            continue
        lines = [line for line in file.lines if line.strip() and not line.lstrip().startswith("#")]
        keys = [(at, found) for at, line in enumerate(lines) if (found := _KEY.match(line)) is not None]
        if not keys:
            yield Hit(file, Span(1, 1, 1, 1), "the file has no list of stages")
            continue
        at, found = keys[0]
        if found[2]:
            opened = sum(line.count("[") - line.count("]") for line in lines[at:])
            if opened:
                yield Hit(file, Span(1, 1, 1, 1), "no YAML: the list of stages is opened and not closed")
            continue
        body = []
        for line in lines[at + 1 :]:
            if re.match(r"[^\s-]", line):
                break
            body.append(line)
        items = [line for line in body if re.match(r"\s*-\s", line)]
        if not items:
            yield Hit(file, Span(1, 1, 1, 1), "the file has no list of stages")
        elif not any("stage_id" in line for line in body):
            yield Hit(file, Span(1, 1, 1, 1), "a stage has no stage_id")


FAILING = (
    Example(
        "no stages",
        {"deploy": [("pipeline: toy_single_stage", "«»pipeline: toy_single_stage"), ("stages:", "levels:")]},
    ),
    Example(
        "a stage without its number",
        {"deploy": [("pipeline: toy_single_stage", "«»pipeline: toy_single_stage"), ("stage_id: 0", "number: 0")]},
    ),
)
PASSING = (
    Example("a list of stages"),
    Example("of diffusers", base="diffusers"),
)
