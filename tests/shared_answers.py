"""What the tool says of released sources, made once a run: most tests only need it to go on from there.

The first test that asks has the tool make the answer, in whichever worker it runs; the others get a copy of their own.
Only whole wheels are known, by their content: a folder, which is what an altered source is, is read each time. So is
everything for a test that has patched more than the environment and `verify`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scaffold.grade
import scaffold.inspect
import scaffold.port
from scaffold.spec import SpecRequest
from scaffold.team import PACKAGED
from scaffold.upstream.source import WheelSource

FOLDER = "OMNI_SCAFFOLD_SHARED_ANSWERS"
"""Environment variable with the folder; workers inherit it."""


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

    @contextmanager
    def during(self, item: pytest.Item) -> Iterator[None]:
        """Share answers for one test."""
        self._item = item
        try:
            yield
        finally:
            self._item = None

    @property
    def _enabled(self) -> bool:
        """Whether nothing is patched that reading may depend on."""
        if self._item is None:
            return False
        if "monkeypatch" not in getattr(self._item, "fixturenames", ()):
            return True
        patch = getattr(self._item, "funcargs", {}).get("monkeypatch")
        targets = [target for target, _, _ in patch._setattr] if patch is not None else [None]
        return all(getattr(target, "__name__", "").startswith("scaffold.verify.") for target in targets)

    def end(self) -> None:
        """Remove the folder, in the process that made it."""
        if self._own:
            shutil.rmtree(self._folder)
            del os.environ[FOLDER]

    def lay_out(self, command: tuple[str, ...], folder: Path, render: Callable[[], object]) -> None:
        """Have the tree of a command line at ``folder``: a copy of what a worker rendered, or ``render`` it."""
        kept = self._folder / f"tree-{hashlib.sha256(repr(command).encode()).hexdigest()}"
        if self._enabled and kept.is_dir():
            shutil.copytree(kept, folder, symlinks=True)
            return
        render()
        if self._enabled:
            copy = Path(tempfile.mkdtemp(dir=self._folder))
            shutil.copytree(folder, copy, symlinks=True, dirs_exist_ok=True)
            try:
                copy.rename(kept)
            except OSError:  # another worker was faster
                shutil.rmtree(copy)

    def _shared(self, genuine: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(genuine)
        def answer(source: Any, *arguments: Any, **options: Any) -> Any:
            whole = isinstance(source, WheelSource) and all(isinstance(a, str | None) for a in arguments)
            if not self._enabled or not whole:
                return genuine(source, *arguments, **options)
            asked = (genuine.__module__, _content(source), arguments, sorted(options.items()))
            return self._answer(asked, lambda: genuine(source, *arguments, **options))

        return answer

    def _shared_spec(self, genuine: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(genuine)
        def answer(request: SpecRequest, source: Any, ported: Any = None) -> Any:
            team = request.team
            packaged = team.preset is None and not any(team.presets)
            whole = isinstance(source, WheelSource) and request.headers is None and ported is None
            if not self._enabled or not whole or not packaged:
                return genuine(request, source, ported)
            plain = replace(request, team=PACKAGED)
            asked = ("spec", _content(source), plain, os.environ.get("SOURCE_DATE_EPOCH"))
            return self._answer(asked, lambda: genuine(request, source))

        return answer

    def _answer(self, asked: object, make: Callable[[], Any]) -> Any:
        path = self._folder / hashlib.sha256(repr(asked).encode()).hexdigest()
        if not path.exists():
            made = make()
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                pickle.dump(made, file)
            Path(file.name).replace(path)
        return pickle.loads(path.read_bytes())


def _content(source: WheelSource) -> str:
    """Return a digest of all that a wheel holds, and what it is called."""
    members = sorted((info.filename, info.CRC) for info in source._zip.infolist())
    return hashlib.sha256(repr((source.version, source.label, members)).encode()).hexdigest()
