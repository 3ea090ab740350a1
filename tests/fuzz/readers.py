"""What the fuzz puts what it has changed into: each reader of the tool, in this process, under limits."""

from __future__ import annotations

import ast
import json
import os
import random
import resource
import shutil
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from encodings import aliases
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tomli
import tomli_w
from documents import changed, damaged
from hub import serving
from mutation import mutated

from scaffold.check import check_paths
from scaffold.check.formats.github import render_github
from scaffold.check.formats.json_format import render_json
from scaffold.check.formats.sarif import render_sarif
from scaffold.check.formats.text import render_text
from scaffold.checkpoint import fold, read_checkpoint, read_manifest
from scaffold.checkpoint.layout import other_form
from scaffold.errors import ScaffoldError
from scaffold.files.documents import parse_toml
from scaffold.files.reading import below
from scaffold.files.resources import presets_root
from scaffold.grade import specify
from scaffold.inspect import inspect_pipeline
from scaffold.lifecycle.update import UpdateRequest, plan_update
from scaffold.new import refuse, render_package
from scaffold.render import derive_names
from scaffold.spec import SpecRequest
from scaffold.spec.lock import LOCK_NAME, seal
from scaffold.target import default_profile
from scaffold.upstream import UpstreamSource, locate, resolve_pipeline
from scaffold.upstream.registry import read_registry
from scaffold.verify.declared import read_declared
from scaffold.verify.init import init_text
from scaffold.verify.loading.run import write_headers
from scaffold.verify.package import open_package, unwritten_places

SECONDS = 10.0
Case = tuple[str, str, Callable[[], object]]


class WroteCodeError(Exception):
    """A value of a document stands in a rendered file as code."""


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


@dataclass(frozen=True)
class Corpus:
    """Real pipelines, a real package, and headers of a real checkpoint.

    Attributes:
        source: the version of vllm-omni.
        pipelines: registry keys with the file of each.
        reference: folder of a rendered package, beside its tests and scripts.
        place: folder for copies.
        weights: a checkpoint without data, every seventh of its tensors.
    """

    source: UpstreamSource
    pipelines: list[tuple[str, str]]
    reference: Path
    place: Path
    weights: Path

    @property
    def package(self) -> Path:
        """The package's own folder."""
        return next(self.reference.glob("verl_omni/pipelines/*/scaffold.toml")).parent


def corpus(reference: Path, place: Path) -> Corpus:
    """Return what is changed: the default version, the golden package, and the headers of its model."""
    source, weights = locate("0.27.0rc1"), place / "weights"
    pipelines = [(key, resolve_pipeline(source, key).file) for key in sorted(read_registry(source))]
    headers = read_manifest(presets_root() / "manifests" / "bagel-7b-mot.ema.json")
    configs = {"config.json": {"llm_config": {"hidden_size": 3584, "num_hidden_layers": 28}, "vae_config": {"z": 16}}}
    write_headers(replace(headers, entries=headers.entries[::7], configs=configs), weights)
    return Corpus(source, pipelines, reference, place, weights)


def cases(all_of_it: Corpus, chance: random.Random) -> Iterator[Case]:
    """Yield reader, changed text and what to do with it, without end; the cheap readers get most of it."""
    makers = (_inspect,) * 5 + (_check,) * 5 + (_new,) * 2 + (_spec,) * 5 + (_headers,) * 5 + (_hub,) * 2
    makers += (_settings,) * 2 + (_table,) * 2 + (_encoded,) + (_declarable,) * 2
    while True:
        yield chance.choice(makers)(all_of_it, chance)


def processor_seconds() -> float:
    """Of this process and of the children that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def problem(action: Callable[[], object]) -> str | None:
    """Run one case; return what is wrong with how it ended, empty for a refusal, None for an answer."""
    begin, refused = processor_seconds(), False
    try:
        action()
    except ScaffoldError as error:
        if not error.line.isprintable():
            return f"a refusal that acts: {error.line!r}"
        refused = True
    except BaseException:
        return traceback.format_exc(limit=-8)
    spent = processor_seconds() - begin
    return f"{spent:.1f} s of processor time" if spent > SECONDS else "" if refused else None


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


def _inspect(all_of_it: Corpus, chance: random.Random) -> Case:
    key, path, text = _pipeline(all_of_it, chance)
    return f"inspect {key}", text, lambda: inspect_pipeline(Overlay(all_of_it.source, path, text), key).to_json()


def _new(all_of_it: Corpus, chance: random.Random) -> Case:
    key, path, text = _pipeline(all_of_it, chance)

    def new() -> None:
        source = Overlay(all_of_it.source, path, text)
        report = inspect_pipeline(source, key)
        refuse(report)
        graded = specify(SpecRequest(report, derive_names("toy"), default_profile()), source)
        render_package(graded.spec, [], None, graded.port)

    return f"new {key}", text, new


def _check(all_of_it: Corpus, chance: random.Random) -> Case:
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


def _settings(all_of_it: Corpus, chance: random.Random) -> Case:
    """``check`` of a package whose checkout has settings of its own, in every format."""
    table = {
        "select": ["OSC", "OSC206"],
        "ignore": ["OSC5"],
        "baseline": "known.json",
        "per-file-ignores": {"verl_omni/*": ["OSC1"]},
    }
    raw = _toml({"tool": {"omni-scaffold": changed(table, chance)}}).encode("utf-8", "surrogatepass")
    raw = damaged(raw, chance) if chance.random() < 0.2 else raw
    copied = all_of_it.place / "settled"
    package = copied / all_of_it.package.relative_to(all_of_it.reference)

    def check() -> None:
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(all_of_it.package, package)
        (copied / "pyproject.toml").write_bytes(raw)
        for render in (render_text, render_json, render_github, render_sarif):
            render(check_paths([package], select=["OSC0", "OSC1"]))

    return "check pyproject.toml", raw.decode("utf-8", "backslashreplace"), check


def _table(all_of_it: Corpus, chance: random.Random) -> Case:
    """``verify.toml`` of a hand-written package."""
    root = Path(__file__).parents[1] / "verify" / "hand_written"
    file = chance.choice(sorted(root.rglob("verify.toml")))
    raw = _toml(changed(tomli.loads(file.read_text("utf-8")), chance)).encode("utf-8", "surrogatepass")
    raw = damaged(raw, chance) if chance.random() < 0.4 else raw
    copied = all_of_it.place / "declared"

    def read() -> None:
        copied.mkdir(exist_ok=True)
        (copied / "verify.toml").write_bytes(raw)
        declared = read_declared(copied, copied)
        for name in filter(None, (declared.weights, *declared.files)):
            below(copied, name)

    return "verify verify.toml", raw.decode("utf-8", "backslashreplace"), read


def _declarable(all_of_it: Corpus, chance: random.Random) -> Case:
    """``verify --init`` and what is still to be written, of a hand-written package."""
    root = Path(__file__).parents[1] / "verify" / "hand_written"
    path, other = (chance.choice(sorted(root.rglob("verl_omni/**/*.py"))) for _ in range(2))
    text = _text(ast.parse(path.read_text("utf-8")), ast.parse(other.read_text("utf-8")), chance)
    style = root / path.relative_to(root).parts[0]
    copied = all_of_it.place / "declarable"

    def read() -> None:
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(style, copied, ignore=shutil.ignore_patterns("__pycache__"))
        (copied / path.relative_to(style)).write_text(text, encoding="utf-8", errors="surrogatepass")
        package = open_package(copied, declared=False)
        parse_toml(init_text(package))
        unwritten_places(package)

    return "init package", text, read


def _encoded(all_of_it: Corpus, chance: random.Random) -> Case:
    """``check`` of a file that names its encoding."""
    name = chance.choice(sorted({*aliases.aliases.values(), "unknown", "idna", "undefined"}))
    path = chance.choice(sorted(all_of_it.package.glob("*.py")))
    raw = f"# coding: {name}\n".encode() + chance.choice((path.read_bytes() * 20, b"x" * 400_000))
    copied = all_of_it.place / "encoded" / all_of_it.package.name

    def check() -> None:
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(all_of_it.package, copied)
        (copied / path.name).write_bytes(raw)
        render_text(check_paths([copied], select=["OSC0", "OSC1"]))

    return f"check of {name}", raw[:2000].decode("latin-1"), check


def _spec(all_of_it: Corpus, chance: random.Random) -> Case:
    """``check`` and ``update --spec`` of a package whose ``scaffold.toml`` or lock says something else."""
    name = chance.choice(("scaffold.toml", "scaffold.toml", LOCK_NAME))
    raw = (all_of_it.package / name).read_bytes()
    if chance.random() < 0.2:
        raw = damaged(raw, chance)
    else:
        raw = _toml(changed(tomli.loads(raw.decode()), chance)).encode("utf-8", "surrogatepass")
        if name == LOCK_NAME:
            raw = seal(raw.decode("utf-8", "surrogatepass")).encode("utf-8", "surrogatepass")
    copied = all_of_it.place / "specified"
    package = copied / all_of_it.package.relative_to(all_of_it.reference)

    def update() -> None:
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(all_of_it.reference, copied)
        (package / name).write_bytes(raw)
        render_text(check_paths([package]))
        plan = plan_update(UpdateRequest(str(package), spec=True, force=True, packaged=True)).plan
        for change in plan.changes:
            if change.after is not None and change.path.endswith(".py"):
                _refuse_canary(change.path, change.after.content)

    return f"update {name}", raw.decode("utf-8", "backslashreplace"), update


def _toml(document: dict[str, Any]) -> str:
    while True:
        try:
            return tomli_w.dumps(document)
        except (TypeError, ValueError, AttributeError):
            document = {key: value for key, value in document.items() if isinstance(value, dict | str | int)}


def _refuse_canary(path: str, content: bytes) -> None:
    for node in ast.walk(ast.parse(content)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if "canary" in names or (isinstance(node, ast.Name) and node.id in ("canary", "os", "builtins")):
            if node.lineno and b"import os" not in content:  # type: ignore[attr-defined]
                raise WroteCodeError(f"{path}:{node.lineno}")  # type: ignore[attr-defined]


def _headers(all_of_it: Corpus, chance: random.Random) -> Case:
    """A folder of weights with another header, index or configuration, read and inspected with its pipeline."""
    folder = all_of_it.place / "other"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(all_of_it.weights, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for file in all_of_it.weights.glob("*.safetensors"):
        (folder / file.name).hardlink_to(file)
    path = chance.choice(sorted(folder.iterdir()))
    weights = path.suffix == ".safetensors"
    with path.open("rb") as stream:
        raw = stream.read(int.from_bytes(stream.read(8), "little")) if weights else stream.read()
    text = json.dumps(changed(json.loads(raw), chance)).encode() if chance.random() < 0.7 else damaged(raw, chance)
    data = path.stat().st_size - 8 - len(raw)
    path.unlink()
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text if weights else text)
        if weights:
            stream.truncate(8 + len(text) + data)

    def read() -> None:
        headers = read_checkpoint(folder, progress=lambda done, of: None)
        fold(headers.tensors)
        other_form(headers)
        inspect_pipeline(all_of_it.source, "BagelPipeline", headers).to_json()

    return f"headers {path.name}", text.decode("utf-8", "backslashreplace"), read


def _hub(all_of_it: Corpus, chance: random.Random) -> Case:
    """A repository of small files, on a Hub that answers wrongly."""
    folder = all_of_it.place / "repository"
    if not folder.is_dir():
        folder.mkdir()
        table = {"layers.0.w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
        raw = json.dumps(table).encode()
        (folder / "model-00001-of-00001.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(8))
        index = {"metadata": {}, "weight_map": {"layers.0.w": "model-00001-of-00001.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "config.json").write_text('{"hidden_size": 4}')
    seed = chance.random()

    def read() -> None:
        home = all_of_it.place / "home"
        shutil.rmtree(home, ignore_errors=True)
        with serving(folder, random.Random(seed)) as hub:
            given = {
                "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}",
                "HF_HOME": str(home),
                "HF_HUB_DOWNLOAD_TIMEOUT": "3",
                "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1",
            }
            with patch.dict(os.environ, given):
                try:
                    read_checkpoint("o/model", progress=lambda done, of: None)
                except ScaffoldError:
                    raise
                except BaseException as error:
                    raise RuntimeError("\n".join(hub.said)) from error

    return "hub", repr(seed), read
