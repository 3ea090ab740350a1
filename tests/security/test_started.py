"""What each command starts, seen from inside of it; nothing that it reads is run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VERSION = "0.27.0rc1"
CHECKOUTS = Path(__file__).parents[1] / "target" / "test_target.py"
WATCHED = """
import json, os, sys
started = []
def watch(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty"):
        command = arguments[1] if event == "subprocess.Popen" else [event]
        started.append([os.path.basename(os.fsdecode(command[0])), *map(os.fsdecode, command[1:3])])
sys.addaudithook(watch)
from scaffold.cli import main
try:
    main()
finally:
    with open(os.environ["STARTED"], "w") as file:
        json.dump(started, file)
"""
Watch = Callable[..., set[str]]


@pytest.fixture
def watched(scaffold_child: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Return a function that runs a command and gives the programs that it started, pip and other modules by name."""
    monkeypatch.setenv("STARTED", str(tmp_path / "started.json"))

    def run(*arguments: object) -> set[str]:
        ended = scaffold_child(*arguments, code=WATCHED)
        assert ended.code in (0, 1), ended.err
        found = json.loads((tmp_path / "started.json").read_text())
        return {" ".join(command[1:]) if command[0].startswith("python") else command[0] for command in found}

    return run


@pytest.fixture
def tree(reference: Path, tmp_path: Path) -> Path:
    """A copy of a package's tree."""
    return Path(shutil.copytree(reference, tmp_path / "tree"))


def source(folder: Path) -> Path:
    """Make a vllm-omni that has no pipelines."""
    for name in ("vllm_omni/__init__.py", "vllm_omni/_version.py", "vllm_omni/diffusion/registry.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("_DIFFUSION_MODELS = {}\n")
    return folder


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("arguments", "programs"),
    [
        (("inspect", "bagel", "--vllm-omni", VERSION), set()),
        (("list", "--vllm-omni", "SOURCE"), set()),
        (("drift", "bagel", "--from", VERSION, "--to", VERSION), {"ruff", "bash"}),
        (("check", "TREE"), set()),
        (("preset", "list"), set()),
        (("skill", "--verl-omni", "CHECKOUT"), set()),
        (("new", "bagel", "--vllm-omni", VERSION, "--patch", "--out", "OUT"), {"git", "ruff", "bash"}),
        (("update", "PACKAGE", "--spec", "--diff"), {"git", "ruff", "bash"}),
        (("remove", "PACKAGE", "--force", "--dry-run"), {"git"}),
        (("doctor",), {"git"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_programs_that_a_command_starts(
    watched: Watch,
    tree: Path,
    python_file: Callable[[Path, str], Any],
    tmp_path: Path,
    arguments: tuple[str, ...],
    programs: set[str],
) -> None:
    package = next(tree.glob("verl_omni/pipelines/*/scaffold.toml")).parent
    places = {
        "TREE": tree,
        "PACKAGE": package,
        "OUT": tmp_path / "out",
        "SOURCE": source(tmp_path / "source"),
        "CHECKOUT": python_file(CHECKOUTS, "stand_in_checkout").standin(tmp_path / "verl-omni", "main"),
    }
    assert watched(*(places.get(word, word) for word in arguments)) <= programs


def test_a_version_that_is_not_there_is_asked_of_pip(
    watched: Watch, scaffold_child: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    scaffold_child("inspect", "bagel", "--vllm-omni", "0.1.1", code=WATCHED).refusal(2)
    ((_, *module),) = json.loads((tmp_path / "started.json").read_text())
    assert module == ["-m", "pip"]


@pytest.mark.upstream
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "TREE"),
        ("update", "PACKAGE", "--spec", "--force"),
        ("remove", "PACKAGE", "--force"),
        ("inspect", "NoPipeline", "--vllm-omni", "SOURCE"),
        ("list", "--vllm-omni", "SOURCE"),
        ("new", "NoPipeline", "--vllm-omni", "SOURCE", "--patch", "--out", "OUT"),
    ],
    ids=lambda arguments: f"{arguments[0]}-{arguments[-1]}",
)
def test_nothing_foreign_is_run(
    tree: Path, scaffold_child: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Every module, of a package and of vllm-omni, would leave a mark where it is run, and every script."""
    mark = tmp_path / "mark"
    folder = source(tmp_path / "source")
    for file in [*tree.rglob("*.py"), *folder.rglob("*.py")]:
        file.write_text(f"{file.read_text()}\nopen({str(mark)!r}, 'w')\n")
    for file in tree.rglob("*.sh"):
        file.write_text(file.read_text().replace("\n", f"\ntouch {mark}\n", 1))
    package = next(tree.glob("verl_omni/pipelines/*/scaffold.toml")).parent
    places = {"TREE": tree, "PACKAGE": package, "SOURCE": folder, "OUT": tmp_path / "out"}
    scaffold_child(*(places.get(word, word) for word in arguments))
    assert not mark.exists()
