"""Processes of a run are forks of a host that has imported what they need, and cannot tell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from scaffold.verify.train import hosting
from scaffold.verify.train.hosting import of_host
from scaffold.verify.train.run import PATH
from scaffold.verify.train.trainer_side.asking import is_forked
from scaffold.verify.train.trainer_side.imported import imported, place_files

# The real host with small libraries.
HOST = """
import sys
from scaffold.verify.train.trainer_side import imported

imported.LIBRARIES, imported.LAZY, imported.VERL_OMNI = ("numpy", "torch", "library"), {}, ("own",)
imported.main()
"""
RAY = "class RuntimeEnvContext:\n    def exec_worker(self, *arguments):\n        return self.py_executable\n"
RAYLET = """
import os


class Config:
    mode = os.environ.get("RAY_AUTH_MODE")

    @classmethod
    def initialize(cls, given):
        cls.mode = os.environ.get("RAY_AUTH_MODE")
"""
SAID = "import json, os, sys; print(json.dumps({'argv': sys.argv, 'first': sys.path[0], 'name': __name__,"
SAID += " 'folder': os.getcwd(), 'given': os.environ.get('GIVEN'), 'library': 'library' in sys.modules}))"

Started = Callable[..., subprocess.Popen[str]]


def laid(folder: Path, own: str = "") -> Path:
    """A folder of libraries: one that counts its imports, one of the run, and as much of Ray as a host touches."""
    counted = "from pathlib import Path\nwith Path(__file__).with_name('imports').open('a') as f:\n    f.write('.')\n"
    ray = folder / "ray" / "_private" / "runtime_env"
    ray.mkdir(parents=True)
    for place in (ray, *ray.parents[:2]):
        (place / "__init__.py").touch()
    (ray / "context.py").write_text(RAY)
    (folder / "ray" / "_raylet.py").write_text(RAYLET)
    (folder / "library.py").write_text(counted)
    (folder / "own.py").write_text(own)
    (folder / "host.py").write_text(HOST)
    return folder


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid(tmp_path_factory.mktemp("libraries"))


def variables(libraries: Path) -> dict[str, str]:
    return {
        "OMNI_SCAFFOLD_TRAIN": "patches.socket_names",
        "OMP_NUM_THREADS": "1",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{PATH}:{libraries}",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture(scope="module")
def hosted(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a run that has a host."""
    known, hosting.HOST = hosting.HOST, libraries / "host.py"
    folder, given = tmp_path_factory.mktemp("run"), variables(libraries)
    try:
        with hosting.hosting(), of_host(Path(sys.executable), folder, folder, given, Event()) as more:
            assert more, (folder / "host.log").read_text() if (folder / "host.log").exists() else "no host"
            yield {**given, **more}
    finally:
        hosting.HOST = known


@pytest.fixture
def start(hosted: dict[str, str], tmp_path: Path) -> Started:
    def started(*arguments: str, **more: Any) -> subprocess.Popen[str]:
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, **more}
        shim = Path(hosted["PATH"].partition(":")[0]) / "python3"
        return subprocess.Popen([str(shim), *arguments], **{"env": hosted, **given})

    return started


def said(process: subprocess.Popen[str], given: str | None = None) -> dict[str, Any]:
    out, err = process.communicate(given, timeout=60)
    assert process.returncode == 0, err
    return dict(json.loads(out))


def test_a_fork_runs_what_a_command_line_names(start: Started, hosted: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SAID)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "module.py").write_text(SAID)
    common = {"name": "__main__", "folder": str(tmp_path), "given": "7", "library": True}
    env = {**hosted, "GIVEN": "7"}
    script = said(start("-u", "script.py", "a", "-u", env=env))
    assert script == {"argv": ["script.py", "a", "-u"], "first": str(tmp_path), **common}
    assert said(start("-c", SAID, "b", env=env)) == {"argv": ["-c", "b"], "first": "", **common}
    assert said(start("-", "c", env=env, stdin=subprocess.PIPE), SAID) == {"argv": ["-", "c"], "first": "", **common}
    module = said(start("-m", "sub.module", "d", env=env))
    assert module == {"argv": [str(tmp_path / "sub" / "module.py"), "d"], "first": str(tmp_path), **common}


def test_what_is_imported_is_imported_once(start: Started, libraries: Path) -> None:
    for process in [start("-c", "import library, own") for _ in range(3)]:
        assert process.wait(60) == 0
    assert (libraries / "imports").read_text() == "."


@pytest.mark.parametrize(
    ("code", "ended", "printed"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no room')", 1, "no room\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import os; os.kill(os.getpid(), 15)", -15, ""),
    ],
)
def test_who_asks_ends_as_the_fork_does(start: Started, code: str, ended: int, printed: str) -> None:
    process = start("-c", code)
    assert process.communicate(timeout=60)[1] == printed
    assert process.returncode == ended


def test_an_error_is_printed_and_what_was_left_to_the_end_is_done(start: Started) -> None:
    process = start("-c", "import atexit; atexit.register(print, 'at the end'); print('begun'); 1 / 0")
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("begun\nat the end\n", 1)
    assert "ZeroDivisionError" in err


def test_a_signal_is_passed_on(start: Started) -> None:
    code = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(5))\nprint('ready', flush=True)\n"
    process = start("-c", code + "time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 5


def test_a_fork_does_not_outlive_who_asked(start: Started) -> None:
    process = start("-c", "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)")
    assert process.stdout is not None
    fork = int(process.stdout.readline())
    assert fork != process.pid
    process.kill()
    assert gone(fork)


def gone(pid: int) -> bool:
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.1)
    return False


def test_open_files_keep_their_numbers_and_end_with_the_fork(start: Started) -> None:
    reading, writing = os.pipe()
    process = start("-c", f"import os; os.write({writing}, b'through'); print(os.isatty(0))", pass_fds=(writing,))
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        assert file.read() == b"through"
    assert process.wait(60) == 0


def test_files_that_take_each_others_numbers_arrive(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nfrom scaffold.verify.train.trainer_side.imported import place_files\n"
        "pipes = [os.pipe() for _ in range(2)]\nfirst, second = (reading for reading, _ in pipes)\n"
        "for number, (_, writing) in enumerate(pipes):\n    os.write(writing, b'%d' % number)\n"
        "place_files([first, second], [second, first])\nprint(os.read(first, 1), os.read(second, 1))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "b'1' b'0'\n"
    place_files([], [])


def test_what_multiprocessing_spawns_is_a_fork_too(start: Started, libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "spawning.py").write_text(
        "import multiprocessing, sys\n\n\n"
        "def tell(pipe, number):\n    pipe.send(('library' in sys.modules, number))\n\n\n"
        "if __name__ == '__main__':\n    context = multiprocessing.get_context('spawn')\n"
        "    here, there = context.Pipe()\n    child = context.Process(target=tell, args=(there, 4))\n"
        "    child.start()\n    print(here.recv())\n    child.join()\n    print(child.exitcode)\n"
    )
    process = start("spawning.py")
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("(True, 4)\n0\n", 0), err
    assert (libraries / "imports").read_text() == "."


def test_forks_draw_numbers_of_their_own(start: Started) -> None:
    code = "import json, random, numpy, torch\n"
    code += "print(json.dumps([random.random(), numpy.random.rand(), float(torch.rand(1))]))"
    first, second = (json.loads(start("-c", code).communicate(timeout=60)[0]) for _ in range(2))
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_patches_say_what_the_run_does_not_the_host(start: Started, hosted: dict[str, str], libraries: Path) -> None:
    (libraries / "ray" / "runtime_context.py").write_text(
        "class RuntimeContext:\n    def get_job_id(self):\n        return '01'\n"
    )
    code = "from ray.runtime_context import RuntimeContext; print(RuntimeContext().get_job_id())"
    process = start("-c", code, env={**hosted, "OMNI_SCAFFOLD_TRAIN_RUN": "ab"})
    assert process.communicate(timeout=60)[0] == "01ab\n"


def test_settings_that_ray_has_read_are_those_of_the_fork(start: Started, hosted: dict[str, str]) -> None:
    process = start(
        "-c", "from ray._raylet import Config; print(Config.mode)", env={**hosted, "RAY_AUTH_MODE": "token"}
    )
    assert process.communicate(timeout=60)[0] == "token\n"


def test_a_worker_of_another_job_is_no_fork(start: Started, hosted: dict[str, str]) -> None:
    code = "import os, sys; print(os.environ.get('RAY_JOB_ID'), 'numpy' in sys.modules)"
    for job, wanted in (("01000000", "01000000 True\n"), ("02000000", "02000000 False\n")):
        assert start("-c", code, env={**hosted, "RAY_JOB_ID": job}).communicate(timeout=60)[0] == wanted
    assert start("-c", code).communicate(timeout=60)[0] == "None True\n"


def test_nothing_outlives_a_run(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "HOST", libraries / "host.py")
    given = variables(libraries)
    quiet = "start_new_session=True, stdout=subprocess.DEVNULL"
    code = f"import subprocess; p = subprocess.Popen(['sleep', '60'], {quiet}); print(p.pid)"
    with hosting.hosting():
        with of_host(Path(sys.executable), tmp_path, tmp_path, given, Event()) as more:
            found = subprocess.run(
                ["python3", "-c", code], env={**given, **more}, stdout=subprocess.PIPE, text=True, check=True
            )
            left = int(found.stdout)
            assert Path(f"/proc/{left}").exists()
        assert gone(left)


@pytest.mark.parametrize(
    ("own", "library"),
    [
        ("raise RuntimeError('a package that cannot be imported')", ""),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()", ""),
        ("", "import os\nos._exit(4)"),
    ],
)
def test_where_imports_fail_every_process_imports_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, library: str
) -> None:
    libraries = laid(tmp_path, own)
    (libraries / "library.py").write_text(library)
    monkeypatch.setattr(hosting, "HOST", libraries / "host.py")
    with hosting.hosting(), of_host(Path(sys.executable), tmp_path, tmp_path, variables(libraries), Event()) as more:
        assert more == {}


def test_a_run_outside_of_the_block_has_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "_hosts", None)
    with of_host(Path(sys.executable), tmp_path, tmp_path, variables(tmp_path), Event()) as more:
        assert more == {}


def test_only_a_module_that_is_not_there_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "leaning.py").write_text("import not_installed_here\n")
    imported(["not_installed_here", "not_installed_here.below"])
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        imported(["leaning"])


@pytest.mark.parametrize(
    ("arguments", "forked"),
    [
        (["-m", "verl_omni.trainer.main_diffusion"], True),
        (["-c", "pass", "--multiprocessing-fork"], True),
        (["-u", "/env/ray/_private/workers/default_worker.py", "--node-ip-address"], True),
        (["/env/ray/_private/workers/setup_worker.py"], True),
        (["-u", "/env/ray/dashboard/agent.py"], False),
        (["-I", "script.py"], False),
        (["-"], True),
        ([], False),
    ],
)
def test_which_command_lines_are_forked(arguments: list[str], forked: bool) -> None:
    assert is_forked(arguments) is forked
