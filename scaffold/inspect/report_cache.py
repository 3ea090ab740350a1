"""Reports of releases, kept beside their wheels in the cache: what a released wheel says does not change.

An entry counts only for the SHA-256 of the wheel, which was compared just before, for the pipeline, this Python, and
the text of every file of the tool that has a part in an answer. It is JSON with a digest of its own, in a file and a
folder that nobody else can write. Any other entry is ignored and rewritten. Reports of source folders and other wheels
are never kept, nor reports that took so long that a time limit may have affected them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import stat
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from scaffold import __version__
from scaffold.files.documents import parse_json
from scaffold.files.reading import open_regular, read_bytes, read_up_to
from scaffold.files.resources import PACKAGE_ROOT
from scaffold.inspect.facts import Evidence, Fact
from scaffold.inspect.report import Report, Upstream
from scaffold.upstream.cache import cache_root
from scaffold.upstream.source import UpstreamSource

SECONDS = 0.5
"""Processor time beyond which a report is not kept: half of the shortest limit of an inspection."""
LARGEST = 4_000_000
"""Bytes of the largest entry that is read."""
# Modules that every answer depends on.
_EVERYWHERE = ("files", "limits", "terminal")
_TEXTS = (".py", ".json", ".toml")
_ROOMS = ("inspect", "source", "upstream", "checkpoint")


class CachedAnswer:
    """Where one answer about a release is kept.

    Args:
        folder: in the cache.
        asked: what was asked, and of which wheel.
        rooms: of the tool, that have a part in the answer, besides what every room uses.
    """

    def __init__(self, folder: str, asked: Sequence[object], rooms: tuple[str, ...]) -> None:
        text = json.dumps(asked)
        self.place = cache_root() / folder / f"{_sha256(text.encode())[:32]}.json"
        self._identity = _sha256(f"{text}\n{_tool(rooms)}".encode())

    def load(self) -> Any:
        """Return the answer, plain data; None where there is none that counts."""
        try:
            if not _is_own(self.place.parent.lstat()):
                return None
            with open_regular(self.place) as (stream, size):
                # Checked on the open file: its name may refer to another file by the time it is read.
                if self.place.is_symlink() or size > LARGEST or not _is_own(os.fstat(stream.fileno())):
                    return None
                head, _, body = read_up_to(stream, LARGEST).decode().partition("\n")
            if head != f"{self._identity} {_sha256(body.encode())}":
                return None
            return parse_json(body)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, plain: object) -> None:
        """Keep an answer, where the cache can be written."""
        body = json.dumps(plain)
        draft = self.place.with_name(f".draft-{secrets.token_hex(8)}")
        with contextlib.suppress(OSError):
            self.place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with draft.open("x", encoding="utf-8") as file:
                    file.write(f"{self._identity} {_sha256(body.encode())}\n{body}")
                draft.chmod(0o600)
                draft.replace(self.place)
            finally:
                draft.unlink(missing_ok=True)


class CachedReport(CachedAnswer):
    """Where the report of one pipeline of one release is kept.

    Args:
        source: the release.
        pipeline: as it was asked for.
        task: that of the request.
    """

    def __init__(self, source: UpstreamSource, pipeline: str, task: str | None = None) -> None:
        super().__init__("reports", [source.digest, source.version, source.label, pipeline, task], _ROOMS)

    def read(self) -> Report | None:
        """Return the report; None where there is none that counts."""
        plain = self.load()
        try:
            return None if plain is None else _report(plain)
        except (ValueError, KeyError, TypeError):
            return None

    def write(self, report: Report) -> None:
        """Keep a report, where it is plain data."""
        plain = _plain_report(report)
        if plain is not None:
            self.store(plain)


def _is_own(found: os.stat_result) -> bool:
    """Whether a file or folder is the user's, no link, and nobody else can write it."""
    own = hasattr(os, "getuid") and found.st_uid == os.getuid()
    return own and not stat.S_ISLNK(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _tool(rooms: tuple[str, ...]) -> str:
    """Return the digest of all that makes an answer out of a source: the tool's own text, and Python."""
    digest = hashlib.sha256(f"{__version__}\n{sys.version}".encode())
    rooms = (*_EVERYWHERE, *rooms)
    files = (path for room in rooms for path in (PACKAGE_ROOT / room).rglob("*") if path.suffix in _TEXTS)
    for path in sorted([*PACKAGE_ROOT.glob("*.py"), *files]):
        digest.update(f"{path.relative_to(PACKAGE_ROOT).as_posix()}\n{_sha256(read_bytes(path))}\n".encode())
    return digest.hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _plain_report(report: Report) -> dict[str, Any] | None:
    facts = {key: [fact.value, fact.evidence, fact.confidence] for key, fact in report.facts.items()}
    if report.failures or not all(_is_plain(value) for value, _, _ in facts.values()):
        return None
    return {"upstream": asdict(report.upstream), "facts": facts, "task": report.task}


def _is_plain(value: object) -> bool:
    """Whether JSON gives a value back as it is: no tuple, no key that is not text, no number that is none."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(inner) for key, inner in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))


def _report(plain: dict[str, Any]) -> Report:
    upstream = plain["upstream"]
    upstream["registry_keys"] = tuple(upstream["registry_keys"])
    facts = {
        key: Fact(value, tuple(Evidence(file, line) for file, line in places), confidence)
        for key, (value, places, confidence) in plain["facts"].items()
    }
    return Report(Upstream(**upstream), facts, task=plain["task"])
