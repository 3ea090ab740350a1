"""No source makes a reader take all memory or all time: each attack in a process of its own, under limits."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from greedy import GREEDY, in_body

from scaffold.check import check_paths
from scaffold.errors import ScaffoldError
from scaffold.remap import KeyMap, Rule
from scaffold.remap.engine import prove_engine
from scaffold.remap.parameters import parameters_of

TESTS = Path(__file__).parents[1]


def _beside(path: str) -> Any:
    """Return a module of the tests of another room."""
    spec = importlib.util.spec_from_file_location(f"greedy_{Path(path).stem}", TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ENGINE, HEADERS, PIPELINES = map(_beside, ("remap/engine_tree.py", "remap/conftest.py", "inspect/synthetic.py"))
SECONDS = 10
LONG = 5_000
MEMORY = 1 << 30
MODEL = """
from torch import nn
from dataclasses import dataclass


@dataclass
class Config:
    width: int = 4


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        {greedy}
        self.proj = nn.Linear(config.width, x if isinstance(x, int) else 4)
"""


def under_limits(action: Callable[[], object]) -> str:
    """Run something in a fork; return how it ended: nothing, or what is wrong with the end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
            resource.setrlimit(resource.RLIMIT_CPU, (spent + SECONDS, spent + SECONDS + 1))
            with contextlib.suppress(ScaffoldError):
                action()
        except BaseException:
            text = "".join(traceback.format_exception(*sys.exc_info(), limit=-6))[-4000:]
        os.write(write, text.encode(errors="replace"))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        found = stream.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return found


@pytest.fixture(params=GREEDY)
def greedy(request: pytest.FixtureRequest) -> str:
    return GREEDY[request.param]


def test_constructors_of_a_package(greedy: str) -> None:
    tree = ast.parse(MODEL.format(greedy=in_body(greedy, 8)))
    assert not under_limits(lambda: parameters_of(tree, "Model", "Config", {}, "model.py"))


def test_loading_code_of_an_engine(greedy: str, tmp_path: Path) -> None:
    names = {"layers.0.attn.q_proj.weight": (4, 4), "head.weight": (4, 4)}
    source = ENGINE.small_upstream(tmp_path, keep=in_body(greedy, 8))
    keys = HEADERS.headers_of({f"model.{name}": shape for name, shape in names.items()})
    key_map = KeyMap((Rule("model.", ""),))
    assert not under_limits(lambda: prove_engine(source, "small", key_map, keys, names))


def test_pipelines(greedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python itself refuses to compile some of them; they are only read.
    monkeypatch.setattr(PIPELINES, "compile", lambda *_: None, raising=False)
    assert not under_limits(lambda: PIPELINES.look(tmp_path, f"{greedy}\n{PIPELINES.EULER}", init=greedy))


def test_packages(greedy: str, tmp_path: Path, reference: Path) -> None:
    write_greedy_package(tmp_path / "package", reference, greedy)
    assert not under_limits(lambda: check_paths([tmp_path / "package"]))


def write_greedy_package(package: Path, reference: Path, greedy: str) -> None:
    for path in sorted(reference.glob("verl_omni/pipelines/*/*")):
        text = path.read_text(encoding="utf-8")
        package.mkdir(exist_ok=True)
        (package / path.name).write_text(greedily(text, greedy) if path.suffix == ".py" else text, encoding="utf-8")


def greedily(text: str, greedy: str) -> str:
    """Return a module with the statements at the beginning of every function, long ones of the first alone."""
    literal = re.search("0x[0-9a-f]{99,}", greedy)
    greedy = greedy.replace(literal[0], "large_literal") if literal else greedy
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in functions if len(greedy) < LONG else functions[:1]:
        docstring = ast.get_docstring(node) is not None
        node.body[docstring:docstring] = ast.parse(greedy).body
    made = ast.unparse(ast.fix_missing_locations(tree))
    return made.replace("large_literal", literal[0]) if literal else made
