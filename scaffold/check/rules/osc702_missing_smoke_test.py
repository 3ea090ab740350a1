"""No script of ``tests/special_e2e/`` trains the package.

Unit tests cannot show that rollout, reward, update and weight sync fit together. A smoke test runs the whole loop on
a tiny random checkpoint for a few steps; without one a change of the trainer breaks the integration unnoticed.

Instead: add ``tests/special_e2e/run_<algorithm>_<model>.sh`` with dummy data and a tiny checkpoint, and call it from
a runner.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC702"
NAME = "missing-smoke-test"
SEVERITY = "warning"
CHECKLIST = ("S1",)
APPLIES = Applies(non_diffusers=True)
HELP = "add a smoke test of it to tests/special_e2e/"


def check(package: Package) -> Hits:
    """Look for a smoke test; only where the tests of the tree can be seen."""
    project = package.project
    if project.alone or not package.registrations:
        return
    file = package.init or package.files[0]
    if not package.e2e_scripts:
        if project.complete or project.files("tests"):
            yield Hit(file, Span(1, 1, 1, 1), f"no script of tests/special_e2e/ trains {package.name}")
        return
    for script in package.e2e_scripts:
        named = [mention.path for mention in script.paths]
        # Data come from a script of the repository, or from a folder that somebody else fills.
        makes = any(path is not None and path.endswith(".py") and project.tree.exists(path) for path in named)
        if not makes and not any(mention.path is None and mention.name.endswith(".py") for mention in script.paths):
            place = script.override("data.train_files")
            if place is not None:
                yield Hit(script, place.span, "nothing in the script makes the data it trains on")


FAILING = (
    Example(
        "no script",
        e2e=None,
        runner=("bash tests/special_e2e/run_flowgrpo_toy.sh", "true"),
        init=("from .diffusers_training_adapter", "«»from .diffusers_training_adapter"),
    ),
    Example(
        "no dummy data",
        e2e=[
            ("python3 tests/special_e2e/create_dummy_toy_data.py\n", ""),
            ('data.train_files="$DATA_DIR/train.parquet"', '«data.train_files="$DATA_DIR/train.parquet"»'),
        ],
    ),
)
PASSING = (Example("a smoke test with its data"),)
