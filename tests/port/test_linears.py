"""Lists of layers and LoRA targets, read from the text of a ported module."""

from __future__ import annotations

from scaffold.port.linears import find_layout, layer_counts

TEXT = """
class Feed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.proj = nn.Linear(dim, dim) if dim > 4 else UnbiasedLinear(dim, dim)


class Layer(Base):
    def __init__(self, dim):
        super().__init__()
        self.to_q = nn.Linear(dim, dim)
        self.out = nn.ModuleList([nn.Linear(dim, dim)])
        self.feed = Feed(dim)
        self.experts = Experts(4, dim)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(1, 1)


class UnbiasedLinear(nn.Linear):
    pass


class Experts(nn.ModuleList):
    def __init__(self, count, dim):
        super().__init__(Feed(dim) for _ in range(count))


class Inner(nn.Module):
    def __init__(self, dim, count):
        super().__init__()
        self.blocks = nn.ModuleList([])
        for _ in range(count):
            self.blocks.append(Layer(dim))


class Whole(nn.Module):
    def __init__(self, dim: int = 8, num_layers: int = 30, depth=2, name="x"):
        super().__init__()
        self.inner = Inner(dim, depth)
        self.layers = nn.ModuleList([Layer(dim) for _ in range(num_layers)])
        self.head = Feed(dim)
        self.gate = nn.Linear(1, 1)
"""


def test_lists_are_found_in_modules_inside_and_targets_do_not_reach_outside() -> None:
    layout = find_layout(TEXT, "Whole", ("Layer",))
    assert layout.lists == ("inner.blocks", "layers")
    # `gate`, `net.0` and `proj` outside of the layers keep their full width only under longer names.
    assert layout.targets == ("to_q", "out.0", "feed.net.0", "feed.net.2", "feed.proj")


def test_without_layers_there_is_no_target() -> None:
    layout = find_layout(TEXT, "Whole", ())
    assert (layout.lists, layout.targets) == ((), ())


def test_counts_of_layers_are_parameters_with_a_default() -> None:
    assert layer_counts(TEXT, "Whole") == ("num_layers", "depth")
    assert layer_counts(TEXT, "Inner") == ()
    assert layer_counts(TEXT.replace('name="x"', "config=None"), "Whole") == ()
    assert layer_counts(TEXT.replace("dim: int = 8", "dim: int"), "Whole") == ()


def test_a_target_names_no_layer_of_another_kind() -> None:
    """PEFT would put LoRA on a convolution of that name too, and no update of one is a product of two matrices."""
    text = (
        "class Block(nn.Module):\n    def __init__(self):\n        self.attn = Attention()\n"
        "        self.mix = nn.Conv1d(8, 8, 3)\n\n\n"
        "class Attention(nn.Module):\n    def __init__(self):\n        self.proj = nn.Linear(8, 8)\n"
        "        self.value = nn.Linear(8, 8)\n\n\n"
        "class Patches(nn.Module):\n    def __init__(self):\n        self.proj = nn.Conv3d(8, 8, 1)\n\n\n"
        "class Whole(nn.Module):\n    def __init__(self):\n        self.patches = Patches()\n"
        "        self.blocks = nn.ModuleList([Block() for _ in range(2)])\n"
    )
    layout = find_layout(text, "Whole", ("Block",))
    assert layout.targets == ("attn.proj", "value")
    assert layout.lists == ("blocks",)


READ = """
def in_float32(linear, x):
    if not hasattr(linear, "weight"):
        return linear(x.float())
    return F.linear(x.float(), linear.weight.float(), linear.bias.float())


def after_silu(module, x):
    return in_float32(module[1], F.silu(x))


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.change = nn.Sequential(nn.SiLU(), nn.Linear(dim, dim))
        self.direct = nn.Linear(dim, dim)
        self.called = nn.Linear(dim, dim)
        self.asked = nn.Linear(dim, dim)

    def forward(self, x):
        x = x.to(self.asked.weight.dtype)
        return self.called(x) + self.asked(x) + after_silu(self.change, x) + F.linear(x, self.direct.weight)


class Whole(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dim) for _ in range(2)])
"""


def test_layers_whose_weights_are_read_are_no_targets() -> None:
    """LoRA wraps the layer: whoever takes the weight in place of a call passes it by."""
    layout = find_layout(READ, "Whole", ("Layer",))
    assert layout.targets == ("called", "asked")
    assert layout.uncalled == (("layers", "*", "change", "1"), ("layers", "*", "direct"))
    assert layout.unnamed == ()
    assert set(layout.uncalled) < set(layout.linears)


def test_a_target_names_no_module_outside_that_lora_refuses() -> None:
    """PEFT ends with an error where a name fits an activation, too."""
    text = (
        "class Block(nn.Module):\n    def __init__(self):\n        self.modulation = nn.Sequential(nn.Linear(8, 8))\n"
        "        self.feed = nn.Linear(8, 8)\n\n\n"
        "class Last(nn.Module):\n    def __init__(self):\n"
        "        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(8, 8))\n\n\n"
        "class Whole(nn.Module):\n    def __init__(self):\n        table = {}\n        for size in (2, 4):\n"
        "            last = Last()\n            table[f'{size}'] = last\n        self.last = nn.ModuleDict(table)\n"
        "        self.blocks = nn.ModuleList([Block() for _ in range(2)])\n"
    )
    layout = find_layout(text, "Whole", ("Block",))
    assert layout.targets == ("feed",)
    assert layout.unnamed == (("blocks", "*", "modulation", "0"),)
    assert layout.outside == (("last", "*", "modulation", "1"),)


def test_a_layer_that_nothing_asks_for_is_no_target() -> None:
    """Whatever it holds, too; not where a text may name it, or all modules are walked."""
    text = (
        "class Feed(nn.Module):\n    def __init__(self):\n        self.up = nn.Linear(1, 1)\n\n"
        "    def forward(self, x):\n        return self.up(x)\n\n\n"
        "class Block(nn.Module):\n    def __init__(self):\n        self.kept = nn.Linear(1, 1)\n"
        "        self.left = nn.Linear(1, 1)\n        self.spare = Feed()\n\n"
        "    def forward(self, x):\n        return self.kept(x)\n\n\n"
        "class Whole(nn.Module):\n    def __init__(self):\n"
        "        self.blocks = nn.ModuleList([Block() for _ in range(2)])\n\n"
        "    def forward(self, x):\n        for block in self.blocks:\n            x = block(x)\n        return x\n"
    )
    found = find_layout(text, "Whole", ("Block",))
    assert found.targets == ("kept",)
    assert found.uncalled == (("blocks", "*", "left"), ("blocks", "*", "spare", "up"))
    for other in ('getattr(self, "left")(self.kept(x))', "[m(x) for m in self.children()][0]"):
        assert "left" in find_layout(text.replace("self.kept(x)", other), "Whole", ("Block",)).targets
