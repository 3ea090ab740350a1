"""A report of a release is kept for that wheel, that tool and its owner; whatever else lies there is no answer."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaffold import limits
from scaffold.checkpoint import read_manifest
from scaffold.files.resources import PACKAGE_ROOT, presets_root
from scaffold.inspect import Report, engine, inspect_pipeline, report_cache
from scaffold.inspect.facts import Fact
from scaffold.inspect.report_cache import CachedReport
from scaffold.upstream import UpstreamSource, locate

VERSION = "9.9.0"
PIPELINE = "MadeUpPipeline"
FILES = {
    "vllm_omni/__init__.py": "",
    "vllm_omni/diffusion/registry.py": (
        '_DIFFUSION_MODELS = {"MadeUpPipeline": ("made_up", "pipeline", "MadeUpPipeline")}\n'
    ),
    "vllm_omni/diffusion/models/made_up/pipeline.py": (
        "from torch import nn\n\n\nclass MadeUpPipeline(nn.Module):\n    def forward(self, req):\n        return req\n"
    ),
}


def put(cache: Path, files: dict[str, str] = FILES) -> Path:
    """Put a wheel of the version into a cache, as if it had been fetched."""
    path = cache / "wheels" / f"vllm_omni-{VERSION}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
    return path


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with one release in it, asked by the console script."""
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(limits, "MAY_CACHE", True)
    put(tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def entry(cache: Path) -> CachedReport:
    """The entry of the release's pipeline, written."""
    inspect_pipeline(locate(VERSION), PIPELINE)
    return CachedReport(locate(VERSION), PIPELINE)


def never(*_: object) -> Report:
    raise AssertionError("the source is read again")


def test_a_checkpoint_is_put_into_what_is_kept(entry: CachedReport, monkeypatch: pytest.MonkeyPatch) -> None:
    found = inspect_pipeline(locate(VERSION), PIPELINE)
    entry.write(replace(found, facts={**found.facts, "answers.checkpoint.files": Fact(["a", "*.safetensors"])}))
    monkeypatch.setattr(engine, "answer_all", never)
    headers = read_manifest(presets_root() / "manifests/bagel-7b-mot.ema.json")
    asked = inspect_pipeline(locate(VERSION), PIPELINE, headers)
    assert asked.headers is headers
    assert asked.value("checkpoint.files") == ["a", *(file.name for file in headers.files)]
    assert inspect_pipeline(locate(VERSION), PIPELINE).value("checkpoint.files") == ["a", "*.safetensors"]


def test_what_is_kept_is_what_was_found(entry: CachedReport, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(limits, "MAY_CACHE", False)
        found = inspect_pipeline(locate(VERSION), PIPELINE)
    monkeypatch.setattr(engine, "answer_all", never)
    again = inspect_pipeline(locate(VERSION), PIPELINE)
    assert again == found
    assert [*again.facts] == [*found.facts]
    assert json.dumps(again.to_json()) == json.dumps(found.to_json())


def test_another_wheel_of_the_version_is_read(entry: CachedReport, cache: Path) -> None:
    text = FILES["vllm_omni/diffusion/models/made_up/pipeline.py"]
    put(cache, {**FILES, "vllm_omni/diffusion/models/made_up/pipeline.py": f"# moved\n{text}"})
    assert CachedReport(locate(VERSION), PIPELINE).read() is None
    moved = inspect_pipeline(locate(VERSION), PIPELINE)
    assert moved != entry.read()


@pytest.mark.parametrize(
    "name", ["inspect/questions/cfg.py", "source/scopes.py", "limits/bounded.py", "inspect/diffusers_exports.json"]
)
def test_an_edit_of_the_tool_asks_again(
    entry: CachedReport, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = shutil.copytree(PACKAGE_ROOT, tmp_path / "scaffold", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(report_cache, "PACKAGE_ROOT", copy)
    try:
        report_cache._tool.cache_clear()
        assert CachedReport(locate(VERSION), PIPELINE).read() is not None
        (copy / name).write_text((copy / name).read_text() + "\n")
        report_cache._tool.cache_clear()
        assert CachedReport(locate(VERSION), PIPELINE).read() is None
    finally:
        report_cache._tool.cache_clear()


def test_every_module_that_answers_has_a_part_in_the_digest(cache: Path, scaffold_child: Callable[..., Any]) -> None:
    sources(cache)
    code = "import sys\nfrom scaffold.inspect import inspect_pipeline\nfrom scaffold.upstream import locate\n"
    code += f"inspect_pipeline(locate(sys.argv[1]), {PIPELINE!r}).to_json()\nprint(*sys.modules)"
    names = scaffold_child(cache.parent / "folder", code=code).success().split()
    rooms = {name.split(".")[1] for name in names if name.count(".") > 1 and name.startswith("scaffold.")}
    assert "inspect" in rooms
    assert rooms <= {*report_cache._EVERYWHERE, *report_cache._ROOMS}
    # What an environment imports at every start is no answer's.
    apart = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True)
    known = {name.partition(".")[0] for name in apart.stdout.split()}
    assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, *known, "scaffold"}


def damages() -> dict[str, Callable[[Path], object]]:
    """Return what may become of an entry: what happens to its file."""

    def whole(path: Path, body: str) -> None:
        identity = path.read_text().split()[0]
        path.write_text(f"{identity} {hashlib.sha256(body.encode()).hexdigest()}\n{body}")

    return {
        "cut": lambda path: path.write_text(path.read_text()[:-9]),
        "one letter": lambda path: path.write_text(path.read_text().replace(PIPELINE, "OtherPipeline", 1)),
        "empty": lambda path: path.write_text(""),
        "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
        "of another tool": lambda path: path.write_text("x" + path.read_text()[1:]),
        "no JSON": lambda path: whole(path, "{"),
        "no report": lambda path: whole(path, '{"facts": []}'),
        "too deep": lambda path: whole(path, "[" * 100_000),
        "others may write it": lambda path: path.chmod(0o666),
        "others may write beside it": lambda path: path.parent.chmod(0o777),
    }


@pytest.mark.parametrize("damage", damages())
def test_anything_else_is_passed_over(entry: CachedReport, damage: str) -> None:
    right = entry.read()
    assert right is not None
    damages()[damage](entry.place)
    assert entry.read() is None
    assert inspect_pipeline(locate(VERSION), PIPELINE) == right
    if damage != "others may write beside it":
        assert entry.read() == right


def test_a_link_is_passed_over(entry: CachedReport, tmp_path: Path) -> None:
    moved = entry.place.rename(tmp_path / "elsewhere.json")
    entry.place.symlink_to(moved)
    assert entry.read() is None


def test_only_its_owner_reads_it(entry: CachedReport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert entry.read() is None


def test_one_that_another_user_puts_there_on_the_way_is_passed_over(
    entry: CachedReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is open is asked whose it is; here one that others may write takes its place meanwhile."""
    forged = Path(shutil.copy(entry.place, tmp_path / "forged"))
    forged.chmod(0o666)
    real = os.open

    def swapping(path: object, *arguments: object, **options: object) -> int:
        if str(path).endswith(entry.place.name) and forged.exists():
            forged.replace(entry.place)
        return real(path, *arguments, **options)  # type: ignore[arg-type]

    assert entry.read() is not None
    monkeypatch.setattr(os, "open", swapping)
    assert entry.read() is None
    assert not forged.exists()


def sources(cache: Path) -> list[UpstreamSource]:
    """Return what may change, or was not fetched: a folder, and a wheel that somebody names."""
    folder = cache.parent / "folder"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    named = shutil.copy(next((cache / "wheels").glob("*.whl")), cache.parent)
    return [locate(str(folder)), locate(str(named))]


def test_what_may_change_is_not_kept(cache: Path) -> None:
    for source in sources(cache):
        inspect_pipeline(source, PIPELINE)
    assert not (cache / "reports").exists()


def test_a_process_of_others_keeps_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAY_CACHE", False)
    inspect_pipeline(locate(VERSION), PIPELINE)
    assert not (cache / "reports").exists()


@pytest.mark.parametrize("value", [(1, 2), {1: "a"}, float("nan"), {"deep": [{"er": ()}]}, Path("x")])
def test_what_json_would_change_is_not_kept(entry: CachedReport, value: object) -> None:
    report = inspect_pipeline(locate(VERSION), PIPELINE)
    entry.place.unlink()
    entry.write(replace(report, facts={**report.facts, "detail.made_up": Fact(value)}))
    assert not entry.place.exists()


def test_what_a_limit_of_time_may_have_cut_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_cache, "SECONDS", 0)
    inspect_pipeline(locate(VERSION), PIPELINE)
    assert CachedReport(locate(VERSION), PIPELINE).read() is None


def test_a_cache_that_cannot_be_written_is_no_error(cache: Path) -> None:
    (cache / "reports").write_text("in the way")
    assert inspect_pipeline(locate(VERSION), PIPELINE).upstream.version == VERSION


def test_a_report_of_a_question_that_failed_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(program: object) -> dict[str, Fact]:
        raise ValueError("too slow")

    monkeypatch.setattr(engine.questions()[0], "answers", failing)
    assert inspect_pipeline(locate(VERSION), PIPELINE).failures
    assert CachedReport(locate(VERSION), PIPELINE).read() is None
