"""Checkpoints on this machine: one file, several files, or shards with an index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from scaffold.checkpoint.configs import read_configs
from scaffold.checkpoint.folder import Folder, open_regular, opened_folder
from scaffold.checkpoint.headers import INDEX_SUFFIX, MAX_INDEX_BYTES, CheckpointHeaders, TensorHeader, parse_index
from scaffold.checkpoint.layout import OTHERS, PICKLES, WEIGHTS, assemble, no_weights, placed, weight_names
from scaffold.checkpoint.safetensors_header import LENGTH_BYTES, header_length, parse_header
from scaffold.errors import ScaffoldError
from scaffold.files.reading import read_up_to

# Config of a model whose components are subfolders.
CONFIGS = ("/config.json", "/scheduler_config.json")
Progress = Callable[[int, int], None]


def read_local(location: Path, progress: Progress | None = None, source: str | None = None) -> CheckpointHeaders:
    """Read the headers below a path that exists.

    A folder means the weights directly in it, or, if it has none, those of its subfolders; with an index, only the
    weights in the index, as loaders do. A repository in a Hub cache means the snapshot of ``main``. A weight file means
    itself, an index its shards; configs are those beside them.

    Args:
        location: folder, ``.safetensors`` file or ``.safetensors.index.json`` file.
        progress: called with files read and files in all.
        source: label of the result and in errors; the location's name and path by default.

    Raises:
        ScaffoldError: no weights, pickled weights only, or damaged or hostile files.
    """
    location = opened_folder(location)
    named = not location.is_dir()
    if named and (location.suffix in PICKLES or location.suffix.lower() in OTHERS):
        raise no_weights(str(location), [location.name])
    if named and not location.name.endswith((WEIGHTS, INDEX_SUFFIX)):
        raise ScaffoldError(f"{location} is neither a checkpoint folder nor a .safetensors file")
    folder = Folder.at(location.parent if named else location)
    if source is not None:
        folder = replace(folder, shown=Path(source))
    names = folder.names()
    weights = [location.name] if named else weight_names(names)
    if not weights:
        names += [name for sub in folder.subfolders() for name in folder.names(sub)]
        weights = weight_names(names)
    elif not named:
        names += [name for sub in folder.subfolders() for name in folder.names(sub) if name.endswith(CONFIGS)]
    if not weights:
        raise no_weights(source or str(location), names)
    indexes = {
        name: placed(name, parse_index(folder.read_small(name, MAX_INDEX_BYTES), folder.label(name)))
        for name in weights
        if name.endswith(INDEX_SUFFIX)
    }
    shards = {shard: name for name, weight_map in indexes.items() for shard in weight_map.values()}
    for shard, index in sorted(shards.items()):
        folder.resolve(shard, index)
    indexed = {PurePosixPath(name).parent: name for name in indexes}
    single = {name for name in weights if name.endswith(WEIGHTS)}
    beside = {n: indexed[PurePosixPath(n).parent] for n in single - shards.keys() if PurePosixPath(n).parent in indexed}
    for name in sorted(beside):
        folder.resolve(name)
    files = sorted(shards.keys() | single - beside.keys())
    read = {}
    for done, name in enumerate(files):
        if progress is not None:
            progress(done, len(files))
        # A weight file that the user named may be any link; one found by listing or by an index may not.
        path = location if named and weights == files else folder.resolve(name, shards.get(name))
        read[name] = read_file(path, folder.label(name), name)
    if progress is not None:
        progress(len(files), len(files))
    configs, skipped = read_configs(folder, names)
    skipped |= {name: f"{index}, which says what is read, does not name it" for name, index in sorted(beside.items())}
    labels = {name: folder.label(name) for name in indexes}
    return assemble(source or location.resolve().name, read, indexes, configs, skipped, labels)


def read_file(path: Path, label: str, file: str) -> tuple[list[TensorHeader], int]:
    """Return one weight file's tensors and the bytes of its data.

    Args:
        path: the file.
        label: its name for errors.
        file: its name in the result.

    Raises:
        ScaffoldError: it cannot be read or is not a valid safetensors file.
    """
    with open_regular(path, label) as (stream, size):
        length = header_length(read_up_to(stream, LENGTH_BYTES), size, label)
        raw = read_up_to(stream, length)
    if len(raw) != length:
        raise ScaffoldError(f"{label} became shorter while it was read")
    data_bytes = size - LENGTH_BYTES - length
    return parse_header(raw, data_bytes, label, file), data_bytes
