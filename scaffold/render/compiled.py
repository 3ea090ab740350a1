"""Compiled templates: known for the rest of the process, and those of the tool kept with its own bytecode.

Jinja compiles a template to Python, which takes longer than all else that rendering does. What is kept is code, so it
stands where Python keeps the bytecode of this module, is written only where Python would write that (never with
``-B``), and is found by everything it depends on. Whoever can write there can replace the tool itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import secrets
import sys
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from types import CodeType

import jinja2
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from scaffold.files.reading import read_bytes
from scaffold.files.resources import PACKAGE_ROOT, templates_root

# A module outside of this folder that works while a template is compiled: Jinja folds what is constant.
_BESIDE = ("terminal/printable.py",)
_DIGEST_BYTES = 32
LARGEST = 4_000_000
"""Bytes of the largest file that is read back."""


class Compiled(BytecodeCache):
    """Templates that this process has compiled, or that an earlier one left: `drift` renders a package many times.

    Args:
        folder: where those of the tool are kept; by default beside the tool's own bytecode.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._known: dict[tuple[str, str], CodeType | None] = {}
        self._folder = folder

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return name and place, which error messages show."""
        return f"{filename}\n{name}"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give the bucket the code, where there is some for its text."""
        at = bucket.key, bucket.checksum
        if at not in self._known and (place := self._place(bucket)) is not None:
            found = _read(place, _identity(bucket))
            if found is not None:
                self._known[at] = found
        bucket.code = self._known.get(at)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code; on disk where the text is the tool's own."""
        self._known[bucket.key, bucket.checksum] = bucket.code
        place = self._place(bucket)
        if place is not None and bucket.code is not None and not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):
                _write(place, _identity(bucket), bucket.code)

    def _place(self, bucket: Bucket) -> Path | None:
        filename = bucket.key.partition("\n")[0]
        if not Path(filename).is_relative_to(_own()):
            return None
        try:
            own = Path(cache_from_source(__file__))
        except NotImplementedError:  # this Python keeps no bytecode
            return None
        name = hashlib.sha256(bucket.key.encode()).hexdigest()[:16]
        return (self._folder or own.parent) / f"{own.stem}.{name}.template"


@cache
def _own() -> Path:
    return templates_root().resolve()


@cache
def _tool() -> bytes:
    """Return the digest of what compiles: this Python, Jinja, and the modules that have a part in it."""
    digest = hashlib.sha256(MAGIC_NUMBER + jinja2.__version__.encode())
    beside = (PACKAGE_ROOT / name for name in _BESIDE)
    for path in (*sorted(Path(__file__).parent.glob("*.py")), *beside):
        digest.update(hashlib.sha256(read_bytes(path)).digest())
    return digest.digest()


def _identity(bucket: Bucket) -> bytes:
    return hashlib.sha256(_tool() + f"{bucket.key}\n{bucket.checksum}".encode()).digest()


def _read(place: Path, identity: bytes) -> CodeType | None:
    """Return the code of a file that is whole and of this identity."""
    try:
        data = read_bytes(place, LARGEST)
    except OSError:
        return None
    body = data[2 * _DIGEST_BYTES :]
    if data[: 2 * _DIGEST_BYTES] != identity + hashlib.sha256(body).digest():
        return None
    code = marshal.loads(body)
    return code if isinstance(code, CodeType) else None


def _write(place: Path, identity: bytes, code: CodeType) -> None:
    body = marshal.dumps(code)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
    try:
        draft.write_bytes(identity + hashlib.sha256(body).digest() + body)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)
