import ast
import keyword
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaffold.errors import ScaffoldError
from scaffold.plan.hooks import RegistryEdit, add_package, remove_package
from scaffold.render.formats.python import ruff_binary

REAL = os.environ.get("VERL_OMNI_SRC")

REGISTRY = """\
# Header of the file.

from . import (
    alpha_dpo,  # kept by hand
    # about sd3
    sd3_flow_grpo,
    wan_dance_grpo,
)
from .alpha_dpo import *  # noqa: F401, F403
from .sd3_flow_grpo import *  # noqa: F401, F403
from .wan_dance_grpo import *  # noqa: F401, F403

__all__ = list(wan_dance_grpo.__all__)
__all__ += list(alpha_dpo.__all__)  # second
__all__ += list(sd3_flow_grpo.__all__)
# the end
"""

SHAPES = {
    "usual": REGISTRY,
    "unsorted": "from . import (\n    b,\n    a,\n)\nfrom .b import *\nfrom .a import *\n\n__all__ = list(b.__all__)\n",
    "one line": "from . import a, d\nfrom .a import *\nfrom .d import *\n__all__ = list(a.__all__)\n",
    "parentheses": "from . import (a, d)  # two\n\n# star imports\nfrom .a import *\n",
    "no last comma": "from . import (\n    a,\n    d\n    # end\n)\n",
    "several on a line": "from . import (\n    a, d,\n    e,\n)\n",
    "CRLF": "from . import (\r\n    a,\r\n    d,  # why\r\n)\r\nfrom .a import *\r\n__all__ = list(a.__all__)\r\n",
    "no last newline": "from . import (\n    a,\n)\nfrom .a import *\n__all__ = list(a.__all__)",
    "code behind": "from . import (\n    d,\n)\n\n__all__ = list(d.__all__)\n\n\ndef f():\n    return 1\n",
    "guide's form": "from . import d\nfrom .d import *\n__all__ = d.__all__\n__all__ += d.__all__\n",
    "tabs": "from . import (\n\ta,\n\td,\n)\n",
    "empty": "",
    "header": "# A header.\n",
    "docstring": '"""Pipelines."""\n',
}
PACKAGES = ["a_flow_grpo", "c_flow_grpo", "sd10_flow_grpo", "zz"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("package", PACKAGES)
def test_add_twice_is_add_once_and_remove_is_the_inverse(shape: str, package: str) -> None:
    source = SHAPES[shape]
    added = add_package(source, package)
    assert added != source
    assert add_package(added, package) == added
    assert remove_package(added, package) == source
    assert remove_package(source, package) == source
    ast.parse(added)


def test_the_three_edits_are_in_order_and_nothing_else_moves() -> None:
    added = add_package(REGISTRY, "bagel_flow_grpo")
    new = [line for line in added.splitlines() if line not in REGISTRY.splitlines()]
    assert new == [
        "    bagel_flow_grpo,",
        "from .bagel_flow_grpo import *  # noqa: F401, F403",
        "__all__ += list(bagel_flow_grpo.__all__)",
    ]
    assert [line for line in added.splitlines() if line not in new] == REGISTRY.splitlines()
    lines = added.splitlines()
    assert lines.index("    bagel_flow_grpo,") == lines.index("    alpha_dpo,  # kept by hand") + 1
    assert lines.index(new[1]) == lines.index("from .alpha_dpo import *  # noqa: F401, F403") + 1
    assert lines.index(new[2]) == lines.index("__all__ += list(sd3_flow_grpo.__all__)") + 1


def test_first_package_starts_the_list() -> None:
    assert add_package("# A header.\n", "toy") == (
        "# A header.\n\nfrom . import (\n    toy,\n)\nfrom .toy import *  # noqa: F401, F403\n\n"
        "__all__ = list(toy.__all__)\n"
    )


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_half_registered_package_is_completed(gone: int) -> None:
    whole = add_package(REGISTRY, "toy")
    lines = whole.splitlines(keepends=True)
    mine = [line for line in lines if "toy" in line]
    half = "".join(line for line in lines if line != mine[gone])
    assert add_package(half, "toy") == whole


def test_other_forms_of_a_registration_count() -> None:
    source = "from . import toy as t\nfrom .toy import *\n__all__ = list(t.__all__)\n__all__ += [*toy.__all__]\n"
    assert add_package(source, "toy") == source


def test_first_export_passes_to_the_next() -> None:
    source = (
        "from . import (\n    a,\n    b,\n)\nfrom .a import *\nfrom .b import *\n\n"
        "__all__ = list(a.__all__)\n__all__ += list(b.__all__)\n"
    )
    assert remove_package(source, "a") == (
        "from . import (\n    b,\n)\nfrom .b import *\n\n__all__ = list(b.__all__)\n"
    )


def test_a_long_line_is_broken_as_ruff_would() -> None:
    names = [f"package_number_{i}" for i in range(6)]
    added = add_package(f"from . import {', '.join(names)}\n", "package_number_9")
    assert max(map(len, added.splitlines())) <= 120
    assert "    package_number_9,\n)" in added


BAD = {
    "no import": ("import os\n", "expected a `from . import"),
    "class": ("class A: ...\n", "expected a `from . import"),
    "tuple": ("from . import a\n__all__ = ('A',)\n", "expected `__all__` to be a list"),
    "syntax": ("from . import (\n", "line 1: does not parse"),
}


@pytest.mark.parametrize("case", BAD)
def test_another_shape_is_said_in_one_line(case: str) -> None:
    source, message = BAD[case]
    with pytest.raises(ScaffoldError) as caught:
        add_package(source, "toy")
    assert message in caught.value.line
    assert caught.value.line.startswith("verl_omni/pipelines/__init__.py")
    assert "\n" not in caught.value.line


@pytest.mark.parametrize("package", ["", "a b", "a.b", "a\nimport os", "../x", "{{ x }}"])
def test_a_package_must_be_an_identifier(package: str) -> None:
    with pytest.raises(ScaffoldError, match="is not an identifier"):
        RegistryEdit(package).apply(REGISTRY)


@given(st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), min_size=1, max_size=6, unique=True))
@settings(max_examples=40, deadline=None)
def test_any_packages_can_be_added_and_taken_away_again(names: list[str]) -> None:
    names = [name for name in names if not keyword.iskeyword(name)] or ["toy"]
    source = ""
    for name in names:
        source = add_package(source, name)
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.ImportFrom)
    assert {alias.name for alias in node.names} == set(names)
    for name in reversed(names):
        source = remove_package(source, name)
    assert source == ""


def test_order_is_ruffs(tmp_path: Path) -> None:
    source = ""
    for name in (
        "sd3_dpo",
        "sd10_dpo",
        "qwen3_omni",
        "qwen_image",
        "a_b",
        "a2_b",
        "ab",
        "a10",
        "a9_c",
        "sd3",
        "z_1",
        "z_01x",
    ):
        source = add_package(source, name)
    path = tmp_path / "__init__.py"
    path.write_text(source)
    subprocess.run([ruff_binary(), "check", "--isolated", "--select", "I", "--no-cache", str(path)], check=True)


@pytest.mark.skipif(not REAL, reason="VERL_OMNI_SRC names no verl-omni checkout")
@pytest.mark.parametrize("tag", ["v0.1.0", "v0.2.0", "HEAD"])
@pytest.mark.parametrize("package", ["aria_flow_grpo", "bagel_scaffold_flow_grpo", "sd10_flow_grpo", "zz_flow_grpo"])
def test_real_registries(tmp_path: Path, tag: str, package: str) -> None:
    source = subprocess.run(
        ["git", "-C", str(REAL), "show", f"{tag}:verl_omni/pipelines/__init__.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    added = add_package(source, package)
    assert len(added.splitlines()) == len(source.splitlines()) + 3
    assert add_package(added, package) == added
    assert remove_package(added, package) == source
    path = tmp_path / "__init__.py"
    path.write_text(added)
    subprocess.run([ruff_binary(), "check", "--isolated", "--select", "I", "--no-cache", str(path)], check=True)
    subprocess.run([ruff_binary(), "format", "--isolated", "--line-length=120", "--check", str(path)], check=True)


def test_line_that_is_too_long_stays_one_line() -> None:
    names = [f"package_number_{i}_flow_grpo" for i in range(9)]
    stars = "".join(f"from .{name} import *  # noqa: F401, F403\n" for name in names)
    exports = "".join(f"__all__ += list({name}.__all__)\n" for name in names)
    source = f"from . import {', '.join(names)}  # noqa: E501\n{stars}\n__all__ = []\n{exports}"
    added = add_package(source, "zeta_flow_grpo")
    assert "package_number_8_flow_grpo, zeta_flow_grpo  # noqa: E501\n" in added
    assert remove_package(added, "zeta_flow_grpo") == source


@pytest.mark.parametrize("after", ["", "X = 1\n"])
def test_comment_above_the_export_stays(after: str) -> None:
    source = '"""Pipelines."""\n\nfrom . import a\nfrom .a import *\n\n__all__ = list(a.__all__)\n'
    added = add_package(source, "toy_flow_grpo")
    mine = added.replace("__all__ += list(toy", "# mine\n__all__ += list(toy") + after
    assert remove_package(mine, "toy_flow_grpo") == source + "# mine\n" + after
