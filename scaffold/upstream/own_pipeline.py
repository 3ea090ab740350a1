"""Pipelines outside ``vllm_omni/``: in the same folder, in a given file, or in an installed distribution."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded
from scaffold.terminal.progress import announce
from scaffold.upstream.source import PACKAGE, FolderSource, UpstreamSource

# Packages that a pipeline imports but is never part of.
_LIBRARIES = frozenset({"torch", "vllm", "diffusers", "transformers", "numpy", "verl", "verl_omni"})
_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[^:]+)\Z")


class JoinedSource(UpstreamSource):
    """A version of vllm-omni with further packages beside it.

    Args:
        base: the version.
        beside: sources by the name of the package that they hold.
    """

    def __init__(self, base: UpstreamSource, beside: Mapping[str, UpstreamSource]) -> None:
        super().__init__(base.version, base.label)
        self.base, self.beside = base, dict(beside)
        self.packages = (*base.packages, *(name for name in beside if name not in base.packages))

    def exists(self, path: str) -> bool:
        return self._of(path).exists(path)

    def files(self, prefix: str = "") -> list[str]:
        return self._of(prefix).files(prefix)

    def copy(self, package: str, into: Path) -> None:
        self._of(package).copy(package, into)

    def _bytes(self, path: str) -> bytes:
        return self._of(path)._bytes(path)

    def _of(self, path: str) -> UpstreamSource:
        return self.beside.get(path.partition("/")[0], self.base)


def with_own_pipeline(source: UpstreamSource, pipeline: str) -> tuple[UpstreamSource, str]:
    """Return the source joined with the pipeline's package, and the pipeline as ``module:Class``.

    Args:
        source: a version of vllm-omni.
        pipeline: a registry key or a model folder, which are returned unchanged; ``module:Class`` of the source's
            folder or of an installed distribution; or ``path/to/file.py:Class``.

    Raises:
        ScaffoldError: the file is not there.
    """
    named = _FILE.match(pipeline)
    if named is not None:
        file = expanded(named["path"]).absolute()
        if not file.is_file():
            raise ScaffoldError(f"{named['path']} is not a file", hint="name a module, or its file, and its class")
        root = file.parent
        while (root / "__init__.py").is_file():
            root = root.parent
        module = ".".join(file.relative_to(root).with_suffix("").parts)
        if module == file.stem:
            hint = f"put it into a package, such as {file.stem}/__init__.py beside {file.stem}/{file.name}"
            raise ScaffoldError(f"{named['path']} lies in no package, and rendered code imports it from one", hint=hint)
        return _joined(source, module, FolderSource(root, None, root.name)), f"{module}:{named['name']}"
    module, colon, _ = pipeline.partition(":")
    top = module.partition(".")[0]
    if not colon or top in source.packages or top in _LIBRARIES or not _are_names(module):
        return source, pipeline
    path = module.replace(".", "/") + ".py"
    if source.exists(path):
        return _joined(source, module, source), pipeline
    for entry in map(Path, filter(None, sys.path)):
        if (entry / path).is_file():
            return _joined(source, module, FolderSource(entry, None, entry.name, linked=True)), pipeline
    return source, pipeline


def beside_again(source: UpstreamSource, pipeline: str, kept: UpstreamSource) -> UpstreamSource:
    """Return another version joined with a pipeline's package: as installed now, as it lies in the working directory,
    else as kept in the cache, which is said.

    Args:
        source: the version.
        pipeline: ``module:Class``.
        kept: what the pipeline was read from before.
    """
    found, _ = with_own_pipeline(source, pipeline)
    if found is not source or not isinstance(kept, JoinedSource):
        return found
    module = pipeline.partition(":")[0]
    if _are_names(module) and (Path.cwd() / (module.replace(".", "/") + ".py")).is_file():
        return _joined(source, module, FolderSource(Path.cwd(), None, Path.cwd().name))
    top = module.partition(".")[0]
    announce(
        f"{top} is neither on the path of Python nor in this folder: what is kept of it counts, without later edits;"
        " put its folder on PYTHONPATH"
    )
    lacking = {name: one for name, one in kept.beside.items() if name not in source.packages}
    return JoinedSource(source, lacking) if lacking else source


def _joined(source: UpstreamSource, module: str, beside: UpstreamSource) -> UpstreamSource:
    top = module.partition(".")[0]
    return source if top == PACKAGE or top in source.packages else JoinedSource(source, {top: beside})


def _are_names(module: str) -> bool:
    return all(part.isidentifier() for part in module.split("."))
