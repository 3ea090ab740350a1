"""Random and mutated headers: a verdict in one line, and the same as the safetensors library's."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaffold.checkpoint import read_checkpoint, read_manifest
from scaffold.errors import ScaffoldError
from scaffold.files.resources import presets_root

# One knob for all of them: the seconds that the byte-mutating test runs, examples of the others in proportion.
LONGER = max(1, int(float(os.environ.get("OMNI_SCAFFOLD_FUZZ_SECONDS", "3")) / 3))

safetensors = pytest.importorskip("safetensors")
pytest.importorskip("numpy")

Table = dict[str, tuple[str, tuple[int, ...]]]


def ours(path: Path) -> Table | str:
    return read(path, path.name)


def read(location: Path, file: str) -> Table | str:
    line = ""
    try:
        headers = read_checkpoint(location)
    except ScaffoldError as error:
        line = error.line
    if line:
        assert line.isprintable()
        assert file in line
        return line
    return {name: (tensor.dtype, tensor.shape) for name, tensor in headers.tensors.items()}


def theirs(path: Path) -> Table | str:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()}
    except safetensors.SafetensorError as error:
        return str(error)


# What we refuse and the library lets pass.
STRICTER = ("twice", "holds no tensors", "described by no object", "up to 64 whole numbers", "nested too deeply")


def compare(path: Path) -> Table | str:
    mine, library = ours(path), theirs(path)
    if isinstance(mine, dict):
        assert mine == library
    elif isinstance(library, dict):
        assert any(reason in mine for reason in STRICTER), mine
    return mine


sizes = st.one_of(
    st.integers(0, 4), st.sampled_from([-1, 2**31, 2**32, 2**62, 2**63, 2**64, 2**70, True, 1.0, "2", None])
)
entries = st.one_of(
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "F6_E2M3", "C64", "BOOL", "f32", None]),
            "shape": st.lists(sizes, max_size=3),
            "data_offsets": st.lists(st.one_of(st.integers(0, 24), sizes), min_size=1, max_size=3),
        },
        optional={"extra": st.integers()},
    ),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=2), lambda inner: st.lists(inner, max_size=2), max_leaves=3
    ),
)


@settings(max_examples=120 * LONGER, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.dictionaries(st.text(max_size=3), entries, max_size=3), data_bytes=st.integers(0, 24))
def test_random_headers(
    header: dict[str, Any], data_bytes: int, tmp_path: Path, raw_weights: Callable[..., Path]
) -> None:
    compare(raw_weights(tmp_path / "w.safetensors", header, data_bytes))


@settings(max_examples=100 * LONGER, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.text(max_size=6), st.sampled_from(["F32", "BF16", "U8"]), st.lists(st.integers(0, 3), max_size=3)),
        unique_by=lambda row: row[0],
        min_size=1,
        max_size=6,
    )
)
def test_good_headers_are_read(
    rows: list[tuple[str, str, list[int]]], tmp_path: Path, weights: Callable[..., Path]
) -> None:
    tensors = {name: (dtype, shape) for name, dtype, shape in rows if name != "__metadata__"}
    path = weights(tmp_path / "w.safetensors", tensors)
    assert ours(path) == theirs(path) == {name: (dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()}


def test_mutated_real_header(tmp_path: Path, weights: Callable[..., Path], fuzz_seconds: float) -> None:
    manifest = read_manifest(presets_root() / "manifests" / "bagel-7b-mot.ema.json")
    # Every seventh tensor: a mutation then costs a millisecond.
    tensors = {e.name: (e.dtype, list(e.shape)) for e in manifest.entries[::7]}
    path = weights(tmp_path / "w.safetensors", tensors)
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        original = (length).to_bytes(8, "little") + stream.read(length)
    size = path.stat().st_size
    dice = random.Random(20260822)
    accepted = refused = 0
    end = time.monotonic() + fuzz_seconds
    while time.monotonic() < end:
        mutated = bytearray(original)
        for _ in range(dice.choice((1, 1, 1, 2, 8))):
            place = dice.randrange(dice.choice((8, len(mutated), len(mutated))))
            kind = dice.randrange(4)
            if kind == 0:
                mutated[place] = dice.randrange(256)
            elif kind == 1:
                mutated[place] = dice.choice(b'0123456789{}[]",:\\ abB')
            elif kind == 2:
                mutated[place] ^= 1 << dice.randrange(8)
            else:
                other = dice.randrange(8, len(mutated) - 40)
                mutated[place : place + 20] = mutated[other : other + 20]
        mutated += bytes(max(0, len(original) - len(mutated)))
        with path.open("r+b") as stream:
            stream.write(mutated[: len(original)])
            stream.truncate(size if dice.random() < 0.9 else dice.randrange(size))
        if isinstance(compare(path), dict):
            accepted += 1
        else:
            refused += 1
    assert accepted
    assert refused


@settings(max_examples=100 * LONGER, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    index=st.one_of(
        st.binary(max_size=20),
        st.dictionaries(
            st.sampled_from(["weight_map", "metadata"]),
            st.one_of(
                st.dictionaries(
                    st.sampled_from(["layers.0.w", "layers.1.w", "norm.w", "x"]),
                    st.one_of(
                        st.sampled_from(["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]),
                        st.text(max_size=5).map(lambda name: name + ".safetensors"),
                        st.integers(),
                    ),
                ),
                st.lists(st.integers(0, 9), max_size=2),
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_random_indexes(index: bytes, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_bytes(index)
    found = read(sharded, "model.safetensors.index.json")
    if isinstance(found, dict):
        assert set(found) == set(json.loads(index)["weight_map"])  # shards that it leaves out are not read
