"""``[tool.omni-scaffold]`` in ``pyproject.toml``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.check import check_paths
from scaffold.check.catalogue import all_rules
from scaffold.check.example import FILES
from scaffold.errors import ScaffoldError


@pytest.fixture
def broken(tmp_path: Path, write_base: Callable[..., Path]) -> Path:
    """Write the integration of the examples with a wrong flag and without its line in the runner."""
    root = write_base(tmp_path / "toy")
    for path, old, new in (
        (FILES["model"], "gradient_checkpointing = True", "gradient_checkpointing = False"),
        (FILES["runner"], "special_e2e/run_flowgrpo_toy.sh\n", "special_e2e/none.sh\n"),
    ):
        (root / path).write_text((root / path).read_text().replace(old, new))
    return root


def rules_of(path: Path, **options: tuple[str, ...]) -> list[str]:
    """Return the identifiers of what is found."""
    return sorted(finding.rule for finding in check_paths([path], **options).findings)  # type: ignore[arg-type]


def settle(folder: Path, table: str) -> None:
    """Add the table to a ``pyproject.toml``."""
    path = folder / "pyproject.toml"
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n[tool.omni-scaffold]\n{table}\n")


def test_without_settings_everything_runs(broken: Path) -> None:
    assert rules_of(broken) == ["OSC104", "OSC701"]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('select = ["OSC1"]', ["OSC104"]),
        ('ignore = ["OSC104"]', ["OSC701"]),
        ('ignore = ["OSC104", "uncalled-e2e-script"]', []),
        ('per-file-ignores = {"tests/special_e2e/*" = ["OSC7"]}', ["OSC104"]),
        ('per-file-ignores = {"tests" = ["OSC7"]}', ["OSC104"]),
        ('per-file-ignores = {"verl_omni/*/toy_model.py" = ["OSC"]}', ["OSC701"]),
        ("", ["OSC104", "OSC701"]),
    ],
)
def test_settings_choose_rules(broken: Path, table: str, expected: list[str]) -> None:
    settle(broken, table)
    assert rules_of(broken) == expected


def test_command_line_selects_anew_and_ignores_besides(broken: Path) -> None:
    settle(broken, 'select = ["OSC1"]\nignore = ["OSC206"]')
    assert rules_of(broken, select=("OSC7",)) == ["OSC701"]
    assert rules_of(broken, ignore=("OSC104",)) == []


def test_nearest_file_with_the_table_counts(broken: Path) -> None:
    settle(broken.parent, 'ignore = ["OSC104"]')
    assert rules_of(broken) == ["OSC701"]
    settle(broken, 'ignore = ["OSC701"]')
    assert rules_of(broken) == ["OSC104"]


def test_baseline_of_the_settings(broken: Path, scaffold_cli: object) -> None:
    run = scaffold_cli
    assert run("check", broken, "--write-baseline", broken / "known.json").code == 0  # type: ignore[operator]
    settle(broken, 'baseline = "known.json"')
    outcome = run("check", broken)  # type: ignore[operator]
    assert outcome.code == 0
    assert "2 in the baseline" in outcome.out


@pytest.mark.parametrize(
    "table",
    [
        'selekt = ["OSC1"]',
        'select = "OSC1"',
        "select = [1]",
        'ignore = ["OSC999"]',
        "baseline = 1",
        "per-file-ignores = []",
        'per-file-ignores = {"a" = "OSC1"}',
        'per-file-ignores = {"a" = ["E501"]}',
        "select = [",
    ],
)
def test_wrong_settings_are_said(broken: Path, table: str) -> None:
    settle(broken, table)
    with pytest.raises(ScaffoldError) as caught:
        check_paths([broken])
    assert caught.value.exit_code == 2
    assert "pyproject.toml" in caught.value.line


def test_a_link_to_itself_has_a_place_too(broken: Path) -> None:
    (broken / "verl_omni/pipelines/toy_flow_grpo/loop.py").symlink_to("loop.py")
    settle(broken, 'per-file-ignores = { "**/loop.py" = ["OSC001"] }')
    assert "OSC001" not in rules_of(broken)


def told(broken: Path, scaffold_cli: Callable[..., Any], *options: str) -> dict[str, Any]:
    return json.loads(scaffold_cli("check", broken, "--format", "json", *options).out)


def test_a_checkout_that_switches_the_linter_off_is_said_to_in_every_format(
    broken: Path, scaffold_cli: Callable[..., Any]
) -> None:
    settle(broken, 'ignore = ["OSC"]')
    count = len(all_rules())
    said = f"{count} of {count} rules are off by {broken / 'pyproject.toml'}; --isolated looks at none of it"
    done = scaffold_cli("check", broken)
    assert (done.code, f"note: {said}\nAll checks passed" in done.out) == (0, True)
    assert f"note: {said}" in scaffold_cli("check", broken, "--statistics").out
    [one] = told(broken, scaffold_cli)["settings"]
    assert (one["rules_off"], one["rules"], one["file"]) == (count, count, str(broken / "pyproject.toml"))
    assert f"::notice title=omni-scaffold::{said}" in scaffold_cli("check", broken, "--format", "github").out
    [run] = json.loads(scaffold_cli("check", broken, "--format", "sarif").out)["runs"]
    assert run["invocations"][0]["toolConfigurationNotifications"][0]["message"]["text"] == said


def test_isolated_looks_at_no_settings_and_no_baseline(broken: Path, scaffold_cli: Callable[..., Any]) -> None:
    scaffold_cli("check", broken, "--write-baseline", broken / "known.json")
    settle(broken, 'ignore = ["OSC1"]\nbaseline = "known.json"')
    assert scaffold_cli("check", broken).code == 0
    isolated = told(broken, scaffold_cli, "--isolated")
    assert [finding["rule"] for finding in isolated["findings"]] == ["OSC701", "OSC104"]
    assert isolated["settings"] == []
    (broken / "pyproject.toml").write_text("[tool.omni-scaffold]\nnonsense = 1\n")
    assert scaffold_cli("check", broken, "--isolated", "--diff").code == 1


def test_only_what_is_kept_out_is_said(broken: Path, scaffold_cli: Callable[..., Any]) -> None:
    settle(broken, 'per-file-ignores = {"tests" = ["OSC7"], "docs" = ["OSC"]}')
    [one] = told(broken, scaffold_cli)["settings"]
    assert (one["rules_off"], one["findings_left_out"]) == (0, 1)
    assert told(broken, scaffold_cli, "--select", "OSC1")["settings"] == []
    scaffold_cli("check", broken, "--isolated", "--write-baseline", broken / "known.json")
    (broken / "pyproject.toml").write_text('[tool.omni-scaffold]\nbaseline = "known.json"\n')
    [one] = told(broken, scaffold_cli)["settings"]
    assert one["baseline"] == str(broken / "known.json")
    assert told(broken, scaffold_cli, "--baseline", str(broken / "known.json"))["settings"] == []


@pytest.mark.parametrize("baseline", ["/etc/known.json", "../known.json", "linked/known.json", ""])
def test_a_baseline_of_the_settings_lies_below_them(
    broken: Path, baseline: str, scaffold_cli: Callable[..., Any]
) -> None:
    (broken / "linked").symlink_to(broken.parent, target_is_directory=True)
    settle(broken, f'baseline = "{baseline}"')
    assert "baseline must be the path of a file below the folder" in scaffold_cli("check", broken).refusal()
