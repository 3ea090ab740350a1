"""A method taken over with one statement replaced: everything else stays as it is."""

from __future__ import annotations

import ast
import textwrap

import pytest

from scaffold.errors import ScaffoldError
from scaffold.port.method import free_names, port_method

METHOD = '''
    @torch.no_grad()
    def loop(self, state, steps: int = LIMIT) -> Output:
        """Walk."""
        x = state.x  # the sample
        for i in range(steps):
            now = state.times[i]
            following = state.times[i + 1]
            logged = log(state.times[i])
            # Predict, then step.
            v = self.predict(x, now)
            x = x + (
                following - now
            ) * v
            x = helper(x)
        super().done(x)
        return Output(x)
'''
UPDATE = "x = x + (following - now) * v"
STEP = "x = self.scheduler.step(v, now, x).prev_sample"


def test_only_the_update_is_another_statement() -> None:
    ported = port_method(METHOD, "Owner", {UPDATE: STEP})
    assert STEP in ported.text
    assert "following" not in ported.text  # nothing else read it
    assert "super(Owner, self).done(x)" in ported.text
    before, after = ast.parse(textwrap.dedent(METHOD)), ast.parse(ported.text)
    kept = [ast.unparse(node) for node in ast.walk(before) if isinstance(node, ast.Assign)]
    assert [ast.unparse(node) for node in ast.walk(after) if isinstance(node, ast.Assign)] == [
        STEP if line == UPDATE else line for line in kept if line != "following = state.times[i + 1]"
    ]
    for comment in ("# the sample", "# Predict, then step.", '"""Walk."""', "@torch.no_grad()"):
        assert comment in ported.text


def test_names_of_the_module_are_those_to_import() -> None:
    assert port_method(METHOD, "Owner", {UPDATE: STEP}).names == ("LIMIT", "Output", "Owner", "helper", "log", "torch")


def test_what_is_bound_inside_is_no_name_of_the_module() -> None:
    code = "def f(a, *b):\n    from m import c\n    d = [e for e in b if e]\n    def g(h): return h + i\n    return g\n"
    assert free_names(code) == ("i",)


def test_a_value_that_is_computed_by_a_call_stays() -> None:
    text = METHOD.replace("following = state.times[i + 1]", "following = next(state)")
    assert "following = next(state)" in port_method(text, "Owner", {UPDATE: STEP}).text


def test_a_value_that_something_else_reads_stays() -> None:
    text = METHOD.replace("x = helper(x)", "x = helper(x, following)")
    assert "following = state.times[i + 1]" in port_method(text, "Owner", {UPDATE: STEP}).text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (METHOD.replace("* v", "* w"), r"holds 'x = x \+ .*' 0 times"),
        (METHOD + "        x = x + (following - now) * v\n", "2 times"),
        (METHOD.replace("helper(x)", "self.__secret(x)"), "__secret"),
        (METHOD.replace("helper(x)", "__class__"), "__class__"),
        ("x = 1\n", "not one method"),
        ("def f(:\n", "cannot be parsed"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        port_method(text, "Owner", {UPDATE: STEP})


def test_a_construction_is_replaced_too() -> None:
    text = METHOD.replace(
        "x = state.x  # the sample", "x = state.x\n        solver = Solver(\n            steps,\n        )"
    )
    ported = port_method(text, "Owner", {UPDATE: STEP, "solver = Solver(steps)": "solver = self.scheduler"})
    assert "solver = self.scheduler" in ported.text
    assert "Solver(" not in ported.text
