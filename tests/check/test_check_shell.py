"""The reader of shell scripts: words, overrides, variables, paths; what a shell would compute is unknown."""

from __future__ import annotations

import pytest

from scaffold.check.model.shell import ShellScript
from scaffold.source.values import UNKNOWN

FOLDER = "examples/flowgrpo_trainer/toy"
BROKEN = ["'", '"', "$(", "${", "a\\", "`", "(((", "<<EOF\n", "x=(", "\\\r\n", "\x00", "é=1 ü.a=2"]


def script(text: str, path: str = f"{FOLDER}/run.sh") -> ShellScript:
    """Return a script."""
    return ShellScript(path, text.encode())


@pytest.mark.parametrize(
    ("text", "key", "prefix", "value"),
    [
        ("run a.b=1\n", "a.b", "", "1"),
        ("run +a.b=x ++c.d=y ~e.f=z\n", "a.b", "+", "x"),
        ("run a.b='[1, 2]'\n", "a.b", "", "[1, 2]"),
        ("run a.b=\"['x']\"\n", "a.b", "", "['x']"),
        ('run "a.b=x y"\n', "a.b", "", "x y"),
        ("run \\\n  a.b=1 \\\n  c.d=2\n", "c.d", "", "2"),
        ('list=(\n  a.b=1  # why\n  c.d=2\n)\nrun "${list[@]}"\n', "c.d", "", "2"),
        ("X=5\nrun a.b=$X\n", "a.b", "", "5"),
        ('X=5\nrun a.b="${X}0"\n', "a.b", "", "50"),
        ("X=1\nY=$X.$X\nrun a.b=$Y\n", "a.b", "", "1.1"),
        ("run a.b='$X'\n", "a.b", "", "$X"),
        ("run a.b=1 a.b=2\n", "a.b", "", "2"),
        ("run a.b=$X\n", "a.b", "", UNKNOWN),
        ("X=1\nX=2\nrun a.b=$X\n", "a.b", "", UNKNOWN),
        ("X=${X:-1}\nrun a.b=$X\n", "a.b", "", UNKNOWN),
        ("run a.b=$(date)\n", "a.b", "", UNKNOWN),
        ("run a.b=`date`\n", "a.b", "", UNKNOWN),
        ("run a.b=$((1 + 2))\n", "a.b", "", UNKNOWN),
        ("X=$Y\nY=$X\nrun a.b=$X\n", "a.b", "", UNKNOWN),
    ],
)
def test_overrides(text: str, key: str, prefix: str, value: object) -> None:
    override = script(text).override(key)
    assert override is not None
    assert override.prefix == prefix
    assert override.value is UNKNOWN if value is UNKNOWN else override.value == value


@pytest.mark.parametrize(
    "text",
    [
        "# run a.b=1\n",
        "cat <<EOF\na.b=1\nEOF\n",
        "cat <<-'EOF'\n\ta.b=1\n\tEOF\n",
        "echo 'x a.b=1'\n",
        "A=1\n",
        "x=a.b\n",
    ],
)
def test_what_is_no_override(text: str) -> None:
    assert script(text).overrides == []


def test_code_after_a_here_document_counts_again() -> None:
    assert [o.key for o in script("cat <<A <<B\na.b=1\nA\nc.d=1\nB\nrun e.f=2\n").overrides] == ["e.f"]


def test_places() -> None:
    found = script("#!/bin/bash\nrun \\\n    +key.part='[1]' \\\n    b.c=2\n").overrides
    assert [(o.span.line, o.span.column, o.span.end_column) for o in found] == [(3, 5, 20), (4, 5, 10)]
    assert (found[0].value_span.column, found[0].value_span.end_column) == (15, 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bash tests/special_e2e/run.sh\n", "tests/special_e2e/run.sh"),
        (
            'C=${C:-"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/deploy.yaml"}\n',
            "examples/flowgrpo_trainer/toy/deploy.yaml",
        ),
        ('C="$(dirname "$0")/deploy.yaml"\n', "examples/flowgrpo_trainer/toy/deploy.yaml"),
        ('C="$(dirname "$0")/../data/make.py"\n', "examples/flowgrpo_trainer/data/make.py"),
        ("C=$PWD/examples/a.yaml\n", "examples/a.yaml"),
        ("C=./examples/a.yaml\n", "examples/a.yaml"),
        ("run x.y=verl_omni/utils/reward.py\n", "verl_omni/utils/reward.py"),
        ("D=examples\nrun x.y=$D/a.yaml\n", "examples/a.yaml"),
        ("run x.y=$HOME/a.yaml\n", None),
        ("run x.y=/etc/a.yaml\n", None),
        ("run x.y=~/a.yaml\n", None),
        ("run x.y=$UNSET/a.yaml\n", None),
        ("run ../../../../../a.yaml\n", None),
    ],
)
def test_paths(text: str, expected: str | None) -> None:
    found = script(text).paths
    assert (
        [mention.path for mention in found][-1:] == [expected]
        if expected is None
        else expected in [mention.path for mention in found]
    )


@pytest.mark.parametrize(
    "text", ["'", '"', "$(", "${", "a\\", "`", "(((", "<<EOF\n", "x=(", "\\\r\n", "\x00", "é=1 ü.a=2"]
)
def test_broken_scripts_do_not_stop_the_reader(text: str) -> None:
    found = script(text)
    assert isinstance(found.words, list)
    assert isinstance(found.overrides, list)
    assert isinstance(found.paths, list)


def test_comments() -> None:
    found = script("a # one\nb '# no'\n  # two\nc#d\n").comments
    assert found == {1: (3, "# one"), 3: (3, "# two")}
