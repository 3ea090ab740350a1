"""A script of the package names a file of the repository that is not there.

A smoke test whose data script was renamed, a launch script with the path of a reward function that moved: the run
stops at its first line, or after the model was loaded.

    python3 tests/special_e2e/create_dummy_toy_data.py       # it is called create_toy_data.py

Instead: name files that exist; after a rename look for the old name in ``examples/`` and ``tests/``.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.package import Package
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC510"
NAME = "missing-script-input"
SEVERITY = "error"
CHECKLIST = ("W3", "S1")
APPLIES = Applies(diffusion=None)
HELP = "name a file that exists, from the root of the repository"
TOP = ("examples/", "tests/", "verl_omni/", "scripts/")


def check(package: Package) -> Hits:
    """Look for each file that a script names from the root of the tree."""
    project = package.project
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


_CALL = "python3 tests/special_e2e/create_dummy_toy_data.py"
FAILING = (
    Example(
        "a data script that is called otherwise",
        {"e2e": [(_CALL, "python3 «tests/special_e2e/create_toy_data.py»")]},
        also=("OSC702",),
    ),
    Example(
        "a reward function that moved",
        {
            "launch": [
                (
                    "    actor_rollout_ref.rollout.name=vllm_omni \\",
                    "    actor_rollout_ref.rollout.name=vllm_omni \\\n"
                    "    «reward.custom_reward_function.path=verl_omni/utils/reward/ocr.py» \\",
                )
            ]
        },
    ),
)
PASSING = (
    Example("the files are there"),
    Example(
        "a file of the user's", {"launch": [("# Data:", "python3 ~/prepare.py\npython3 /data/prepare.py\n# Data:")]}
    ),
    Example("a name that is put together", {"launch": [("# Data:", "python3 examples/$NAME/prepare.py\n# Data:")]}),
)
