"""``scaffold.lock.toml`` beside ``scaffold.toml``: what is no good is one line, a spec of one file is carried over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli
import tomli_w
from checkout_standins import PACKAGE, snapshot

from scaffold.spec import LOCK_NAME, SPEC_NAME, IntegrationSpec, read_spec
from scaffold.spec.derived import digest
from scaffold.spec.lock import seal

LOCK, SPEC = f"{PACKAGE}/{LOCK_NAME}", f"{PACKAGE}/{SPEC_NAME}"
GOLDEN = "verl_omni/pipelines/bagel_flow_grpo"
DAMAGE: dict[str, tuple[Callable[[str], str | bytes | None], str]] = {
    "missing": (lambda _: None, "has no scaffold.lock.toml beside it"),
    "edited": (lambda text: text.replace('profile = "main"', 'profile = "v0.1.0"'), "is not as omni-scaffold wrote it"),
    "cut": (lambda text: text[: text.index("[files]")], "is not as omni-scaffold wrote it"),
    "merged": (lambda text: f"<<<<<<< here\n{text}", "is not TOML"),
    "nested": (lambda text: f"{text}a = {'[' * 100_000}", "is not TOML: it is nested too deeply"),
    "numbers": (lambda text: f"{text}a = {'9' * 5000}", "is not TOML"),
    "bytes": (lambda _: b"\xff\xfe", "is not UTF-8 text"),
    "newer": (lambda text: seal(text.replace("schema = 2\n", "schema = 3\n")), "has schema 3, this version reads 2"),
    "another": (
        lambda text: seal(text.replace('package = "bagel_flow_grpo"', 'package = "other_flow_grpo"')),
        "belongs to 'other_flow_grpo', scaffold.toml to 'bagel_flow_grpo'",
    ),
    "values": (lambda text: seal(text.replace("[values]\n", "values = [3]\n[valued]\n")), ""),
    "files": (lambda text: seal(text.replace("[files]\n", "[files]\na = 3\n")), "files is not a table of strings"),
    "kind": (lambda text: seal(text.replace("lora_hook = true", "lora_hook = 'yes'")), "target.lora_hook is 'yes'"),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "remove": ("remove",),
    "update": ("update", "--spec"),
    "drift": ("drift", "--to", "0.30.0"),
    "verify": ("verify",),
    "remap": ("remap",),
}


@pytest.fixture
def golden(reference: Path, tmp_path: Path) -> Path:
    copy = Path(shutil.copytree(reference, tmp_path / "golden", symlinks=True))
    for path in copy.rglob("*"):
        if path.is_file() and not path.is_symlink():  # whatever the umask was under which git wrote it
            path.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    return copy


def damage(root: Path, name: str) -> str:
    change, said = DAMAGE[name]
    lock = root / GOLDEN / LOCK_NAME
    content = change(lock.read_text())
    lock.unlink()
    if content is not None:
        lock.write_bytes(content if isinstance(content, bytes) else content.encode())
    return said


@pytest.mark.parametrize("name", DAMAGE)
def test_a_lock_that_is_no_good_is_one_line(scaffold_cli: Callable[..., Any], golden: Path, name: str) -> None:
    said = damage(golden, name)
    before = snapshot(golden)
    line = scaffold_cli("update", golden / GOLDEN, "--spec").refusal(2)
    assert said in line
    assert LOCK_NAME in line or name == "kind"
    assert "restore it with git" in line or name in ("kind", "files")
    assert snapshot(golden) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["missing", "edited", "another"])
def test_every_command_says_it(scaffold_cli: Callable[..., Any], golden: Path, command: str, name: str) -> None:
    said = damage(golden, name)
    first, *more = COMMANDS[command]
    line = scaffold_cli(first, golden / GOLDEN, *more).refusal(2)
    assert said in line
    assert "restore it with git" in line


@pytest.mark.parametrize("name", ["missing", "edited", "another", "merged", "bytes"])
def test_check_finds_it(scaffold_cli: Callable[..., Any], golden: Path, name: str) -> None:
    said = damage(golden, name)
    outcome = scaffold_cli("check", golden / GOLDEN, "--select", "OSC001")
    assert outcome.code == 1
    assert "OSC001" in outcome.out
    assert said.removesuffix(" text") in outcome.out or name == "bytes"


@pytest.mark.parametrize("command", ["remove", "verify"])
def test_a_lock_is_read_inside_its_tree_alone(
    scaffold_cli: Callable[..., Any], golden: Path, tmp_path: Path, command: str
) -> None:
    lock = golden / GOLDEN / LOCK_NAME
    shutil.move(lock, tmp_path / LOCK_NAME)
    lock.symlink_to(tmp_path / LOCK_NAME)
    assert "is a link that leads out of its tree" in scaffold_cli(command, golden / GOLDEN).refusal(2)
    lock.unlink()
    os.mkfifo(lock)
    assert "has no scaffold.lock.toml beside it" in scaffold_cli(command, golden / GOLDEN).refusal(2)


def test_new_takes_a_spec_with_its_lock(scaffold_cli: Callable[..., Any], golden: Path, tmp_path: Path) -> None:
    spec = tmp_path / "edited.toml"
    shutil.copy(golden / GOLDEN / SPEC_NAME, spec)
    new = ("new", "bagel", "--spec", spec, "--patch", "--out", tmp_path / "out")
    assert "edited.toml has no scaffold.lock.toml beside it" in scaffold_cli(*new).refusal(2)
    shutil.copy(golden / GOLDEN / LOCK_NAME, tmp_path / "scaffold.lock")
    assert "rename scaffold.lock" in scaffold_cli(*new).refusal(2)
    (tmp_path / "scaffold.lock").rename(tmp_path / LOCK_NAME)
    scaffold_cli(*new).success()
    assert snapshot(tmp_path / "out") == snapshot(golden)


def test_a_value_by_hand_goes_before_the_locks_and_stays(reference_spec: IntegrationSpec) -> None:
    text = f'{reference_spec.to_toml()}\n[target]\nrollout_result = "custom_output"\n'
    spec = IntegrationSpec.from_toml(text, lock=reference_spec.to_lock())
    assert spec.value("target.rollout_result") == "custom_output"
    assert spec.value("target.profile") == reference_spec.value("target.profile")
    assert '\n[target]\nrollout_result = "custom_output"\n' in spec.to_toml()
    assert "rollout_result" not in spec.to_lock().partition("[rendered]")[0]


def test_a_lock_that_says_all_by_name_is_read_as_the_shorter_one(reference_spec: IntegrationSpec) -> None:
    toml, lock = reference_spec.to_files()
    document = tomli.loads(lock)
    del document["digest"]
    document |= {"schema": 1, "provenance": dict(reference_spec.provenance), "derived": dict(reference_spec.derived)}
    longer = seal(tomli_w.dumps(document))
    assert IntegrationSpec.from_toml(toml, lock=longer) == IntegrationSpec.from_toml(toml, lock=lock)


def test_a_value_by_hand_stays_one_when_it_was_rendered(reference_spec: IntegrationSpec) -> None:
    text = reference_spec.to_toml().replace("noise_level = 0.7 ", "noise_level = 0.5 ")
    spec = IntegrationSpec.from_toml(text, lock=reference_spec.to_lock())
    again = IntegrationSpec.from_toml(spec.to_toml(), lock=spec.to_lock())
    assert again.value("recipe.noise_level") == 0.5
    assert again.derived["recipe.noise_level"] == reference_spec.derived["recipe.noise_level"] != digest(0.5)


def one_file(path: Path) -> str:
    """Return the spec as older versions of the tool wrote it, everything in one file."""
    spec = read_spec(path).spec
    document = {"schema": 1, "not_established": [], **spec.sections}
    for name in ("provenance", "derived", "files"):
        document[name] = dict(getattr(spec, name))
    return seal(tomli_w.dumps(document, multiline_strings=False))


@pytest.mark.upstream
@pytest.mark.parametrize("commented", [False, True])
def test_a_spec_of_one_file_is_carried_over(
    output: Callable[..., Path], scaffold_cli: Callable[..., Any], tmp_path: Path, commented: bool
) -> None:
    fresh = output("0.27.0rc1")
    out = Path(shutil.copytree(fresh, tmp_path / "out", symlinks=True))
    text = one_file(out / SPEC)
    assert len(text.splitlines()) > 1000
    (out / LOCK).unlink()
    (out / SPEC).write_text(text.replace("noise_level = 0.7\n", "noise_level = 0.7  # mine\n") if commented else text)
    scaffold_cli("remove", out, "--dry-run", *(["--force"] if commented else [])).success()
    scaffold_cli("update", out).success()
    assert read_spec(out / SPEC).spec == read_spec(fresh / SPEC).spec
    assert ("noise_level = 0.7  # mine\n" in (out / SPEC).read_text()) == commented
    assert len((out / SPEC).read_text().splitlines()) < (200 if commented else 120)
    rest, wanted = snapshot(out), snapshot(fresh)
    for path in (SPEC, LOCK):  # the order of keys is that of the older file
        del rest[path], wanted[path]
    assert rest == wanted
    assert "nothing to do" in scaffold_cli("update", out).success()


def test_the_golden_has_little_to_read(reference: Path) -> None:
    assert len((reference / GOLDEN / SPEC_NAME).read_text().splitlines()) <= 120
