"""Checkpoints on this machine: one file, several files, or shards with an index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from scaffold.checkpoint.configs import read_configs
from scaffold.checkpoint.folder import Folder, open_regular, read_up_to
from scaffold.checkpoint.headers import CheckpointFile, CheckpointHeaders, TensorHeader
from scaffold.checkpoint.index import MAX_INDEX_BYTES, SUFFIX, check_index, parse_index
from scaffold.checkpoint.safetensors_header import LENGTH_BYTES, header_length, parse_header
from scaffold.errors import ScaffoldError

Progress = Callable[[int, int], None]

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def read_local(location: Path, progress: Progress | None = None) -> CheckpointHeaders:
    """Read the headers below a path that exists.

    A folder stands for the weights directly in it, or, where it has none, for those of its subfolders. A weight file
    stands for itself, an index for its shards; configs are those beside them.

    Args:
        location: folder, ``.safetensors`` file or ``.safetensors.index.json`` file.
        progress: called with files read and files in all.

    Raises:
        ScaffoldError: no weights, pickled weights only, or damaged or hostile files.
    """
    if location.is_dir():
        folder = Folder.at(location)
        names = folder.names()
        weights = [name for name in names if name.endswith((".safetensors", SUFFIX))]
        if not weights:
            names += [name for sub in folder.subfolders() for name in folder.names(sub)]
            weights = [name for name in names if name.endswith((".safetensors", SUFFIX))]
        if not weights:
            raise _no_weights(str(location), names)
        source = folder.root.name
    else:
        if location.suffix in _PICKLES:
            raise _no_weights(str(location), [location.name])
        if not location.name.endswith((".safetensors", SUFFIX)):
            raise ScaffoldError(f"{location} is no checkpoint folder and no .safetensors file")
        folder = Folder.at(location.parent)
        names = folder.names()
        weights = [location.name]
        source = location.name
    indexes = {name: _indexed(folder, name) for name in weights if name.endswith(SUFFIX)}
    shards = {shard: name for name, weight_map in indexes.items() for shard in weight_map.values()}
    files = sorted(shards.keys() | {name for name in weights if name.endswith(".safetensors")})
    tensors: dict[str, list[TensorHeader]] = {}
    sizes: dict[str, int] = {}
    for done, name in enumerate(files):
        if progress is not None:
            progress(done, len(files))
        # A file that the user named may be any link; one found by listing or by an index may not.
        path = location if weights == [name] and not location.is_dir() else folder.resolve(name, shards.get(name))
        tensors[name], sizes[name] = read_file(path, folder.label(name), name)
    if progress is not None:
        progress(len(files), len(files))
    for name, weight_map in indexes.items():
        members = sorted(set(weight_map.values()))
        check_index(weight_map, (entry for shard in members for entry in tensors[shard]), folder.label(name))
    if not any(tensors.values()):
        raise ScaffoldError(f"{location} holds no tensors")
    configs, skipped = read_configs(folder, names)
    return CheckpointHeaders(
        source=source,
        files=tuple(CheckpointFile(name, len(tensors[name]), sizes[name]) for name in files),
        entries=tuple(entry for name in files for entry in tensors[name]),
        configs=configs,
        skipped=skipped,
    )


def read_file(path: Path, label: str, file: str) -> tuple[list[TensorHeader], int]:
    """Return one weight file's tensors and the bytes of its data.

    Args:
        path: the file.
        label: its name for errors.
        file: its name in the result.

    Raises:
        ScaffoldError: it cannot be read or is no valid safetensors file.
    """
    with open_regular(path, label) as (stream, size):
        length = header_length(read_up_to(stream, LENGTH_BYTES), size, label)
        raw = read_up_to(stream, length)
    if len(raw) != length:
        raise ScaffoldError(f"{label} became shorter while it was read")
    data_bytes = size - LENGTH_BYTES - length
    return parse_header(raw, data_bytes, label, file), data_bytes


def _indexed(folder: Folder, name: str) -> dict[str, str]:
    weight_map = parse_index(folder.read_small(name, MAX_INDEX_BYTES), folder.label(name))
    beside = PurePosixPath(name).parent
    named = {shard: str(beside / shard) for shard in sorted(set(weight_map.values()))}
    for shard in named.values():
        folder.resolve(shard, name)
    return {tensor: named[shard] for tensor, shard in weight_map.items()}


def _no_weights(location: str, names: list[str]) -> ScaffoldError:
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        shown = ", ".join(pickles[:3]) + (f" and {len(pickles) - 3} more" if len(pickles) > 3 else "")
        return ScaffoldError(
            f"{location} has pickled weights only ({shown}), which are never loaded",
            hint="convert them to safetensors",
        )
    return ScaffoldError(f"{location} holds no .safetensors file", hint="give the folder with the model's weights")
