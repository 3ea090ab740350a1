"""The deploy configuration is not a list of stages, or names another topology than the package was made for.

vllm-omni reads the file when the rollout workers start, after the trainer has loaded its module on every rank. A file
that is not YAML ends the run there; one without ``stages`` may start a default pipeline that is not the model's. A model
may have several topologies under similar names: with a stage for text in front, requests of the rollout go to that one.

    levels:
      - stage_id: 0

Instead: ``stages:`` with one entry for each stage.
"""

from __future__ import annotations

import re

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.model.source import SourceFile
from scaffold.check.rule import Hit, Hits

ID = "OSC515"
NAME = "unreadable-deploy-config"
SEVERITY = "error"
CHECKLIST = ("W4",)
HELP = "give the file a list of stages, each with a stage_id"


_TOPOLOGY = r"""pipeline\s*:\s*(["']?)([\w.-]+)\1\s*(#.*)?$"""
_KEY = r"(stages|stage_args)\s*:\s*(\[.*)?(#.*)?$"


def check(package: Package) -> Hits:
    """Read the YAML files that the scripts hand to vllm-omni, line by line."""
    for file in package.deploy_configs:
        if "deploy" not in file.name and "stage" not in file.name:
            continue
        yield from _topology(package, file)
        lines = [line for line in file.lines if line.strip() and not line.lstrip().startswith("#")]
        keys = [(at, found) for at, line in enumerate(lines) if (found := re.match(_KEY, line)) is not None]
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


def _topology(package: Package, file: SourceFile) -> Hits:
    """Compare the name of the topology with the one that ``scaffold.toml`` records."""
    made_for = package.facts.text("deploy", "pipeline")
    if made_for and not any(re.match(_TOPOLOGY, line) for line in file.lines):
        text = f"the file names no topology, and vllm-omni takes the model's own; the package was made for {made_for}"
        yield Hit(file, Span(1, 1, 1, 1), text, f"write pipeline: {made_for}")
    for number, line in enumerate(file.lines if made_for else (), start=1):
        found = re.match(_TOPOLOGY, line)
        if found is not None and found[2] != made_for:
            span = Span(number, found.start(2) + 1, number, found.end(2) + 1)
            yield Hit(file, span, f"the package was made for the topology {made_for}", f"write pipeline: {made_for}")


FAILING = (
    Example(
        "no topology",
        deploy=[("pipeline: toy_single_stage\n", ""), ("trust_remote_code", "«»trust_remote_code")],
        spec='[deploy]\npipeline = "toy_single_stage"\n',
    ),
    Example("another topology", deploy=("toy_single_stage", "«toy»"), spec='[deploy]\npipeline = "toy_single_stage"\n'),
    Example(
        "a stage without its number",
        deploy=[("pipeline: toy_single_stage", "«»pipeline: toy_single_stage"), ("- stage_id", "- number")],
    ),
)
PASSING = (
    Example(
        "the recorded topology, in quotes",
        deploy=("toy_single_stage", '"toy_single_stage"  # one stage'),
        spec='[deploy]\npipeline = "toy_single_stage"\n',
    ),
)
