"""The released checkpoint of each complete pipeline: tensors, files, configuration and their sources."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import tomli

from scaffold.checkpoint import read_manifest
from scaffold.files.reading import read_text
from scaffold.files.resources import presets_root

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders, TensorHeader


@dataclass(frozen=True)
class Layout:
    """One file of ``scaffold/presets/layouts``, named after the pipeline's registry key.

    Attributes:
        repository: on the Hub.
        manifest: file of names, dtypes and shapes in ``scaffold/presets/manifests``.
        weights: path of the weight files, without number and extension.
        files: those beside the weights and their index.
        configs: what the loaders read of configuration files, by path.
        origin: who says which tensors, dtypes, files and values there are, in words. ``digest`` is the hash of names
            and shapes (`digest`), ``bytes`` the size of the tensors, ``file_bytes`` the size of a single weight file,
            each as published elsewhere.
        parts: number of weight files.
        digits: number of digits in a part's number.
        index: path of the weights' index; by default only several parts have one.
        names: for a derived manifest, regular expressions on the pipeline's parameter names and their replacements,
            applied in order. None if the manifest is not derived.
        dtypes: regular expressions for checkpoint names that are not bf16, by dtype.
        given: the part of the release that a package loads; by default all of it.
        metadata: the metadata in the header of a weight file.
        size: height and width of the images that the release makes by default, in pixels, where the pipeline's source
            leaves them to the configuration of its autoencoder.
    """

    repository: str
    manifest: str
    weights: str
    files: tuple[str, ...]
    configs: Mapping[str, Mapping[str, Any]]
    origin: Mapping[str, Any]
    parts: int = 1
    digits: int = 5
    index: str | None = None
    names: Mapping[str, str] | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    given: str = ""
    metadata: Mapping[str, str] = field(default_factory=lambda: {"format": "pt"})
    size: tuple[int, int] | None = None

    @property
    def weight_files(self) -> tuple[str, ...]:
        """Paths of the weight files."""
        if self.parts == 1:
            return (f"{self.weights}.safetensors",)
        wide = self.digits
        return tuple(f"{self.weights}-{i + 1:0{wide}}-of-{self.parts:0{wide}}.safetensors" for i in range(self.parts))

    @property
    def index_file(self) -> str | None:
        """Path of the weights' index; None if the release has none."""
        return self.index or (f"{self.weights}.safetensors.index.json" if self.parts > 1 else None)

    @property
    def tokenizer(self) -> str | None:
        """The only folder with a tokenizer, empty for the checkpoint's root; None if there is none or more than one."""
        named = (file.rpartition("/") for file in self.files)
        folders = {folder for folder, _, file in named if file.startswith("tokenizer") or file == "spiece.model"}
        return folders.pop() if len(folders) == 1 else None

    def headers(self) -> CheckpointHeaders:
        """Names, dtypes and shapes of the weights."""
        return read_manifest(presets_root() / "manifests" / self.manifest)


@cache
def layouts() -> dict[str, Layout]:
    """Return the layout of each release, by the pipeline's registry key."""
    found = {}
    for path in sorted((presets_root() / "layouts").glob("*.toml")):
        values = tomli.loads(read_text(path))
        found[path.stem] = Layout(**{**values, "files": tuple(values["files"])})
    return found


def digest(tensors: Iterable[TensorHeader]) -> str:
    """Return the MD5 of names and shapes, computed as DiffSynth-Studio does to recognize weight files."""
    texts = [
        text
        for entry in tensors
        for text in (entry.name, f"{entry.name}:{'_'.join(str(size) for size in entry.shape)}")
    ]
    return hashlib.md5(",".join(sorted(texts)).encode(), usedforsecurity=False).hexdigest()
