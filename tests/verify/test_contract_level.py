"""The command, its output, and packages that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaffold.scratch import tidy
from scaffold.upstream import fetch
from scaffold.verify import contract_level, host_process
from scaffold.verify.catalogue import catalogue
from scaffold.verify.run import verify

PACKAGE = "verl_omni/pipelines/bagel_flow_grpo"
MODEL = "bagel_model.py"


def test_reference_passes_every_contract_on_the_kit(results: Any, reference: Path) -> None:
    found = results(reference / PACKAGE)
    assert list(found) == [entry.id for entry in catalogue()]
    lines = {name: f"{check.status}: {check.reason}" for name, check in found.items() if check.status != "pass"}
    lines.pop("fsdp2-nccl", None)  # needs two GPUs
    if found["schedule-diffusers-0.40.0"].status == "skip":
        lines.pop("schedule-diffusers-0.40.0")  # not fetched
    assert lines == {}
    assert all(check.reason for check in found.values())
    assert found["rollout-log-probs"].series.keys() == {"rollout log-prob", "training log-prob"}
    numbers = [check for check in found.values() if check.value is not None]
    assert len(numbers) > 20
    assert all(check.limit is not None and check.unit and check.value <= check.limit for check in numbers)


def test_json_of_the_command(scaffold_child: Callable[..., Any], reference: Path) -> None:
    """A cold run, in a process of its own, and one more with a diffusers that need not be installed."""
    selected = ("--select", "forward", "--select", "schedule-diffusers-0.38.0")
    done = scaffold_child("verify", reference / PACKAGE, "--format", "json", *selected)
    document = json.loads(done.success())
    assert {name: document[name] for name in ("schema", "contract")} == {"schema": 1, "contract": "kit"}
    assert [check["id"] for check in document["checks"]] == ["forward", "schedule-diffusers-0.38.0"]
    for check in document["checks"]:
        assert {"id", "status", "value", "limit", "reason"} <= check.keys()
        assert check["status"] == "pass", check
    assert document["checks"][0]["value"] is None
    assert 0 < document["checks"][1]["value"] <= document["checks"][1]["limit"]
    assert "on diffusers 0.38.0" in document["checks"][1]["reason"]
    assert document["environment"]["torch"]
    assert document["commands"][0].startswith("omni-scaffold verify ")
    assert document["trust"].startswith(
        "A pass is evidence about an honest package: level contract measures in processes"
    )


def test_a_failure_is_exit_1_and_one_line(
    warm: None, scaffold_cli: Callable[..., Any], copied: Path, edit: Callable[..., None]
) -> None:
    edit(
        copied / MODEL,
        "return (self.llm2vae(self.norm_moe_gen(latents)),)",
        "return self.llm2vae(self.norm_moe_gen(latents))",
    )
    done = scaffold_cli("verify", copied, "--select", "forward", "--select", "determinism")
    assert done.code == 1, done.err
    assert "forward returns Tensor" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere is not a folder"),
        (
            ("--select", "padding-invarance"),
            "there is no contract 'padding-invarance' at level contract; nearest is padding-invariance",
        ),
        (("--checkpoint", "nowhere"), "no such folder here: nowhere"),
    ],
)
def test_wrong_use_is_one_line(scaffold_cli: Callable[..., Any], reference: Path, arguments: Any, message: str) -> None:
    package = () if arguments[0] == "nowhere" else (reference / PACKAGE,)
    assert message in scaffold_cli("verify", *package, *arguments).refusal()


def test_a_folder_that_is_no_package_is_refused(
    scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path
) -> None:
    assert "has no __init__.py" in scaffold_cli("verify", reference / "examples").refusal()
    (tmp_path / "__init__.py").touch()
    assert "does not lie in verl_omni/pipelines/" in scaffold_cli("verify", tmp_path).refusal()


@pytest.mark.parametrize("inside", [".", f"{PACKAGE}/scaffold.toml"])
def test_a_tree_or_a_spec_stands_for_its_one_package(
    warm: None, scaffold_cli: Callable[..., Any], reference: Path, inside: str
) -> None:
    done = scaffold_cli("verify", reference / inside, "--select", "registration")
    assert done.code == 0, done.err
    assert "1 pass" in done.out


def test_a_level_in_which_nothing_ran_is_no_pass(warm: None, scaffold_cli: Callable[..., Any], reference: Path) -> None:
    done = scaffold_cli("verify", reference / PACKAGE, "--select", "fsdp2-nccl")
    if "1 skip" not in done.out:
        pytest.skip("there are two GPUs")
    assert done.code == 2
    assert done.err.startswith("error: The one contract was skipped: nothing is verified; two GPUs are needed")


def test_a_tree_of_several_packages_is_refused(scaffold_cli: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / "verl_omni" / "pipelines" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    assert "holds 2 packages (first, second)" in scaffold_cli("verify", tmp_path).refusal()


HOSTILE = {
    "hangs": ("import time; time.sleep(1000)", "did not end within"),
    "dies": ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    "leaves": ("import os; os._exit(0)", "no result"),
    "raises what nobody catches": ("raise SystemExit(3)", "SystemExit: 3"),
    "takes all memory": ("bytearray(16 << 30)", "memory"),
    "recurses": ("(lambda f: f(f))(lambda f: f(f))", "RecursionError"),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.table] * (n == "recurses")) for n in HOSTILE])
def test_a_contract_that_does_not_come_back_is_a_failure_and_the_others_go_on(
    name: str, results: Any, copied: Path, edit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, reason = HOSTILE[name]
    edit(
        copied / MODEL,
        '            raise ValueError("BagelForTraining saves safetensors only")\n',
        f'            raise ValueError("BagelForTraining saves safetensors only")\n        {code}\n',
    )
    if name == "hangs":
        waits = [replace(e, seconds=3.0) if e.id == "weights-round-trip" else e for e in contract_level.catalogue()]
        monkeypatch.setattr(contract_level, "catalogue", lambda: tuple(waits))
    found = results(copied, "weights-round-trip", "determinism", "config-round-trip")
    assert found["weights-round-trip"].status == "fail"
    assert reason in found["weights-round-trip"].reason
    assert "\n" not in found["weights-round-trip"].reason
    assert [found[name].status for name in ("determinism", "config-round-trip")] == ["pass", "pass"]


def ends(pid: int) -> bool:
    """Whether a process is over, or is soon; a zombie, which may wait long for its parent, counts."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in ("Z", "X"):
            return True
        time.sleep(0.05)
    return False


LEAVES = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    open({mark!r}, "w").write(str(os.getpid()))
    os.execve("/bin/sleep", ["sleep", "1000"], {{}})
"""


def test_a_process_that_left_the_group_is_ended_and_no_token_of_the_users_reaches_a_package(
    copied: Path, edit: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cold run knows what it has started, and what of the environment its host is given.

    A process that the import has started, and one of a contract, hold pipes open and delay nothing.
    """
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "s3cret")
    seen = tmp_path / "seen"
    marks = [tmp_path / where for where in ("import", "contract")]
    left, leaves = (LEAVES.format(mark=str(mark)) for mark in marks)
    init = copied / "__init__.py"
    tell = f"\nimport os\nopen({str(seen)!r}, 'w').write(repr(dict(os.environ)))\n"
    init.write_text(init.read_text() + tell + left)
    anchor = "        batch, device = hidden_states.shape[0]"
    edit(copied / MODEL, anchor, leaves.replace("\n", "\n        ") + anchor.strip())
    report = verify(copied, select=["config-round-trip", "input-keys", "forward"])
    assert not report.failed, [check.reason for check in report.checks]
    assert all(ends(int(mark.read_text())) for mark in marks)
    assert "HOME" in seen.read_text()
    assert "s3cret" not in seen.read_text()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.table),
        pytest.param(signal.SIGHUP, marks=pytest.mark.table),
        signal.SIGKILL,
    ],
)
def test_a_signal_leaves_no_process_and_no_file(number: signal.Signals, copied: Path, tmp_path: Path) -> None:
    """What one that cannot be heeded leaves of files, the next run takes away."""
    mark, folder = tmp_path / "pid", tmp_path / "temporary"
    folder.mkdir()
    (copied / "__init__.py").write_text(f"{LEAVES.format(mark=str(mark))}\nimport time\ntime.sleep(1000)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "scaffold", "verify", str(copied), "--select", "forward"],
        cwd=Path(contract_level.__file__).parents[2],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A runner in the background ignores Ctrl-C, one under nohup the end of its terminal; so would their children.
        preexec_fn=lambda: (
            signal.signal(signal.SIGINT, signal.default_int_handler),
            signal.signal(signal.SIGHUP, signal.SIG_DFL),
        ),
    )
    try:
        while not (mark.is_file() and mark.read_text()):
            assert process.poll() is None
            time.sleep(0.1)
        assert list(folder.iterdir())
        process.send_signal(number)
        assert process.wait(timeout=60) == (-number if number == signal.SIGKILL else 128 + number)
    finally:
        process.kill()
    assert ends(int(mark.read_text()))
    tidy(folder)
    assert list(folder.iterdir()) == []


def test_lists_of_another_type_in_the_spec_are_no_lists(results: Any, copied: Path, edit: Callable[..., None]) -> None:
    edit(copied / "scaffold.toml", "targets = [", "targets = 5\ntrainable = [")
    found = results(copied, "lora-targets")
    assert (found["lora-targets"].status, "gives target_modules" in found["lora-targets"].reason) == ("skip", True)


def test_a_full_disk_does_not_lose_the_result(
    warm: None, scaffold_cli: Callable[..., Any], reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found is printed before the report is written; what cannot be written is said before the run."""
    from scaffold.errors import ScaffoldError
    from scaffold.verify.report import destination

    def full(*_: Any) -> None:
        raise ScaffoldError("no space left")

    missing = tmp_path / "missing" / "x.html"
    refused = scaffold_cli("verify", reference / PACKAGE, "--select", "forward", "--report", missing)
    assert "is not a folder; create it first" in refused.refusal()
    monkeypatch.setattr(destination, "write_report", full)
    done = scaffold_cli("verify", reference / PACKAGE, "--select", "forward", "--report", tmp_path / "x.html")
    assert "--report" not in done.out, "it was given"
    assert (done.code, "1 pass" in done.out, "no space left" in done.err) == (2, True, True)


def test_the_command_is_given_as_typed(warm: None, reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reference)
    (command,) = verify(PACKAGE, select=["registration"]).commands
    assert command == f"omni-scaffold verify {PACKAGE} --level contract --select registration"


IMPORTS = {
    "memory": ("held = bytearray(3 << 30)", "MemoryError"),
    "memory of torch": ("import torch\nheld = torch.ones(3 << 28)", "memory"),
    "output": ("while True:\n    print('x' * 65536)", "more than 256 MB are written"),
    "output of a child": ("import os\nos.system('yes')\nraise OSError(27, 'said by hand')", "more than 256 MB"),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.table] * (" of " in n)) for n in IMPORTS])
def test_the_limits_hold_while_the_package_is_imported(
    name: str, results: Any, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, reason = IMPORTS[name]
    init = copied / "__init__.py"
    init.write_text(init.read_text() + code + "\n")
    found = results(copied, "registration", "determinism")
    assert (found["registration"].status, found["determinism"].status) == ("fail", "skip")
    assert "the package cannot be imported" in found["registration"].reason
    assert reason in found["registration"].reason
    assert len(found["registration"].reason) < 1000


AFTERWARDS = """
import resource, threading, time

def go_on():
    while True:
        try:
            bytearray(5 << 30)
            open({mark!r}, "a").write("memory ")
        except MemoryError:
            pass
        if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:
            open({mark!r}, "a").write("output ")
        time.sleep(0.01)

threading.Thread(target=go_on, daemon=True).start()
"""


def test_what_an_import_leaves_behind_is_limited_too(results: Any, copied: Path) -> None:
    """A thread goes on in the process that the contracts are forks of."""
    mark = copied.parent / "unlimited"
    init = copied / "__init__.py"
    init.write_text(init.read_text() + AFTERWARDS.format(mark=str(mark)))
    assert results(copied, "determinism")["determinism"].status == "pass"
    assert not mark.exists(), mark.read_text()[:100]


def test_an_import_that_does_not_end_is_ended(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold run, because only that knows what it has started."""
    (copied / "__init__.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(1000)\n")
    monkeypatch.setattr(host_process, "IMPORT_SECONDS", 9.0)
    (found,) = verify(copied, select=["registration"]).checks
    assert found.status == "fail"
    assert found.reason.startswith("the package cannot be imported: it did not end within 9 s")


@pytest.mark.parametrize(
    "code", ["raise RuntimeError('not today')", "import no_such_library", "import os; os._exit(7)"]
)
def test_a_package_that_cannot_be_imported_fails_once(code: str, results: Any, copied: Path) -> None:
    init = copied / "__init__.py"
    init.write_text(init.read_text() + code + "\n")
    found = results(copied, "registration", "forward", "determinism")
    assert {name: check.status for name, check in found.items()} == {
        "registration": "fail",
        "forward": "skip",
        "determinism": "skip",
    }
    assert results(copied, "forward")["forward"].status == "fail", "a failure must show in every selection"


@pytest.mark.parametrize("name", ["vllm_omni.diffusion.no_such_module", "verl.no_such_module", "vllm.config"])
def test_a_package_that_needs_more_of_the_engine_than_the_kit_has_is_skipped(
    name: str, results: Any, copied: Path
) -> None:
    init = copied / "__init__.py"
    init.write_text(init.read_text() + f"import {name}\n")
    found = results(copied, "registration", "forward")
    library = name.partition(".")[0].replace("_", "-")
    assert {check.status for check in found.values()} == {"skip"}
    assert all(check.reason.endswith(f"install {library}") for check in found.values())


def test_nothing_of_the_package_runs_in_the_parent(copied: Path, results: Any) -> None:
    mark = copied.parent / "ran"
    init = copied / "__init__.py"
    init.write_text(init.read_text() + f"import os\nopen({str(mark)!r}, 'a').write(str(os.getpid()) + ' ')\n")
    results(copied, "registration")
    ran = mark.read_text().split()
    assert ran
    assert str(os.getpid()) not in ran


def test_a_checkpoint_gives_the_configuration(results: Any, reference: Path, tmp_path: Path) -> None:
    """Its own where it is small, else made tiny with everything else kept."""
    values = {
        "hidden_size": 48,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 80,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5e4,
    }
    (tmp_path / "llm_config.json").write_text(json.dumps(values))
    root = {"latent_patch_size": 1, "max_latent_size": 4, "vae_config": {"z_channels": 5, "downsample": 4}}
    (tmp_path / "config.json").write_text(json.dumps({**root, "start_of_image_id": 71, "end_of_image_id": 72}))
    found = results(reference / PACKAGE, "forward", "lora-targets", checkpoint=tmp_path)
    assert found["forward"].status == "pass", found["forward"].reason
    assert "(B, 6, 5)" in found["forward"].reason
    assert "21 modules" in found["lora-targets"].reason


def test_the_other_diffusers_that_cannot_be_had_is_a_skip(
    results: Any, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scaffold.errors import ScaffoldError

    def nothing(distribution: str, version: str) -> Path:
        raise ScaffoldError(f"cannot fetch {distribution} {version}: the package index cannot be reached")

    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "fetch_wheel", nothing)
    found = results(reference / PACKAGE, "schedule-diffusers-0.38.0", "schedule-diffusers-0.40.0")
    assert "skip" in {check.status for check in found.values()}
    assert all("cannot be reached" in check.reason for check in found.values() if check.status == "skip")


def test_the_parent_needs_neither_torch_nor_the_package(reference: Path) -> None:
    """Nothing heavy is imported by the modules that the command itself imports."""
    import subprocess
    import sys

    code = (
        "import sys; import scaffold.verify.run, scaffold.verify.contract_level, scaffold.verify.catalogue as c; "
        "c.catalogue(); print([m for m in ('torch', 'libcst', 'jinja2', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=reference.parent, check=True
    )
    assert done.stdout.strip() == "[]"


def test_api_returns_the_report(warm: None, reference: Path) -> None:
    report = verify(reference / PACKAGE, select=["registration"])
    assert (report.package, report.contract, report.failed, report.count("pass")) == (
        "bagel_flow_grpo",
        "kit",
        False,
        1,
    )
