"""What is written is written whole: killed, refused, raced, on a full disk, in a checkout with edits."""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout_standins import DOCS_INDEX, NEW, PACKAGE, REGISTRY, RUNNERS, commit, run_git, snapshot, write_standin

from scaffold.errors import ScaffoldError
from scaffold.lifecycle.remove import plan_remove
from scaffold.lifecycle.update import UpdateRequest, plan_update
from scaffold.new import NewRequest, plan_new
from scaffold.plan import Plan, recover

pytestmark = pytest.mark.upstream

# Transactions are killed at every step in the tests of plans; here each command's at every fourth, and all where a
# longer fuzz is asked for.
SHARE = 1 if "OMNI_SCAFFOLD_FUZZ_SECONDS" in os.environ else 4
COMMANDS = ("new", "update", "remove")


def init(root: Path) -> None:
    """Make a git repository of a tree that may be one."""
    subprocess.run(["git", "init", "--quiet", "--template=", str(root)], check=True)


@pytest.fixture(scope="module")
def runs(written: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Plan]]:
    """Return tree and plan of each command that writes: `new`, `update` with a merge and a conflict, `remove`."""
    folder = tmp_path_factory.mktemp("runs")
    fresh = write_standin(folder / "new", "main")
    init(fresh)
    found = {
        "new": (fresh, plan_new(NewRequest("toy", pipeline="BagelPipeline", verl_omni=str(fresh))).plan),
    }
    merged = Path(shutil.copytree(written["main"], folder / "update", symlinks=True))
    common = merged / PACKAGE / "common.py"
    common.write_text(common.read_text() + "\n\nMINE = 1\n")
    spec = merged / PACKAGE / "scaffold.toml"
    spec.write_text(spec.read_text().replace("\nshift = 3.0 ", "\nshift = 1.5 "))
    (page,) = [path for path in (merged / "examples").rglob("README.md") if "with s = 3.0." in path.read_text()]
    page.write_text(page.read_text().replace("with s = 3.0.", "with s = 7.0."))
    update = plan_update(UpdateRequest(str(merged / PACKAGE), spec=True, force=True)).plan
    assert any(change.after and b"<<<<<<< edited here" in change.after.content for change in update.changes)
    found["update"] = (merged, update)
    gone = Path(shutil.copytree(written["main"], folder / "remove", symlinks=True))
    init(gone)
    found["remove"] = (gone, plan_remove(gone / PACKAGE).plan)
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_a_write_the_tree_is_old_or_new(
    runs: dict[str, tuple[Path, Plan]], tmp_path: Path, killed_at: Callable[..., bool], command: str
) -> None:
    source, plan = runs[command]
    old = snapshot(source)
    whole = Path(shutil.copytree(source, tmp_path / "whole", symlinks=True))
    replace(plan, root=whole).commit()
    new = snapshot(whole)
    assert new != old
    outcomes = set()
    for step in range(1 + COMMANDS.index(command), 2000, SHARE):
        root = Path(shutil.copytree(source, tmp_path / "run", symlinks=True))
        killed = killed_at(step, replace(plan, root=root).commit)
        said = recover(root)
        found = snapshot(root)
        assert found in (old, new), f"half a tree after step {step}"
        assert recover(root) is None
        if killed and said is not None:
            outcomes.add(said.split(" an ")[0])
        shutil.rmtree(root)
        if not killed:
            break
    else:
        pytest.fail("the commit never ended")
    assert outcomes == {"undid", "finished"}
    assert step > 20


class Swap:
    """Calls of the system, before the ``step``-th of which ``action`` is taken."""

    def __init__(self, step: int, action: Callable[[], object]) -> None:
        self.left, self.action = step, action

    def __call__(self, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.action()
        return real(*arguments, **options)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_link_that_takes_a_folders_place_meanwhile_leads_nowhere(
    runs: dict[str, tuple[Path, Plan]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """At some steps, each folder of the tree in turn: what lies where the link leads stays as it is."""
    source, plan = runs[command]
    outside = Path(shutil.copytree(source, tmp_path / "outside", symlinks=True))
    before = snapshot(outside)
    folders = sorted({str(Path(change.path).parent) for change in plan.changes if (source / change.path).exists()})

    def swap(root: Path, folder: str) -> None:
        if (root / folder).is_dir():  # at a late step of a removal it may be gone
            (root / folder).rename(tmp_path / "moved")
            (root / folder).symlink_to(outside / folder)

    for number, step in enumerate(range(5, 5000, 41)):
        root = Path(shutil.copytree(source, tmp_path / "run", symlinks=True))
        swapping = Swap(step, functools.partial(swap, root, folders[number % len(folders)]))
        with monkeypatch.context() as patched:
            for name in ("open", "unlink", "replace", "mkdir", "rmdir", "stat", "symlink"):
                patched.setattr(os, name, functools.partial(swapping, getattr(os, name)))
            with suppress(ScaffoldError):
                replace(plan, root=root).commit()
        assert snapshot(outside) == before
        if swapping.left > 0:
            break
        shutil.rmtree(root)
        shutil.rmtree(tmp_path / "moved", ignore_errors=True)
    assert number > 5


@pytest.mark.parametrize("code", [errno.ENOSPC, pytest.param(errno.EACCES, marks=pytest.mark.table)])
@pytest.mark.parametrize("name", ["replace", "fsync", "unlink"])
@pytest.mark.parametrize("command", ["new", "update", "remove"])
def test_failing_disk_changes_nothing(
    runs: dict[str, tuple[Path, Plan]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    name: str,
    code: int,
) -> None:
    source, plan = runs[command]
    old = snapshot(source)
    whole = Path(shutil.copytree(source, tmp_path / "whole", symlinks=True))
    replace(plan, root=whole).commit()
    new = snapshot(whole)
    genuine = getattr(os, name)
    failures = []
    for failing in range(0, 60, 7):
        root = Path(shutil.copytree(source, tmp_path / "run", symlinks=True))
        calls = iter(range(10_000))

        def refuse(*args: object, calls=calls, failing=failing, **kwargs: object) -> object:  # type: ignore[no-untyped-def]
            if next(calls) == failing:
                raise OSError(code, os.strerror(code))
            return genuine(*args, **kwargs)

        failed = None
        with monkeypatch.context() as patched:
            patched.setattr(os, name, refuse)
            try:
                replace(plan, root=root).commit()
            except ScaffoldError as error:
                failed = error
        # A failure while tidying up is none of the user's: all is in place, and the next start tidies.
        recover(root)
        assert snapshot(root) == (old if failed else new)
        if failed is not None:
            failures.append(failed)
        shutil.rmtree(root)
    assert all(error.exit_code == 2 for error in failures)
    assert all(re.search("nothing was changed|run the command again", error.line) for error in failures)
    assert failures or name == "unlink"


@pytest.mark.parametrize("command", [NEW, ("update",), ("remove",)])
def test_next_start_undoes_and_says_so(
    runs: dict[str, tuple[Path, Plan]],
    package: Callable[..., Path],
    scaffold_cli: Callable[..., Any],
    killed_at: Callable[..., bool],
    command: tuple[str, ...],
) -> None:
    root = package()
    before = snapshot(root)
    _, plan = runs["remove"]
    shutil.rmtree(root / ".git", ignore_errors=True)
    assert killed_at(30, replace(plan, root=root).commit)
    assert snapshot(root) != before
    half = snapshot(root)
    target = ("--verl-omni", root) if command == NEW else (root / PACKAGE,)
    assert "left its changes half made" in scaffold_cli(*command, *target, "--dry-run").refusal(2)
    assert snapshot(root) == half
    outcome = scaffold_cli(*command, *target)
    assert outcome.code == 0
    assert outcome.err == f"note: {root}: undid an interrupted run\n"
    if command == ("remove",):
        assert not (root / PACKAGE).exists()
    else:
        assert snapshot(root) == before


def test_dry_run_shows_new_changed_and_same(standin: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = standin()
    before = snapshot(root)
    printed = scaffold_cli(*NEW, "--verl-omni", root, "--dry-run").success()
    assert snapshot(root) == before
    words = _words(printed)
    assert words["common.py"] == "new"
    assert words["run_gpu_smoke_diffusion_e2e.sh"] == words["index.md"] == "changed"
    scaffold_cli(*NEW, "--verl-omni", root).success()
    assert set(_words(scaffold_cli(*NEW, "--verl-omni", root, "--dry-run").success()).values()) == {"same"}


def _words(printed: str) -> dict[str, str]:
    return dict(re.findall(r"── (\S+[^/\s])\s+(new|changed|same|removed)\b", printed))


def test_diff_is_what_would_be_written(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path
) -> None:
    root = standin()
    before = snapshot(root)
    patch = tmp_path / "patch"
    patch.write_text(scaffold_cli(*NEW, "--verl-omni", root, "--diff").success())
    assert snapshot(root) == before
    other = standin(name="other")
    subprocess.run(["git", "apply", str(patch)], cwd=other, check=True)
    scaffold_cli(*NEW, "--verl-omni", root).success()
    assert snapshot(other) == snapshot(root)


@pytest.mark.parametrize("option", [(), ("--dry-run",), ("--diff",)])
def test_conflicts_are_listed_and_nothing_is_written(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any], option: tuple[str, ...]
) -> None:
    root = standin()
    for path in (f"{PACKAGE}/common.py", "examples/flowgrpo_trainer/toy/README.md"):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text("mine\n")
    before = snapshot(root)
    outcome = scaffold_cli(*NEW, "--verl-omni", root, *option)
    assert outcome.code == 4
    assert outcome.err.count("(differs)") == 2
    assert ("conflict: differs" in outcome.out) == (option == ("--dry-run",))
    assert "nothing was written" in outcome.err
    assert snapshot(root) == before
    if not option:
        scaffold_cli(*NEW, "--verl-omni", root, "--force").success()
        assert (root / f"{PACKAGE}/common.py").read_text() != "mine\n"


def test_local_edit_stays_without_force(package: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = package()
    path = root / PACKAGE / "common.py"
    path.write_text("mine\n")
    assert f"{PACKAGE}/common.py (differs)" in scaffold_cli(*NEW, "--verl-omni", root).refusal(4)
    assert path.read_text() == "mine\n"
    path.write_text(_rendered(root, scaffold_cli))
    scaffold_cli(*NEW, "--verl-omni", root).success()


def _rendered(root: Path, scaffold_cli: Callable[..., Any]) -> str:
    out = root.parent / "rendered"
    scaffold_cli(*NEW, "--patch", "--out", out).success()
    return (out / PACKAGE / "common.py").read_text()


def test_uncommitted_files_are_a_warning_that_names_them(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = standin(git=True)
    printed = scaffold_cli(*NEW, "--verl-omni", root, "--dry-run").success()
    assert "not committed" not in printed
    (root / "examples/flowgrpo_trainer/alpha/README.md").write_text("# changed\n")
    (root / "notes.txt").write_text("mine\n")
    printed = scaffold_cli(*NEW, "--verl-omni", root).success()
    names = "examples/flowgrpo_trainer/alpha/README.md, notes.txt"
    assert f"note: the checkout has changes that are not committed: {names}\n" in printed
    run_git(root, "checkout", "--quiet", "examples")
    (root / "notes.txt").unlink()
    # What the first run wrote is not committed either, and is no reason for a warning.
    assert "not committed" not in scaffold_cli(*NEW, "--verl-omni", root).success()
    commit(root, "toy")
    (root / REGISTRY).write_text((root / REGISTRY).read_text() + "# mine\n")
    (root / PACKAGE / "notes.md").write_text("mine\n")
    printed = scaffold_cli("update", root / PACKAGE, "--vllm-omni", "0.30.0", "--allow-version-mismatch").success()
    assert f"not committed: {PACKAGE}/notes.md\n" in printed


@pytest.mark.parametrize("force", [False, True])
def test_path_that_became_a_link_is_not_followed(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path, force: bool
) -> None:
    root = package()
    outside = tmp_path / "outside.py"
    outside.write_text("theirs\n")
    path = root / PACKAGE / "common.py"
    path.unlink()
    path.symlink_to(outside)
    outcome = scaffold_cli(*NEW, "--verl-omni", root, *(["--force"] if force else []))
    assert outcome.code == (0 if force else 4)
    assert path.is_symlink() != force
    assert outside.read_text() == "theirs\n"


def test_linked_registry_is_refused(standin: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = standin()
    outside = root.parent / "registry.py"
    shutil.move(root / REGISTRY, outside)
    (root / REGISTRY).symlink_to(outside)
    before = outside.read_text()
    scaffold_cli(*NEW, "--verl-omni", root, "--force").refusal(2)
    assert outside.read_text() == before


def test_two_runs_at_once_lose_nothing(standin: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    root = standin()
    command = [sys.executable, "-m", "scaffold", *NEW, "--verl-omni", str(root)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    children = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ends = [(*child.communicate(timeout=120), child.returncode) for child in children]
    assert 0 in [code for _, _, code in ends]
    for _, error, code in ends:
        # The other one came later and found it done, or was told to wait, or that things had changed.
        assert code == 0 or re.search("another run is writing|changed since the plan|interrupted run", error), error
    assert "nothing to do" in scaffold_cli(*NEW, "--verl-omni", root).success()


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from scaffold.terminal import progress

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, delay, shown in ((Terminal(), 0.01, True), (io.StringIO(), 0.01, False), (Terminal(), 60, False)):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", stream)
            patched.setattr(progress, "DELAY_SECONDS", delay)
            with progress.step("doing a thing"):
                time.sleep(0.1)
        assert ("doing a thing" in stream.getvalue()) == shown
        assert not shown or stream.getvalue().endswith("\x1b[2K")


def test_checkout_with_other_line_ends(standin: Callable[..., Path], scaffold_cli: Callable[..., Any]) -> None:
    """A checkout whose text files end their lines with CR LF: nothing is in conflict, and nothing changes its ends."""
    root = standin()
    windows(root)
    before = snapshot(root)
    scaffold_cli(*NEW, "--verl-omni", root).success()
    for path in (REGISTRY, DOCS_INDEX, RUNNERS["main"]):
        assert b"toy" in (root / path).read_bytes()
        assert not re.search(rb"[^\r]\n", (root / path).read_bytes()), path
    windows(root)
    assert "nothing to do" in scaffold_cli(*NEW, "--verl-omni", root).success()
    with (root / PACKAGE / "common.py").open("ab") as file:
        file.write(b"\r\n\r\nMINE = 1\r\n")
    kept = (root / PACKAGE / "common.py").read_bytes()
    scaffold_cli("update", root / PACKAGE, "--vllm-omni", "0.30.0", "--allow-version-mismatch")
    assert (root / PACKAGE / "common.py").read_bytes() == kept
    changed = (root / "examples/flowgrpo_trainer/toy/README.md").read_bytes()
    assert b"made for vllm-omni 0.30.0" in changed
    assert not re.search(rb"[^\r]\n", changed)
    scaffold_cli("remove", root / PACKAGE, "--force").success()
    assert snapshot(root) == before


def windows(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts:
            path.write_bytes(re.sub(rb"\r?\n", b"\r\n", path.read_bytes()))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("ruff", "File too large; is there room, and may you write, in "),
        ("omni-scaffold-new", "File too large; nothing was changed"),
    ],
)
def test_disk_that_is_full(
    standin: Callable[..., Path],
    scaffold_child: Callable[..., Any],
    scaffold_cli: Callable[..., Any],
    where: str,
    message: str,
) -> None:
    """From some file on none may grow, which a write meets as it meets a full disk; first the temporary one."""
    root = standin()
    before = snapshot(root)
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "def full(event, args):\n"
        f"    if event in ('open', 'tempfile.mkdtemp') and {where!r} in str(args[0]):\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "sys.addaudithook(full)\n"
        "from scaffold.cli import main\nmain()"
    )
    assert message in scaffold_child(*NEW, "--verl-omni", root, code=code).refusal(2)
    assert snapshot(root) == before
    scaffold_cli(*NEW, "--verl-omni", root).success()


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everything")
@pytest.mark.parametrize("locked", ["verl_omni/pipelines", pytest.param("docs", marks=pytest.mark.table)])
def test_checkout_that_one_may_not_write(
    standin: Callable[..., Path], scaffold_child: Callable[..., Any], scaffold_cli: Callable[..., Any], locked: str
) -> None:
    """Root gives up the capability to which no folder is closed."""
    root = standin()
    init(root)
    (root / locked).chmod(0o555)
    before = snapshot(root)
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    code = (
        f"import os, sys\nline = [*{drop}, sys.executable, '-m', 'scaffold', *sys.argv[1:]]\nos.execvp(line[0], line)"
    )
    line = scaffold_child(*NEW, "--verl-omni", root, code=code).refusal(2)
    assert str(root / locked) in line
    assert "Permission denied" in line
    assert snapshot(root) == before
    (root / locked).chmod(0o755)
    scaffold_cli(*NEW, "--verl-omni", root).success()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("new", "toy", "--pipeline", "NoSuchPipeline"), 2),
        (("update",), 2),
        (("remove",), 2),
    ],
    ids=["new that fails", "update", "remove"],
)
def test_undoing_is_said_also_where_the_command_then_fails(
    standin: Callable[..., Path],
    runs: dict[str, tuple[Path, Plan]],
    scaffold_cli: Callable[..., Any],
    killed_at: Callable[..., bool],
    command: tuple[str, ...],
    code: int,
) -> None:
    root = standin()
    before = snapshot(root)
    assert killed_at(60, replace(runs["new"][1], root=root).commit)
    assert snapshot(root) != before
    outcome = scaffold_cli(*command, *(("--verl-omni", root) if command[0] == "new" else (root / PACKAGE,)))
    assert outcome.code == code
    assert outcome.err.startswith(f"note: {root}: undid an interrupted run\n")
    assert snapshot(root) == before


def test_new_does_not_take_back_what_was_set_by_hand(
    package: Callable[..., Path], scaffold_cli: Callable[..., Any]
) -> None:
    root = package()
    spec = root / PACKAGE / "scaffold.toml"
    spec.write_text(spec.read_text().replace("\nnoise_level = 0.7 ", "\nnoise_level = 0.55 "))
    scaffold_cli("update", root, "--spec")
    before = snapshot(root)
    line = scaffold_cli(*NEW, "--verl-omni", root).refusal(4)
    assert "scaffold.toml (set by hand: recipe.noise_level)" in line
    assert snapshot(root) == before
    scaffold_cli(*NEW, "--verl-omni", root, "--force").success()
    assert "\nnoise_level = 0.7 " in spec.read_text()


@pytest.mark.parametrize("name", ["q[/red]", "a:100:"])
def test_names_of_files_are_printed_as_they_are(
    standin: Callable[..., Path], scaffold_cli: Callable[..., Any], name: str
) -> None:
    root = standin(git=True)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("x")
    assert f"not committed: {name}" in scaffold_cli(*NEW, "--verl-omni", root, "--dry-run").success()
