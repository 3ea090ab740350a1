"""One module starts programs, one calls git, one reads files: the code is walked for whoever does it alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_code import in_one_worker, nodes, trees

STARTERS = {"subprocess", "multiprocessing", "pty", "asyncio"}
CALLS = {"system", "popen", "startfile"}
PREFIXES = ("exec", "spawn", "posix_spawn", "popen")
# Code that runs without this tool beside it; the keeper turns into what `child_process` was asked to start.
# The last three run in the engine's environment, which does not have the tool: on images that the run wrote, and as the
# process that a run's others are forks of.
APART = ("verify/kit/", "port/support/", "verify/child/keeper.py", "verify/train/trainer_side/same_images.py")
APART += tuple(f"verify/train/trainer_side/{name}.py" for name in ("asking", "imported"))
NO_READ = ("O_WRONLY", "O_DIRECTORY", "_NEW", "_DIRECTORY", "_WRITE", "os.devnull")


def starts(tree: ast.AST) -> Iterator[int]:
    for node in nodes(tree):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in STARTERS for alias in node.names):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in STARTERS:
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for a in node.names if a.name in CALLS or a.name.startswith(PREFIXES))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr in CALLS or node.attr.startswith(PREFIXES):
                yield node.lineno


def names_git(tree: ast.AST) -> Iterator[int]:
    for node in nodes(tree):
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            first = node.elts[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and Path(first.value).name == "git":
                yield node.lineno


def reads(tree: ast.AST) -> Iterator[int]:
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        function, text = node.func, ast.unparse(node)
        writes = any(
            isinstance(arg, ast.Constant) and isinstance(arg.value, str) and set(arg.value) & set("wax")
            for arg in [*node.args[:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        )
        if isinstance(function, ast.Name):
            if function.id == "open" and not writes:
                yield node.lineno
        elif isinstance(function, ast.Attribute):
            owner = ast.unparse(function.value)
            if function.attr in ("read_text", "read_bytes") and owner != "reading":
                yield node.lineno
            if owner == "os" and function.attr == "open" and not any(word in text for word in NO_READ):
                yield node.lineno
            elif function.attr == "open" and owner != "os" and not writes:
                # `Checkout.open` and its like are not files, and a member of an archive is not a file of the disk.
                if not owner.rpartition(".")[2][:1].isupper() and owner not in ("cls", "self._zip"):
                    yield node.lineno
            if function.attr == "ZipFile" and "open_file(" not in text and "stream" not in text:
                yield node.lineno


def copies(tree: ast.AST) -> Iterator[int]:
    """Whoever copies files opens whatever stands there, and follows links with what is written later."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "shutil":
            if node.attr.startswith("copy") or node.attr == "move":
                yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "shutil":
            yield from (node.lineno for alias in node.names if alias.name.startswith("copy") or alias.name == "move")
        if isinstance(node, ast.FunctionDef) and node.name == "copy_tree":
            yield node.lineno


def walks(tree: ast.AST) -> Iterator[int]:
    """Whoever walks a folder begins at whatever a link there leads to; and pathlib's ``~`` raises for a stranger's."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name in ("os.walk", "os.fwalk") or (node.attr == "expanduser" and name != "os.path.expanduser"):
                yield node.lineno


def inherits(tree: ast.AST) -> Iterator[int]:
    """Whoever takes all of our variables, or a path of them, for a child: `child_process.environment` cleans them."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "os.environ.items":
            yield node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("dict", "os.environ.copy"):
            if ast.unparse(node) in ("dict(os.environ)", "os.environ.copy()"):
                yield node.lineno
        inner: list[ast.AST] = []
        if isinstance(node, ast.Dict):
            kept = [v for k, v in zip(node.keys, node.values, strict=True) if k is None or "PATH" in ast.unparse(k)]
            inner = [part for value in kept if not isinstance(value, ast.Dict) for part in ast.walk(value)]
        elif isinstance(node, ast.DictComp):
            inner = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Subscript)]
        if any(isinstance(part, ast.Attribute) and ast.unparse(part) == "os.environ" for part in inner):
            yield node.lineno


def clock_of_day(tree: ast.AST) -> Iterator[int]:
    """Where something is asked for that a person, or a clock that jumps, can set."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("st_mtime", "st_mtime_ns", "st_ctime", "getmtime"):
            yield node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.time", "time.time_ns", "datetime.now"):
            yield node.lineno


@in_one_worker
def test_a_clock_that_jumps_changes_no_more_than_a_date_that_is_written() -> None:
    found = {name for name, tree in trees().items() if any(clock_of_day(tree))}
    assert found == {"spec/sections/package.py", "verify/rollout/resolving.py"}


@in_one_worker
@pytest.mark.parametrize(
    ("find", "owner"),
    [
        (starts, "limits/child_process.py"),
        (names_git, "files/git.py"),
        (reads, "files/reading.py"),
        (copies, "files/reading.py"),
        (walks, "files/reading.py"),
        (inherits, "limits/child_process.py"),
    ],
    ids=["starts a program", "calls git", "reads a file", "copies files", "walks folders", "hands variables on"],
)
def test_nobody_does_it_alone(find, owner: str) -> None:  # type: ignore[no-untyped-def]
    found = {name: sorted(find(tree)) for name, tree in trees().items() if not name.startswith(APART)}
    assert found.pop(owner), "the walk sees nothing"
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (starts, "import subprocess"),
        (starts, "import os\nos.execvp('x', [])"),
        (starts, "from os import posix_spawn"),
        (names_git, "run(['git', 'status'])"),
        (names_git, "run(('/usr/bin/git', 'status'))"),
        (reads, "path.read_text()"),
        (reads, "open(path)"),
        (reads, "path.open('rb')"),
        (reads, "os.open(path, os.O_RDONLY)"),
        (reads, "zipfile.ZipFile(path)"),
        (copies, "shutil.copytree(a, b)"),
        (copies, "from shutil import copyfile"),
        (walks, "os.walk(folder)"),
        (walks, "Path(text).expanduser()"),
        (inherits, "start(command, variables=dict(os.environ))"),
        (inherits, "{**os.environ, 'A': 'b'}"),
        (inherits, "{name: os.environ[name] for name in PASSED_ON}"),
        (inherits, "{'PATH': os.environ.get('PATH', '')}"),
    ],
)
def test_the_walk_sees(find, text: str) -> None:  # type: ignore[no-untyped-def]
    assert list(find(ast.parse(text)))
