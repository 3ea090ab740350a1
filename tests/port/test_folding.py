"""What serves inference alone is not carried over: what has one value is that value, what nothing reads is gone."""

from __future__ import annotations

import ast

import pytest
import torch

from tests.port.conftest import HEAD, PortText, execute

PARALLEL = (
    HEAD
    + """
from vllm.config import get_current_vllm_config
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size


def ranks() -> int:
    return get_tensor_model_parallel_world_size()


def checked(*, heads: int, tp: int, most: int = 8) -> int:
    size = int(tp)
    if size <= 0:
        raise ValueError(f"{size} devices")
    if heads % size != 0:
        raise ValueError(f"{heads} heads on {size} devices")
    wrong = [head for head in range(heads) if head % size != 0]
    sizes = [heads, most]
    bad = [one for one in sizes if one % size != 0]
    if bad:
        raise ValueError(f"{bad}: {size}")
    return heads // size + len(wrong)


def marked(weight) -> None:
    if get_tensor_model_parallel_world_size() == 1:
        return
    weight.shard = True


class Norm(nn.Module):
    def __init__(self, size, tp_size=1):
        super().__init__()
        self.tp_size = max(int(tp_size), 1)


class Inner(nn.Module):
    def __init__(self, size, num_heads, num_experts, causal=False, quant_config=None, prefix: str = ""):
        super().__init__()
        self.tp_size = get_tensor_model_parallel_world_size()
        self.rank = get_tensor_model_parallel_rank()
        self.total_num_heads = num_heads
        # Heads are shared out.
        assert self.total_num_heads % self.tp_size == 0
        if self.tp_size > num_experts:
            raise ValueError(f"{self.tp_size} is more than {num_experts}")
        if self.total_num_heads >= self.tp_size:
            # There are enough.
            assert num_heads % self.tp_size == 0
        else:
            assert self.tp_size % num_heads == 0
        self.num_heads = (num_heads + 2) // self.tp_size - 2
        self.size = size * self.tp_size + self.rank
        self.norm = nn.LayerNorm(self.size)
        for weight in (self.norm.weight, self.norm.bias):
            if weight is not None:
                marked(weight)
        if causal:
            self.mask = size

    def forward(self, x):
        return self._turned(x, True, None)

    def _turned(self, x, twice, mask):
        total = x
        if mask is not None:
            x = x + mask
        elif self.tp_size > 1:
            x = -x
        elif not twice:
            return x
        else:
            # Both times.
            x = x + (x if twice else mask)
        if isinstance(self.norm, Norm) and self.norm.tp_size > 1:
            total = total
        return self.norm(x)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


class Model(nn.Module):
    def __init__(self, size: int, heads: int = 4, quant_config=None, prefix: str = "", scale: float = 1.0):
        super().__init__()
        vocabulary = get_tensor_model_parallel_rank() if quant_config is None else 3
        self.heads = checked(heads=heads, tp=ranks())
        self.quant_config = quant_config
        self.prefix = prefix
        self.vocabulary = size + vocabulary
        self.scale = scale
        self.inner = Inner(
            size,
            heads,  # of all devices
            num_experts=2,
            quant_config=self.quant_config,
            # Told to the engine.
            prefix=_join(self.prefix, "inner") if self.prefix else "inner",
        )

    def forward(self, x):
        return self.inner(x) * self.scale
"""
)


def test_sizes_of_groups_and_options_of_the_engine_are_gone(port_text: PortText) -> None:
    port = port_text(PARALLEL)
    assert port.parameters == ("size", "heads", "scale")
    for gone in (
        "tp",
        "rank",
        "quant",
        "prefix",
        "raise",
        "assert",
        "marked",
        "%",
        "Norm(",
        "causal",
        "twice",
        "enough",
    ):
        assert gone not in port.source.partition("class Inner")[2].replace("LayerNorm(", "")
    assert not {"ranks", "marked", "_join", "Norm"} & {
        getattr(node, "name", "") for node in ast.parse(port.source).body
    }
    module = execute(port)
    model = module.Model(4, 6, scale=2.0)
    assert (model.heads, model.vocabulary) == (6, 4)
    assert (model.inner.num_heads, model.inner.total_num_heads, model.inner.size) == (6, 6, 4)
    x = torch.randn(3, 4)
    torch.testing.assert_close(model(x), 2 * torch.nn.functional.layer_norm(2 * x, (4,)))


KEPT = """
class Part(nn.Module):
    def __init__(self, size, option=None):
        super().__init__()
        self.option = option
        self.size = size

    def forward(self, x):
        return x if self.option is None else x * self.option


class Other(Part):
    pass


class Named(Part):
    def __init__(self, value):
        super().__init__(1, option=value)


class Made(Part):
    @classmethod
    def of(cls, value):
        return cls(1, value)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([CALLS])

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x
"""


@pytest.mark.parametrize(
    ("calls", "factor"),
    [
        ("Part(1), Part(1, 2)", 2),
        ("Part(1), Part(*(1, 2))", 2),
        ("Part(1), Part(1, **{'option': 3})", 3),
        ("Part(1), Other(1, 4)", 4),
        ("Part(1), Named(2)", 2),
        ("Part(1), Made.of(3)", 3),
        ("Part(1), Other(1), Named(None)", 1),
        ("Part(1), *map(lambda size: Part(size, 5), (1,))", 5),
        ("Part(1), *(kind(1, 6) for kind in (Part,))", 6),
        ("Part(1), type(Part(1))(1, 7)", 7),
    ],
)
def test_what_another_call_may_give_stays(port_text: PortText, calls: str, factor: int) -> None:
    port = port_text(HEAD + KEPT.replace("CALLS", calls))
    assert execute(port).Model()(1) == factor
    assert ("option=None" in port.source) == (factor > 1)


FUNCTIONS = """
def once(x, flag=True):
    flag = x > 0
    return x if flag else -x


def shadowed(x, size=None):
    return [size for size in (x, x)], (lambda size: size)(x)


def counted(x, step=1):
    def more():
        nonlocal step
        step = step + 1
        return step

    return more() + more()


def told(x, kind=None):
    return f"{x} {kind}"


def both(x, mask=None):
    found = x and mask
    other = mask or x
    return found, other, not (mask is not None and x)


def rest(x, flag=None, **others):
    return x if flag is None else (x, others)


def some(x, flag=None, **others):
    return x if flag is None else others, {name: others[name] for name in others}


def said(x, kind=None):
    return x if kind is None else kind


def empty(x, more=False):
    if more:
        yield x
    return
    yield x


def idle():
    unread = 3
    return 3


def loud(seen):
    seen.append(1)
    return seen


def chosen(x, seen, mode=None, unread=None):
    for name in (1, 2):
        if mode is not None:
            seen.append(name)
    if mode is None and x > 0:
        pass
    elif mode is not None:
        return 2
    elif x < -5:
        return 3
    else:
        return 4
    return name


class Model(nn.Module):
    def forward(self, x):
        seen = []
        value = chosen(x, seen, unread=loud(seen))
        counts = counted(x) if COUNTED else idle()
        seen += [f"{said(x, kind=None)}", f"é {said((x), None)}", said(x), list(empty(x))]
        more = [rest(x), rest(x, flag=None, size=3, sizes=[x]), rest(x, seen=loud(seen)), some(x, flag=None, size=3)]
        return [*more, once(x), shadowed(x), told(x), both(x), value, seen, counts]
"""


@pytest.mark.parametrize("x", [2, -2, -9])
@pytest.mark.parametrize("counted", [True, False])
def test_functions_return_what_they_did(port_text: PortText, x: int, counted: bool) -> None:
    text = FUNCTIONS.replace("COUNTED", str(counted))
    expected: dict[str, object] = {}
    exec(compile("import torch.nn as nn\n" + text, "text", "exec"), expected)
    port = port_text(HEAD + text)
    assert execute(port).Model()(x) == expected["Model"]()(x)  # type: ignore[operator]
    if not counted:
        assert "mode is" not in port.source
        assert "kind=None" in port.source  # a string says it


def test_an_attribute_of_another_object_is_another(port_text: PortText) -> None:
    port = port_text(
        HEAD
        + """
class Part(nn.Module):
    def __init__(self, flatten=True):
        super().__init__()
        self.flatten = flatten

    def forward(self, x):
        return x.flatten(1) if self.flatten else x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        if not hasattr(x, "shape"):
            pass
        elif x.shape[0] > 9:
            x = x
        return self.part(x).flatten()
"""
    )
    assert "return x.flatten(1)\n" in port.source
    assert execute(port).Model()(torch.ones(2, 3)).shape == (6,)


def test_a_layout_that_is_not_understood_stays(port_text: PortText) -> None:
    text = "def f(x, flag=(None)):\n    return (x\n        if flag is None else (flag\n    ))\n\n\n"
    text += "class Model(nn.Module):\n    def forward(self, x): return f((x), flag=(None)) if x else f((x) , (None),)\n"
    port = port_text(HEAD + text)
    ast.parse(port.source)
    assert [execute(port).Model()(x) for x in (0, 3)] == [0, 3]
