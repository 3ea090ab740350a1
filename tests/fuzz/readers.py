"""What the fuzz puts mutated sources into: each reader of the tool, in this process, under limits."""

from __future__ import annotations

import ast
import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mutation import mutated

from scaffold.check import check_paths
from scaffold.check.formats.text import render_text
from scaffold.errors import ScaffoldError
from scaffold.grade import specify
from scaffold.inspect import inspect_pipeline
from scaffold.new import refuse, render_package
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.target import default_profile
from scaffold.upstream import UpstreamSource, locate, resolve_pipeline
from scaffold.upstream.registry import read_registry

SECONDS = 10.0


class Overlay(UpstreamSource):
    """A version of vllm-omni in which one file has another text; what is parsed of the others is kept."""

    def __init__(self, source: UpstreamSource, path: str, text: str) -> None:
        super().__init__(source.version, source.label)
        self._source, self._path, self._own = source, path, text

    def exists(self, path: str) -> bool:
        return self._source.exists(path)

    def files(self, prefix: str = "") -> list[str]:
        return self._source.files(prefix)

    def read(self, path: str) -> str:
        return self._own if path == self._path else self._source.read(path)

    def tree(self, path: str) -> ast.Module:
        return super().tree(path) if path == self._path else self._source.tree(path)

    def _bytes(self, path: str) -> bytes:
        return self.read(path).encode()


@dataclass
class Corpus:
    """Real pipelines and a real package.

    Attributes:
        source: the version of vllm-omni.
        pipelines: registry keys with the file of each.
        package: folder of a rendered package.
        place: folder for copies of it.
    """

    source: UpstreamSource
    pipelines: list[tuple[str, str]]
    package: Path
    place: Path
    counts: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


def corpus(reference: Path, place: Path) -> Corpus:
    """Return what is mutated: the default version and the golden package."""
    source = locate("0.27.0rc1")
    pipelines = [(key, resolve_pipeline(source, key).file) for key in sorted(read_registry(source))]
    return Corpus(source, pipelines, next(reference.glob("verl_omni/pipelines/*")), place)


def cases(all_of_it: Corpus, chance: random.Random) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Yield reader, mutated text and what to do with it, without end; the cheap readers get most of it."""
    makers = (_inspect,) * 3 + (_check,) * 3 + (_new,)
    while True:
        yield chance.choice(makers)(all_of_it, chance)


def problem(action: Callable[[], object]) -> str | None:
    """Run one case; return what is wrong with how it ended. A refusal is as good an end as an answer."""
    begin = time.process_time()
    try:
        action()
    except ScaffoldError as error:
        if not error.line.isprintable():
            return f"a refusal that acts: {error.line!r}"
    except BaseException:
        return traceback.format_exc(limit=-8)
    spent = time.process_time() - begin
    return f"{spent:.1f} s of processor time" if spent > SECONDS else None


def _text(tree: ast.Module, elsewhere: ast.Module, chance: random.Random) -> str:
    while True:
        try:
            text = ast.unparse(mutated(tree, elsewhere, chance))
            ast.parse(text)
            return text
        except (ValueError, TypeError, AttributeError, IndexError, KeyError, RecursionError, SyntaxError):
            continue  # no text says such a tree


def _pipeline(all_of_it: Corpus, chance: random.Random) -> tuple[str, str, str]:
    key, path = chance.choice(all_of_it.pipelines)
    _, other = chance.choice(all_of_it.pipelines)
    return key, path, _text(all_of_it.source.tree(path), all_of_it.source.tree(other), chance)


def _inspect(all_of_it: Corpus, chance: random.Random) -> tuple[str, str, Callable[[], object]]:
    key, path, text = _pipeline(all_of_it, chance)
    return f"inspect {key}", text, lambda: inspect_pipeline(Overlay(all_of_it.source, path, text), key).to_json()


def _new(all_of_it: Corpus, chance: random.Random) -> tuple[str, str, Callable[[], object]]:
    key, path, text = _pipeline(all_of_it, chance)

    def new() -> None:
        source = Overlay(all_of_it.source, path, text)
        report = inspect_pipeline(source, key)
        refuse(report)
        graded = specify(SpecRequest(report, derive_names("toy"), default_profile()), source)
        render_package(graded.spec, [], None, graded.port)

    return f"new {key}", text, new


def _check(all_of_it: Corpus, chance: random.Random) -> tuple[str, str, Callable[[], object]]:
    paths = sorted(all_of_it.package.glob("*.py"))
    path, other = chance.choice(paths), chance.choice(paths)
    text = _text(ast.parse(path.read_text("utf-8")), ast.parse(other.read_text("utf-8")), chance)
    copied = all_of_it.place / "checked" / all_of_it.package.name

    def check() -> None:
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(all_of_it.package, copied)
        (copied / path.name).write_text(text, encoding="utf-8", errors="surrogatepass")
        render_text(check_paths([copied]))

    return f"check {path.name}", text, check
