"""A Hub on this machine that answers for one repository, and wrongly: other bytes, headers and numbers each time."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from documents import CODE, changed, damaged

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NUMBERS = ("-1", "0", "1e9", "9" * 5000, "nan", "", "18446744073709551616", "3")
HEADERS = ("Location", "X-Error-Code", "X-Error-Message", "X-Linked-Size", "Retry-After")
STATUSES = (200, 200, 206, 204, 301, 302, 304, 401, 403, 404, 416, 418, 429, 500, 503, 599)
RETRIED = (429, 500, 503)


class Hub(ThreadingHTTPServer):
    """``o/model`` from a folder; ``chance`` decides what becomes of each answer."""

    daemon_threads = True

    def __init__(self, folder: Path, chance: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.chance, self.said = folder, chance, list[str]()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: an answer may be one that cannot be sent."""


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"
    timeout = 5

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        hub, chance = self.server, self.server.chance
        path = unquote(urlsplit(self.path).path)
        status, headers = 200, {"Content-Type": "application/json"}
        if path.startswith("/api/"):
            files = [file for file in sorted(hub.folder.rglob("*")) if file.is_file()]
            siblings = [{"rfilename": file.name, "size": file.stat().st_size} for file in files]
            listing: Any = {"id": "o/model", "sha": COMMIT, "siblings": siblings}
            content = json.dumps(changed(listing, chance) if chance.random() < 0.5 else listing).encode()
        else:
            file = hub.folder / path.rpartition("/")[2]
            whole = file.read_bytes() if file.is_file() else b""
            status = 200 if file.is_file() else 404
            headers = {"ETag": f'"{file.name}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            content = whole
            asked = self.headers.get("Range", "")
            if asked and status == 200:
                status, content = 206, whole[: int(asked.rpartition("-")[2]) + 1]
                headers["Content-Range"] = f"bytes 0-{len(content) - 1}/{len(whole)}"
        headers["Content-Length"] = str(len(content))
        if chance.random() < 0.12:
            content = damaged(content, chance)
            headers["Content-Length"] = str(len(content))
        if chance.random() < 0.1:
            name = chance.choice(
                [*headers, "Location", "X-Error-Code", "X-Error-Message", "X-Linked-Size", "Retry-After"]
            )
            headers[name] = chance.choice((*NUMBERS, "bytes 0-9/" + "9" * 5000, "/", "http://[", "RepoNotFound", CODE))
        if chance.random() < 0.04:
            status = chance.choice(STATUSES)
        self.server.said.append(f"{self.command} {self.path}: {status} {headers} {content[:300]!r}")
        # A library that is told to wait and to ask again does so for minutes; that an end comes is tested elsewhere.
        headers.pop("Retry-After", None) if status in RETRIED else None
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value.encode("latin-1", "replace").decode("latin-1").replace("\n", "\r\n "))
        self.send_header("Connection", "close")
        self.end_headers()
        if body:
            self.wfile.write(content)


@contextmanager
def serving(folder: Path, chance: random.Random) -> Iterator[Hub]:
    """A Hub that listens inside of the block."""
    server = Hub(folder, chance)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
