"""A script of the package names a file of the repository that is not there.

A smoke test whose data script was renamed, a launch script with the path of a reward function that moved, or with a
data file that the data script does not write: the run stops at its first line, or after the model was loaded.

    python3 tests/special_e2e/create_dummy_toy_data.py       # it is called create_toy_data.py

Instead: name files that exist; after a rename look for the old name in ``examples/`` and ``tests/``.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.file_names import file_names
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC510"
NAME = "missing-script-input"
SEVERITY = "error"
CHECKLIST = ("W3", "S1")
APPLIES = Applies(diffusion=None)
HELP = "name a file that exists, from the root of the repository"
_READ = re.compile(r"(?:^|/)([\w.-]+\.parquet)$")
TOP = ("examples/", "tests/", "verl_omni/", "scripts/")


def check(package: Package) -> Hits:
    """Look for each file that a script names from the root of the tree."""
    project = package.project
    yield from _data(package)
    for maker in package.preprocessors:
        for node in maker.index.nodes(ast.Constant):
            path = node.value
            if isinstance(path, str) and path.startswith(TOP) and path.endswith(".py") and " " not in path:
                seen = project.complete or (not project.alone and project.files(path.rpartition("/")[0]))
                if seen and not project.tree.exists(path):
                    yield Hit(maker, node, f"{path} is not there")
    for script in (*package.launch_scripts, *package.e2e_scripts):
        for mention in script.paths:
            path = mention.path
            if path is None or not path.startswith(TOP) or path.endswith((".yaml", ".yml")):
                continue
            if project.tree.exists(path):
                continue
            # Without a checkout around it, only folders of which something is there can be judged.
            folder = path.rpartition("/")[0]
            if project.complete or (not project.alone and project.files(folder)):
                yield Hit(script, mention.span, f"{path} is not there")


def _data(package: Package) -> Hits:
    """Compare the data files that scripts read with those that the package's data scripts write."""
    written: set[str] = set()
    for maker in package.preprocessors:
        for call in maker.index.nodes(ast.Call):
            if attribute_name(call) == "to_parquet" and call.args:
                names = file_names(maker, call.args[0])
                if names is None:
                    return
                written |= names
    for script in (*package.launch_scripts, *package.e2e_scripts) if written else ():
        for override in script.overrides:
            found = _READ.search(override.raw) if override.key in ("data.train_files", "data.val_files") else None
            if found is not None and found[1] not in written:
                text = f"{found[1]} is written by no data script; they write {', '.join(sorted(written))}"
                yield Hit(script, override.value_span, text, "name a file that the data script writes")


FAILING = (
    Example(
        "a data script that is called otherwise",
        e2e=("tests/special_e2e/create_dummy_toy_data.py", "«tests/special_e2e/create_toy_data.py»"),
        also="OSC702",
    ),
    Example(
        "a data script that another one names",
        dummy=("\nif __name__", '\nSCRIPT = «"examples/flowgrpo_trainer/data_process/toy.py"»\n\nif __name__'),
    ),
)
PASSING = (
    Example(
        "a file of the user's",
        launch=("\n# Data: python3", "\npython3 ~/prepare.py\npython3 /data/prepare.py\n# Data: python3"),
    ),
)
