"""Reports that the tests of every format share: all statuses, every odd number, hostile text."""

from __future__ import annotations

import math
from typing import Any

from scaffold.verify.result import CheckResult, VerifyReport

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "{{ 7 * 191 }}{% raw %}",
    "a|b `c` @octocat #1 ![p](http://example.invalid/p.png) <b>**x**</b>",
    "\x1b[31mred\x07 \u202eright to left \ud800",
)


def check(name: str, status: str = "pass", value: float | None = None, limit: float | None = None, **more: Any) -> Any:
    """Return a check with what a test does not name filled in."""
    unit = more.pop("unit", None if value is None and limit is None else "relative")
    title = more.pop("title", f"The contract called {name} holds")
    reason = more.pop("reason", f"what was found for {name}")
    return CheckResult(name, more.pop("level", "contract"), title, status, value, limit, unit, reason, **more)  # type: ignore[arg-type]


def all_statuses() -> VerifyReport:
    """Return a report as a real run gives it: both levels, all statuses, numbers and none, curves."""
    rollout = [-0.5031, -0.4987, -0.5102, -0.4899, -0.5214, -0.5077]
    ragged = [-0.5031, -0.4987, -0.5102, -0.4899]
    return VerifyReport(
        "example_flow_grpo",
        "kit",
        (
            check("registration", title="Both adapters are registered under one architecture", seconds=0.02),
            check(
                "determinism",
                value=0.0,
                limit=0.0,
                unit="absolute",
                title="Two equal calls give equal outputs",
                seconds=0.41,
            ),
            check(
                "batch-singles",
                value=3.1e-7,
                limit=1e-5,
                floor=1.2e-7,
                title="A batch gives what its members give",
                seconds=0.63,
            ),
            check(
                "padding-invariance",
                "fail",
                0.1312,
                1e-5,
                floor=1.2e-7,
                title="Padding of other prompts changes nothing",
                reason="prompt 2 of 5 tokens beside one of 19: velocities move by 0.131; with padding removed by 3e-7",
                seconds=1.2,
                pitfalls=(1, 8),
            ),
            check(
                "lora-targets",
                value=0,
                limit=0,
                unit="modules",
                title="LoRA sits on exactly the declared targets",
                seconds=0.8,
            ),
            check(
                "nccl",
                "skip",
                title="FSDP2 over NCCL gives equal gradients",
                reason="no GPU: torch finds 0 accelerators",
            ),
            check(
                "rollout-wide-log-prob",
                value=5.96e-8,
                limit=1e-6,
                floor=6e-8,
                unit="absolute",
                level="rollout",
                title="96 by 64 pixels: training's log-probs are the rollout's",
                series={
                    "rollout log-prob": rollout,
                    "training log-prob": [v + 6e-8 * (i % 3) for i, v in enumerate(rollout)],
                },
                seconds=3.4,
            ),
            check("rollout-wide-velocity", value=8.1e-7, limit=1e-5, floor=1e-6, level="rollout", seconds=0.1),
            check(
                "rollout-ragged-log-prob",
                "fail",
                1.61e-2,
                1e-6,
                floor=6e-8,
                unit="absolute",
                level="rollout",
                title="Prompts of different length: training's log-probs are the rollout's",
                reason="largest distance 1.6e-2 at prompt 2, step 3",
                series={"rollout log-prob": ragged, "training log-prob": [v + 4e-3 * i for i, v in enumerate(ragged)]},
                seconds=4.1,
                pitfalls=(1,),
            ),
            check(
                "rollout-control-end-token",
                value=7.7e-5,
                limit=0.01,
                unit="limit per effect",
                level="rollout",
                seconds=2.2,
            ),
        ),
        {"python": "3.11.2", "torch": "2.13.0+cpu", "diffusers": "0.38.0", "machine": "2 cores, x86_64"},
        ("omni-scaffold verify verl_omni/pipelines/example_flow_grpo --level rollout",),
    )


def all_of(status: str, count: int = 3) -> VerifyReport:
    """Return a report whose checks all have one status."""
    value = None if status == "skip" else 1.0 if status == "fail" else 1e-7
    checks = (check(f"contract-{n}", status, value, None if value is None else 1e-5) for n in range(count))
    return VerifyReport("example_flow_grpo", "verl_omni", tuple(checks))


def odd_numbers() -> VerifyReport:
    """Return a report with the numbers that break drawings."""
    nan, inf = math.nan, math.inf
    return VerifyReport(
        "odd_flow_grpo",
        "kit",
        (
            check("zero", value=0.0, limit=1e-6, floor=0.0),
            check("not-a-number", "fail", nan, 1e-6),
            check("infinite", "fail", inf, 1e-6),
            check("no-limit", value=3e-4),
            check("just-above", "fail", 1.0000001e-6, 1e-6),
            check("tiny", value=5e-324, limit=1e-6),
            check("huge", "fail", 1.7e308, 1e-6),
            check("negative", value=-1.0, limit=0.0),
            check("zero-of-zero", value=0, limit=0, unit="steps"),
            check("two-of-zero", "fail", 2, 0, unit="modules"),
            check("nothing-measured", "fail"),
            check("no-number"),
            check(
                "curve-odd",
                value=1e-8,
                limit=1e-6,
                unit="absolute",
                series={"a": [1.0, nan, -inf, 2.0], "b": [1.0, 2.0]},
            ),
            check("curve-one", value=0.0, limit=1e-6, unit="absolute", series={"only": [3.0]}),
            check("curve-lost", value=nan, limit=1e-6, status="fail", series={"a": [nan, nan], "b": [inf, nan]}),
            check("curve-equal", value=0.0, limit=0.0, series={"a": [0.5, 0.5], "b": [0.5, 0.5]}),
            check(
                "curve-far", value=0.0, limit=0.0, series={"a": [1.7e308, -1.7e308], "b": [0.5, 0.5], "c": [1.0, 2.0]}
            ),
            check("curve-empty", value=0.0, limit=0.0, series={"a": []}),
        ),
    )


def hostile() -> VerifyReport:
    """Return a report whose every text attacks the format it is shown in."""
    checks = []
    for number, text in enumerate(HOSTILE):
        name = f"hostile-{number}{text}"
        series = {f"{text} one": [1.0, 2.0], f"{text} two": [1.0, 2.5]}
        checks.append(check(name, "fail", 0.5, 0.1, title=text, reason=text, unit=text, series=series))
        checks.append(check(f"skipped-{name}", "skip", title=text, reason=text))
    return VerifyReport(
        HOSTILE[0], "kit", tuple(checks), {text: text for text in HOSTILE}, tuple(f"echo '{text}'" for text in HOSTILE)
    )
