"""What the denoiser is made of: its layers, how it takes the time, and what is a position."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import EULER, look, written

from scaffold.inspect import Report

PARTS = """

class Attention(nn.Module):
    def __init__(self, width, head_dim):
        super().__init__()
        self.to_q = nn.Linear(width, width)
        self.to_k = nn.Linear(width, width)


class Modulation(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.act = nn.SiLU()
        self.linear = nn.Linear(width, 6 * width)


class Part(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.ModuleList([Part(width), nn.Identity(), nn.Linear(width, width)])


class Block(nn.Module):
    def __init__(self, width, head_dim):
        super().__init__()
        self.attn = Attention(width, head_dim)
        self.modulation = Modulation(width)
        self.ff = FeedForward(width)
        {block}
"""
NET = """

class Net(nn.Module):
    def __init__(self, width=8, count=40, head_dim=4):
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.projector = FeedForward(width)
        {lists}
        {more}

    def forward(self, x, t, cond):
        {forward}
"""
ONE_LIST = "self.blocks = nn.ModuleList([Block(width, head_dim) for _ in range(count)])"


def _look(root: Path, *, block: str = "pass", lists: str = ONE_LIST, more: str = "pass",
          forward: str = "return self.proj(x + t + cond)", before: str = "", init: str = "pass",
          loop: str = EULER) -> Report:  # fmt: skip
    net = PARTS.format(block=_in(block))
    net += NET.format(lists=_in(lists), more=_in(more), forward=_in(forward))
    return look(root, pipeline=written(loop, init, net=before + net))


def _in(text: str) -> str:
    return text.replace("\n", "\n" + " " * 8)


def test_every_list_of_a_class(tmp_path: Path) -> None:
    other = ONE_LIST.replace("self.blocks", "self.refiners")
    found = _look(tmp_path, lists=f"{other}\n{ONE_LIST}")
    assert found.value("layers.classes") == ["Block"]
    assert found.value("detail.layers.path") == ["refiners", "blocks"]


def test_list_that_two_modules_hold_has_its_first_name(tmp_path: Path) -> None:
    before = """

class Body(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.held = blocks


"""
    found = _look(tmp_path, before=before, lists=f"{ONE_LIST}\nself.body = Body(self.blocks)")
    assert found.value("detail.layers.path") == ["blocks"]


def test_parts_of_a_feed_forward_are_no_layers(tmp_path: Path) -> None:
    assert _look(tmp_path).value("detail.layers.path") == ["blocks"]


@pytest.mark.parametrize(
    "lists",
    [
        "self.blocks = nn.ModuleList()\nfor i in range(count):\n    self.blocks.append(Block(width, head_dim))",
        "self.blocks = nn.ModuleList([])\nfor i in range(2):\n    self.blocks.append(Block(width, head_dim))",
        "self.first, self.last, self.blocks = make_layers(count, lambda prefix: Block(width, head_dim))",
    ],
)
def test_lists_that_something_else_fills(tmp_path: Path, lists: str) -> None:
    found = _look(tmp_path, lists=lists, before="from vllm.model_executor.models.utils import make_layers\n")
    assert found.value("layers.classes") == ["Block"]
    assert found.value("detail.layers.path") == ["blocks"]


@pytest.mark.parametrize(
    ("block", "answer"),
    [
        ("pass", None),
        ("self.up, self.act, self.down = nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)", "gelu"),
    ],
)
def test_activation_of_a_modulation_is_not_that_of_the_layer(tmp_path: Path, block: str, answer: str | None) -> None:
    assert _look(tmp_path, block=block).value("detail.layers.activation") == answer


DOUBLING = """

class Doubled(nn.Module):
    def __init__(self, twice=False):
        super().__init__()
        self.twice = twice

    def forward(self, t, shapes):
        return torch.cat([t, t * 0]), shapes


class Embedder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.timestep_embedder = nn.Linear(width, width)

    def forward(self, t, hidden, guidance=None):
        return self.timestep_embedder(t).to(hidden.dtype)


class Mixed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.timestep_embedder = nn.Linear(width, width)

    def forward(self, states, t, kind):
        return self.timestep_embedder(states + t + kind)
"""


def test_module_that_arranges_times_embeds_none(tmp_path: Path) -> None:
    more = "self.arrange, self.embed = Doubled(), Embedder(width)"
    forward = "t, shapes = self.arrange(t, 3)\nreturn self.proj(x + self.embed(t, self.proj(x), None) + cond)"
    found = _look(tmp_path, more=more, forward=forward, before=DOUBLING)
    assert found.value("detail.timestep.attribute") == "embed"


def test_module_that_embeds_something_else_at_a_time(tmp_path: Path) -> None:
    forward = "return self.proj(x + self.mixed(self.proj(cond), t, 3))"
    found = _look(tmp_path, more="self.mixed = Mixed(width)", forward=forward, before=DOUBLING)
    assert found.fact("detail.timestep.attribute").confidence == "unknown"


TABLE = """

class Table(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(64, width))

    def forward(self, given):
        return self.table[given]
"""


@pytest.mark.parametrize(
    ("forward", "answer"),
    [
        ("return self.proj(self.proj(x) + self.places(torch.arange(x.shape[1])))", "places"),
        ("return self.proj(torch.cat([self.proj(x), self.places(torch.arange(4))], dim=-1))", "places"),
        ("return self.proj(self.proj(x) + self.places(t))", None),
        ("return self.proj(self.proj(x) + self.places(self.proj(x)))", None),
        ("return self.proj(self.proj(x) + self.places(cond))", None),
        ("return self.proj(x) * self.places(torch.arange(4))", None),
    ],
)
def test_positions_are_asked_for_places_and_added(tmp_path: Path, forward: str, answer: str | None) -> None:
    found = _look(tmp_path, more="self.places = Table(width)", forward=forward, before=TABLE)
    assert found.value("detail.position.attribute") == answer


@pytest.mark.parametrize(("name", "answer"), [("position_ids", "zero"), ("mask", None)])
def test_mask_is_no_position(tmp_path: Path, name: str, answer: str | None) -> None:
    before = f"""

class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x, t, {name}):
        return self.proj(x + t + {name})
"""
    loop = EULER.replace("self.net(x, sigmas[i], cond)", "self.turned(x, sigmas[i], torch.tensor([0] * len(cond)))")
    found = _look(tmp_path, before=before, init="self.turned = Turned()", loop=loop)
    assert found.value("detail.rope.image_position") == answer
