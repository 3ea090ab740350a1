"""A function taken over with a step in place of its update, and what it imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.port.region import port_region
from scaffold.port.result import KeptState, kept_state
from scaffold.source.modules import ModuleGraph
from scaffold.upstream import locate

MODULE = """
import math as m
from typing import TYPE_CHECKING
import torch
from .other import Thing

LIMIT = 3
"""
FUNCTION = '''
@torch.no_grad()
def loop(model: Thing, x, times, *, steps: int = LIMIT):
    """Walk."""
    for i in range(steps):
        v = model(x, m.cos(times[i]))
        # Euler.
        x = x + (times[i + 1] - times[i]) * v
        x = x.to(v.dtype)
    return x
'''
PARTS = {"class": None, "function": "loop", "sample": "x", "output": "v", "bound": ["i"], "first": 7, "last": 8}


@pytest.fixture
def graph(tmp_path: Path) -> ModuleGraph:
    folder = tmp_path / "vllm_omni" / "diffusion"
    folder.mkdir(parents=True)
    for name in (tmp_path / "vllm_omni" / "__init__.py", folder / "__init__.py", folder / "other.py"):
        name.write_text("Thing = int\n" if name.stem == "other" else "", encoding="utf-8")
    (folder / "loops.py").write_text(MODULE + FUNCTION, encoding="utf-8")
    return ModuleGraph(locate(str(tmp_path)))


def ported(graph: ModuleGraph, text: str = FUNCTION, owner: str | None = None, **parts: Any) -> Any:
    return port_region(graph, "vllm_omni.diffusion.loops", text, owner, {**PARTS, "class": owner, **parts})


def test_the_update_becomes_a_function_and_a_scheduler_takes_the_step(graph: ModuleGraph) -> None:
    seen: list[Any] = []

    class Scheduler:
        def update(self, own: Any, sample: Any, output: Any) -> Any:
            seen.append((own(sample, output), sample, output))
            return sample + 1

    class Value(float):
        dtype = None

        def to(self, _: Any) -> Value:
            return Value(float(self) + 0.5)

        def __add__(self, other: Any) -> Value:
            return Value(float(self) + float(other))

    class Model:
        def __call__(self, x: Any, t: float) -> Value:
            return Value(10 * float(x) + t)

    text = ported(graph).text.replace("@torch.no_grad()\n", "")
    names: dict[str, Any] = {"m": __import__("math"), "LIMIT": 2}
    exec("from __future__ import annotations\nfrom typing import Any\n" + text, names)
    made = names["loop"](Model(), Value(1.0), [0.0, 0.5, 2.0], sde_scheduler=Scheduler())
    assert float(made) == 3.0  # the scheduler's steps, not upstream's
    (first, sample, output), (second, *_) = seen
    assert (float(sample), float(output)) == (1.0, 11.0)
    assert float(first) == pytest.approx(1.0 + 0.5 * 11.0 + 0.5)
    assert float(second) == pytest.approx(2.0 + 1.5 * (20 + __import__("math").cos(0.5)) + 0.5)


def test_a_method_asks_its_object_for_the_scheduler(graph: ModuleGraph) -> None:
    text = FUNCTION.replace("def loop(model", "def loop(self, model")
    assert "x = self.sde_scheduler.update(own_update, x, v)" in ported(graph, text, "Owner").text


def test_names_are_imported_as_the_module_has_them(graph: ModuleGraph) -> None:
    found = ported(graph)
    assert set(found.imports) == {
        "import math as m", "import torch", "from vllm_omni.diffusion.loops import LIMIT",
    }  # fmt: skip
    assert found.typing_imports == ("from vllm_omni.diffusion.loops import Thing",)


@pytest.mark.parametrize(
    ("text", "parts", "message"),
    [
        (FUNCTION, {"first": 60, "last": 61}, "no update in lines 60 to 61"),
        (FUNCTION.replace("v = model", "own_update = 1\n        v = model"), {}, "a name 'own_update' of its own"),
    ],
)
def test_what_cannot_be_taken_over_is_said(graph: ModuleGraph, text: str, parts: Any, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        ported(graph, text, **parts)


def test_what_a_call_leaves_behind() -> None:
    text = """
class Kept:
    def __init__(self):
        self.size = 3
        self.text: int | None = None
        self.table = make()
        self.seen = 0

    def forward(self, x):
        self.text, self.mask = x, None
        self.table[x] = 1
        self.seen += 1
        return self.size

class Other:
    def forward(self):
        self.text = 1
"""
    assert kept_state(text, ["Kept"]) == (
        KeptState("Kept", "text", "None"),
        KeptState("Kept", "mask", None),
        KeptState("Kept", "table", None),
        KeptState("Kept", "seen", "0"),
    )
