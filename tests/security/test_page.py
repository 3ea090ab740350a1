"""Every promise of docs/security.md has a test that fails without the code that keeps it: this is the list.

A row of a table, and a paragraph of the first four sections, needs at least one line here; what is named is looked up.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs/security.md"
KEPT = ("What is trusted", "What each command starts", "Presets of a checkout", "A package that lies about itself")

PROOF: dict[str, str] = {
    # What is trusted
    "empty entries of `PYTHONPATH`": "security/test_children.py::test_python_path_is_the_users"
    " security/test_children.py::test_what_a_child_looks_up_is_not_in_its_folder",
    "pip is told nothing that replaces its settings": "upstream/test_cached_wheel.py::test_newest",
    "what decides whether a file differs counts": "security/test_git.py::test_settings_that_compare_files_count",
    "children run in an empty folder": "security/test_children.py::test_fetching"
    " security/test_children.py::test_building_an_environment security/test_children.py::test_loading_headers",
    "read as text with `ast`; never imported, unpacked or run": "security/test_started.py::test_nothing_foreign_is_run"
    " upstream/test_locate.py::test_installed_distribution_is_read_without_importing",
    "its SHA-256 is kept beside it": "upstream/test_cached_wheel.py::test_a_damaged_wheel_is_named_or_fetched_again",
    "JSON with a digest of itself": "inspect/test_report_cache.py::test_anything_else_is_passed_over",
    "that nobody else can write": "inspect/test_report_cache.py::test_only_its_owner_reads_it"
    " inspect/test_report_cache.py::test_one_that_another_user_puts_there_on_the_way_is_passed_over",
    "Nothing is kept of a folder": "inspect/test_report_cache.py::test_what_may_change_is_not_kept",
    "are written where Python would write that": "render/test_compiled.py::test_a_template_of_others_is_not_kept"
    " render/test_compiled.py::test_nothing_is_written_where_python_writes_no_bytecode",
    "pickles are refused": "checkpoint/test_checkpoint_local.py::test_pickles_are_named_and_refused",
    "headers and JSON only": "checkpoint/test_checkpoint_hub.py::test_headers_only"
    " checkpoint/test_checkpoint_hostile.py::test_header_over_100_mb_is_not_read",
    "in a child process with 300 s": "checkpoint/test_checkpoint_hub.py::test_failures"
    " checkpoint/test_checkpoint_hub.py::test_a_description_that_never_ends",
    "written only at the paths of a plan, never through a link": "plan/test_output.py::test_linked_parents_are_refused"
    " lifecycle/test_foreign_files.py::test_files_of_others_are_refused"
    " lifecycle/test_apply.py::test_a_link_that_takes_a_folders_place_meanwhile_leads_nowhere",
    "never into any `.git`": "security/test_journal.py::test_gits_folders_are_refused_at_any_depth",
    "manifests beside them are read inside of the checkout too": "new/test_new_team.py"
    "::test_folders_and_manifests_of_a_checkout_lead_nowhere_else",
    "links in it may lead anywhere": "new/test_new_team.py::test_a_preset_of_the_user_may_be_a_link",
    "values, not code": "render/test_hostile_strings.py::test_complete_package"
    " render/test_hostile_strings.py::test_ported_package"
    " render/test_hostile_strings.py::test_a_value_chooses_among_few_packages",
    "its paths are held against those that the templates have": "lifecycle/test_foreign_files.py"
    "::test_every_rendered_path_is_one_of_the_templates",
    "no filter, hook, monitor, driver, pager or transport": "security/test_git.py::test_status_of_a_strangers_checkout"
    " security/test_git.py::test_history_of_a_strangers_checkout",
    "nothing is fetched": "security/test_git.py::test_missing_objects_are_not_fetched",
    "lines that no trainer writes are left out": "verify/train/test_train_record.py"
    "::test_what_no_trainer_writes_is_left_out",
    "read as names and versions alone": "verify/test_rollout_environment.py"
    "::test_a_requirement_without_a_version_is_refused",
    "never in the tree or its `.git`": "security/test_journal.py::test_it_stands_in_the_users_folder"
    " security/test_journal.py::test_one_that_an_archive_has_in_gits_folder_is_not_obeyed",
    "mode 0700": "security/test_journal.py::test_state_folder_is_the_users_own",
    "must have the digest that it recorded": "security/test_journal.py"
    "::test_a_backup_with_other_content_is_not_put_back",
    "A pipe, a device, a link that leads out": "security/test_reading.py"
    "::test_only_regular_files_of_bounded_size_inside security/test_one_way.py::test_nobody_does_it_alone",
    "A folder that is walked": "security/test_reading.py::test_a_folder_is_walked_inside_its_tree",
    "it is given 30 seconds": "security/test_git.py::test_git_that_waits_for_a_pipe_is_ended_and_it_is_said",
    "holds folders and regular files alone": "security/test_reading.py::test_a_copy_holds_regular_files_alone",
    "is refused in one line, at every level": "verify/test_below_scratch.py"
    "::test_every_way_out_is_refused_and_every_way_in_is_taken verify/test_below_scratch.py"
    "::test_a_constant_of_the_source_names_a_file_on_this_disk verify/test_below_scratch.py"
    "::test_files_of_a_generated_package verify/test_below_scratch.py::test_headers_of_a_repository",
    "no escape sequence, no change of direction": "cli/test_cli_hostile_output.py"
    "::test_console_prints_nothing_that_acts cli/test_cli_hostile_output.py::test_check_shows_nothing_that_acts",
    "takes for an order": "cli/test_cli_hostile_output.py::test_no_line_is_an_order_to_a_runner_of_ci",
    "the bytes that `git apply` takes": "plan/test_output.py::test_git_takes_the_diff_and_arrives_at_the_same_tree",
    # What each command starts
    "| `inspect`, `list`, `drift` |": "security/test_started.py::test_programs_that_a_command_starts"
    " security/test_started.py::test_nothing_foreign_is_run",
    "| `new`, `update`, `remove` |": "security/test_started.py::test_programs_that_a_command_starts"
    " security/test_started.py::test_nothing_foreign_is_run",
    "| `preset list` |": "security/test_started.py::test_programs_that_a_command_starts",
    "| `preset new`, `skill` |": "security/test_started.py::test_programs_that_a_command_starts",
    "| `export` |": "verify/test_export.py::test_each_command_of_the_page_does_what_it_says"
    " verify/test_export.py::test_what_was_not_trained_is_an_error_and_leaves_nothing",
    "| `check` |": "security/test_started.py::test_programs_that_a_command_starts"
    " security/test_started.py::test_nothing_foreign_is_run",
    "| `doctor` |": "security/test_started.py::test_programs_that_a_command_starts",
    "its loader, in a child process": "security/test_children.py::test_loading_headers"
    " security/test_children.py::test_a_loader_sees_no_token",
    "of your environment a short list, no token among it": "verify/test_contract_level.py"
    "::test_a_process_that_left_the_group_is_ended_and_no_token_of_the_users_reaches_a_package"
    " verify/test_rollout_process.py::test_process_sees_only_what_it_needs",
    "Limits of time, memory and sizes of files end an accident": "verify/test_contract_level.py"
    "::test_a_contract_that_does_not_come_back_is_a_failure_and_the_others_go_on"
    " verify/test_contract_level.py::test_the_limits_hold_while_the_package_is_imported",
    "vllm-omni in an environment of its own": "verify/test_rollout_process.py::test_process_is_stopped_in_time"
    " verify/test_rollout_process.py::test_process_is_stopped_when_it_holds_too_much",
    "in a copy of the checkout": "verify/train/test_train_level.py"
    "::test_package_is_laid_over_a_copy_and_registered"
    " verify/train/test_train_level.py::test_nothing_is_written_through_a_link"
    " verify/train/test_train_level.py::test_run_that_prints_without_end_is_stopped",
    "`bash` with the package's smoke script": "verify/train/test_train_level.py::test_a_run_sees_no_token_of_the_users",
    "on 127.0.0.1 alone": "verify/train/test_train_ports.py::test_servers_of_a_run_are_not_reached_from_elsewhere",
    "with pinned requirements": "verify/test_rollout_environment.py::test_every_version_pins_all_that_it_installs",
    "one that a kill has left half built": "verify/test_rollout_environment.py::test_killed_build_is_begun_again"
    " verify/test_rollout_environment.py"
    "::test_a_kill_while_an_environment_is_removed_leaves_none_that_looks_whole"
    " verify/test_rollout_environment.py"
    "::test_a_step_ends_with_the_tool_so_that_the_next_build_has_the_folder_to_itself",
    "two at once": "verify/test_rollout_environment.py::test_two_builds_at_a_time_are_refused",
    "also one in another session": "verify/test_contract_level.py"
    "::test_a_process_that_left_the_group_is_ended_and_no_token_of_the_users_reaches_a_package"
    " verify/test_contract_level.py::test_a_signal_leaves_no_process_and_no_file"
    " verify/train/test_train_level.py::test_signal_ends_a_run_at_once_and_not_the_one_beside_it",
    "are taken away by the next run": "security/test_scratch.py"
    "::test_what_a_killed_process_left_goes_and_what_a_living_one_holds_stays",
    "the tree is as it was, or as it was to be": "lifecycle/test_apply.py"
    "::test_killed_at_a_write_the_tree_is_old_or_new",
    "that jumps": "security/test_one_way.py::test_a_clock_that_jumps_changes_no_more_than_a_date_that_is_written",
    "children are protected from it": "security/test_children.py::test_python_path_is_the_users",
    # Presets of a checkout
    "of the tree that they write to into account": "new/test_new_team.py"
    "::test_a_preset_of_the_checkout_counts_and_is_recorded",
    "A file is regular, at most 1 MB": "new/test_new_team.py"
    "::test_links_pipes_and_large_files_of_a_checkout_are_not_read",
    "held against a table of keys and kinds": "new/test_new_team.py"
    "::test_a_preset_that_says_something_else_is_one_line",
    "write nothing but their own text": "render/test_hostile_strings.py::test_a_value_without_its_filter_is_refused",
    # A package that lies about itself
    "every format of a report says so": "verify/test_report_terminal.py"
    "::test_the_first_lines_say_whose_word_the_results_of_each_level_are",
}


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def promises() -> list[str]:
    """Rows of the tables, their heads left out, and paragraphs, of the sections that promise something."""
    found: list[str] = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        if heading in KEPT:
            rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| -")]
            heads = [line for line in rows if line.startswith(("| what |", "| command |"))]
            found += [row for row in rows if row not in heads]
            found += [part for part in text.split("\n\n") if part.strip() and not part.lstrip().startswith("|")]
    return found


@pytest.mark.parametrize("promise", promises(), ids=lambda text: text[:50])
def test_every_promise_is_proved(promise: str) -> None:
    assert any(said in promise for said in PROOF), "no test is named for it"


@pytest.mark.parametrize("said", PROOF)
def test_what_proves_it_is_there(said: str) -> None:
    assert said in PAGE.read_text(encoding="utf-8"), "the page does not say so any more"
    for name in PROOF[said].split():
        file, _, function = name.partition("::")
        assert function in functions(file), name
