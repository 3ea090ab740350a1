"""The model that rules share: names, values, classes, keys, calls; what cannot be resolved is unknown."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import pytest

from scaffold.check.example import BASE, base_tree, check_files
from scaffold.check.model.calls import resolve, returned
from scaffold.check.model.constants import known
from scaffold.check.model.keys import dict_keys, keys_read
from scaffold.check.model.package import Package
from scaffold.check.model.project import Project
from scaffold.check.model.python import FunctionModel
from scaffold.check.model.reach import reachable
from scaffold.check.model.tree import MemoryTree
from scaffold.source.values import UNKNOWN

FOLDER = "verl_omni/pipelines/one_flow_grpo"
MARK = "from verl_omni.pipelines.model_base import DiffusionModelBase\n"


def package(files: Mapping[str, str], others: Mapping[str, str] | None = None) -> Package:
    """Return the package of some files; the first gets the import that makes it one."""
    tree = {f"{FOLDER}/{name}": text for name, text in files.items()}
    tree[f"{FOLDER}/marked.py"] = MARK
    project = Project(MemoryTree({**tree, **(others or {})}))
    found = project.package("one_flow_grpo")
    assert found is not None
    return found


def file_of(text: str, **others: str) -> Any:
    """Return the file ``a.py`` of a package; keyword arguments are its siblings."""
    found = package({"a.py": text, **{f"{name}.py": content for name, content in others.items()}})
    return next(file for file in found.files if file.name == "a.py")


def function_of(text: str) -> FunctionModel:
    """The function ``f`` of a file."""
    (found,) = [function for function in file_of(text).functions if function.name == "f"]
    return found


def last(file: Any) -> ast.expr:
    """Return the expression that ends a file."""
    statement = file.tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return statement.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch.nn.functional as F\nF.relu", "torch.nn.functional.relu"),
        ("import torch\ntorch.nn.Linear", "torch.nn.Linear"),
        ("from torch import nn as layers\nlayers.Linear", "torch.nn.Linear"),
        ("from .b import thing\nthing", "verl_omni.pipelines.one_flow_grpo.b.thing"),
        ("from . import b\nb.thing", "verl_omni.pipelines.one_flow_grpo.b.thing"),
        ("from ..other import thing\nthing", "verl_omni.pipelines.other.thing"),
        ("from .b import *\nthing", "verl_omni.pipelines.one_flow_grpo.b.thing"),
        ("import torch\nX = torch.float32\nX", "torch.float32"),
        ("class C: pass\nC", "verl_omni.pipelines.one_flow_grpo.a.C"),
        ("int", "int"),
        ("def int(): pass\nint", "verl_omni.pipelines.one_flow_grpo.a.int"),
        ("from elsewhere import *\nthing", None),
        ("from elsewhere import *\nint", None),
        ("unheard_of", None),
        ("if x:\n    import a\nelse:\n    import b as a\na.c", None),
        ("try:\n    from a import c\nexcept ImportError:\n    c = None\nc", None),
        ("x = f()\nx.y", "verl_omni.pipelines.one_flow_grpo.a.x.y"),
        ("from .. import *\nNothing", None),
    ],
)
def test_qualified_names(text: str, expected: str | None) -> None:
    file = file_of(text, b="thing = 1\n")
    assert file.qualified(last(file)) == expected


def test_names_inside_functions_hide_those_outside() -> None:
    file = file_of(
        "import torch\nimport os\n\n\ndef f(torch, y=os):\n    import json as os\n    a = 1\n"
        "    g = lambda a: a\n    b = [a for a in y]\n    return torch, os, a\n"
    )
    value = file.functions[0].returns[0].value
    assert [file.qualified(node) for node in value.elts] == [None, "json", None]
    (default,) = file.functions[0].node.args.defaults
    assert file.qualified(default) == "os"
    kinds = [file.scopes.lookup("a", node)[0].kind for node in file.index.nodes(ast.Name) if node.id == "a"]
    assert kinds.count("parameter") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(1, 2.5, 'a', None, True)", (1, 2.5, "a", None, True)),
        ("X = 3\nY = X + 1\n[X, Y * 2, -X]", [3, 8, -3]),
        ("N = 'Toy'\nf'Omni{N}ForConditionalGeneration'", "OmniToyForConditionalGeneration"),
        ("D = {'a': 1}\n{**D, 'b': 2}", {"a": 1, "b": 2}),
        ("D = {'a': (0.0, 1.0)}\nD['a']", (0.0, 1.0)),
        ("from .b import NAME\nNAME", "there"),
        ("from . import b\nb.NAME + '!'", "there!"),
        ("from .b import *\nNAME", "there"),
        ("from .c import NAME\nNAME", "there"),
        ("class C:\n    X = 5\nC.X", 5),
        ("class C:\n    X = 5\nclass D(C): pass\nD.X", 5),
        ("dict(a=1, b='c')", {"a": 1, "b": "c"}),
        ("tuple([1, 2])", (1, 2)),
        ("'a' if 1 else 'b'", "a"),
        ("X: int = 7\nX", 7),
        ("X = 1\nX = 2\nX", UNKNOWN),
        ("D = {}\nD['a'] = 1\nD", UNKNOWN),
        ("D = []\nD.append(1)\nD", UNKNOWN),
        ("f()", UNKNOWN),
        ("'a' * 10 ** 9", UNKNOWN),
        ("'x' * 1000000000", UNKNOWN),
        ("1 / 0", UNKNOWN),
        ("X = Y\nY = X\nX", UNKNOWN),
        ("f'{x!r}'", UNKNOWN),
        ("for X in y: pass\nX", UNKNOWN),
    ],
)
def test_values(text: str, expected: object) -> None:
    file = file_of(text, b="NAME = 'there'\n", c="from .b import NAME\n")
    value = file.value(last(file))
    assert value is UNKNOWN if expected is UNKNOWN else value == expected


def test_container_with_an_unknown_element() -> None:
    file = file_of("{'a': 1, 'b': f()}")
    value = file.value(last(file))
    assert value == {"a": 1, "b": UNKNOWN}
    assert not known(value)
    assert known({"a": [1, (2,)]})


def test_deep_expression_is_unknown() -> None:
    chain = "X0 = 1\n" + "".join(f"X{at + 1} = X{at}\n" for at in range(2_000))
    near = file_of(chain + "X20")
    assert near.value(last(near)) == 1
    file = file_of(chain + "X2000")
    assert file.value(last(file)) is UNKNOWN


def test_bases_are_followed_through_siblings_and_packages() -> None:
    other = "verl_omni/pipelines/two_flow_grpo/adapter.py"
    found = package(
        {
            "a.py": "from .common import Mixin\nfrom ..two_flow_grpo.adapter import Two\nclass One(Mixin, Two): pass\n",
            "common.py": "class Mixin:\n    def f(self): pass\n",
        },
        {other: MARK + "class Two(DiffusionModelBase):\n    X = 1\n    def f(self): pass\n    def g(self): pass\n"},
    )
    (one,) = [cls for cls in found.classes if cls.name == "One"]
    assert [cls.name for cls in one.mro] == ["One", "Mixin", "Two"]
    assert one.derives_from("DiffusionModelBase") is True
    assert one.derives_from("NonDiffusersModelBase") is False
    assert one.method("f").cls.name == "Mixin"
    assert one.method("g").cls.name == "Two"
    assert one.attribute("X").file.path == other
    assert found.training_adapters == [one]


def test_base_that_cannot_be_resolved_is_said() -> None:
    file = file_of("class A(make()): pass\nclass B(object): pass\n")
    a, b = file.classes
    assert a.derives_from("Anything") is None
    assert b.derives_from("Anything") is False


@pytest.mark.parametrize(
    ("register", "expected"),
    [
        ('@DiffusionModelBase.register("Arch", algorithm="flow_grpo")\n', ("Arch", "flow_grpo")),
        ('@DiffusionModelBase.register(algorithm="flow_grpo", architecture="Arch")\n', ("Arch", "flow_grpo")),
        ('@DiffusionModelBase.register("Arch", "flow_grpo")\n', ("Arch", "flow_grpo")),
        ('NAME = "Arch"\n@DiffusionModelBase.register(NAME, algorithm=f"{\'flow\'}_grpo")\n', ("Arch", "flow_grpo")),
        ('r = DiffusionModelBase.register\n@r("Arch", algorithm="flow_grpo")\n', ("Arch", "flow_grpo")),
        ('import os\n@DiffusionModelBase.register(os.environ["A"], algorithm="dpo")\n', (UNKNOWN, "dpo")),
    ],
)
def test_registrations(register: str, expected: tuple[object, object]) -> None:
    found = package({"a.py": f"{MARK}{register}class A(DiffusionModelBase): pass\n"})
    (registration,) = found.registrations
    assert (registration.side, registration.cls.name) == ("training", "A")  # type: ignore[union-attr]
    assert (registration.architecture, registration.algorithm) == expected


def test_registration_as_a_call() -> None:
    text = MARK + 'class A(DiffusionModelBase): pass\nDiffusionModelBase.register("Arch", algorithm="dpo")(A)\n'
    (registration,) = package({"a.py": text}).registrations
    assert registration.cls is not None
    assert registration.cls.name == "A"


@pytest.mark.parametrize(
    ("algorithm", "objective"),
    [
        ("flow_grpo", "policy_gradient"),
        ("dance_grpo", "policy_gradient"),
        ("dpo", "direct_preference"),
        ("diffusion_nft", "direct_preference"),
        ("something_new", None),
    ],
)
def test_objective(algorithm: str, objective: str | None) -> None:
    text = f'{MARK}@DiffusionModelBase.register("Arch", algorithm="{algorithm}")\nclass A(DiffusionModelBase): pass\n'
    assert package({"a.py": text}).objective == objective


BODY = "def f(x, c):\n    a = {'one': 1}\n"


@pytest.mark.parametrize(
    ("text", "keys", "complete"),
    [
        ("def f(x):\n    return {'a': 1, 'b': x}\n", {"a", "b"}, True),
        ("def f(x):\n    return dict(a=1, **x)\n", {"a"}, False),
        ("K = 'k'\ndef f(x):\n    return {K: 1, x: 2}\n", {"k"}, False),
        (BODY + "    a['two'] = 2\n    return a\n", {"one", "two"}, True),
        (BODY + "    if c:\n        a['two'] = 2\n    return a\n", {"one", "two"}, True),
        (BODY + "    a.update(two=2, **{'three': 3})\n    return a\n", {"one", "two", "three"}, True),
        (BODY + "    a.update(x)\n    return a\n", {"one"}, False),
        (BODY + "    return {**a, 'two': 2}\n", {"one", "two"}, True),
        (BODY + "    return a | {'two': 2}\n", {"one", "two"}, True),
        (BODY + "    a = {**a, 'two': 2}\n    return a\n", {"one", "two"}, True),
        (BODY + "    return a if c else {'two': 2}\n", {"one", "two"}, True),
        ("def g():\n    return {'a': 1}\ndef f(x):\n    return {**g(), 'b': 2}\n", {"a", "b"}, True),
        ("def f(x):\n    return {k: 1 for k in x}\n", set(), False),
    ],
)
def test_keys_of_a_dictionary(text: str, keys: set[str], complete: bool) -> None:
    function = function_of(text)
    (value,) = [statement.value for statement in function.returns]
    found = dict_keys(function, value)
    assert found is not None
    assert set(found.nodes) == keys
    assert found.complete is complete


@pytest.mark.parametrize("value", ["x", "g(x)", "[1]", "x.y"])
def test_what_is_no_plain_dictionary(value: str) -> None:
    function = function_of(f"def f(x):\n    return {value}\n")
    assert dict_keys(function, function.returns[0].value) is None


def test_keys_read_through_helpers_and_aliases() -> None:
    file = file_of(
        "KEY = 'named'\n"
        "def f(batch):\n    m = batch\n    if 'maybe' in m.keys():\n        m['maybe']\n"
        "    g(1, batch)\n    return m[KEY], batch.get('soft'), batch.pop('gone'), batch[0]\n"
        "def g(x, b):\n    return b['deep'], x['other']\n"
    )
    found = {(read.key, read.optional) for read in keys_read(file.functions[0], "batch")}
    assert found == {("maybe", True), ("named", False), ("soft", True), ("gone", False), ("deep", False)}


def test_calls_resolve_through_self_super_and_modules() -> None:
    file = file_of(
        "from .b import helper, B\nfrom . import b\n"
        "class A(B):\n"
        "    def __init__(self):\n        self.part = B()\n"
        "    def f(self):\n        self.g()\n        super().g()\n        helper()\n        b.helper()\n"
        "        self.part.g()\n        B()\n        self.h()\n        unknown()\n"
        "    def g(self): pass\n",
        b="class B:\n    def g(self): pass\n    def h(self): pass\ndef helper(): pass\n",
    )
    method = file.find_class("A").methods["f"]
    found = [resolve(file, call) for call in method.calls]
    names = [getattr(item, "qualname", None) for item in found if item is not None]
    start = "verl_omni.pipelines.one_flow_grpo."
    expected = ["a.A.g", "b.B.g", "b.helper", "b.helper", "b.B.g", "b.B", "b.B.h"]
    assert sorted(name.removeprefix(start) for name in names) == sorted(expected)


def test_reach_goes_through_submodules_and_what_is_handed_on() -> None:
    file = file_of(
        "from torch import nn\n"
        "class Inner(nn.Module):\n    def forward(self, x):\n        return deep(x)\n"
        "class Outer(nn.Module):\n"
        "    def __init__(self):\n        self.layers = nn.ModuleList([Inner() for _ in range(2)])\n"
        "    def forward(self, x):\n        for layer in self.layers:\n            x = call(layer, handed)\n"
        "def call(f, g): return f(g)\ndef handed(x): pass\ndef deep(x): pass\ndef never(x): pass\n"
    )
    outer = file.find_class("Outer")
    names = {function.name for function in reachable(outer.methods["forward"])}
    assert names == {"forward", "call", "handed", "deep"}


def test_functions_know_their_parameters() -> None:
    file = file_of(
        "class A:\n    @classmethod\n    def f(cls, a, b=1, *args, c, d=2, **kwargs): pass\n"
        "    @staticmethod\n    def g(a, /, b): pass\n"
    )
    f, g = file.find_class("A").methods.values()
    assert (f.bound, f.positional, f.parameters, f.required) == ("cls", ["a", "b"], ["a", "b", "c", "d"], ["a", "c"])
    assert (f.vararg, f.kwarg) == ("args", "kwargs")
    assert ast.literal_eval(f.default("d")) == 2
    assert (g.bound, g.required) == (None, ["a", "b"])


def test_spans_name_what_is_underlined() -> None:
    file = file_of("'ä'; x = call(1)\n@decorated\nclass  Name ( object ):\n    async def  method(self): pass\n")
    texts = []
    for kind in (ast.Call, ast.ClassDef, ast.AsyncFunctionDef):
        span = file.span(file.index.nodes(kind)[-1])
        assert span.line == span.end_line
        texts.append(file.line(span.line)[span.column - 1 : span.end_column - 1])
    assert texts == ["call(1)", "Name", "method"]


def test_returned_values_follow_local_names() -> None:
    function = function_of("def f(x):\n    a = (1, 2)\n    b = a\n    return b\n")
    assert [type(value) for value in returned(function)] == [ast.Tuple]


@pytest.mark.parametrize(
    "build",
    [
        "return Net.from_pretrained(c.local_path)",
        "module = Net(c)\n        return module",
        "return Net.from_pretrained(c.local_path).to(d)",
    ],
)
def test_module_that_is_trained(build: str) -> None:
    text = (
        f"{MARK}from verl_omni.pipelines.non_diffusers_model_base import NonDiffusersModelBase\n"
        "class Net(NonDiffusersModelBase):\n    def __init__(self, config: 'Config'): pass\n"
        "class Head(Net): pass\nclass Config: pass\n"
        "@DiffusionModelBase.register('A', algorithm='flow_grpo')\nclass Ad(DiffusionModelBase):\n"
        f"    @classmethod\n    def build_module(cls, c, d):\n        {build}\n"
    )
    found = package({"a.py": text})
    assert found.training_module is not None
    assert found.training_module.name == "Net"
    assert found.config_class is not None
    assert found.config_class.name == "Config"
    assert found.is_non_diffusers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "from . import (\n    a,\n    b,\n)\nfrom .a import *\n__all__ = list(a.__all__)\n__all__ += b.__all__\n",
            ({"a", "b"}, {"a"}, {"a", "b"}),
        ),
        (
            "from verl_omni.pipelines import a\nfrom verl_omni.pipelines.a import *\n__all__ = [*a.__all__]\n",
            ({"a"}, {"a"}, {"a"}),
        ),
        ("", (set(), set(), set())),
    ],
)
def test_registry(text: str, expected: tuple[set[str], ...]) -> None:
    registry = Project(MemoryTree({"verl_omni/pipelines/__init__.py": text})).registry
    assert registry is not None
    assert (set(registry.imported), set(registry.starred), set(registry.exported)) == expected


def test_index_answers_like_the_tree() -> None:
    file = file_of(
        "class A:\n    def f(self):\n        def g():\n            return [x for x in 'ab']\n        return g\n"
    )
    index, tree = file.index, file.tree
    shared = (ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)
    assert set(index.walk(tree)) == {node for node in ast.walk(tree) if not isinstance(node, shared)}
    outer, inner = index.nodes(ast.FunctionDef)
    assert index.contains(outer, inner)
    assert not index.contains(inner, outer)
    assert [node for node in index.own(outer) if isinstance(node, ast.Return)] == [outer.body[-1]]
    assert index.nodes(ast.Return, inner) == [inner.body[0]]
    assert next(iter(index.ancestors(inner))) is outer


def test_trees_that_share_a_text_are_read_apart() -> None:
    def found(name: str) -> list[str]:
        files = dict(base_tree(BASE))
        package = "verl_omni/pipelines/toy_flow_grpo"
        model, launch = f"{package}/toy_model.py", "examples/flowgrpo_trainer/toy/run_toy_lora.sh"
        files[f"{package}/extra.py"] = (
            "import torch.nn as nn\n\n\nclass Extra(nn.Module):\n    def __init__(self, size):\n"
            f"        super().__init__()\n        self.{name} = nn.Linear(size, size)\n"
        )
        files[model] = files[model].replace(
            "        self.vae2llm = ", "        self.extra = Extra(config.hidden_size)\n        self.vae2llm = "
        )
        files[model] = files[model].replace("from safetensors", "from .extra import Extra\nfrom safetensors")
        files[launch] = files[launch].replace('"v_proj_gen"', '"extra.up"')
        return [finding.rule for finding in check_files(files, ["OSC507"])]

    assert found("up") == []
    assert found("down") == ["OSC507"]
    assert found("up") == []
