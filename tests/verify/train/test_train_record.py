"""What a run leaves behind is read as it is, also where a process was killed in the middle of a line."""

from __future__ import annotations

import json
import math
from pathlib import Path

from scaffold.verify.train.record import LOG_PROB, REWARD, read_record


def line(step: int, **metrics: float | None) -> str:
    return json.dumps({"step": step, "data": {"training/global_step": step, **metrics}}) + "\n"


def test_steps_carry_metrics_groups_and_windows(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    metrics = line(1, **{REWARD: 0.5, LOG_PROB: 6e-8, "actor/ratio_std": None}) + line(2, **{REWARD: 0.75})
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "data": {"val-core/reward": 1.0}}\n' + metrics + '{"step": 3, "da'
    )
    batch = {
        "kind": "batch",
        "step": 1,
        "groups": ["a", "a", "b"],
        "scores": [1.0, 3.0, 5.0],
        "windows": [[0.9, 0.75]] * 3,
        "closest": {"within": 0.9, "across": None},
        "prompts": ["p", "p", "q"],
    }
    push = {"kind": "push", "replica": "1", "rank": 0, "changed": 14, "error": None}
    (tmp_path / "events" / "1.jsonl").write_text("".join(json.dumps(event) + "\n" for event in (batch, push)) + '{"kin')
    log = tmp_path / "log"
    log.write_text(
        "fine\n(worker) Error executing method update_weights\n(worker) Error executing method update_weights\n"
    )
    found = read_record(tmp_path, log, None, 12.0)
    assert [step.number for step in found.steps] == [1, 2]
    assert found.steps[0].rewards == (2.0, 5.0)
    assert found.steps[0].windows == ((0.9, 0.75),) * 3
    assert found.steps[0].closest == (0.9, None)
    assert found.steps[0].prompts == ("p", "q")
    assert found.steps[0].metric(REWARD) == 0.5
    assert found.steps[1].rewards == ()
    assert found.steps[1].metric(LOG_PROB) != found.steps[1].metric(LOG_PROB)  # not a number
    assert [(push.replica, push.changed) for push in found.pushes] == [("1", 14)]
    assert found.errors == ("(worker) Error executing method update_weights",)


def test_run_that_left_nothing(tmp_path: Path) -> None:
    found = read_record(tmp_path, tmp_path / "log", "it died", 1.0)
    assert (found.steps, found.pushes, found.errors, found.problem) == ((), (), (), "it died")


def test_what_no_trainer_writes_is_left_out(tmp_path: Path) -> None:
    """The package's own code runs in the processes that write these files."""
    (tmp_path / "events").mkdir()
    deep = "[" * 100_000
    batch = {"kind": "batch", "step": 1, "groups": ["a"], "scores": [1.0], "windows": None, "closest": None}
    batch["prompts"] = None
    number = "1" * 400
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join(
            [
                "[]",
                "3",
                deep,
                f'{{"step": {number}, "data": {{}}}}',
                f'{{"step": 1, "data": {{"x": {number}}}}}',
                '{"step": 1e999, "data": {}}',
            ]
        )
        + "\n"
        + line(1, **{REWARD: 0.5})
    )
    events: list[object] = [
        [],
        {"kind": "batch"},
        {**batch, "scores": []},
        {**batch, "scores": [{}]},
        {**batch, "windows": [["x"]]},
        {**batch, "closest": {"within": "x", "across": None}},
        {**batch, "prompts": 1},
        {**batch, "step": "x"},
        {"kind": "push", "replica": 1, "rank": "x", "changed": 1, "error": None},
        {"kind": "push", "replica": 1, "rank": math.inf, "changed": 1, "error": None},
        {"kind": "push"},
        {"kind": ["push"]},
    ]
    (tmp_path / "events" / "1.jsonl").write_text("\n".join([deep, number, *map(json.dumps, events)]) + "\n")
    found = read_record(tmp_path, tmp_path / "log", None, 1.0)
    assert [(step.number, step.rewards) for step in found.steps] == [(1, ())]
    assert found.pushes == ()


def test_images_of_a_step_count_with_a_finite_score_and_where_they_are(tmp_path: Path) -> None:
    kept = tmp_path / "rollouts"
    assert read_record(tmp_path, tmp_path / "log", None, 1.0, kept).samples is None
    kept.mkdir()
    (kept / "0.jpg").write_bytes(b"image")
    (kept / "empty.jpg").write_bytes(b"")
    rows = [("0.jpg", 0.5), ("0.jpg", math.nan), ("empty.jpg", 0.5), ("gone.jpg", 0.5)]
    text = "".join(json.dumps({"output": str(kept / name), "score": score}) + "\n" for name, score in rows)
    (kept / "1.jsonl").write_text(text + '{"out')
    (kept / "2.jsonl").write_text("")
    assert read_record(tmp_path, tmp_path / "log", None, 1.0, kept).samples == {1: 1, 2: 0}
