"""`new --checkpoint`: the package that is about to be written loads the checkpoint that was given."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.errors import MisfitError, ScaffoldError

if TYPE_CHECKING:
    from scaffold.render import RenderedFile


def loaded(files: Mapping[str, RenderedFile], package: str, checkpoint: str, notes: list[str]) -> str | None:
    """What the package makes of the checkpoint, in words; None, and a note, where that could not be seen.

    Args:
        files: the package as it will be written, by path.
        package: path of its folder.
        checkpoint: folder, file or Hub repository.
        notes: gets the reason where nothing is known.

    Raises:
        MisfitError: the package does not load it.
    """
    from scaffold.verify.loading.run import load_headers, missing_libraries
    from scaffold.verify.loading.text import finding_lines

    lacking = missing_libraries()
    command = f"`omni-scaffold remap PACKAGE --checkpoint {shlex.quote(checkpoint)}`"
    if lacking:
        here = f"{sys.executable} has no {', '.join(lacking)}"
        notes.append(f"the checkpoint was not compared with the package: {here}; {command} does it where they are")
        return None
    with tempfile.TemporaryDirectory(prefix="omni-scaffold-new-") as folder:
        for path, file in files.items():
            if path.startswith("verl_omni/") and file.link_to is None:
                place = Path(folder, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(file.content, encoding="utf-8")
        try:
            proof = load_headers(Path(folder, package), checkpoint)
        except ScaffoldError as error:
            notes.append(f"the checkpoint was not compared with the package: {error.message}")
            return None
    if not proof.holds:
        line, *more = finding_lines(proof)
        also = f" (and {len(more)} more findings)" if more else ""
        raise MisfitError(
            f"{proof.source} is no checkpoint of this pipeline as it is: {line.rstrip('.')}{also}",
            hint="nothing is written; without --checkpoint the package is written, and `omni-scaffold remap PACKAGE"
            f" --checkpoint {shlex.quote(checkpoint)}` shows it in full",
        )
    notes += proof.notes
    return proof.summary
