"""Hostile checkpoints: each is one line of error that names the file, whatever is in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.checkpoint import read_checkpoint
from scaffold.errors import ScaffoldError

Write = Callable[..., Path]


def entry(dtype: Any = "F32", shape: Any = (2,), begin: Any = 0, end: Any = 8) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def refused(location: Path, pattern: str, file: str | None = None) -> ScaffoldError:
    with pytest.raises(ScaffoldError, match=pattern) as caught:
        read_checkpoint(location)
    line = caught.value.line
    assert line.isprintable()
    assert (file or location.name) in line
    assert len(line) < 600
    assert caught.value.exit_code == 2
    return caught.value


HEADERS: dict[str, tuple[object, int, str]] = {
    "not JSON": (b"{nope", 0, "is not JSON"),
    "nothing": (b"", 0, "is not JSON"),
    "zeros": (b"\0" * 64, 0, "is not JSON"),
    "trailing": (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}x', 8, "is not JSON"),
    "list": (b"[]", 0, "holds no JSON object but list"),
    "text": (b'"a"', 0, "holds no JSON object but str"),
    "not UTF-8": (b'{"\xff":1}', 0, "is not UTF-8"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), 0, "is not UTF-8"),
    "lone surrogate": (
        b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        8,
        "is not text",
    ),
    "key that is not text": (b'{1:{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', 8, "is not JSON"),
    "duplicate tensor": (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        8,
        "has the key 'a' twice",
    ),
    "duplicate field": (
        b'{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}',
        8,
        "has the key 'shape' twice",
    ),
    "escaped duplicate": (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"\\u0061":{}}',
        8,
        "has the key 'a' twice",
    ),
    "unknown dtype": ({"a": entry(dtype="F31")}, 8, "unknown dtype 'F31'"),
    "dtype no text": ({"a": entry(dtype=["F32"])}, 8, "unknown dtype"),
    "no entry": ({"a": 5}, 0, "described by no object"),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, 8, "has no shape"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [2]}}, 8, "has no data_offsets"),
    "three offsets": ({"a": {**entry(), "data_offsets": [0, 8, 9]}}, 8, "has no data_offsets"),
    "negative": ({"a": entry(shape=(-2, -1))}, 8, "negative number"),
    "negative zero": (b'{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}', 0, "negative number"),
    "fraction": ({"a": entry(shape=(2.0,))}, 8, "only whole numbers"),
    "infinity": (b'{"a":{"dtype":"F32","shape":[Infinity],"data_offsets":[0,8]}}', 8, "only whole numbers"),
    "truth": ({"a": entry(shape=(True,), end=4)}, 4, "has no shape"),
    "text in shape": ({"a": entry(shape=("2",))}, 8, "has no shape"),
    "many dimensions": ({"a": entry(shape=(1,) * 100, end=4)}, 4, "has no shape of up to 64"),
    "overflow": ({"a": entry(shape=(1 << 62, 1 << 62))}, 8, "does not fit 64 bits"),
    "overflow to the size": ({"a": entry(shape=(1 << 32, 1 << 32, 2), end=8)}, 8, "does not fit 64 bits"),
    "overflow then zero": ({"a": entry(shape=(1 << 62, 1 << 62, 0), end=0)}, 0, "does not fit 64 bits"),
    "long number": (b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b"]}}", 0, "number of 5000 digits"),
    "size and range": ({"a": entry(shape=(3,))}, 8, r"takes 96 bits, but its range 0 to 8 has 64"),
    "backwards": ({"a": entry(begin=8, end=0)}, 8, "its range 8 to 0"),
    "part of a byte": ({"a": entry(dtype="F4", shape=(3,), end=2)}, 2, "takes 12 bits"),
    "overlap": ({"a": entry(), "b": entry(begin=4, end=12)}, 12, "ranges of 'a' and 'b' overlap"),
    "same range": ({"a": entry(), "b": entry()}, 8, "ranges of 'a' and 'b' overlap"),
    "gap": ({"a": entry(), "b": entry(begin=12, end=20)}, 20, "4 bytes before 'b' belong to no tensor"),
    "gap at the start": ({"a": entry(begin=4, end=12)}, 12, "4 bytes before 'a'"),
    "out of file": ({"a": entry()}, 7, "ends at byte 8 of the data, the file holds 7"),
    "left over": ({"a": entry()}, 9, "the last 1 bytes belong to no tensor"),
    "metadata": ({"__metadata__": {"a": 1}, "b": entry()}, 8, "__metadata__"),
    "nested": (b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", 0, "nested too deeply"),
    "nested objects": (b'{"a":' * 500_000 + b"1" + b"}" * 500_000, 0, "nested too deeply"),
    "nested without end": (b"[" * 8_000_000, 0, "not a table of tensors"),
    "empty lists": (b'{"a":[' + b"[]," * 3_000_000 + b"0]}", 0, "not a table of tensors"),
    "empty objects": (b'{"a":[' + b"{}," * 3_000_000 + b"0]}", 0, "not a table of tensors"),
    "many numbers": (b'{"a":[' + b"0," * 4_000_000 + b"0]}", 0, "not a table of tensors"),
    "hidden in text": (
        b'{"' + b'{\\"\\\\' * 1_000_000 + b'":[' + b"[]," * 2_000_000 + b"0]}",
        0,
        "not a table of tensors",
    ),
    "no tensors": ({}, 0, "holds no tensors"),
}


@pytest.mark.parametrize("case", HEADERS, ids=str)
def test_header(case: str, tmp_path: Path, raw_weights: Write) -> None:
    header, data_bytes, message = HEADERS[case]
    path = raw_weights(tmp_path / "w.safetensors", header, data_bytes)
    refused(path, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (b"abc", "has 3 bytes"),
        ((100).to_bytes(8, "little") + b"{}", "its header claims 100 bytes, the file has 10"),
        ((100_000_001).to_bytes(8, "little") + b"{}", "over 100 MB"),
        (b"\xff" * 100, "over 100 MB"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html></html>", "is an HTML page, not the weights"),
        (b'{"error":"Repository not found"}', "is the error message of a server"),
        (b"PK\x03\x04" + bytes(30), "is a zip archive, as torch.save writes"),
    ],
)
def test_length(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    refused(path, message)


def test_header_over_100_mb_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with path.open("wb") as stream:
        stream.write((1 << 33).to_bytes(8, "little"))
        stream.truncate(1 << 34)
    refused(path, "over 100 MB")


INDEXES: dict[str, tuple[str, str]] = {
    "not JSON": ("{", "is not JSON"),
    "list": ("[]", "holds no JSON object"),
    "no map": ("{}", "has no weight_map"),
    "map is a list": ('{"weight_map": []}', "has no weight_map"),
    "empty map": ('{"weight_map": {}}', "has no weight_map"),
    "no file name": ('{"weight_map": {"norm.w": 1}}', "to no file name"),
    "no weight file": ('{"weight_map": {"norm.w": "config.json"}}', r"not a \.safetensors file"),
    "missing shard": ('{"weight_map": {"norm.w": "gone.safetensors"}}', "gone.safetensors.*is not there"),
    "absolute": ('{"weight_map": {"norm.w": "/etc/x.safetensors"}}', "not a path inside the checkpoint"),
    "parent": ('{"weight_map": {"norm.w": "../x.safetensors"}}', "not a path inside the checkpoint"),
    "hidden parent": ('{"weight_map": {"norm.w": "a/../../x.safetensors"}}', "not a path inside the checkpoint"),
    "drive": ('{"weight_map": {"norm.w": "C:x.safetensors"}}', "not a path inside the checkpoint"),
    "backslash": ('{"weight_map": {"norm.w": "..\\\\x.safetensors"}}', "not a path inside the checkpoint"),
    "nul": ('{"weight_map": {"norm.w": "\\u0000.safetensors"}}', "not a path inside the checkpoint"),
    "surrogate": ('{"weight_map": {"norm.w": "\\ud800.safetensors"}}', "is not there"),
    "long": ('{"weight_map": {"norm.w": "' + "x" * 5000 + '.safetensors"}}', "is not there"),
    "duplicate": (
        '{"weight_map": {"norm.w": "a.safetensors", "norm.w": "b.safetensors"}}',
        "has the key 'norm.w' twice",
    ),
    "nested": ('{"weight_map": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    "tensor not in the index": (
        '{"weight_map": {"layers.0.w": "model-00001-of-00002.safetensors"}}',
        "holds 'layers.1.w', which the index does not name",
    ),
    "tensor in no shard": (
        '{"weight_map": {"norm.w": "model-00002-of-00002.safetensors", "x": "model-00002-of-00002.safetensors"}}',
        "places 'x' in 'model-00002-of-00002.safetensors', which does not hold it",
    ),
    "tensor in another shard": (
        json.dumps(
            {
                "weight_map": {
                    "norm.w": "model-00001-of-00002.safetensors",
                    "layers.0.w": "model-00001-of-00002.safetensors",
                    "layers.1.w": "model-00002-of-00002.safetensors",
                }
            }
        ),
        "holds 'layers.1.w', which the index places in 'model-00002",
    ),
}


@pytest.mark.parametrize("case", INDEXES, ids=str)
def test_index(case: str, sharded: Path) -> None:
    text, message = INDEXES[case]
    (sharded / "model.safetensors.index.json").write_text(text)
    refused(sharded, message, "model.safetensors.index.json")


def test_index_over_its_limit_is_not_read(sharded: Path) -> None:
    os.truncate(sharded / "model.safetensors.index.json", 1 << 30)
    refused(sharded, "is larger than", "model.safetensors.index.json")


def test_links_may_not_leave_the_folder(tmp_path: Path, sharded: Path, weights: Write) -> None:
    outside = weights(tmp_path / "outside" / "x.safetensors", {"x": ("F32", [2])})
    (sharded / "inside.safetensors").symlink_to("model-00002-of-00002.safetensors")
    assert len(read_checkpoint(sharded / "inside.safetensors").tensors) == 1
    (sharded / "inside.safetensors").unlink()
    (sharded / "link.safetensors").symlink_to(outside)
    refused(sharded, "link that leaves the checkpoint folder", "link.safetensors")
    (sharded / "link.safetensors").unlink()
    (sharded / "sub").symlink_to(outside.parent)
    (sharded / "model.safetensors.index.json").write_text('{"weight_map": {"x": "sub/x.safetensors"}}')
    refused(sharded, "link that leaves the checkpoint folder", "sub/x.safetensors")
    (sharded / "model.safetensors.index.json").unlink()
    read_checkpoint(sharded)
    (sharded / "config.json").unlink()
    (sharded / "config.json").symlink_to("/etc/hostname")
    refused(sharded, "link that leaves the checkpoint folder", "config.json")
    (sharded / "config.json").unlink()
    (sharded / "loop.safetensors").symlink_to("loop.safetensors")
    refused(sharded, "is not there or cannot be reached", "loop.safetensors")


def test_a_link_to_the_folder_is_the_users_choice(tmp_path: Path, sharded: Path) -> None:
    (tmp_path / "link").symlink_to(sharded)
    assert len(read_checkpoint(tmp_path / "link").tensors) == 3
    (tmp_path / "one.safetensors").symlink_to(sharded / "model-00002-of-00002.safetensors")
    assert list(read_checkpoint(tmp_path / "one.safetensors").tensors) == ["norm.w"]


def test_a_hub_snapshot_links_to_its_own_blobs_only(tmp_path: Path, weights: Write) -> None:
    snapshots = {}
    for name in ("models--o--one", "models--o--two"):
        weights(tmp_path / name / "blobs" / "abc", {"a": ("F32", [2])})
        snapshots[name] = tmp_path / name / "snapshots" / "0123"
        snapshots[name].mkdir(parents=True)
    good = snapshots["models--o--one"]
    (good / "a.safetensors").symlink_to("../../blobs/abc")
    assert list(read_checkpoint(good).tensors) == ["a"]
    sub = good / "transformer"
    sub.mkdir()
    (sub / "a.safetensors").symlink_to("../../../blobs/abc")
    assert list(read_checkpoint(sub).tensors) == ["a"]
    (good / "b.safetensors").symlink_to("../../../models--o--two/blobs/abc")
    refused(good, "link that leaves the checkpoint folder", "b.safetensors")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_folders_are_no_weights(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    refused(tmp_path, "not a regular file", "pipe.safetensors")
    refused(tmp_path / "pipe.safetensors", "not a regular file")
    (tmp_path / "pipe.safetensors").unlink()
    (tmp_path / "folder.safetensors").mkdir()
    refused(tmp_path, "not a regular file", "folder.safetensors")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_unreadable(tmp_path: Path, weights: Write) -> None:
    weights(tmp_path / "a.safetensors", {"a": ("F32", [2])}).chmod(0)
    refused(tmp_path, "cannot read", "a.safetensors")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "has the key 'a' twice"),
        ('{"a": ' + "9" * 10_000 + "}", "number too long"),
        (" " * 2_000_001, "is larger than"),
    ],
)
def test_config(text: str, message: str, tmp_path: Path, weights: Write) -> None:
    weights(tmp_path / "a.safetensors", {"a": ("F32", [2])})
    (tmp_path / "tokens.json").write_text(text)
    assert message in read_checkpoint(tmp_path).skipped["tokens.json"]
    assert str(tmp_path.parent) not in repr(read_checkpoint(tmp_path))
    (tmp_path / "config.json").write_text(text)
    refused(tmp_path, message, "config.json")


def test_names_are_data(tmp_path: Path, weights: Write) -> None:
    names = ["a'\"b", "a\nb", "{x}", "{{ y }}", "{% raw %}", "__import__('os')", "\x00", "ключ", "..", "a" * 5000, ""]
    weights(tmp_path / "a.safetensors", {name: ("U8", [1]) for name in names})
    assert list(read_checkpoint(tmp_path).tensors) == names


# Reads a folder within 1 GB of address space and prints the error.
BOUNDED = """
import resource, sys
from scaffold.checkpoint import read_checkpoint
from scaffold.errors import ScaffoldError
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    read_checkpoint(sys.argv[1])
except ScaffoldError as error:
    print(error.line)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of memory is Linux's")
@pytest.mark.parametrize(
    ("kind", "opening"),
    [
        pytest.param("header", b"[", marks=pytest.mark.table),
        ("header", b'{"a":'),
        *((kind, b'{"":[') for kind in ("header", "claim", "index")),
        pytest.param("config", b'{"":[', marks=pytest.mark.table),
    ],
    ids=["lists", "objects", "both", "claim", "index", "config"],
)
def test_a_gigabyte_of_nesting(kind: str, opening: bytes, tmp_path: Path, weights: Write) -> None:
    """A header of all the size that is read, and files of a gigabyte, which are not."""
    nesting = (opening * (100_000_000 // len(opening)))[:99_000_000]
    if kind != "header":
        nesting = nesting[:2_500_000]
    size = 1 << 30
    file = {"index": "model.safetensors.index.json", "config": "config.json"}.get(kind, "model.safetensors")
    if kind in ("index", "config"):
        weights(tmp_path / "model.safetensors", {"a": ("F32", [2])})
    with (tmp_path / file).open("wb") as stream:
        if kind in ("header", "claim"):
            stream.write((len(nesting) if kind == "header" else size).to_bytes(8, "little"))
        stream.write(nesting)
        if kind != "header":
            stream.truncate(size + 8)
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    line = done.stdout
    assert file in line
    assert re.search("not a table of tensors|nested too deeply|over 100 MB|is larger than|is not JSON", line), line
