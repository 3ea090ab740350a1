"""A spec on disk: ``scaffold.toml``, and the ``scaffold.lock.toml`` beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.files.reading import LARGEST, read_text
from scaffold.spec.lock import LOCK_NAME, is_as_written, rendered_values
from scaffold.spec.model import RESTORE, IntegrationSpec

# Its former name, which verl-omni's .gitignore keeps out of commits.
_FORMER = "scaffold.lock"


@dataclass(frozen=True)
class StoredSpec:
    """What was read.

    Attributes:
        spec: both files together.
        text: ``scaffold.toml``.
        lock: ``scaffold.lock.toml``; None where there is none.
    """

    spec: IntegrationSpec
    text: str
    lock: str | None

    @property
    def edited(self) -> bool:
        """Whether ``scaffold.toml`` is not what the tool wrote."""
        return not is_as_written(self.text, self.lock)

    @property
    def rendered(self) -> dict[str, dict[str, Any]] | None:
        """Every value that the files were rendered from, by section; None where an older version wrote the lock."""
        return None if self.lock is None else rendered_values(self.lock)


def read_spec(path: Path, *, inside: Path | None = None, shown: str | None = None, limit: int = LARGEST) -> StoredSpec:
    """Return the spec of a ``scaffold.toml``.

    Args:
        path: the file.
        inside: the tree that both files belong to.
        shown: what errors call it.
        limit: the most bytes that each file may have.

    Raises:
        ScaffoldError: one of the files cannot be read, or says nothing that is a spec.
    """
    name = shown or str(path)
    text, lock = _text(path, name, inside, limit), None
    beside, former = path.with_name(LOCK_NAME), path.with_name(_FORMER)
    if beside.is_file() or beside.is_symlink():
        lock = _text(beside, f"{name.removesuffix(path.name)}{LOCK_NAME}", inside, limit)
    elif former.is_file():
        raise ScaffoldError(f"{name} has no {LOCK_NAME} beside it", hint=f"rename {former.name}, as it was called")
    return StoredSpec(IntegrationSpec.from_toml(text, name, lock=lock), text, lock)


def _text(path: Path, shown: str, inside: Path | None, limit: int) -> str:
    try:
        return read_text(path, limit, inside=inside)
    except UnicodeDecodeError:
        raise ScaffoldError(f"{shown} is not UTF-8 text", hint=RESTORE) from None
    except OSError as error:
        raise ScaffoldError(f"cannot read {shown}: {error.strerror}", hint=RESTORE) from None
