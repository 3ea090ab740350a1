"""Fixtures that several rooms share."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parsed_once  # noqa: F401  # first: it makes what others import
import pytest
from installed import require
from killed import killed_at_step
from shared_answers import SharedAnswers
from warm_python import WarmPython

from scaffold.checkpoint import TensorHeader
from scaffold.files.resources import RUNTIME, kit_root
from scaffold.render import render
from scaffold.spec import IntegrationSpec, read_spec
from scaffold.upstream import locate
from scaffold.verify.rollout.forking import Servers, forking
from scaffold.verify.rollout.pins import packaged_versions

# Journals of trees without git.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="omni-scaffold-tests-")
# Presets and templates of whoever runs the tests would go before the packaged ones.
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.environ["XDG_STATE_HOME"], "no-config")  # noqa: PTH118
# The day of the golden output.
os.environ["SOURCE_DATE_EPOCH"] = "1787356800"
# Modules of a few thousand parameters only lose time to more threads, and workers share the processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test ends with a loss of power; every `new` would wait for the disk fifty times.
os.fsync = lambda descriptor: None

ENGINES = Servers()
ANSWERS = SharedAnswers()
WARM, OTHER_DIFFUSERS = WarmPython(), WarmPython("_OTHER_DIFFUSERS")
REPOSITORY = Path(__file__).resolve().parents[1]
REFERENCE = REPOSITORY / "reference_bagel"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs the newest vllm-omni, and keep together what shares a fixture of a module.

    No release of verl-omni pins the newest, so `make rollout-newest` runs it apart. What a module's tests share would
    be made again in every worker that runs one of them.
    """
    newest = packaged_versions()[-1]
    for item in items:
        fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).values()
        if any(one.scope == "module" for found in fixtures for one in found):
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
        call = getattr(item, "callspec", None)
        if call is not None and newest in call.params.values() and item.get_closest_marker("rollout"):
            item.add_marker(pytest.mark.newest)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the collector from all that is there: it would go through all of torch, and copy it in every fork.

    Raises:
        UsageError: pytest-xdist, asked for groups, makes none, and each worker would compute what a group shares.
    """
    if session.config.getoption("loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        if any("@" not in item.nodeid.rpartition("]")[2] for item in grouped):
            raise pytest.UsageError("this pytest-xdist groups no tests of this pytest; see pyproject.toml")
    _collect()
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Run all tests in one piece of Python's stack.

    Pieces have 16 KiB. Where a frame is the first of a piece, the system maps and unmaps it with each call, which costs
    more than a hundred calls. Behind a frame that takes a mebibyte, the piece has room for a mebibyte of others.
    """
    manager = session.config.pluginmanager
    others = manager.subset_hook_caller("pytest_runtestloop", [manager.get_plugin(__file__)])
    return types.FunctionType(_call.__code__.replace(co_stacksize=1 << 17), {})(others, session)


def _call(loop: Callable[..., object], session: pytest.Session) -> object:
    return loop(session=session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Import the real vllm-omni once a session: processes of the tests that run it, fixtures included, are forks."""
    engines = forking(ENGINES) if item.get_closest_marker("rollout") else contextlib.nullcontext()
    try:
        with engines, ANSWERS.during(item):
            return (yield)
    finally:
        gc.disable()  # a command may have switched it on
        if gc.get_count()[0] > 300_000:
            _collect()


def _collect() -> None:
    """Collect what one test left, once: trees that are kept for the next would be looked through again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """End the processes that have imported it."""
    ENGINES.end()
    ANSWERS.end()
    WARM.end()
    OTHER_DIFFUSERS.end()
    shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture(scope="session")
def reference() -> Path:
    """Return the golden output."""
    return REFERENCE


@pytest.fixture(scope="session")
def self_contained(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the golden output with a package that has everything itself, as one that a person writes has."""
    folder = Path(shutil.copytree(reference, tmp_path_factory.mktemp("self_contained") / "tree", symlinks=True))
    shutil.rmtree(folder / "verl_omni/pipelines" / RUNTIME)
    (package,) = (folder / "verl_omni/pipelines").iterdir()
    for path in (REPOSITORY / "tests/self_contained").glob("*.py"):
        shutil.copy(path, package)
    return folder


@pytest.fixture(scope="session")
def reference_spec(reference: Path) -> IntegrationSpec:
    """Return the spec of the golden output."""
    path = next(reference.glob("verl_omni/pipelines/*/scaffold.toml"))
    return read_spec(path).spec


@pytest.fixture(scope="session")
def lay_out() -> Callable[[tuple[str, ...], Path, Callable[[], object]], None]:
    """Return a function that has a folder as one worker makes it, a copy in the others."""
    return ANSWERS.lay_out


@pytest.fixture(scope="session")
def rendered(scaffold_cli: Callable[..., Outcome], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that gives the tree of a command line of `new`, rendered once a run; nobody changes it."""
    known: dict[tuple[str, ...], Path] = {}

    def render(*arguments: object) -> Path:
        key = tuple(map(str, arguments))
        if key not in known:
            folder = tmp_path_factory.mktemp("rendered") / "out"
            ANSWERS.lay_out(key, folder, lambda: scaffold_cli("new", *key, "--patch", "--out", folder).success())
            known[key] = folder
        return known[key]

    return render


@pytest.fixture
def write_tree() -> Callable[[Path, Mapping[str, Any]], Path]:
    """Return a function that writes rendered files below a folder."""

    def write(root: Path, files: Mapping[str, Any]) -> Path:
        for name, file in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.link_to is not None:
                path.symlink_to(file.link_to)
            else:
                path.write_text(file.content, encoding="utf-8")
        return root

    return write


def load_file(path: Path, name: str) -> types.ModuleType:
    """Import one file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def python_file() -> Callable[[Path, str], types.ModuleType]:
    """Return `load_file`."""
    return load_file


@pytest.fixture(scope="session")
def warm_host() -> Any:
    """Return what starts hosts of `verify` that have torch."""
    require("torch", "peft")
    from warm_host import WarmHost

    return WarmHost(WARM, OTHER_DIFFUSERS)


@pytest.fixture
def warm(warm_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `verify` use the warm host."""
    monkeypatch.setattr("scaffold.verify.host_process.start_host", warm_host.start)


@pytest.fixture(scope="session")
def released_bagel() -> Callable[..., Path]:
    """Return a function that writes the released headers of the golden package's model, changed by name."""
    from dataclasses import replace

    from scaffold.grade.layout import layouts
    from scaffold.verify.loading.run import write_headers

    layout = layouts()["BagelPipeline"]
    released = replace(layout.headers(), configs={name: dict(values) for name, values in layout.configs.items()})

    def write(folder: Path, change: Callable[[TensorHeader], Iterable[TensorHeader]] = lambda entry: (entry,)) -> Path:
        write_headers(replace(released, entries=tuple(new for old in released.entries for new in change(old))), folder)
        return folder

    return write


@pytest.fixture
def training_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[IntegrationSpec], types.ModuleType]:
    """Return a function that renders a spec and imports its training module, on the kit's base class."""
    pytest.importorskip("torch")
    for name in ("verl_omni", "verl_omni.pipelines"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(__file__).resolve().parent / "with_runtime" / name.replace(".", "/"))]
        monkeypatch.setitem(sys.modules, name, package)
    base = "verl_omni.pipelines.non_diffusers_model_base"
    monkeypatch.setitem(sys.modules, base, load_file(kit_root() / (base.replace(".", "/") + ".py"), base))

    def build(spec: IntegrationSpec) -> types.ModuleType:
        names = spec.sections["names"]
        path = f"verl_omni/pipelines/{names['package']}/{names['model']}_model.py"
        target = tmp_path / f"{names['model']}_model.py"
        target.write_text(render(spec)[path].content, encoding="utf-8")
        return load_file(target, f"rendered_{names['model']}")

    return build


def upstream_beside(root: Path) -> dict[str, str]:
    """Stand in for an installed vllm-omni: files that packages below a folder execute, and the variable for them."""
    found: dict[str, str] = {}
    for lock in root.glob("**/scaffold.lock.toml"):
        spec = read_spec(lock.with_name("scaffold.toml")).spec
        for entry in spec.value("port.executed") or []:
            source = locate(str(spec.value("upstream.version")))
            path = root / ".upstream" / entry["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source.read(entry["file"]), encoding="utf-8", newline="")
            found["FLOW_GRPO_UPSTREAM"] = str(root / ".upstream")
    return found


@pytest.fixture
def kit_environment() -> Callable[..., dict[str, str]]:
    """Return a function that gives the environment of a child process in which rendered trees meet the kit."""

    def make(*roots: Path, **extra: str) -> dict[str, str]:
        # Behind the trees: one file of a package alone meets the runtime, too.
        beside = Path(__file__).resolve().parent / "with_runtime"
        for root in roots:
            extra = {**upstream_beside(root), **extra}
        path = os.pathsep.join([str(kit_root()), *map(str, roots), str(beside)])
        return {**os.environ, "PYTHONPATH": path, "LOCAL_RANK": "0", "PYTHONDONTWRITEBYTECODE": "1", **extra}

    return make


@pytest.fixture(scope="session")
def warm_python() -> WarmPython:
    """Return what runs programs of rendered packages where torch and its company are imported already."""
    return WARM


@pytest.fixture(autouse=True)
def _warm_loading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packages load checkpoints in forks that have torch (tests/security starts a real child)."""
    if "strange" not in request.fixturenames:

        def run(command: list[str], variables: dict[str, str]) -> Any:
            return WARM(command[1:], timeout=300.0, env=variables)

        monkeypatch.setattr("scaffold.verify.loading.run.run_child", run)


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    def refusal(self, code: int = 2) -> str:
        """Return the one line of an error; the command must have ended as an error of the user's does."""
        assert self.code == code, f"exit {self.code}\n{self.out[-2000:]}{self.err[-2000:]}"
        assert self.err.startswith("error: "), self.err
        assert self.err.endswith("\n"), self.err
        assert len(self.err.splitlines()) == 1, self.err
        assert self.out == "", self.out
        return self.err.removeprefix("error: ").rstrip("\n")

    def success(self) -> str:
        """Return what was printed; the command must have succeeded in silence on stderr."""
        assert self.code == 0, f"exit {self.code}\n{self.err[-2000:]}"
        assert self.err == "", self.err
        return self.out


@pytest.fixture(scope="session")
def scaffold_cli() -> Callable[..., Outcome]:
    """Return a function that runs a command line as the console script does, in this process."""
    from scaffold.cli import main

    def run(*arguments: object, cwd: Path | None = None) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        code: Any = 0
        before, argv = Path.cwd(), sys.argv
        sys.argv = ["omni-scaffold", *map(str, arguments)]
        os.chdir(cwd or before)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main()
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = argv
            os.chdir(before)
        return Outcome(int(code or 0), out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def scaffold_child() -> Callable[..., Outcome]:
    """Return a function that runs a command line in a process of its own, or Python code with ``code``."""

    def run(
        *arguments: object,
        cwd: Path | None = None,
        umask: int | None = None,
        code: str | None = None,
        path: str = str(REPOSITORY),
        **environment: str | None,
    ) -> Outcome:
        command = [sys.executable, *(["-m", "scaffold"] if code is None else ["-c", code]), *map(str, arguments)]
        merged = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        done = subprocess.run(
            command,
            cwd=cwd,
            env={name: value for name, value in merged.items() if value is not None},
            umask=-1 if umask is None else umask,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


def read_tree(root: Path) -> dict[str, tuple[str, bool, bytes]]:
    """Return kind, executability and content of everything below a folder; links are not followed."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = ("link", False, os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = ("file", os.access(path, os.X_OK), path.read_bytes())
    return found


@pytest.fixture(scope="session")
def tree_of() -> Callable[[Path], dict[str, tuple[str, bool, bytes]]]:
    """Return `read_tree`."""
    return read_tree


@pytest.fixture(scope="session")
def killed_at() -> Callable[[int, Callable[[], object]], bool]:
    """Return `killed_at_step`."""
    return killed_at_step


@pytest.fixture(scope="session")
def upstream_copies() -> types.ModuleType:
    """Return the module that makes altered copies of vllm-omni."""
    return load_file(REPOSITORY / "tests/inspect/altered.py", "upstream_copies")


@pytest.fixture
def upstream(upstream_copies: types.ModuleType, tmp_path: Path) -> Any:
    """Return a writable copy of the default vllm-omni's source."""
    from scaffold.upstream import DEFAULT_VERSION, locate

    return upstream_copies.Copy(locate(DEFAULT_VERSION), tmp_path / "upstream")
