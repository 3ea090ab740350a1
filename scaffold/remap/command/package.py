"""A rendered package on disk: its spec, its training module and rollout adapter as text."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffold.checkpoint.quoting import quoted
from scaffold.errors import ScaffoldError
from scaffold.parsing import parse
from scaffold.reading import read_text
from scaffold.remap.key_map import KeyMap
from scaffold.spec import SPEC_NAME, IntegrationSpec, read_spec
from scaffold.team import Team, team_of

MAX_BYTES = 4_000_000


@dataclass(frozen=True)
class Package:
    """A folder with ``scaffold.toml`` and the files that were rendered from it."""

    folder: Path
    spec: IntegrationSpec

    @property
    def team(self) -> Team:
        """Presets that go before the packaged ones in the tree that the package stands in."""
        in_tree = self.folder.resolve().as_posix().endswith(f"/verl_omni/pipelines/{self.folder.resolve().name}")
        return team_of(self.folder.resolve().parents[2] if in_tree else None)

    @classmethod
    def find(cls, target: str) -> Package | None:
        """Return the package that a command's argument names; None where it can only be a pipeline.

        Args:
            target: the package's folder, its ``scaffold.toml``, or a tree with one such package below
                ``verl_omni/pipelines/``.

        Raises:
            ScaffoldError: a folder without a package, or with several.
        """
        path = Path(target)
        if path.name == SPEC_NAME and path.is_file():
            return cls.open(path.parent)
        if not path.is_dir():
            if "/" in target or target in (".", ".."):
                raise ScaffoldError(f"there is no package at {target}", hint=f"give the folder that has {SPEC_NAME}")
            return None
        if (path / SPEC_NAME).is_file():
            return cls.open(path)
        found = sorted(path.glob(f"verl_omni/pipelines/*/{SPEC_NAME}"))
        if len(found) == 1:
            return cls.open(found[0].parent)
        if found:
            names = ", ".join(spec.parent.name for spec in found[:5])
            raise ScaffoldError(f"{target} holds several packages ({names})", hint="name the folder of one")
        if "/" in target or target in (".", ".."):
            raise ScaffoldError(f"{target} has no {SPEC_NAME}", hint="give a package below verl_omni/pipelines/")
        return None

    @classmethod
    def open(cls, folder: Path) -> Package:
        """Return the package in a folder.

        Raises:
            ScaffoldError: its spec cannot be read.
        """
        return cls(folder, read_spec(folder / SPEC_NAME, inside=folder, limit=MAX_BYTES).spec)

    def value(self, path: str) -> Any:
        """Return a value of the spec.

        Raises:
            ScaffoldError: the spec does not have it.
        """
        found = self.spec.value(path)
        if found is None:
            raise ScaffoldError(f"{self.folder / SPEC_NAME} has no {path}", hint="render the package again")
        return found

    @property
    def module_path(self) -> Path:
        """The file of the training module."""
        return self.folder / f"{self.value('names.model')}_model.py"

    def module_tree(self) -> ast.Module:
        """Return the training module, parsed."""
        return _parsed(self.module_path)

    def modules(self) -> dict[str, ast.Module]:
        """Return every module of the package by name, parsed."""
        return parsed_modules(self.folder)

    def key_map(self) -> KeyMap:
        """Return the rules of the spec."""
        return KeyMap.from_data(self.value("checkpoint.rules"))


def parsed_modules(folder: Path) -> dict[str, ast.Module]:
    """Return the Python files of a folder by name, parsed.

    Raises:
        ScaffoldError: one cannot be read.
    """
    return {path.stem: _parsed(path) for path in sorted(folder.glob("*.py")) if path.is_file()}


def _parsed(path: Path) -> ast.Module:
    try:
        return parse(source_text(path), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ScaffoldError(f"{path}{line} is not Python: {quoted(str(error))}") from None


def source_text(path: Path) -> str:
    """Return the text of a file of a package.

    Raises:
        ScaffoldError: it cannot be read, is too large, or no text.
    """
    try:
        return read_text(path, MAX_BYTES, inside=path.parent)
    except OSError as error:
        raise ScaffoldError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScaffoldError(f"{path} is no UTF-8 text") from None
