"""Which room leans on which: arrows go down, and those that still go up are written here until they are gone."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from own_code import in_one_worker, trees

pytestmark = in_one_worker
ROOT = Path(__file__).parents[1] / "scaffold"
KIT = ROOT / "verify" / "kit"  # what a package imports in place of verl-omni

# The lowest first; a room may use those that its line names, and what every room uses (modules of `scaffold` itself).
ARROWS = {
    "upstream": "",
    "checkpoint": "",
    "target": "",
    "render": "",
    "source": "upstream",
    "plan": "render target",
    "inspect": "checkpoint plan source upstream",
    "remap": "checkpoint inspect source upstream",
    "port": "render source",
    "spec": "checkpoint port remap",
    "grade": "checkpoint inspect port render source spec target upstream",
    "check": "checkpoint plan source spec target upstream",
    "verify": "checkpoint inspect plan remap spec target upstream",
    "new": "check checkpoint grade inspect plan remap render source spec target upstream verify",
    "lifecycle": "check checkpoint grade inspect new plan port remap render source spec target upstream",
    "doctor": "inspect target upstream verify",
    "api": "check checkpoint inspect new upstream verify",
    "cli": "check checkpoint doctor grade inspect lifecycle new plan remap render spec target upstream verify",
}
# Rooms of what every other room uses.
EVERYWHERE = {"files", "limits", "terminal"}
# How many files of each room look at syntax trees themselves, where `source` should; this only shrinks.
TREES = {
    "check": 76,
    "inspect": 36,
    "port": 22,
    "verify": 8,
    "grade": 6,
    "render": 3,
    "upstream": 3,
    "lifecycle": 5,
    "spec": 1,
    "target": 2,
    "": 2,
}


@cache
def imports() -> dict[Path, list[str]]:
    """The modules of the tool that each file imports, wherever in it, but not for types alone."""
    paths = {ROOT / name: tree for name, tree in trees().items()}
    return {path: list(_imported(tree)) for path, tree in paths.items() if KIT not in path.parents}


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _imported(child)


def room_of(module: str) -> str | None:
    """The room that a dotted name is in; None for what every room uses."""
    name = module.removeprefix("scaffold.")
    rooms = [room for room in ARROWS if name == room or name.startswith(f"{room}.")]
    return max(rooms, key=len, default=None)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)


def arrows() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, names in imports().items():
        here = room_of(name_of(path))
        for name in names:
            there = room_of(name) if name.startswith("scaffold.") else None
            if here is not None and there is not None and here != there:
                found[here, there].append(f"{path.relative_to(ROOT)} imports {name}")
    return found


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders - EVERYWHERE == {room for room in ARROWS if (ROOT / room).is_dir()}


def test_the_page_shows_the_same() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room, others in ARROWS.items():
        shown = ", ".join(others.split()) if room != "cli" else "the commands' rooms"
        assert " ".join(f"| `{room}` | {shown} |".split()) in page, room


def test_no_arrow_but_the_allowed_ones() -> None:
    allowed = {(room, other) for room, others in ARROWS.items() for other in others.split()}
    assert not {arrow: places for arrow, places in arrows().items() if arrow not in allowed}


def test_arrows_go_down() -> None:
    order = list(ARROWS)
    down = [(room, other) for room, others in ARROWS.items() for other in others.split()]
    assert all(order.index(other) < order.index(room) for room, other in down)


def test_what_every_room_uses_leans_on_no_room() -> None:
    for path, names in imports().items():
        folder = path.parent.relative_to(ROOT).as_posix()
        if folder in {".", *EVERYWHERE} and path.stem != "__main__" and path.stem not in ARROWS:
            assert not [name for name in names if name.startswith("scaffold.") and room_of(name)], path.name


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    names = {name_of(path).removesuffix(".__init__"): names for path, names in _first_imports().items()}
    graph = {module: list(_targets(names, module)) for module in names}
    for module in graph:
        seen, todo = set(), list(graph[module])
        while todo:
            name = todo.pop()
            assert name != module, f"{module} is imported by what it imports"
            if name not in seen:
                seen.add(name)
                todo.extend(graph[name])


def test_the_model_of_check_has_no_circle_of_types_or_inside_functions_either() -> None:
    model = {name: tree for name, tree in trees().items() if name.startswith("check/model/")}
    graph = {}
    for name, tree in model.items():
        asked = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        graph[name] = {other for other in model if name_of(ROOT / other) in asked}
    TopologicalSorter(graph).prepare()  # raises where there is one


@cache
def _first_imports() -> dict[Path, list[str]]:
    """What a file imports while it is itself imported."""
    found = {}
    for path in imports():
        body = trees()[path.relative_to(ROOT).as_posix()].body
        body = [node for node in body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
        found[path] = [name for node in body for name in _imported(node)]
    return found


def _targets(graph: dict[str, list[str]], module: str) -> Iterator[str]:
    for name in graph[module]:
        target = name if name in graph else name.rpartition(".")[0]
        if target in graph and target != module:
            yield target


def test_no_more_files_look_at_syntax_trees() -> None:
    found = Counter(room_of(name_of(path)) for path, names in imports().items() if "ast" in names)
    found.pop("source")
    assert {room or "": count for room, count in found.items()} == TREES
