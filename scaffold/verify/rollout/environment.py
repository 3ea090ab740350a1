"""Virtual environments in which the real vllm-omni and the real trainer run on a CPU: ``omni-scaffold env``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import copy_tree, expanded, read_text
from scaffold.limits import child_process
from scaffold.terminal.progress import announce, step
from scaffold.upstream import locate
from scaffold.upstream.builds import base_of, build_folder, is_own
from scaffold.upstream.cache import cache_root
from scaffold.upstream.pip import is_unreachable
from scaffold.upstream.source import PACKAGE
from scaffold.verify.child.contained import run_contained
from scaffold.verify.rollout.pins import Pins, known_versions, nearest_version, read_pins
from scaffold.verify.rollout.platform_plugin import install_plugin, plugin_digest

# Folder of an environment made elsewhere; what is in it is not checked.
OVERRIDE = "OMNI_SCAFFOLD_ROLLOUT_ENV"
BOOT = Path(__file__).resolve().parent / "engine_side" / "boot.py"
MARKER = "omni-scaffold.json"
BELOW = "below.pth"

Runner = Callable[[list[str]], None]


@dataclass(frozen=True)
class Environment:
    """A virtual environment that is there; ``version`` of vllm-omni."""

    folder: Path
    version: str

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return _python(self.folder)

    @property
    def site_packages(self) -> Path:
        """The folder that holds ``vllm_omni/``.

        Raises:
            ScaffoldError: it does not.
        """
        for candidate in sorted(self.folder.glob("lib/python3.*/site-packages")):
            if (candidate / "vllm_omni" / "__init__.py").is_file():
                return candidate
        raise ScaffoldError(f"{self.folder} holds no vllm-omni", hint="build it again with --force")

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Folders that its interpreter imports from, its own first: that of a build of one's own lies over another."""
        own = sorted(self.folder.glob("lib/python3.*/site-packages"))
        named = [Path(line) for folder in own for file in folder.glob(BELOW) for line in read_text(file).splitlines()]
        return (*own, *named)


def environment_folder(version: str) -> Path:
    """Where the environment of a version is kept: in the cache, unless ``$OMNI_SCAFFOLD_ROLLOUT_ENV`` names one.

    A name with ``{version}`` in it serves several versions.
    """
    if is_overridden():
        return expanded(os.environ[OVERRIDE].replace("{version}", version)).absolute()
    return cache_root() / f"rollout-{version}"


def is_overridden() -> bool:
    """Whether the user names environments made elsewhere."""
    return bool(os.environ.get(OVERRIDE))


def build_command(version: str) -> str:
    """The command that builds the environment of a version."""
    return f"omni-scaffold env rollout --vllm-omni {version}"


def find_environment(version: str) -> Environment | str:
    """Return the environment of a version, or why there is none to use."""
    folder = environment_folder(version)
    if is_overridden():
        found = Environment(folder, version)
        return found if found.python.is_file() else f"${OVERRIDE} names {folder}, which is not a virtual environment"
    command = build_command(version)
    if is_own(version):
        return _find_own(folder, version, command)
    if version not in known_versions() or not (folder / MARKER).is_file():
        return f"the rollout environment of vllm-omni {version} is not built; run: {command}"
    try:
        expected = _expected(read_pins(version))
    except ScaffoldError as error:
        return f"{error.message}; run: {command}"
    if not _python(folder).exists() or _marker(folder) != expected:
        return f"the rollout environment of vllm-omni {version} is out of date; run: {command}"
    return Environment(folder, version)


def build_environment(version: str, *, force: bool = False, run: Runner | None = None) -> Environment:
    """Build the environment of a version unless it is there; an interrupted build leaves nothing that looks whole.

    Args:
        version: one that has a requirement set.
        force: build it again.
        run: runs one command; by default a child process whose failure is an error.

    Raises:
        ScaffoldError: no requirement set, or a step failed; the message names it.
    """
    if is_own(version):
        return _build_own(version, force=force, run=run)
    pins = read_pins(version)
    if is_overridden():
        raise ScaffoldError(f"${OVERRIDE} is set, so no environment is built", hint=f"unset {OVERRIDE}")
    folder = cache_root() / f"rollout-{version}"
    found = find_environment(version)
    if isinstance(found, Environment) and not force:
        return found
    with alone(folder):
        if not force and _has_pins(folder, pins):
            finish(folder, pins)
            return Environment(folder, version)
        # A virtual environment cannot be moved, so it is built where it will be; the marker makes it whole.
        discard(folder)
        try:
            install(folder, pins, run)
        except BaseException:
            discard(folder)
            raise
        finish(folder, pins)
    return Environment(folder, version)


def _find_own(folder: Path, version: str, command: str) -> Environment | str:
    """The environment of a build of somebody's own, which stands on the one of the nearest release."""
    below = find_environment(nearest_version(base_of(version)))
    if isinstance(below, str):
        return f"the rollout environment of vllm-omni {version} is not built; run: {command}"
    if not _python(folder).exists() or _marker(folder) != _expected_own(version, below):
        return f"the rollout environment of vllm-omni {version} is not built or out of date; run: {command}"
    return Environment(folder, version)


def _build_own(version: str, *, force: bool, run: Runner | None) -> Environment:
    """Build it: its packages are the build's, all else is read from the environment of the nearest release.

    Raises:
        ScaffoldError: this machine has not kept the build, or a step failed.
    """
    source = locate(version)
    found = find_environment(version)
    if isinstance(found, Environment) and not force:
        return found
    below = build_environment(nearest_version(base_of(version)), run=run)
    folder = environment_folder(version)
    with alone(folder), in_use(below):
        discard(folder)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            (run or _run)([sys.executable, "-m", "venv", "--without-pip", str(folder)])
            libraries = next(folder.glob("lib/python3.*/site-packages"))
            (libraries / BELOW).write_text(f"{below.site_packages}\n", encoding="utf-8")
            copy_tree(below.site_packages / PACKAGE, libraries / PACKAGE, skip=("__pycache__",))
            for package in source.packages if (build_folder(version) / PACKAGE).is_dir() else source.packages[1:]:
                shutil.rmtree(libraries / package, ignore_errors=True)
                source.copy(package, libraries)
            marker = folder / MARKER
            marker.write_text(json.dumps(_expected_own(version, below), indent=2) + "\n", encoding="utf-8")
        except BaseException:
            discard(folder)
            raise
    return Environment(folder, version)


def _expected_own(version: str, below: Environment) -> dict[str, str]:
    return {"version": version, "below": str(below.folder), "pins": read_pins(below.version).fingerprint}


def discard(folder: Path) -> None:
    """Remove an environment; one that is killed on the way leaves nothing that looks whole."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def _has_pins(folder: Path, pins: Pins) -> bool:
    """Whether a whole environment is there whose libraries are the right ones; its plugin may be older."""
    marker = _marker(folder)
    return _python(folder).exists() and isinstance(marker, dict) and marker.get("pins") == pins.fingerprint


def finish(folder: Path, pins: Pins) -> None:
    """Put the plugin in and write the marker, which makes an environment whole."""
    install_plugin(next(folder.glob("lib/python3.*/site-packages")))
    marker = folder / (MARKER + ".tmp")
    marker.write_text(json.dumps(_expected(pins), indent=2) + "\n", encoding="utf-8")
    marker.replace(folder / MARKER)


def install(folder: Path, pins: Pins, run: Runner | None = None) -> None:
    """Make a virtual environment and install a requirement set; whoever calls removes what a failure leaves.

    Args:
        folder: where it will be; nothing is there.
        pins: what to install.
        run: runs one command; by default a child process whose failure is an error.

    Raises:
        ScaffoldError: a step failed; the message names it.
    """
    run = run or _run
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-m", "venv", str(folder)])
    python = str(_python(folder))
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pins.constraints) + "\n", encoding="utf-8")
    pip = [python, "-m", "pip", "install", "-vv", "--disable-pip-version-check"]
    for number, part in enumerate(pins.steps, 1):
        how = ["--constraint", str(constraints)] if part.dependencies else ["--no-deps"]
        announce(f"vllm-omni {pins.version}, {number} of {len(pins.steps)}: {part.why}")
        with step(f"environment of vllm-omni {pins.version}: installing"):
            run([*pip, *how, *part.requirements])
    with step(f"environment of vllm-omni {pins.version}: importing {', '.join(pins.probe)}"):
        run([python, str(BOOT), "--probe", *pins.probe])
    install_plugin(next(folder.glob("lib/python3.*/site-packages")))


def _expected(pins: Pins) -> dict[str, str]:
    return {"version": pins.version, "pins": pins.fingerprint, "plugin": plugin_digest()}


def _marker(folder: Path) -> object:
    try:
        return json.loads(read_text(folder / MARKER))
    except (OSError, ValueError):
        return None


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(command: list[str]) -> None:
    done = run_contained(command, seconds=None, variables=child_process.environment())
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        told = [line for line in lines if line.upper().startswith("ERROR")] or lines
        if "pip" in command and is_unreachable(done.stdout):
            raise ScaffoldError(
                "building the rollout environment failed: a package index is down or cannot be reached",
                hint="see `pip config list`, or try again where it can be reached",
            )
        shown = " ".join(command[1:6])
        why = told[-1] if told and done.returncode > 0 else f"it was {child_process.told_ending(done.returncode)}"
        raise ScaffoldError(f"building the rollout environment failed at `{shown} …`: {why}")


@contextlib.contextmanager
def in_use(environment: Environment) -> Iterator[None]:
    """Inside of the block nobody builds the environment anew, which would take its libraries away.

    Raises:
        ScaffoldError: it is being built.
    """
    if is_overridden():
        yield
        return
    with _locked(environment.folder, alone=False):
        yield


def alone(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Only one process builds a folder at a time, and none while it is used; another is told so."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return _locked(folder, alone=True)


@contextlib.contextmanager
def _locked(folder: Path, *, alone: bool) -> Iterator[None]:
    import fcntl

    with folder.with_name(folder.name + ".lock").open("w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError:
            doing = "used or built" if alone else "being built"
            raise ScaffoldError(f"{folder} is {doing} by another process", hint="wait for it") from None
        yield
