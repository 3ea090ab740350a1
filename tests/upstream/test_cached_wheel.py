"""A cached wheel is used only as it was fetched; an index that is away, a damaged wheel and a real absence differ."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.upstream.fetch import fetch_wheel
from scaffold.upstream.pip import failure, newest_release

NAME = "vllm_omni-0.98.0-py3-none-any.whl"
Index = Callable[[], int]


def wheel(path: Path, text: str = "x = 1\n") -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("vllm_omni/__init__.py", "vllm_omni/a.py"):
            archive.writestr(name, text * 100)
        metadata = "vllm_omni-0.98.0.dist-info"
        archive.writestr(f"{metadata}/METADATA", "Metadata-Version: 2.1\nName: vllm-omni\nVersion: 0.98.0\n")
        archive.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{metadata}/RECORD", "")
    return path.read_bytes()


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep pip away from every index and its settings, in a cache of its own."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("OMNI_SCAFFOLD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Serve a folder as a package index that has version 0.98.0."""
    folder = tmp_path / "index"
    wheel(folder / "simple/vllm-omni" / NAME)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            answer = folder / "answer"
            if answer.is_file():
                self.send_error(int(answer.read_text()))
            else:
                super().do_GET()

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    yield folder
    server.shutdown()
    server.server_close()


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    return tmp_path / "cache/wheels" / NAME


def refusal() -> ScaffoldError:
    with pytest.raises(ScaffoldError) as caught:
        fetch_wheel("vllm-omni", "0.98.0")
    assert "\n" not in caught.value.line
    return caught.value


def test_digest_is_stored_in_the_form_of_sha256sum(index: Path, cached: Path) -> None:
    assert fetch_wheel("vllm-omni", "0.98.0") == cached
    digest = hashlib.sha256(cached.read_bytes()).hexdigest()
    assert cached.with_name(NAME + ".sha256").read_text() == f"{digest}  {NAME}\n"
    subprocess.run(["sha256sum", "--check", NAME + ".sha256"], cwd=cached.parent, check=True, capture_output=True)
    assert sorted(path.name for path in cached.parent.iterdir()) == [NAME, NAME + ".sha256"]
    cached.write_bytes(b"damaged")
    assert fetch_wheel("vllm-omni", "0.98.0") == cached
    assert hashlib.sha256(cached.read_bytes()).hexdigest() == digest


def beside(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(path.read_bytes()[:60] + b"\0" + path.read_bytes()[61:]),
    "another wheel": lambda path: wheel(path, "evil = 1\n"),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path: (path.unlink(), path.mkdir(), (path / "a").write_bytes(b"x")),
    "folder for a digest": lambda path: (beside(path).unlink(), beside(path).mkdir(), path.write_bytes(b"x")),
    "empty digest": lambda path: beside(path).write_bytes(b""),
    "digest of gigabytes": lambda path: os.truncate(beside(path), 3 << 30),
    "truncated, without a digest": lambda path: (beside(path).unlink(), path.write_bytes(path.read_bytes()[:-100])),
    "no digest": lambda path: path.with_name(path.name + ".sha256").write_bytes(b"\xff\xfe"),
}


def away(what: str, *_: object, hint: str, **__: object) -> None:
    """What pip ends in where no index answers; the tests of the index ask it."""
    raise failure(what, "connection broken by 'x'", hint)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_wheel_is_named_or_fetched_again(cached: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = wheel(cached)
    fetch_wheel("vllm-omni", "0.98.0")  # keeps its digest, and asks no index
    DAMAGES[damage](cached)
    monkeypatch.setattr("scaffold.upstream.fetch.run_pip", away)
    error = refusal()
    assert str(cached) in error.message
    assert "is damaged" in error.message or "is not a readable wheel" in error.message
    assert "it was not fetched again" in error.message
    assert "the package index is down or cannot be reached" in error.message
    assert error.hint is not None
    assert "put a whole wheel there" in error.hint

    def download(_: str, arguments: list[str], **__: object) -> None:
        Path(arguments[arguments.index("--dest") + 1], NAME).write_bytes(whole)

    monkeypatch.setattr("scaffold.upstream.fetch.run_pip", download)
    assert fetch_wheel("vllm-omni", "0.98.0") == cached
    assert cached.read_bytes() == whole
    assert sorted(path.name for path in cached.parent.iterdir()) == [NAME, NAME + ".sha256"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "one byte"])
def test_a_wheel_put_there_by_hand_is_read_through(cached: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaffold.upstream.fetch.run_pip", away)
    wheel(cached)
    assert fetch_wheel("vllm-omni", "0.98.0") == cached
    assert cached.with_name(NAME + ".sha256").is_file()
    cached.with_name(NAME + ".sha256").unlink()
    DAMAGES[damage](cached)
    assert str(cached) in refusal().message


def test_a_cache_that_may_not_be_written_serves_what_it_has(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(cached)

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("scaffold.upstream.fetch._store_digest", refuse)
    assert fetch_wheel("vllm-omni", "0.98.0") == cached


def test_index_that_cannot_be_reached(cached: Path) -> None:
    error = refusal()
    assert error.message == "cannot fetch vllm-omni 0.98.0: the package index is down or cannot be reached"
    assert error.hint == f"name a wheel or a folder instead, or put the wheel into {cached.parent}"


def test_version_that_is_not_there(index: Path) -> None:
    with pytest.raises(ScaffoldError) as caught:
        fetch_wheel("vllm-omni", "0.99.0")
    assert caught.value.line == "the package index has no vllm-omni 0.99.0; nearest are 0.98.0"


def test_project_that_is_not_there(index: Path) -> None:
    with pytest.raises(ScaffoldError) as caught:
        fetch_wheel("another-project", "1.0")
    assert caught.value.message == "the package index has no another-project 1.0"
    assert "nor any other release, see `pip config list`" in caught.value.line


@pytest.mark.parametrize("code", [401, 503])
def test_index_that_refuses(index: Path, code: int) -> None:
    (index / "answer").write_text(str(code))
    said = refusal().line
    assert "has no" not in said
    assert (f"answers with error {code}" if code < 500 else "is down or cannot be reached") in said


def test_newest(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert newest_release("vllm-omni") == "0.98.0"
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(
        ScaffoldError, match="cannot fetch vllm-omni of any version: the package index is down or cannot be reached"
    ):
        newest_release("vllm-omni")


@pytest.mark.parametrize(
    ("ask", "variable", "value", "told"),
    [
        (
            lambda: fetch_wheel("vllm-omni", "0.98.0"),
            "PIP_NO_INDEX",
            "1",
            "pip is set to ask no package index",
        ),
        (
            lambda: newest_release("vllm-omni"),
            "PIP_INDEX_URL",
            "http://no-such-host.invalid/simple",
            "pip does not ask no-such-host.invalid, which is not trusted",
        ),
    ],
)
def test_index_that_pip_never_asks_lacks_nothing(
    monkeypatch: pytest.MonkeyPatch, cached: Path, ask: Callable[[], object], variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ScaffoldError) as caught:
        ask()
    assert told in caught.value.line
    assert "has no" not in caught.value.line


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("No module named pip", "this Python has no pip"),
        ("WARNING: Retrying (…) after connection broken by 'x'\nfrom versions: 1.0, 2.0)", "has no"),
        ("WARNING: Retrying (…) after connection broken by 'x'\n(from versions: none)", "cannot be reached"),
        ("(from versions: none)\nERROR: No matching distribution found", "has no vllm-omni 1.5"),
        (
            "0 location(s) to search for versions of a:\nERROR: No matching distribution found",
            "set to ask no package index",
        ),
        (
            "1 location(s) to search for versions of a:\n* b\nERROR: No matching distribution found",
            "has no vllm-omni 1.5",
        ),
        ("Could not fetch URL http://a: 404 Client Error: x\n(from versions: none)", "has no vllm-omni 1.5"),
        ("Could not fetch URL http://a: 403 Client Error: x\n(from versions: none)", "answers with error 403"),
        ("Could not fetch URL http://a: connection error: x\n(from versions: none)", "cannot be reached"),
        ("Could not fetch URL a: 404 Client Error\nCould not fetch URL b: SSL\n", "cannot be reached"),
        ("", "pip failed"),
        ("ERROR: broken\nTraceback\nValueError: x", "ERROR: broken"),
    ],
)
def test_what_pip_prints(output: str, told: str) -> None:
    error = failure("vllm-omni 1.5", output, "do this")
    assert told in error.message
    assert error.hint
