"""Suppression comments in Python, shell, YAML and TOML."""

from __future__ import annotations

import pytest

from scaffold.check.example import Example, check_files

FLAG = "    _supports_gradient_checkpointing = True\n"
OFF = "    _supports_gradient_checkpointing = False"
ARCHITECTURE = "    +actor_rollout_ref.model.architecture=OmniToyForConditionalGeneration"


def rules_of(changes: dict[str, object]) -> list[str]:
    """Return the identifiers of what is found after changes of the good base."""
    files, _ = Example("", **changes).tree()  # type: ignore[arg-type]
    return sorted(finding.rule for finding in check_files(files))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{OFF}  # omni-scaffold: ignore[OSC104] not yet\n", []),
        (f"{OFF}  #omni-scaffold:ignore[osc104] not yet\n", []),
        (f"{OFF}  # omni-scaffold: ignore[OSC104, OSC206] not yet\n", ["OSC901"]),
        (f"    # omni-scaffold: ignore[OSC104] not yet\n{OFF}\n", []),
        (f"    # omni-scaffold: ignore[OSC104] not yet\n    # more\n\n{OFF}\n", []),
        (f"{OFF}  # omni-scaffold: ignore[OSC104]\n", ["OSC901"]),
        (f"{OFF}  # omni-scaffold: ignore\n", ["OSC104", "OSC901"]),
        (f"{OFF}  # omni-scaffold: ignore[OSC313] wrong one\n", ["OSC104", "OSC901"]),
        (f"{OFF}  # omni-scaffold: ignore[OSC9999] wrong one\n", ["OSC104", "OSC901"]),
        (f"{OFF}\n    # omni-scaffold: ignore[OSC104] too late\n", ["OSC104", "OSC901"]),
        (f'{OFF}; note = "# omni-scaffold: ignore[OSC104] in a string"\n', ["OSC104"]),
    ],
)
def test_in_python(line: str, expected: list[str]) -> None:
    assert rules_of({"model": [(FLAG, line)]}) == expected


def test_comment_at_the_end_of_a_statement_over_several_lines() -> None:
    text = "    _supports_gradient_checkpointing = (\n        False\n    )  # omni-scaffold: ignore[OSC104] not yet\n"
    assert rules_of({"model": [(FLAG, text)]}) in ([], ["OSC104", "OSC901"])


@pytest.mark.parametrize(
    ("script", "changes"),
    [
        ("launch", [(ARCHITECTURE, ARCHITECTURE + "2  # omni-scaffold: ignore[OSC501] a variant")]),
        (
            "e2e",
            [
                (ARCHITECTURE, ARCHITECTURE + "2"),
                ("python3 -m verl_omni", "# omni-scaffold: ignore[OSC501] a variant\npython3 -m verl_omni"),
            ],
        ),
    ],
    ids=["on the line", "above a command over several lines"],
)
def test_in_shell(script: str, changes: list[tuple[str, str]]) -> None:
    assert rules_of({script: [(ARCHITECTURE, ARCHITECTURE + "2")]}) == ["OSC501"]
    assert rules_of({script: changes}) == []


def test_unused_in_yaml() -> None:
    assert rules_of({"deploy": [("stages:", "stages:  # omni-scaffold: ignore[OSC505] none")]}) == ["OSC901"]


def test_rule_that_does_not_run_makes_no_comment_useless() -> None:
    files, _ = Example("", model=[(FLAG, FLAG[:-1] + "  # omni-scaffold: ignore[OSC104] why\n")]).tree()
    assert [finding.rule for finding in check_files(files, ["OSC104", "OSC901"])] == ["OSC901"]
    assert check_files(files, ["OSC206", "OSC901"]) == []
