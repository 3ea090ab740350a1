"""Presets of a team: files in the checkout, or in the user's configuration, before the packaged ones.

They are read as others' files are: regular, bounded, inside of the tree they belong to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files.digest import sha256_hex
from scaffold.files.reading import RefusedFileError, read_text, walk

FOLDER = ".omni-scaffold"
PRESETS = "presets"
CHECKOUT, USER, FILE = "checkout", "user", "file"
"""Where a file stands: in the tree that is written to, in the user's configuration, or named with ``--preset``."""
LARGEST = 1_000_000
"""Bytes of one preset."""
MOST = 500
"""Files below one folder; more is a mistake."""


@dataclass(frozen=True)
class TeamFile:
    """One file of a team.

    Attributes:
        where: `CHECKOUT`, `USER` or `FILE`.
        name: its path below ``presets/``.
        path: where it was read from.
        shown: what errors call it.
        text: its content.
        inside: the tree that no link may lead out of; None for the user's own.
    """

    where: str
    name: str
    path: Path
    shown: str
    text: str
    inside: Path | None = None

    @property
    def record(self) -> str:
        """What the lock keeps of it."""
        return f"{self.where} {sha256_hex(self.text)}"


@dataclass(frozen=True)
class Layer:
    """A folder with ``presets/``.

    Attributes:
        where: `CHECKOUT` or `USER`.
        folder: the folder.
        inside: the tree that no link may lead out of; None for the user's own.
    """

    where: str
    folder: Path
    inside: Path | None = None

    def presets(self) -> Iterator[TeamFile]:
        """Give the presets, sorted by name.

        Raises:
            ScaffoldError: a file that is not to be read, or too many.
        """
        root = self.folder / PRESETS
        if not root.is_dir():
            return
        found: list[Path] = []
        try:
            for place, folders, names in walk(root, inside=self.inside):
                folders.clear()
                found += [Path(place, name) for name in names if name.endswith(".toml")]
                if len(found) > MOST:
                    raise ScaffoldError(
                        f"{self._shown(root)} holds more than {MOST} files", hint="keep those that are used"
                    )
        except RefusedFileError as error:
            raise ScaffoldError(f"{self._shown(root)} {error.strerror}", hint="mend it, or take it away") from None
        for path in sorted(found):
            name, shown = path.name, self._shown(path)
            if not name.isprintable():  # it would become a word of the lock
                raise ScaffoldError(f"{shown}: its name is not printable text", hint="give it another")
            yield TeamFile(self.where, name, path, shown, read_team_file(path, shown, self.inside), self.inside)

    def _shown(self, path: Path) -> str:
        inner = path.relative_to(self.folder).as_posix()
        return f"{FOLDER}/{inner}" if self.where == CHECKOUT else str(path)


@dataclass(frozen=True)
class Team:
    """What goes before the packaged presets; the first layer that has a file counts.

    Attributes:
        layers: folders, the nearest first.
        preset: the file named with ``--preset``.
    """

    layers: tuple[Layer, ...] = ()
    preset: Path | None = None

    @cached_property
    def presets(self) -> tuple[tuple[TeamFile, ...], ...]:
        """The preset files of each layer; a name that a nearer layer has is left out."""
        layers = [tuple(layer.presets()) for layer in self.layers]
        if self.preset is not None:
            text = read_team_file(self.preset, str(self.preset), None)
            layers.insert(0, (TeamFile(FILE, self.preset.name, self.preset, str(self.preset), text),))
        seen: set[str] = set()
        kept = []
        for files in layers:
            kept.append(tuple(file for file in files if file.name not in seen))
            seen.update(file.name for file in files)
        return tuple(kept)


PACKAGED = Team()
"""Nothing but what comes with the tool."""


def team_of(tree: Path | None, preset: Path | None = None) -> Team:
    """Return the team of a tree that is written to: a checkout, or the folder given to ``--out``.

    Args:
        tree: the tree; None where there is none, which leaves the user's configuration.
        preset: the file named with ``--preset``.
    """
    layers = [] if tree is None else [Layer(CHECKOUT, tree / FOLDER, tree)]
    own = user_folder()
    return Team((*layers, *([] if own is None else [Layer(USER, own)])), preset)


def team_for(tree: Path, preset: Path | None, *, packaged: bool) -> Team:
    """Return the team of a tree, as a command line asks for it.

    Raises:
        ScaffoldError: a preset is named, and nothing but what is packaged is asked for.
    """
    if packaged and preset is not None:
        raise ScaffoldError("--preset and --packaged exclude each other", hint="leave one of them out")
    return PACKAGED if packaged else team_of(tree, preset)


def user_folder() -> Path | None:
    """Return the user's configuration folder, which need not be there; None where no home is known."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if Path(base).is_absolute():
        return Path(base, "omni-scaffold")
    home = os.path.expanduser("~")  # noqa: PTH111  # needs no home
    return Path(home, ".config", "omni-scaffold") if Path(home).is_absolute() else None


def read_team_file(path: Path, shown: str, inside: Path | None) -> str:
    """Return the text of a preset.

    Raises:
        ScaffoldError: it cannot be read, or is not to be.
    """
    try:
        return read_text(path, LARGEST, inside=inside)
    except UnicodeDecodeError:
        raise ScaffoldError(f"{shown} is not UTF-8 text", hint="mend it, or take it away") from None
    except OSError as error:
        raise ScaffoldError(f"{shown}: {error.strerror}", hint="mend it, or take it away") from None
