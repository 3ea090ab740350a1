import re
import subprocess

import pytest

from scaffold.errors import ScaffoldError
from scaffold.plan.runner import RunnerEdit, add_entry, remove_entry

PATH = "tests/gpu_smoke/run.sh"
SCRIPT = "tests/special_e2e/run_flowgrpo_toy.sh"

GROUPED = """\
#!/usr/bin/env bash
source lib.sh
some_trainer_args=()

run_test 0 "one" \\
    env CUDA_VISIBLE_DEVICES="${CUDA_DEVICE_LIST}" \\
    bash tests/special_e2e/run_one.sh "${some_trainer_args[@]}"

run_test 4 "two" \\
    bash tests/special_e2e/run_two.sh

summary
"""

SELECTED = """\
#!/usr/bin/env bash
run_test() {
    local id="$1"
}
declare -A RUN_TEST=(
    [0]=1 [1]=1
)

# ── Test 0: one ──────────────────────────────────
run_selected_test 0 "one" \\
    bash a.sh

# ── Test 1: two ──────────────────────────────────
# Needs two GPUs.
run_selected_test 1 "two" \\
    bash b.sh

# ════════════════════════════════════════
# SUMMARY
echo done
"""

SHAPES = {
    "grouped": GROUPED,
    "selected": SELECTED,
    "nothing behind": 'run_test 0 "a" bash a.sh\n',
    "no last newline": 'run_test 0 "a" \\\n    bash a.sh',
    "no empty line": 'run_test 0 "a" bash a.sh\nsummary\n',
    "two empty lines": 'run_test 0 "a" bash a.sh\n\n\nsummary\n',
    "form feed": 'run_test 0 "a" bash a.sh\n\n# \x0c\nsummary\n',
    "empty table": 'declare -A RUN_TEST=(\n)\nrun_selected_test 0 "a" bash a.sh\n\nx\n',
}


@pytest.mark.parametrize("shape", SHAPES)
def test_add_twice_is_add_once_and_remove_is_the_inverse(shape: str) -> None:
    source = SHAPES[shape]
    edit = RunnerEdit(PATH, SCRIPT, "Toy FlowGRPO trainer e2e")
    added = edit.apply(source)
    assert f"bash {SCRIPT}" in added
    assert edit.apply(added) == added
    assert edit.revert(added) == source
    assert edit.revert(source) == source
    subprocess.run(["bash", "-n"], input=added.encode(), check=True)


def test_entry_takes_the_next_number_before_the_summary() -> None:
    added = add_entry(GROUPED, SCRIPT, "Toy", path=PATH)
    entry = (
        'run_test 5 "Toy" \\\n    env CUDA_VISIBLE_DEVICES="${CUDA_DEVICE_LIST}" NUM_GPUS="${NUM_GPUS}" \\\n'
        f'    bash {SCRIPT} "${{some_trainer_args[@]}}"\n'
    )
    assert added == GROUPED.replace("\nsummary", f"\n{entry}\nsummary")


def test_selected_entries_are_in_the_table_and_run() -> None:
    added = add_entry(SELECTED, SCRIPT, "Toy", path=PATH)
    assert "    [0]=1 [1]=1 [2]=1\n" in added
    assert re.search(r"^# ── Test 2: Toy ─+\nrun_selected_test 2 \"Toy\" \\$", added, re.MULTILINE)
    assert added.index("run_selected_test 2") < added.index("# SUMMARY")
    stub = 'run_selected_test() { echo "$1:${RUN_TEST[$1]}:$2:${*: -1}"; }\nset -u\nCUDA_DEVICE_LIST=0 NUM_GPUS=1\n'
    ran = subprocess.run(["bash"], input=(stub + added).encode(), capture_output=True, check=True)
    assert f"2:1:Toy:{SCRIPT}" in ran.stdout.decode().splitlines()


def test_a_script_with_a_longer_name_is_another() -> None:
    source = GROUPED.replace("run_two.sh", "run_flowgrpo_toy.sh_old")
    assert add_entry(source, SCRIPT, "Toy", path=PATH) != source


def test_remove_takes_only_its_own_number() -> None:
    source = add_entry(add_entry(SELECTED, SCRIPT, "Toy", path=PATH), "other.sh", "Other", path=PATH)
    removed = remove_entry(source, SCRIPT)
    assert "    [0]=1 [1]=1 [3]=1\n" in removed
    assert "other.sh" in removed


@pytest.mark.parametrize(
    ("source", "message"),
    [("echo\n", "expected entries"), ('run_selected_test 0 "a" b\n', "expected a table")],
)
def test_another_shape_is_said_in_one_line(source: str, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message) as caught:
        add_entry(source, SCRIPT, "Toy", path=PATH)
    assert caught.value.line.startswith(PATH)


@pytest.mark.parametrize(("script", "title"), [("a b.sh", "t"), ("a.sh", 't"; rm'), ("a.sh", "$(id)"), ("$x", "t")])
def test_hostile_entries_are_refused(script: str, title: str) -> None:
    with pytest.raises(ScaffoldError, match="cannot be written"):
        add_entry(GROUPED, script, title, path=PATH)


def test_number_in_the_table_without_an_entry_is_somebody_elses() -> None:
    source = SELECTED.replace("[1]=1", "[1]=1 [2]=1")
    added = add_entry(source, SCRIPT, "toy", path=PATH)
    assert "[0]=1 [1]=1 [2]=1 [3]=1\n" in added
    assert 'run_selected_test 3 "toy"' in added
    assert remove_entry(added, SCRIPT) == source
