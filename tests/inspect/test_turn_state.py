"""What ``new`` says of a turn before it runs: state that is carried as a constant, and what the rollout will refuse."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import look, turns

from scaffold.inspect.report import TURN

CONSTANT = "where it takes part it is carried as a constant, and its gradient ends"
STEP = "v = self.net(x, sigmas[i], cond)"


@pytest.mark.parametrize(
    ("before", "body", "said"),
    [
        (
            "last = None",
            f"{STEP}\nv, last = (v if last is None else 1.5 * v - 0.5 * last), v",
            f"last keeps predictions of turns before: {CONSTANT}",
        ),
        (
            "kept = torch.zeros_like(x)",
            "net = self.net(x, sigmas[i], cond)\nv = net + 0.1 * kept\nkept = 0.9 * kept + net",
            f"kept keeps predictions of turns before: {CONSTANT}",
        ),
        (
            "pull = torch.zeros_like(x)",
            f"{STEP}\nv = v + pull\npull *= 0.5\npull += v",
            f"pull keeps predictions of turns before: {CONSTANT}",
        ),
        (
            "v = None",
            f"if v is None or i % 2 == 0:\n    {STEP}",
            "the denoiser is called in some turns alone: the rollout refuses a turn that steps with what one before"
            " predicted; switch off what skips calls",
        ),
        (
            "",
            f"{STEP}\nif v.abs().max() > 4:\n    v = v / 2",
            "a decision by numbers of a prediction: the rollout refuses it where it is taken; decide with tensors",
        ),
        (
            "",
            f"{STEP}\nv = v / 2 if v.mean() > 0 else v",
            "a decision by numbers of a prediction: the rollout refuses it where it is taken; decide with tensors",
        ),
        (
            "",
            f"{STEP}\ngain = 1 / max(1.0, v.norm().item())\nv = v * gain",
            "item() reads numbers of a prediction: the rollout refuses it where it runs; compute with tensors",
        ),
        (
            "",
            f"{STEP}\nv = v * float(v.std())",
            "float() reads numbers of a prediction: the rollout refuses it where it runs; compute with tensors",
        ),
    ],
    ids=["multistep", "momentum", "in place", "cache", "if", "ways", "item", "float"],
)
def test_a_turn_is_said_by_its_statement(tmp_path: Path, before: str, body: str, said: str) -> None:
    found = look(tmp_path, f"{before}\n" + turns(body))
    assert found.value("verdict.path") == "non_diffusers"
    (note,) = found.value(TURN)
    place, _, sentence = note.partition(": ")
    assert sentence == said
    assert place == f"{found.fact(TURN).evidence[0].file}:{found.fact(TURN).evidence[0].line}"
    assert "pipeline.py:" in place


@pytest.mark.parametrize(
    "body",
    [
        STEP,
        "c = self.net(x, sigmas[i], cond)\nv = c\nif scale > 1:\n    u = self.net(x, sigmas[i], -cond)\n"
        "    v = u + scale * (c - u)",
        f"{STEP}\nassert not torch.isnan(v).any()\nif v.shape[0] > 1 and v.dtype == x.dtype:\n    v = v.flatten(1)",
        "if i < steps // 2:\n    v = self.net(x, sigmas[i], cond)\nelse:\n    v = self.net(x, sigmas[i], -cond)",
        f"if x.max() > 4:\n    x = x / 2\n{STEP}",
    ],
    ids=["plain", "guidance", "form", "two ways", "latents"],
)
def test_a_turn_that_keeps_and_reads_nothing_is_not_spoken_of(tmp_path: Path, body: str) -> None:
    assert look(tmp_path, turns(body)).value(TURN) is None


KILN = Path(__file__).parents[1] / "own_pipeline" / "kiln"
TURN_OF_KILN = "        for i in range(steps):\n"
UPDATE = "            board = board + (sigmas[i + 1] - sigmas[i]) * velocity\n"
MULTISTEP = """\
            board = board + (sigmas[i + 1] - sigmas[i]) * (velocity if last is None else 1.5 * velocity - 0.5 * last)
            last = velocity
"""


@pytest.mark.upstream
def test_new_prints_it(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(KILN, tmp_path / "kiln", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "kiln" / "pipeline_kiln.py"
    text = file.read_text().replace(UPDATE, MULTISTEP).replace(TURN_OF_KILN, f"        last = None\n{TURN_OF_KILN}")
    file.write_text(text)
    line = 1 + text[: text.index("0.5 * last")].count("\n")
    words = ("--pipeline", f"{file}:KilnPipeline", "--vllm-omni", "0.30.0", "--patch", "--out", tmp_path / "out")
    said = " ".join(scaffold_cli("new", "kiln", *words, "--dry-run").success().split())
    assert f"kiln/pipeline_kiln.py:{line}: last keeps predictions of turns before: {CONSTANT}" in said
