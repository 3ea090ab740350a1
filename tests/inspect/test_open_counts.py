"""Numbers of turns that a list in a file may replace, and guidance of what is guided already."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import look

STEPS = "answers.scheduler.steps"
TURNS = "for i in range(len(sigmas) - 1):\n    v = self.net(x, sigmas[i], cond)\n"
TURNS += "    x = x + (sigmas[i + 1] - sigmas[i]) * v\n"
GRID = "torch.linspace(1.0, 0.0, steps + 1)"


@pytest.mark.parametrize(
    ("first", "confidence"),
    [
        (f"sigmas = {GRID}", "certain"),
        # A request that brings its own list asks for no number.
        (f'own = params.extra_args.get("sigmas")\nsigmas = {GRID} if own is None else own', "certain"),
        (f"own = self.own\nsigmas = own if own is not None else {GRID}", "likely"),
        (f'own = params.extra_args.get("sigmas") or self.own\nsigmas = {GRID} if own is None else own', "likely"),
    ],
)
def test_list_of_a_file_may_take_the_place_of_the_number(tmp_path: Path, first: str, confidence: str) -> None:
    init = "import json\nlevels = json.load(open(od_config.model + '/levels.json'))\n"
    init += "listed = levels.get('sigmas')\nself.own = [float(s) for s in listed] if listed else None"
    found = look(tmp_path, first + "\n" + TURNS, init=init)
    assert (found.value("scheduler.steps"), found.facts[STEPS].confidence) == ("n", confidence)


def test_entries_chosen_one_by_one_are_as_many(tmp_path: Path) -> None:
    first = f"grid = {GRID}\nsigmas = torch.where(grid != 0, 3 / (2 + 1 / grid), 0)\n"
    assert look(tmp_path, first + TURNS).value("scheduler.steps") == "n"


GUIDED = """
sigmas = torch.linspace(1.0, 0.0, steps + 1)
for i in range(steps):
    kept = getattr(self.net, "kept", None)
    if kept is not None and kept.fresh(i):
        c, u = kept.c, kept.u
    else:
        a = self.net(x, sigmas[i], cond)
        b = self.net(x, sigmas[i], 0 * cond)
        guided = b + scale * (a - b)
        c, u = {sides}
    v = u + scale * (c - u)
    x = x + (sigmas[i + 1] - sigmas[i]) * v
"""


def test_guidance_of_one_guided_prediction_makes_no_further_branch(tmp_path: Path) -> None:
    assert look(tmp_path, GUIDED.format(sides="guided, guided")).value("cfg.branches") == 2


def test_guidance_away_from_a_third_prediction_is_one_more(tmp_path: Path) -> None:
    found = look(tmp_path, GUIDED.format(sides="guided, self.net(x, sigmas[i], 2 * cond)"))
    assert found.value("cfg.branches") == 3
