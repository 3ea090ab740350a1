"""The command line of ``check``: outputs, exit codes, fixes, baselines."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.check.example import base_tree

jsonschema = pytest.importorskip("jsonschema")

DATA = Path(__file__).parent / "data"
MODEL = "verl_omni/pipelines/toy_flow_grpo/toy_model.py"
FLAG = "    _supports_gradient_checkpointing = True\n"
STAR = "from .toy_flow_grpo import *  # noqa: F401, F403\n"
MORE = {"end_line", "end_column", "message", "help", "checklist", "fixable"}
Cli = Callable[..., Any]


@pytest.fixture
def toy(tmp_path: Path, write_base: Callable[..., Path]) -> Path:
    """Write the good integration of the examples."""
    return write_base(tmp_path / "toy")


def change(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def broken(toy: Path) -> Path:
    """Break it twice: a flag in the training module, a line in the registry."""
    change(toy / MODEL, FLAG, FLAG.replace("True", "False"))
    change(toy / "verl_omni/pipelines/__init__.py", STAR, "")
    return toy


def found(outcome: Any) -> list[tuple[str, str, int]]:
    """Return rule, path and line of the findings in JSON."""
    return [(f["rule"], f["path"], f["line"]) for f in json.loads(outcome.out)["findings"]]


def test_clean_is_exit_code_0(toy: Path, scaffold_cli: Cli) -> None:
    outcome = scaffold_cli("check", toy)
    assert outcome.success().startswith("All checks passed: 1 package, ")


def test_text_names_the_place_shows_the_line_and_says_what_to_do(broken: Path, scaffold_cli: Cli) -> None:
    outcome = scaffold_cli("check", ".", cwd=broken)
    assert outcome.code == 1
    assert outcome.err == ""
    lines = (broken / MODEL).read_text().splitlines()
    number = lines.index(FLAG.replace("True", "False").rstrip("\n")) + 1
    block = outcome.out[outcome.out.index(MODEL) :].splitlines()
    assert block[0].startswith(f"{MODEL}:{number}:40: error OSC104 [*] _supports_gradient_checkpointing is False")
    assert block[1].strip() == "|"
    assert block[2] == f"{number} |     _supports_gradient_checkpointing = False"
    assert block[3] == " " * len(str(number)) + " | " + " " * 39 + "^^^^^"
    assert block[4].lstrip().startswith("= help: set `_supports_gradient_checkpointing = True`")
    *_, count, then = outcome.out.splitlines()
    assert count == "Found 2 errors, 0 warnings in 1 package; 2 fixable with --fix"
    assert then.startswith("next: `--explain RULE`")


def test_json_is_the_stable_schema(broken: Path, scaffold_cli: Cli) -> None:
    outcome = scaffold_cli("check", ".", "--format", "json", cwd=broken)
    assert outcome.code == 1
    content = json.loads(outcome.out)
    assert set(content) == {"schema", "findings", "summary", "settings"}
    assert content["schema"] == 1
    assert content["summary"] == {"files": content["summary"]["files"], "errors": 2, "warnings": 0}
    assert content["summary"]["files"] >= 10
    for finding in content["findings"]:
        assert set(finding) == {"rule", "severity", "path", "line", "column", *MORE}
    assert found(outcome)[0][:2] == ("OSC502", "verl_omni/pipelines/toy_flow_grpo/__init__.py")
    assert content["findings"][1]["checklist"] == "M4"


def test_json_has_the_end_of_the_place_and_the_help(broken: Path, scaffold_cli: Cli) -> None:
    content = json.loads(scaffold_cli("check", broken, "--format", "json").out)
    flag = next(finding for finding in content["findings"] if finding["rule"] == "OSC104")
    line = (broken / MODEL).read_text().splitlines()[flag["line"] - 1]
    assert flag["end_line"] == flag["line"]
    assert line[flag["column"] - 1 : flag["end_column"] - 1] == "False"
    assert flag["help"].startswith("set `_supports_gradient_checkpointing = True`")


def test_statistics_count_each_rule(broken: Path, scaffold_cli: Cli) -> None:
    change(broken / MODEL, "import torch\n", "import torch\nimport nowhere_to_be_found\n")
    every = json.loads(scaffold_cli("check", broken, "--format", "json").out)["findings"]
    outcome = scaffold_cli("check", broken, "--statistics")
    assert outcome.code == 1
    *lines, summary, then = outcome.out.splitlines()
    assert {line.split()[2]: int(line.split()[0]) for line in lines} == {
        rule: sum(finding["rule"] == rule for finding in every) for rule in {finding["rule"] for finding in every}
    }
    assert {line.split()[1] for line in lines} == {finding["severity"] for finding in every}
    assert summary.startswith("Found ")
    assert then.startswith("next:")
    rows = json.loads(scaffold_cli("check", broken, "--statistics", "--format", "json").out)["statistics"]
    assert sum(row["count"] for row in rows) == len(every)
    assert "take text or json" in scaffold_cli("check", broken, "--statistics", "--format", "sarif").refusal()


def test_exit_zero_still_shows_what_was_found(broken: Path, scaffold_cli: Cli) -> None:
    said = scaffold_cli("check", broken, "--exit-zero").success()
    assert "OSC104" in said
    assert "tells about a rule" in said
    scaffold_cli("check", broken / "nowhere", "--exit-zero").refusal()


@pytest.mark.parametrize("format", ["text", "json", "sarif", "github"])
def test_output_file_holds_what_would_be_printed(broken: Path, tmp_path: Path, scaffold_cli: Cli, format: str) -> None:
    printed = scaffold_cli("check", broken, "--format", format)
    kept = scaffold_cli("check", broken, "--format", format, "--output-file", tmp_path / "found")
    assert kept.code == printed.code == 1
    text = (tmp_path / "found").read_text()
    assert "OSC104" in text
    assert text == "".join(line for line in printed.out.splitlines(True) if not line.startswith("next:"))
    assert "OSC104" not in kept.out
    assert "cannot write" in scaffold_cli("check", broken, "-o", tmp_path).refusal()


def test_without_a_path_it_checks_what_one_stands_in(broken: Path, tmp_path: Path, scaffold_cli: Cli) -> None:
    package = broken / "verl_omni/pipelines/toy_flow_grpo"
    (broken / "docs" / "deep").mkdir(parents=True)
    whole = {rule for rule, *_ in found(scaffold_cli("check", ".", "--format", "json", cwd=broken))}
    for place in (broken, broken / "docs" / "deep", package):
        outcome = scaffold_cli("check", "--format", "json", cwd=place)
        assert {rule for rule, *_ in found(outcome)} == whole
    assert "holds no integration" in scaffold_cli("check", cwd=tmp_path).refusal()


def test_next_line_names_the_package(toy: Path, scaffold_cli: Cli) -> None:
    for arguments, cwd, path in (
        (("toy",), toy.parent, "toy/verl_omni/pipelines/toy_flow_grpo"),
        ((), toy, "verl_omni/pipelines/toy_flow_grpo"),
    ):
        last = scaffold_cli("check", *arguments, cwd=cwd).success().splitlines()[-1]
        assert last == f"next: `omni-scaffold verify {path}` runs it on a tiny model"


def test_json_of_nothing_found(toy: Path, scaffold_cli: Cli) -> None:
    content = json.loads(scaffold_cli("check", toy, "--format", "json").success())
    assert content["findings"] == []
    assert content["summary"]["errors"] == content["summary"]["warnings"] == 0


def test_github_annotations_are_escaped(broken: Path, scaffold_cli: Cli) -> None:
    odd = broken.parent / "100% toy, new"
    broken.rename(odd)
    outcome = scaffold_cli("check", odd.name, "--format", "github", cwd=odd.parent)
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("::error title=omni-scaffold (OSC")
        properties, _, message = line.removeprefix("::error ").partition("::")
        assert "file=100%25 toy%2C new/verl_omni/" in properties
        assert "%0Ahelp: " in message


def test_sarif_is_valid_and_brings_fixes_that_work(broken: Path, scaffold_cli: Cli) -> None:
    outcome = scaffold_cli("check", ".", "--format", "sarif", cwd=broken)
    assert outcome.code == 1
    log = json.loads(outcome.out)
    schema = json.loads((DATA / "sarif" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema).validate(log)
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["OSC104", "OSC502"]
    assert len({result["partialFingerprints"]["omniScaffold/v1"] for result in run["results"]}) == 2
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        for part in result["fixes"][0]["artifactChanges"]:
            path = broken / part["artifactLocation"]["uri"]
            lines = path.read_text().splitlines(keepends=True)
            for replacement in reversed(part["replacements"]):
                region = replacement["deletedRegion"]
                assert (region["startColumn"], region["endColumn"]) == (1, 1)
                lines[region["startLine"] - 1 : region["endLine"] - 1] = [replacement["insertedContent"]["text"]]
            path.write_text("".join(lines))
    assert scaffold_cli("check", ".", cwd=broken).code == 0


def test_sarif_of_nothing_found_is_valid(toy: Path, scaffold_cli: Cli) -> None:
    log = json.loads(scaffold_cli("check", toy, "--format", "sarif").success())
    schema = json.loads((DATA / "sarif" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema).validate(log)
    assert log["runs"][0]["results"] == []


def test_the_schema_refuses_what_is_no_sarif() -> None:
    schema = json.loads((DATA / "sarif" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(schema).validate({"version": "2.1.0", "runs": [{"tool": {}}]})


def test_fix_repairs_and_leaves_the_rest_as_it_was(toy: Path, broken: Path, scaffold_cli: Cli) -> None:
    good = base_tree("non_diffusers")
    (broken / MODEL).chmod(0o755)
    outcome = scaffold_cli("check", ".", "--fix", cwd=broken)
    assert outcome.code == 0, outcome.out
    assert outcome.out.splitlines()[-2] == "Fixed 2 findings in 2 files"
    assert (broken / MODEL).read_text() == good[MODEL]
    assert os.access(broken / MODEL, os.X_OK)
    assert STAR in (broken / "verl_omni/pipelines/__init__.py").read_text()
    again = scaffold_cli("check", ".", "--fix", cwd=broken)
    assert again.out.splitlines()[-2] == "Fixed 0 findings in 0 files"


def test_fix_keeps_line_ends_encoding_and_layout(broken: Path, scaffold_cli: Cli) -> None:
    text = (broken / MODEL).read_text(encoding="utf-8")
    text = text.replace('"""The trained module."""', '"""Größe."""').replace(
        "import torch\n", "import   torch  # odd\n"
    )
    before = "# -*- coding: latin-1 -*-\n" + text
    (broken / MODEL).write_bytes(before.replace("\n", "\r\n").encode("latin-1"))
    assert scaffold_cli("check", ".", "--fix", cwd=broken).code == 0
    after = (broken / MODEL).read_bytes()
    expected = before.replace(FLAG.replace("True", "False"), FLAG)
    assert after == expected.replace("\n", "\r\n").encode("latin-1")


def test_diff_shows_the_fixes_and_writes_nothing(broken: Path, scaffold_cli: Cli) -> None:
    before = {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()}
    outcome = scaffold_cli("check", ".", "--diff", cwd=broken)
    assert outcome.code == 1
    assert f"--- a/{MODEL}\n+++ b/{MODEL}\n" in outcome.out
    assert (
        "-    _supports_gradient_checkpointing = False\n+    _supports_gradient_checkpointing = True\n" in outcome.out
    )
    assert outcome.err == "2 findings would be fixed\n"
    assert {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()} == before


def test_fix_makes_only_what_is_selected(broken: Path, scaffold_cli: Cli) -> None:
    outcome = scaffold_cli("check", ".", "--fix", "--select", "OSC1", cwd=broken)
    assert outcome.code == 0
    assert FLAG in (broken / MODEL).read_text()
    assert STAR not in (broken / "verl_omni/pipelines/__init__.py").read_text()


def test_failed_write_leaves_everything_as_it_was(broken: Path, scaffold_cli: Cli) -> None:
    if os.geteuid() == 0:
        # Root may write everywhere; a folder in the place of the journal's sibling stops it as well.
        pytest.skip("permissions do not bind root")
    before = {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()}
    (broken / "verl_omni/pipelines").chmod(0o555)
    try:
        outcome = scaffold_cli("check", ".", "--fix", cwd=broken)
    finally:
        (broken / "verl_omni/pipelines").chmod(0o755)
    assert outcome.code == 2
    assert {path: path.read_bytes() for path in broken.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        (["--select", "OSC5"], ["OSC502"]),
        (["--select", "osc104,unlisted-package"], ["OSC502", "OSC104"]),
        (["--ignore", "OSC5"], ["OSC104"]),
        (["--select", "OSC104", "--ignore", "OSC1"], ["OSC104"]),
        (["--select", "OSC1", "--ignore", "OSC104"], []),
        (["--select", "OSC104", "--select", "OSC502"], ["OSC502", "OSC104"]),
    ],
)
def test_select_and_ignore(broken: Path, scaffold_cli: Cli, options: list[str], rules: list[str]) -> None:
    outcome = scaffold_cli("check", ".", "--format", "json", *options, cwd=broken)
    assert [rule for rule, _, _ in found(outcome)] == rules
    assert outcome.code == int(bool(rules))


def test_explain_and_list(scaffold_cli: Cli) -> None:
    text = scaffold_cli("check", "--explain", "osc502").success()
    assert text.startswith(
        "OSC502 unlisted-package\nerror · wiring · stands for W2, pitfall 25 · has a safe fix (--fix)\n"
    )
    assert "Instead:" in text
    assert scaffold_cli("check", "--explain", "unlisted-package").success() == text
    listed = scaffold_cli("check", "--list-rules").success()
    assert "\n  OSC502 * error    unlisted-package" in listed
    assert "\nwiring\n" in listed


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere"],
        ["--explain", "OSC999"],
        [".", "--select", "OSC999"],
        [".", "--ignore", "E501"],
        [".", "--format", "xml"],
        [".", "--baseline", "nowhere.json"],
        [".", "--write-baseline", "a.json", "--fix"],
        [".", "--write-baseline", "nowhere/a.json"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_exit_code_2(broken: Path, scaffold_cli: Cli, arguments: list[str]) -> None:
    scaffold_cli("check", *arguments, cwd=broken).refusal()


def test_baseline_hides_what_is_known_wherever_it_moves(broken: Path, scaffold_cli: Cli, tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    wrote = scaffold_cli("check", broken, "--write-baseline", baseline)
    said, then = wrote.success().splitlines()
    assert said == f"wrote 2 findings to {baseline}"
    assert then == f"next: `omni-scaffold check --baseline {baseline}` leaves them out"
    known = scaffold_cli("check", broken, "--baseline", baseline)
    assert known.code == 0
    assert "2 in the baseline" in known.out
    # Lines move, and the whole tree does.
    change(broken / MODEL, '"""The trained module."""', '"""The trained module.\n\nMoved.\n"""')
    moved = tmp_path / "elsewhere"
    shutil.move(broken, moved)
    assert scaffold_cli("check", moved, "--baseline", baseline).code == 0
    # A new finding is shown, alone.
    change(moved / MODEL, 'KeyError(f"checkpoint tensor', 'ValueError(f"checkpoint tensor')
    change(moved / "tests/gpu_smoke/run_gpu_smoke_diffusion_e2e.sh", "run_flowgrpo_toy.sh", "run_flowgrpo_other.sh")
    fresh = scaffold_cli("check", moved, "--baseline", baseline, "--select", "OSC1,OSC5,OSC701", "--format", "json")
    assert [rule for rule, _, _ in found(fresh)] == ["OSC701"]


def test_baseline_says_what_is_gone_and_fixes_leave_it_alone(broken: Path, scaffold_cli: Cli, tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    scaffold_cli("check", broken, "--write-baseline", baseline, "--select", "OSC104").success()
    fixed = scaffold_cli("check", broken, "--baseline", baseline, "--fix")
    assert fixed.code == 0
    assert fixed.out.splitlines()[-2] == "Fixed 1 finding in 1 file"
    assert FLAG not in (broken / MODEL).read_text()
    change(broken / MODEL, FLAG.replace("True", "False"), FLAG)
    gone = scaffold_cli("check", broken, "--baseline", baseline)
    assert gone.code == 0
    assert gone.err.startswith("1 of the findings in ")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": 2, "findings": []}', '{"schema": 1, "findings": [{}]}', "{", "[" * 9999]
)
def test_baseline_that_is_none(broken: Path, scaffold_cli: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.json").write_text(text)
    scaffold_cli("check", broken, "--baseline", tmp_path / "odd.json").refusal()


def test_check_is_light(scaffold_child: Cli, toy: Path) -> None:
    code = (
        "import sys\nfrom scaffold.cli import main\ntry:\n    main()\nfinally:\n"
        "    print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)\n"
    )
    outcome = scaffold_child("check", toy, code=code)
    assert outcome.code == 0
    heavy = {"torch", "libcst", "jinja2", "rich", "numpy", "huggingface_hub", "safetensors", "transformers", "tomli_w"}
    assert not heavy & set(outcome.err.split())
