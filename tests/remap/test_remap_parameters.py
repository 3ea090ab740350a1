"""Parameters read from a module's text are those that torch makes of it."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.remap.parameters import parameters_of
from scaffold.remap.parameters.meta import parameters_on_meta
from scaffold.resources import kit_root

MODEL = "verl_omni/pipelines/bagel_flow_grpo/bagel_model.py"
SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 9}

HEAD = """
import math
from dataclasses import dataclass, field
import torch
import torch.nn as nn
from torch.nn import functional as F

@dataclass
class Config:
    width: int = 6
    depth: int = 2
    deep: bool = True
    names: tuple = ("a", "b")
    sizes: list = field(default_factory=lambda: [1, 2])

    @property
    def inner(self) -> int:
        return 4 * self.width // 2
"""
# One constructor after another, each with something that modules do.
BODIES = {
    "layers": """
        self.a = nn.Linear(config.width, config.inner, bias=config.deep)
        self.b = nn.Embedding(3, config.width)
        self.c = nn.LayerNorm(config.width, elementwise_affine=False)
        self.d = nn.LayerNorm((2, config.width), bias=False)
        self.e = nn.Conv2d(4, 8, (3, 1), groups=2, bias=False)
        self.f = nn.GroupNorm(2, 4)
        self.g = nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1, bias=False))
        self.h = nn.ModuleDict({name: nn.Linear(1, i + 1) for i, name in enumerate(config.names)})
        self.i = nn.RMSNorm(config.width)
    """,
    "parameters": """
        self.scale = nn.Parameter(torch.ones(config.width) * 0.5)
        self.table = nn.Parameter(torch.zeros((2, 3)).float(), requires_grad=False)
        self.none = None
        self.list = nn.ParameterList([nn.Parameter(torch.empty(i + 1)) for i in range(3)])
        self.register_buffer("kept", torch.zeros(2, config.inner))
        self.register_buffer("lost", torch.zeros(5), persistent=False)
        self.register_parameter("late", nn.Parameter(torch.full((2, 2), 1.0)))
    """,
    "loops and conditions": """
        rows, *_ = (config.width, 1)
        for i in range(config.depth):
            setattr(self, f"block_{i}", nn.Linear(rows, 1 if i % 2 else 2))
        if config.deep and not config.width > 10:
            self.extra = nn.Linear(math.isqrt(17), max(1, config.depth - 5))
        else:
            self.never = nn.Linear(1, 1)
        blocks = []
        for size in [config.width] * 2:
            blocks.append(Block(size, bias=False))
        self.blocks = nn.ModuleList(blocks)
        self.blocks.append(Block(2))
        if not self.blocks[0].inner.weight.is_meta:
            self.blocks[0].inner.weight.data.fill_(0)
        self.twice = Twice(3)
        self.twice.tail = nn.Identity()
        self.helper = make(4)
    """,
    "names in a format, constants of the file, tables of sizes": """
        for i, size in enumerate(config.sizes):
            setattr(self, f"part_{i:02d}", nn.Linear(SIDE, SIDE * size))
    """,
    "methods and constants of a base class": """
        self.deep = Deep(2)
    """,
}
TAIL = """
class Block(nn.Module):
    def __init__(self, size, *, bias=True, **kwargs):
        super().__init__()
        self.inner = nn.Linear(size, size, bias=bias)

class Twice(Block):
    def __init__(self, size):
        super().__init__(size, bias=False)
        self.size = size
        self._more()

    def _more(self):
        self.more = nn.Linear(self.size, self.inner.weight.shape[0] + 1)

class Deep(Twice):
    ROWS = 6

    def __init__(self, size):
        super().__init__(size)
        self._more()
        self.last = nn.Linear(self.ROWS, 1)

SIDE = 3

def make(size):
    if size > 3:
        return nn.Linear(size, size)
    return None
"""


def source_of(body: str) -> str:
    return (
        f"{HEAD}\nclass Model(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n{body}\n{TAIL}"
    )


def read(source: str, **values: Any) -> dict[str, tuple[int, ...]]:
    return parameters_of(ast.parse(source), "Model", "Config", values, "m.py")


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("values", [{}, {"width": 12, "depth": 1, "deep": False}])
def test_the_text_says_what_torch_makes(body: str, values: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    source = source_of(BODIES[body])
    space: dict[str, Any] = {"__name__": "m"}
    sys.modules["m"] = type(sys)("m")
    exec(compile(source.replace("from __future__", "#"), "m.py", "exec"), space)
    with torch.device("meta"):
        state = space["Model"](space["Config"](**values)).state_dict()
    assert read(source, **values) == {name: tuple(tensor.shape) for name, tensor in state.items()}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("        self.a = nn.Linear(unknown(), 2)", r"m\.py:\d+: a size is an unknown value instead of a number"),
        ("        self.a = nn.LSTM(3, 4)", r"the parameters of nn\.LSTM are not known"),
        ("        self.a = nn.Linear(1)", r"the arguments of torch\.nn\.Linear are not understood"),
        ("        self.a = F.thing(2)", None),
        ("        self.a = nn.Parameter(torch.tensor([1.0]))", r"shape of an nn\.Parameter is not known"),
        ("        from x import y\n        self.a = nn.Linear(1, -1)", r"a size is -1"),
        ("        if torch.cuda.is_available():\n            self.a = nn.Linear(1, 1)", "decides over modules"),
        ("        while True:\n            self.a = nn.Linear(1, 1)", "does not tell how often"),
        ("        for i in range(10 ** 9):\n            pass", "a loop runs over"),
        ("        self.a = nn.Linear(10 ** 99, 1)", "does not fit 64 bits"),
        ("        self.a = Model(config)", "nested too deeply"),
        ("        self.a = nn.ModuleList(config.names)", "holds something that is no known module"),
    ],
)
def test_what_the_text_does_not_tell_is_an_error(body: str, message: str | None) -> None:
    if message is None:
        assert read(source_of(body)) == {}
        return
    with pytest.raises(ScaffoldError, match=message) as caught:
        read(source_of(body))
    assert "--meta" in caught.value.line or "nested" in caught.value.line


def test_a_class_that_is_made_of_a_call_is_one_line() -> None:
    source = source_of("        self.a = nn.Linear(unknown(), 2)").replace("class Model(", "class Inner(")
    with pytest.raises(ScaffoldError, match="a size is an unknown value instead of a number"):
        read(f"{source}\n\nclass Model(Inner(Config())):\n    pass\n")


def test_modules_of_other_files_are_not_guessed() -> None:
    body = "        self.a = foreign.Thing(3)"
    with pytest.raises(ScaffoldError, match=r"Thing comes from other\.place, which is not read"):
        read("import other.place as foreign\n" + source_of(body))
    with pytest.raises(ScaffoldError, match=r"what other\.make returns is not read"):
        read("from other import make as build\n" + source_of("        self.a = build(3)"))
    with pytest.raises(ScaffoldError, match=r"what other\.make returns is not read"):
        read("from other import make as build\n" + source_of("        made = build(3)\n        self.a = made"))
    with pytest.raises(ScaffoldError, match="under a name that is not known"):
        read(source_of("        setattr(self, unknown(), nn.Linear(1, 1))"))
    with pytest.raises(ScaffoldError, match=r"m\.py has no class Missing"):
        parameters_of(ast.parse(HEAD), "Missing", "Config", {}, "m.py")


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = source_of(f"        open({str(mark)!r}, 'w')\n        __import__('os').system('touch {mark}')")
    assert read(source + f"\nopen({str(mark)!r}, 'w').close()\n") == {}
    assert not mark.exists()


@pytest.mark.usefixtures("warm_children")
def test_the_rendered_module_on_the_meta_device(reference: Path, parameters: dict[str, tuple[int, ...]]) -> None:
    path = reference / MODEL
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = "BagelForTraining", "BagelTrainingConfig"
    assert parameters_of(tree, *names, {}, path.name) == parameters
    assert parameters_of(tree, *names, SMALL, path.name) == parameters_on_meta(path, *names, SMALL)
    with pytest.raises(ScaffoldError, match="cannot be built on the meta device"):
        parameters_on_meta(path, *names, {"nobody": 1})


def test_reading_needs_no_torch(reference: Path) -> None:
    code = (
        "import ast, sys\n"
        "sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from scaffold.remap.parameters import parameters_of\n"
        f"tree = ast.parse(Path({str(reference / MODEL)!r}).read_text())\n"
        "print(len(parameters_of(tree, 'BagelForTraining', 'BagelTrainingConfig', {}, 'm')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "796", done.stderr[-500:]


@pytest.mark.usefixtures("warm_children")
def test_the_command_asks_the_module(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    shutil.copytree(reference / MODEL.rpartition("/")[0], package)
    spec = package / "scaffold.toml"
    spec.write_text(spec.read_text().replace('version = "0.27.0rc1"', 'version = "from nowhere"'))
    monkeypatch.setenv("PYTHONPATH", str(kit_root()))
    text = scaffold_cli("remap", package, "--meta").success()
    assert "the module was built on the meta device" in text
    assert "796 parameters, 0 unfilled" in text
