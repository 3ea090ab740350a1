import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.render import render
from scaffold.render.formats import python

NAMES = {"model": "toy", "package": "toy_flow_grpo"}


def templates(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_paths_blocks_links_and_modes(tmp_path: Path) -> None:
    root = templates(
        tmp_path,
        {
            "verl_omni/pipelines/_package_/_model__model.py.jinja": '{% include "blocks/norm.py.jinja" %}',
            "blocks/norm.py.jinja": "EPS = {{ eps | py }}\n",
            "examples/_model_/README.md.jinja": "# {{ names.model }}\n\n\n",
            "verl_omni/pipelines/_package_/loop.ported.py.jinja": "{{ names.none }}",
            "verl_omni/pipelines/_package_/common.composed.py.jinja": "SHIFT = 3.0\n",
            "docs/_model_/x__model_.md.link.jinja": "../../examples/{{ names.model }}/README.md\n",
            "run__model_.sh.jinja": "#!/usr/bin/env bash\necho hi\n",
            "lib.sh.jinja": "echo hi\n",
            "absent.md.jinja": "{% if eps > 1 %}text{% endif %}\n",
            "notes.txt": "not a template",
        },
    )
    files = render({"names": NAMES, "eps": 1e-6}, root)
    assert list(files) == [
        "docs/toy/x_toy.md",
        "examples/toy/README.md",
        "lib.sh",
        "run_toy.sh",
        "verl_omni/pipelines/toy_flow_grpo/common.py",
        "verl_omni/pipelines/toy_flow_grpo/toy_model.py",
    ]
    assert files["docs/toy/x_toy.md"].link_to == "../../examples/toy/README.md"
    assert files["run_toy.sh"].executable
    assert not files["lib.sh"].executable
    assert files["examples/toy/README.md"].content == "# toy\n"
    assert files["verl_omni/pipelines/toy_flow_grpo/toy_model.py"].content == "EPS = 1e-06\n"


def test_a_spec_object_is_accepted(tmp_path: Path) -> None:
    class Spec:
        def context(self) -> dict[str, Any]:
            return {"names": NAMES}

    assert "a.txt" in render(Spec(), templates(tmp_path, {"a.txt.jinja": "{{ names.model }}"}))


def test_what_was_formatted_once_is_not_formatted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = templates(tmp_path, {"a.py.jinja": "X = [ 1,{{ n }}]\n", "b.py.jinja": "import os\nY = {{ m }}\n"})
    asked: list[list[str]] = []
    genuine = python.run_ruff
    monkeypatch.setattr(python, "run_ruff", lambda given: (asked.append(given), genuine(given))[1])
    for n, m, which in ((21, 5, "ab"), (21, 5, ""), (22, 5, "a"), (22, 6, "b"), (21, 5, "")):
        asked.clear()
        files = render({"names": NAMES, "n": n, "m": m}, root)
        assert {Path(one).name[0] for given in asked for one in given if one.endswith(".py")} == set(which)
        assert (files["a.py"].content, files["b.py"].content) == (f"X = [1, {n}]\n", f"Y = {m}\n")
    for _ in range(2):
        with pytest.raises(ScaffoldError, match=r"template b\.py\.jinja, line \d of its output: .*nobody"):
            render({"names": NAMES, "n": 21, "m": "nobody"}, root)


def test_python_is_formatted_as_the_target_does(tmp_path: Path) -> None:
    source = (
        "import torch\nimport os\nimport json\nfrom verl_omni.a import b\nfrom diffusers import c\n"
        "x = [ {{ names.model | py }},torch,b,c,os]\n"
    )
    files = render({"names": NAMES}, templates(tmp_path, {"a.py.jinja": source}))
    assert files["a.py"].content == (
        "import os\n\nimport torch\nfrom diffusers import c\n\nfrom verl_omni.a import b\n\n"
        'x = ["toy", torch, b, c, os]\n'
    )


def test_values_are_inert(tmp_path: Path) -> None:
    value = '{{ 7 * 7 }} {% raw %} \'""" \\ \n import os # $(id)'
    files = render(
        {"names": NAMES, "value": value},
        templates(
            tmp_path,
            {
                "a.py.jinja": 'VALUE = {{ value | py }}\n"""{{ value | docstring }}"""\n# {{ value | comment }}\n',
                "a.yaml.jinja": "value: {{ value | yaml }}  # {{ value | comment }}\n",
                "a.toml.jinja": "value = {{ value | toml }}\n",
                "a.sh.jinja": "value={{ value | sh }}\n",
                "a.md.jinja": "{{ value | prose }}\n",
            },
        ),
    )
    scope: dict[str, Any] = {}
    exec(files["a.py"].content, scope)
    assert scope["VALUE"] == value
    assert "os" not in scope
    assert "{{ 7 \\* 7 }}" in files["a.md"].content


FAULTS = {
    "undefined": ("x.md.jinja", "one\n{{ nothing }}\n", r"x\.md\.jinja, line 2: 'nothing' is undefined"),
    "missing key": ("x.md.jinja", "{{ names.nope }}", r"x\.md\.jinja, line 1: .*nope"),
    "jinja syntax": ("x.md.jinja", "a\nb\n{% if %}", r"x\.md\.jinja, line 3: "),
    "no such block": ("x.md.jinja", '{% include "blocks/none" %}', r"x\.md\.jinja, line 1: .*blocks/none"),
    "path escape": ("x.md.jinja", '{% include "../secret" %}', r"x\.md\.jinja, line 1: .*\.\./secret"),
    "filter": ("x.md.jinja", "\n{{ 'a b' | identifier }}", r"x\.md\.jinja, line 2: 'a b' is not a Python identifier"),
    "division": ("x.md.jinja", "{{ 1 / 0 }}", r"x\.md\.jinja, line 1: division"),
    "python": ("x.py.jinja", "a = 1\nb = = 2\n", r"x\.py\.jinja, line 2 of its output: not Python"),
    "python NUL": ("x.py.jinja", "a = '\0'\n", r"x\.py\.jinja.*: not Python"),
    "undefined name": ("x.py.jinja", "a = 1\n\nb = missing\n", r"x\.py\.jinja, line 3 of its output: .*missing"),
    "shell": ("x.sh.jinja", "if true; then\necho\n", r"x\.sh\.jinja, line \d+ of its output: not a shell script"),
    "yaml": ("x.yaml.jinja", "a: 1\nb: [\n", r"x\.yaml\.jinja, line \d+ of its output: not YAML"),
    "toml": ("x.toml.jinja", "a = \n", r"x\.toml\.jinja: its output is not TOML"),
    "link": (
        "docs/x.md.link.jinja",
        "../../etc/passwd",
        r"docs/x\.md\.link\.jinja: the link docs/x\.md would lead out",
    ),
    "absolute link": ("x.md.link.jinja", "/etc/passwd", r"would lead out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_template_and_line(tmp_path: Path, fault: str) -> None:
    name, text, message = FAULTS[fault]
    (tmp_path.parent / "secret").write_text("secret")
    with pytest.raises(ScaffoldError, match=message) as caught:
        render({"names": NAMES}, templates(tmp_path, {name: text}))
    assert "\n" not in caught.value.line
    assert str(tmp_path) not in caught.value.line


def test_a_fault_in_a_block_names_the_block(tmp_path: Path) -> None:
    root = templates(tmp_path, {"a.md.jinja": '{% include "blocks/b" %}', "blocks/b": "\n\n{{ gone }}"})
    with pytest.raises(ScaffoldError, match=r"template blocks/b, line 3: 'gone' is undefined"):
        render({"names": NAMES}, root)


@pytest.mark.parametrize("names", [{}, {"model": "../x", "package": "p"}, {"model": "x", "package": "../p"}])
def test_hostile_placeholders_are_refused(tmp_path: Path, names: dict[str, str]) -> None:
    with pytest.raises(ScaffoldError):
        render({"names": names}, templates(tmp_path, {"_model_/_package_.md.jinja": "x"}))


def test_two_templates_for_one_path_are_refused(tmp_path: Path) -> None:
    root = templates(tmp_path, {"_model_.md.jinja": "a", "toy.md.jinja": "b"})
    with pytest.raises(ScaffoldError, match=r"both give toy\.md"):
        render({"names": NAMES}, root)


def test_missing_bash_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaffold.limits.child_process.program", lambda name: None)
    notes: list[str] = []
    render({"names": NAMES}, templates(tmp_path, {"a.sh.jinja": "echo\n"}), notes=notes)
    assert notes == ["bash is not installed: rendered shell scripts were not checked"]


def test_output_does_not_depend_on_hash_order(tmp_path: Path) -> None:
    root = templates(
        tmp_path,
        {
            "a.py.jinja": "A = {{ table | py }}\n{% for k in table %}\n{{ k | identifier }} = 1\n{% endfor %}",
            "b.yaml.jinja": "t: {{ table | yaml }}\n",
            "_model_.sh.jinja": "#!/bin/sh\necho\n",
        },
    )
    script = (
        "import pathlib, sys\nfrom scaffold.render import render\n"
        "table = {f'key_{i}': {'x': i, 'y': [i]} for i in range(20)}\n"
        f"print(render({{'names': {NAMES!r}, 'table': table}}, pathlib.Path(sys.argv[1])))\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script, str(root)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
