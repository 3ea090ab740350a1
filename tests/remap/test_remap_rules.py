"""Rules as data: patterns, order, inverse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from scaffold.checkpoint import CheckpointHeaders
from scaffold.errors import ScaffoldError
from scaffold.remap import Dropped, KeyMap, Mapped, Rule

Make = Callable[..., CheckpointHeaders]


def table(*rules: tuple[str, str | None]) -> KeyMap:
    return KeyMap(tuple(Rule(s, t) if t is not None else Rule(s, None, "drop", "not needed") for s, t in rules))


@pytest.mark.parametrize(
    ("source", "target", "name", "expected"),
    [
        ("model.", "", "model.norm.weight", "norm.weight"),
        ("model.", "", "model", None),
        ("model.", "", "my.model.norm", None),
        ("model.", "", "modelx.norm", None),
        ("", "net.", "a.b", "net.a.b"),
        ("scale", "factor", "scale", "factor"),
        ("scale", "factor", "scale.a", None),
        ("scale", "factor", "a.scale", None),
        ("blocks.{n}.attn.", "layers.{n}.self_attn.", "blocks.12.attn.q.weight", "layers.12.self_attn.q.weight"),
        ("blocks.{n}.attn.", "layers.{n}.self_attn.", "blocks.x.attn.q", None),
        ("blocks.{n}.attn.", "layers.{n}.self_attn.", "blocks.1.2.attn.q", None),
        ("blocks.{n}.attn.", "layers.{n}.self_attn.", "blocks..attn.q", None),
        ("a.{n}.b.{m}.c", "x.{m}.y.{n}", "a.1.b.2.c", "x.2.y.1"),
        ("a.{n}.b.{m}.c", "x.{m}.y.{n}", "a.1.b.2.c.d", None),
        ("block_{n}.w", "layers.{n}.w", "block_7.w", "layers.7.w"),
        ("block_{n}.w", "layers.{n}.w", "block_٣.w", None),
        ("a{{n}}.", "b.", "a{n}.x", "b.x"),
        ("a.+", "b", "a.+", "b"),
        ("a.*", "b", "a.x", None),
        ("a.(b|c)", "b", "a.b", None),
        ("k\n'\"{{% x %}}", "ok", "k\n'\"{% x %}", "ok"),
    ],
)
def test_a_rename(source: str, target: str, name: str, expected: str | None) -> None:
    key_map = table((source, target))
    found = key_map.apply(name)
    assert found == (None if expected is None else Mapped(expected, 0))
    if expected is not None:
        assert key_map.invert(expected) == name


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "a.", "target": "b"}, "one side is a prefix"),
        ({"source": "a", "target": ""}, "one side is a prefix"),
        ({"source": "a.{n}.", "target": "b."}, "same placeholders"),
        ({"source": "a.", "target": "b.{n}."}, "same placeholders"),
        ({"source": "a.{n}.{n}.", "target": "b.{n}."}, "twice"),
        ({"source": "a.{n}{m}.", "target": "b.{n}.{m}."}, "nothing between"),
        ({"source": "a.{.", "target": "b."}, "brace on its own"),
        ({"source": "a.}.", "target": "b."}, "brace on its own"),
        ({"source": "a.{}.", "target": "b."}, "not a placeholder"),
        ({"source": "a.{0}.", "target": "b."}, "not a placeholder"),
        ({"source": "a.{n!r}.", "target": "b."}, "not a placeholder"),
        ({"source": "a."}, "no target"),
        ({"source": "a.", "op": "drop"}, "without a reason"),
        ({"source": "a.", "op": "drop", "reason": " "}, "without a reason"),
        ({"source": "a.", "op": "drop", "reason": "x", "target": "b."}, "drops keys and has the target"),
        ({"source": "a.", "op": "exec", "target": "b."}, "unknown op 'exec'"),
        ({"source": "a.", "target": "b.", "regex": "x"}, "unknown key 'regex'"),
        ({"target": "b."}, "no source"),
        ({"source": 1, "target": "b."}, "not text"),
        ("a.", "a rule is a table"),
    ],
)
def test_malformed(data: Any, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        KeyMap.from_data([data])


@pytest.mark.parametrize("data", ["rules", {"source": "a"}, 5, None])
def test_not_a_list(data: Any) -> None:
    with pytest.raises(ScaffoldError, match="list of tables"):
        KeyMap.from_data(data)


def test_data_round_trip() -> None:
    key_map = table(("a.{n}.", "b.{n}."), ("v'\"\n{{x}}", None))
    data = json.loads(json.dumps(key_map.to_data()))
    assert KeyMap.from_data(data) == key_map
    assert data[0] == {"source": "a.{n}.", "target": "b.{n}.", "op": "rename"}
    assert data[1]["reason"] == "not needed"
    assert "target" not in data[1]


def test_the_first_rule_decides(headers: Make) -> None:
    checkpoint = headers({"lm.head.w": [2], "lm.a.w": [2]})
    good = table(("lm.head.", None), ("lm.", ""))
    assert good.apply("lm.head.w") == Dropped("not needed", 0)
    assert good.apply_all(checkpoint).problems == ()
    swapped = KeyMap(good.rules[::-1])
    assert swapped.apply("lm.head.w") == Mapped("head.w", 0)
    assert [problem.kind for problem in swapped.apply_all(checkpoint).problems] == ["dead_rule"]


def test_the_inverse_takes_the_most_specific_target() -> None:
    for rules in ([("lm.", ""), ("time.", "time.")], [("time.", "time."), ("lm.", "")]):
        key_map = table(*rules)
        assert key_map.invert("time.w") == "time.w"
        assert key_map.invert("norm.w") == "lm.norm.w"
    assert table(("lm.", "x.")).invert("norm.w") is None
    # Where the more specific rule cannot lead back, the other does.
    assert table(("old.x.", None), ("old.", "time."), ("lm.", "")).invert("time.x.w") == "lm.time.x.w"


@pytest.mark.parametrize(
    ("rules", "names", "kinds"),
    [
        ([("a.", "x."), ("b.", "x.")], ["a.w", "b.w"], ["collision"]),
        ([("a.", "x.")], ["a.w", "b.w"], ["unmatched"]),
        ([("a.", "x."), ("c.", "y.")], ["a.w"], ["dead_rule"]),
        ([("a.", "x."), ("a.b.", "y.")], ["a.b.w"], ["dead_rule"]),
        # Mapped again, the names change back or vanish without an error.
        ([("a.", "b."), ("b.", "a.")], ["a.w", "b.v"], ["repeated", "repeated"]),
        ([("b.", None), ("a.", "b.")], ["a.w", "b.w"], ["repeated"]),
        ([("m.", "")], ["m.m.w"], ["repeated"]),
        # ``t.w`` looks as if the more specific rule had made it.
        ([("u.", "t."), ("m.", "")], ["m.t.w", "u.v"], ["inverse"]),
    ],
)
def test_problems(rules: list[tuple[str, str | None]], names: list[str], kinds: list[str], headers: Make) -> None:
    applied = table(*rules).apply_all(headers({name: [2] for name in names}))
    assert [problem.kind for problem in applied.problems] == kinds
    assert all(problem.message.isprintable() for problem in applied.problems)


def test_matches_are_counted(headers: Make) -> None:
    applied = table(("a.", "x."), ("b.", None)).apply_all(headers({"a.w": [2], "a.v": [2], "b.w": [2]}))
    assert applied.matches == (2, 1)
    assert applied.targets["a.v"].target == "x.v"
    assert applied.drops["b.w"].reason == "not needed"
