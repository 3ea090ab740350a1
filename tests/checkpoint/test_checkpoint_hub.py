"""Hub repositories, on a small local server that speaks the endpoints the reader calls."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from scaffold.checkpoint import read_checkpoint
from scaffold.errors import ScaffoldError
from scaffold.files.resources import install_command

pytest.importorskip("huggingface_hub")

further = functools.partial(pytest.param, marks=pytest.mark.table)  # one more row of what another row shows
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """One repository, ``o/model``, served from a folder; ``fault`` names what goes wrong."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.fault = ""
        self.token = ""
        self.requests: list[tuple[str, str, str | None]] = []
        self.sent = 0
        self.closing = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent when a client hangs up, as it should."""


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        hub, fault = self.server, self.server.fault
        path = unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, self.headers.get("Range")))
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.reply(401, b"", {"X-Error-Message": "Invalid username or password."})
        if path.startswith("/api/"):
            return self.listing(path)
        found = re.fullmatch(rf"/o/model/resolve/(?:{COMMIT}|main)/(.+)", path)
        file = hub.folder / found.group(1) if found else None
        if file is None or not file.is_file():
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
        size = file.stat().st_size
        weights = file.suffix == ".safetensors"
        headers = {"ETag": f'"{file.name}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if weights and fault == "redirect" and "moved" not in self.path:
            return self.reply(302, b"", {"Location": self.path + "?moved=1", **headers})
        if weights and fault in ("403", "404", "500"):
            return self.reply(int(fault), b"", {})
        if weights and fault == "slow":
            time.sleep(3)
        span = re.fullmatch(r"bytes=0-(\d+)", self.headers.get("Range") or "")
        if not body:
            return self.reply(200, b"", {"Content-Length": str(size), **headers})
        if span and not (weights and fault == "no ranges"):
            last = min(int(span.group(1)), size - 1)
            shown = f"bytes 5-{last}/{size}" if weights and fault == "other range" else f"bytes 0-{last}/{size}"
            if fault == "long range":
                shown = f"bytes 0-{last}/{'9' * 5000}"
            with file.open("rb") as stream:
                content = stream.read(last + 1)
            if weights and fault == "cut":
                content = content[: len(content) // 2]
            return self.reply(206, content, {"Content-Range": shown, **headers})
        return self.stream(file, size, headers)

    def listing(self, path: str) -> None:
        hub, fault = self.server, self.server.fault
        if fault == "slow listing":
            time.sleep(3)
        if fault == "drip":
            return self.drip()
        if fault == "long listing":
            return self.long()
        if fault == "no JSON":
            return self.reply(200, b"<html>", {})
        if fault == "other form":
            return self.reply(200, b"[1]", {})
        if fault == "gated":
            return self.reply(403, b"", {"X-Error-Code": "GatedRepo"})
        if fault == "broken":
            return self.reply(502, b"", {})
        base, _, revision = path.removeprefix("/api/models/").partition("/revision/")
        if base != "o/model":
            return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
        if revision not in ("", "main", "refs/pr/1", COMMIT):
            return self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
        files = [file for file in sorted(hub.folder.rglob("*")) if file.is_file()]
        siblings = [{"rfilename": str(f.relative_to(hub.folder)), "size": f.stat().st_size} for f in files]
        if fault == "escape":
            siblings.append({"rfilename": "../evil.json", "size": 2})
        if fault == "many shards":
            siblings = [{"rfilename": f"m-{n}.safetensors", "size": 99} for n in range(60_000)]
        if fault == "large":
            siblings = [one | {"size": 10**4000 - 1} if "safetensors" in str(one) else one for one in siblings]
        if fault == "no sizes":
            siblings = [{"rfilename": one["rfilename"]} for one in siblings]
        data = {"id": "o/model", "sha": "../x" if fault == "commit" else COMMIT, "siblings": siblings}
        return self.reply(200, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def drip(self) -> None:
        """Send a description without an end, one space at a time."""
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.closing:
                self.wfile.write(b" ")
                time.sleep(0.1)

    def long(self) -> None:
        """Send a description without an end, as fast as it is taken."""
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.closing:
                self.wfile.write(b" " * (1 << 20))

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def stream(self, file: Path, size: int, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in ({"Content-Length": str(size)} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        with file.open("rb") as stream:
            while part := stream.read(1 << 16):
                self.wfile.write(part)
                self.server.sent += len(part)


@pytest.fixture
def hub(sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub(sharded)
    # It looks that often whether it is to end.
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "4")
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.chdir(tmp_path)
    yield server
    server.closing = True
    server.shutdown()
    server.server_close()


def refused(location: str, pattern: str) -> None:
    with pytest.raises(ScaffoldError, match=pattern) as caught:
        read_checkpoint(location)
    assert caught.value.line.isprintable()
    assert len(caught.value.line) < 400
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("fault", ["", "redirect", "no ranges", "long range"])
def test_the_same_as_the_folder(hub: Hub, fault: str) -> None:
    revision = "@refs/pr/1" if fault == "redirect" else ""
    hub.fault = fault
    seen: list[tuple[int, int]] = []
    remote = read_checkpoint(f"o/model{revision}", progress=lambda done, total: seen.append((done, total)))
    local = read_checkpoint(hub.folder)
    assert dict(remote.tensors) == dict(local.tensors)
    assert remote.files == local.files
    assert remote.configs == local.configs == {"config.json": {"hidden_size": 4}}
    assert remote.source == f"o/model{revision}"
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_headers_only(hub: Hub, raw_weights: Callable[..., Path]) -> None:
    size = 1 << 34
    names = {f"t{n}": {"dtype": "U8", "shape": [0], "data_offsets": [size, size]} for n in range(4000)}
    header = {"big": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}} | names
    (hub.folder / "model.safetensors.index.json").unlink()
    raw_weights(hub.folder / "big.safetensors", header, size)
    for hub.fault in ("", "no ranges"):
        hub.sent = 0
        remote = read_checkpoint("o/model")
        assert remote.tensors["t3999"].shape == (0,)
        # A server that ignores the range is cut off; what it had sent until then filled buffers only.
        assert hub.sent < 64_000_000
    ranges = [span for method, path, span in hub.requests if path.endswith("big.safetensors") and method == "GET"]
    assert ranges[0] == "bytes=0-131071"
    assert 200_000 < int((ranges[1] or "").partition("-")[2]) < 400_000


def test_configs_come_from_the_cache_the_second_time(hub: Hub) -> None:
    read_checkpoint("o/model")
    hub.requests.clear()
    read_checkpoint("o/model")
    assert not [path for method, path, _ in hub.requests if method == "GET" and path.endswith(".json")]


def test_offline_reads_the_cached_snapshot(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import hf_hub_download

    endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
    online = read_checkpoint("o/model")
    for file in hub.folder.iterdir():
        hf_hub_download("o/model", file.name, revision="main", endpoint=endpoint, cache_dir=tmp_path / "cache")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.requests.clear()
    offline = read_checkpoint("o/model")
    assert dict(offline.tensors) == dict(online.tensors)
    assert offline.source == "o/model"
    refused("o/other", "no such folder here: o/other; it is not in the Hub's cache")
    assert hub.requests == []


def test_the_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_secret"
    refused("o/model", "does not show o/model, .* log in")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert len(read_checkpoint("o/model").tensors) == 3
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(ScaffoldError) as caught:
        read_checkpoint("o/model")
    assert "hf_wrong" not in caught.value.line


@pytest.mark.parametrize(
    ("location", "fault", "message"),
    [
        ("o/other", "", r"does not show o/other, or a file of it, to you \(404\)"),
        ("o/model@v9", "", "o/model has no revision 'v9'"),
        ("o/model", "gated", "refuses access to o/model; accept its conditions"),
        ("o/model", "403", r"does not show o/model, .*\(403\)"),
        further("o/model", "404", r"does not show o/model, .*\(404\)"),
        ("o/model", "500", "answered 500 for o/model"),
        further("o/model", "broken", "answered 502 for o/model"),
        ("o/model", "no JSON", "cannot read it from the Hub"),
        further("o/model", "other form", "cannot read it from the Hub"),
        ("o/model", "commit", "as the commit of o/model"),
        ("o/model", "escape", "'../evil.json', which is not a path inside the checkpoint"),
        ("o/model", "slow", "cannot read it from the Hub: .*timed out"),
        further("o/model", "slow listing", "cannot read it from the Hub: .*timed out"),
        ("o/model", "other range", "another range than the one asked for"),
        ("o/model", "cut", "too early|is not a safetensors file|peer closed|incomplete"),
        ("o/model", "no sizes", "has no known size"),
        ("o/model", "many shards", "has 60000 weight files; at most 2000 are read"),
        ("o/model", "large", "the Hub says that model.*safetensors.* has 9{40} bytes"),
        ("o/model", "long listing", "more memory or disk than|cannot read it from the Hub"),
        ("o/mo del", "", "no such folder here: o/mo del"),
    ],
)
def test_failures(hub: Hub, location: str, fault: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fault = fault
    if fault.startswith("slow"):
        monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")
    refused(location, message)


@pytest.mark.parametrize(
    "location",
    [
        *("./o/model", "/o/model", "o/model/", "o", "o/model/x", "~/model", "../model", "o--x/model", "o..x/model"),
        *(
            "o/model.git",
            "o/model.safetensors",
            "o/model.safetensors.index.json",
            "o./model",
            "o/model-",
            "o/" + 96 * "m",
        ),
    ],
)
def test_what_is_no_repository_is_never_asked_for(hub: Hub, location: str) -> None:
    refused(location, "no such folder here: .*; give a path that is there, or a Hub repository as owner/name")
    assert hub.requests == []


def test_a_description_that_never_ends(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaffold.checkpoint.hub.TOTAL_SECONDS", 2.0)
    hub.fault = "drip"
    refused("o/model", "o/model: the Hub took over 2 s")


def test_it_is_an_extra(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    command = install_command("hub")
    assert "hub" in command
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused("o/model", f"needs huggingface_hub; {re.escape(command)}")


def test_no_server(hub: Hub) -> None:
    hub.shutdown()
    hub.server_close()
    refused(
        "o/model",
        "no such folder here: o/model; cannot read it from the Hub: .*; check the connection and HF_ENDPOINT",
    )


def test_an_endpoint_that_is_no_address(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for endpoint in ("nowhere", "http://[::1", "http://127.0.0.1:1/"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        refused("o/model", "cannot read it from the Hub")


def test_damaged_and_pickled_repositories(hub: Hub) -> None:
    index = hub.folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"norm.w": "gone.safetensors"}}')
    refused("o/model", "o/model/model.safetensors.index.json names the file 'gone.safetensors', which is not there")
    index.unlink()
    (hub.folder / "model-00001-of-00002.safetensors").write_bytes(b"\xff" * 100)
    refused("o/model", "o/model/model-00001-of-00002.safetensors is not a safetensors file")
    for file in hub.folder.glob("*.safetensors"):
        file.unlink()
    refused("o/model", r"o/model holds no \.safetensors file")
    (hub.folder / "pytorch_model.bin").write_bytes(b"")
    refused("o/model", r"pickled weights only \(pytorch_model.bin\)")


def test_a_path_wins(hub: Hub, weights: Callable[..., Path]) -> None:
    weights(Path("o/model/a.safetensors"), {"here": ("F32", [2])})
    assert list(read_checkpoint("o/model").tensors) == ["here"]
    assert hub.requests == []


def test_commands_take_a_repository(hub: Hub, scaffold_cli: Callable[..., Any], reference: Path) -> None:
    package = next(reference.glob("verl_omni/pipelines/*/scaffold.toml")).parent
    said = scaffold_cli("remap", package, "--checkpoint", "o/model").refusal()
    assert "nothing is known of o/model: its loader asks for more than headers" in said
    for command in (
        ("remap", package, "--checkpoint", "o/other"),
        ("inspect", "bagel", "--checkpoint", "o/other"),
        ("new", "bagel", "--patch", "--out", "build", "--checkpoint", "o/other"),
    ):
        assert "o/other" in scaffold_cli(*command).refusal()
