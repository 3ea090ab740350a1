"""A script of the package names a file of the repository that is not there, or a reward function that its file lacks.

A smoke test whose data script was renamed, a launch script with the path of a reward function that moved, or with a
data file that the data script does not write: the run stops at its first line, or after the model was loaded. So it
does where the file of the reward function has no function of the name.

    python3 tests/special_e2e/create_dummy_toy_data.py       # it is called create_toy_data.py

Instead: name files that exist; after a rename look for the old name in ``examples/`` and ``tests/``.
"""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches
from itertools import product

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name, follow
from scaffold.check.model.package import Package
from scaffold.check.model.python import PythonFile
from scaffold.check.model.shell import ShellScript
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC510"
NAME = "missing-script-input"
SEVERITY = "error"
CHECKLIST = ("W3", "S1")
APPLIES = Applies(diffusion=None)
HELP = "name a file that exists, from the root of the repository"
# How a comment of a launch script has its data made.
_TOLD = re.compile(r"#.*data_process/[\w-]+\.py\b.*--(?:output_dir|local_save_dir)[ =]([^\s\\\"']+)")
_READ = r"(?:^|/)([\w.-]+\.parquet)$"
TOP = ("examples/", "tests/", "verl_omni/", "scripts/")


_OPEN = "\0"  # marks an unknown part
_MOST = 32
_JOINING = {"os.path.join", "posixpath.join", "pathlib.Path", "pathlib.PurePath", "os.fspath", "str"}


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
    for script in package.scripts:
        yield from _reward(package, script)
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


def _reward(package: Package, script: ShellScript) -> Hits:
    """Look for the reward function in the file that is named with it."""
    path, name = (script.override(f"reward.custom_reward_function.{part}") for part in ("path", "name"))
    if path is None or name is None or not isinstance(path.usual, str) or not isinstance(name.usual, str):
        return
    file = package.project.python(path.usual) if path.usual.startswith(TOP) and path.usual.endswith(".py") else None
    if file is None or file.problem is not None or file.stars or {name.usual, "__getattr__"} & file.names.keys():
        return
    near = get_close_matches(name.usual, [function.name for function in file.functions], n=1)
    help = f"write {near[0]}" if near else "name a function of that file"
    yield Hit(script, name.value_span, f"{path.usual} has no {name.usual}", help)


def _data(package: Package) -> Hits:
    """Compare the data files that scripts read with those that the package's data scripts write."""
    written: set[str] = set()
    for maker in package.preprocessors:
        for call in maker.index.nodes(ast.Call):
            if attribute_name(call) == "to_parquet" and call.args:
                names = _file_names(maker, call.args[0])
                if names is None:
                    return
                written |= names
    for script in package.scripts if written else ():
        told = {_home(folder) for line in script.lines for folder in _TOLD.findall(line)}
        for override in script.overrides:
            asked = override.key in ("data.train_files", "data.val_files")
            read = _home(script.behind(override.raw)) if asked else ""
            found = re.search(_READ, read)
            if found is not None and found[1] not in written:
                text = f"{found[1]} is written by no data script; they write {', '.join(sorted(written))}"
                yield Hit(script, override.value_span, text, "name a file that the data script writes")
            elif found is not None and told and "$" not in f"{read}{told}" and read.rpartition("/")[0] not in told:
                text = f"{read} is read; the comment above has the data script write to {', '.join(sorted(told))}"
                yield Hit(script, override.value_span, text, "read the folder that the data script writes to")


def _home(path: str) -> str:
    """Return a path with the variables that stand for the user's folder in scripts as ``~``."""
    return re.sub(r"^(?:\$\{?(?:HOME|WORKSPACE)(?::-\$HOME)?\}?)(?=/)", "~", path.strip("\"'")).rstrip("/")


_REWARD = {"verl_omni/utils/reward_score/ocr.py": "def compute_score(data_source, solution_image):\n    return 1.0\n"}
_GIVEN = "actor_rollout_ref.rollout.name=vllm_omni \\\n"
_FILE = "    reward.custom_reward_function.path=verl_omni/utils/reward_score/ocr.py \\\n"
FAILING = (
    Example(
        "another folder than the comment has the data made in",
        launch=[
            ("data_process/toy_ocr.py\n", "data_process/toy_ocr.py --output_dir ~/data/toy\n"),
            ('data.train_files="$DATA_DIR/train.parquet"', 'data.train_files=«"$HOME/data/other/train.parquet"»'),
            ('data.val_files="$DATA_DIR/test.parquet"', 'data.val_files="$HOME/data/toy/test.parquet"'),
        ],
    ),
    Example(
        "a reward function of another name",
        _REWARD,
        launch=(_GIVEN, f"{_GIVEN}{_FILE}    reward.custom_reward_function.name=«compute_ocr» \\\n"),
    ),
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
        "a reward function that its file imports",
        {"verl_omni/utils/reward_score/ocr.py": "from elsewhere import compute_score\n"},
        launch=(_GIVEN, f"{_GIVEN}{_FILE}    reward.custom_reward_function.name=compute_score \\\n"),
    ),
    Example(
        "a file of the user's",
        launch=("\n# Data: python3", "\npython3 ~/prepare.py\npython3 /data/prepare.py\n# Data: python3"),
    ),
)


def _file_names(file: PythonFile, value: ast.expr) -> set[str] | None:
    """Return the names that the file behind a path may have; None where the text does not tell."""
    texts = _texts(file, value, 8)
    names = {text.rpartition("/")[2] for text in texts}
    return None if not names or any(_OPEN in name or not name for name in names) else names


def _texts(file: PythonFile, value: ast.expr, hops: int) -> set[str]:
    """Return the texts that an expression may be, with a mark for each part that is not known."""
    if isinstance(value, ast.Constant):
        return {value.value if isinstance(value.value, str) else _OPEN}
    if isinstance(value, ast.JoinedStr):
        return _joined(file, value.values, "", hops)
    if isinstance(value, ast.FormattedValue):
        return _texts(file, value.value, hops) if value.format_spec is None else {_OPEN}
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Div)):
        return _joined(file, [value.left, value.right], "/" if isinstance(value.op, ast.Div) else "", hops)
    if isinstance(value, ast.IfExp):
        return _texts(file, value.body, hops) | _texts(file, value.orelse, hops)
    if isinstance(value, ast.Name) and hops:
        return _of_name(file, value, hops - 1)
    if isinstance(value, ast.Call):
        joining = file.qualified(value.func) in _JOINING or getattr(value.func, "attr", "") == "joinpath"
        if joining and value.args and not any(isinstance(item, ast.Starred) for item in value.args):
            return _joined(file, value.args, "/", hops)
    return {_OPEN}


def _joined(file: PythonFile, parts: list[ast.expr], between: str, hops: int) -> set[str]:
    choices = [_texts(file, part, hops) for part in parts]
    number = 1
    for choice in choices:
        number *= len(choice)
    return {between.join(texts) for texts in product(*choices)} if number <= _MOST else {_OPEN}


def _of_name(file: PythonFile, name: ast.Name, hops: int) -> set[str]:
    found: set[str] = set()
    for binding in file.scopes.lookup(name.id, name):
        if binding.kind != "variable":
            return {_OPEN}
        if binding.value is not None:
            found |= _texts(file, binding.value, hops)
            continue
        found |= _looped(file, binding.node)
    return found or {_OPEN}


def _looped(file: PythonFile, target: ast.AST) -> set[str]:
    """Return what a loop over a written list gives to one of its names."""
    loop = file.index.parent(target)
    listed = loop.iter if isinstance(loop, (ast.For, ast.comprehension)) else None
    table = follow(file, listed) if isinstance(listed, ast.Name) else None
    if isinstance(table, ast.DictComp) and isinstance(table.key, ast.Name):
        listed = table.generators[0].iter
    elif isinstance(table, (ast.Dict, ast.List, ast.Tuple)):
        listed = ast.Tuple([key for key in table.keys if key]) if isinstance(table, ast.Dict) else table
    values = [file.value(item) for item in listed.elts] if isinstance(listed, (ast.Tuple, ast.List)) else [None]
    return {value if isinstance(value, str) else _OPEN for value in values}
