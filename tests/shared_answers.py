"""What the tool says of released sources, made once a run: most tests only need it to go on from there.

The first test that asks has the tool make the answer, in whichever worker it runs; the others get a copy of their own.
Only whole wheels are known, by their content: a folder, which is what an altered source is, is read each time. So is
everything for a test that has patched more than the environment and `verify`. A wheel in the cache is looked through
once, too.
"""

from __future__ import annotations

import copy
import fcntl
import functools
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import scaffold.grade
import scaffold.inspect
import scaffold.port
from scaffold.spec import SpecRequest
from scaffold.team import PACKAGED
from scaffold.upstream.cache import cache_root
from scaffold.upstream.source import UpstreamSource, WheelSource

FOLDER = "OMNI_SCAFFOLD_SHARED_ANSWERS"
"""Environment variable with the folder; workers inherit it."""
BEHIND = ("scaffold.verify.",)
"""What comes after all that is shared."""
BESIDE = ("scaffold.lifecycle.", "scaffold.plan.", "scaffold.spec.")
"""What has no part in what is read of a source."""


class SharedAnswers:
    """The functions whose answers are shared, in place of the tool's own."""

    def __init__(self) -> None:
        self._own = FOLDER not in os.environ
        if self._own:
            os.environ[FOLDER] = tempfile.mkdtemp(prefix="omni-scaffold-answers-")
        self._folder = Path(os.environ[FOLDER])
        self._item: pytest.Item | None = None
        scaffold.inspect._inspect = self._shared(scaffold.inspect._inspect)
        scaffold.port.port_denoiser = self._shared(scaffold.port.port_denoiser)
        scaffold.grade.specify = self._shared_spec(scaffold.grade.specify)
        scaffold.grade.compose = self._shared_spec(scaffold.grade.compose)
        locating = sys.modules["scaffold.upstream.locate"]
        locating.locate_version = self._looked_through(locating.locate_version)  # type: ignore[attr-defined]

    @contextmanager
    def during(self, item: pytest.Item) -> Iterator[None]:
        """Share answers for one test."""
        self._item = item
        try:
            yield
        finally:
            self._item = None

    def _enabled(self, *rooms: str) -> bool:
        """Whether nothing is patched outside of ``rooms``."""
        if self._item is None:
            return False
        if "monkeypatch" not in getattr(self._item, "fixturenames", ()):
            return True
        patch = getattr(self._item, "funcargs", {}).get("monkeypatch")
        targets = [target for target, _, _ in patch._setattr] if patch is not None else [None]
        return all(getattr(target, "__name__", "").startswith(rooms) for target in targets)

    def end(self) -> None:
        """Remove the folder, in the process that made it."""
        if self._own:
            shutil.rmtree(self._folder)
            del os.environ[FOLDER]

    def lay_out(self, command: tuple[str, ...], folder: Path, render: Callable[[], object]) -> None:
        """Have the tree of a command line at ``folder``: a copy of what a worker rendered, or ``render`` it."""
        if not self._enabled(*BEHIND):
            render()
            return
        kept = self._folder / f"tree-{hashlib.sha256(repr(command).encode()).hexdigest()}"
        with _alone(kept):
            if not kept.is_dir():
                render()
                shutil.copytree(folder, kept, symlinks=True)
                return
        shutil.copytree(kept, folder, symlinks=True)

    def _shared(self, genuine: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(genuine)
        def answer(source: Any, *arguments: Any, **options: Any) -> Any:
            whole = isinstance(source, WheelSource) and all(isinstance(a, str | None) for a in arguments)
            if not self._enabled(*BEHIND, *BESIDE) or not whole:
                return genuine(source, *arguments, **options)
            asked = (genuine.__module__, _content(source), arguments, sorted(options.items()))
            return self._answer(asked, lambda: genuine(source, *arguments, **options))

        return answer

    def _shared_spec(self, genuine: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(genuine)
        def answer(request: SpecRequest, source: Any, *ported: Any) -> Any:
            team = request.team
            packaged = team.preset is None and not any(team.presets)
            whole = isinstance(source, WheelSource) and request.headers is None and not any(ported)
            if not self._enabled(*BEHIND) or not whole or not packaged:
                return genuine(request, source, *ported)
            plain = replace(request, team=PACKAGED)
            asked = (genuine.__name__, _content(source), plain, os.environ.get("SOURCE_DATE_EPOCH"))
            return self._answer(asked, lambda: genuine(request, source))

        return answer

    def _answer(self, asked: object, make: Callable[[], Any]) -> Any:
        path = self._folder / hashlib.sha256(repr(asked).encode()).hexdigest()
        with _alone(path):
            if not path.exists():
                draft = path.with_name(f"{path.name}.draft")
                draft.write_bytes(pickle.dumps(make()))
                draft.replace(path)  # whole, should a test end the process
        return pickle.loads(path.read_bytes())

    def _looked_through(self, genuine: Callable[[str], UpstreamSource]) -> Callable[[str], UpstreamSource]:
        cache, known = cache_root(), {}

        @functools.wraps(genuine)
        def located(version: str) -> UpstreamSource:
            if not self._enabled(*BEHIND, *BESIDE) or cache_root() != cache:
                return genuine(version)
            asked = os.getpid(), version  # a fork that read the same open file would move its parent's place in it
            source = known.get(asked)
            if source is None:
                source = known[asked] = genuine(version)
            found = copy.copy(source)
            found._trees, found._texts = {}, {}
            return found

        return located


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let no other worker make the same."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _content(source: WheelSource) -> str:
    """Return a digest of all that a wheel holds, and what it is called."""
    return hashlib.sha256(f"{source.version} {source.label} {_members(source._zip)}".encode()).hexdigest()


@functools.cache
def _members(archive: ZipFile) -> str:
    return hashlib.sha256(repr(sorted((info.filename, info.CRC) for info in archive.infolist())).encode()).hexdigest()
