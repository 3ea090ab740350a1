"""`new --checkpoint`: the pipeline and the package that is about to be written load the checkpoint that was given."""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.checkpoint import read_checkpoint
from scaffold.checkpoint.layout import other_form
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import MisfitError, ScaffoldError
from scaffold.files.layout import PROJECT
from scaffold.grade.layout import layouts
from scaffold.verify.loading.run import load_headers, missing_libraries
from scaffold.verify.loading.text import finding_lines

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.inspect.report import Report
    from scaffold.render import RenderedFile

_NUMBER = re.compile(r"\.\d+(?=\.)")


def loaded(files: Mapping[str, RenderedFile], package: str, pipeline: str, checkpoint: str, notes: list[str]) -> str:
    """Return the result of loading the checkpoint with the package, in words.

    Args:
        files: the package as it will be written, by path.
        package: path of its folder.
        pipeline: registry key, by which the released checkpoint is found.
        checkpoint: folder, file or Hub repository.
        notes: receives remarks on a checkpoint that fits.

    Raises:
        MisfitError: the package does not load it.
    """
    lacking = missing_libraries()
    shown = f"`omni-scaffold remap PACKAGE --checkpoint {shlex.quote(checkpoint)}`"
    if lacking:
        here = f"{sys.executable} has no {', '.join(lacking)}"
        return f"not known: {here}; {shown} compares it with the package where they are"
    with tempfile.TemporaryDirectory(prefix="omni-scaffold-new-") as folder:
        for path, file in files.items():
            if path.startswith(("verl_omni/", f"{PROJECT.packages}/")) and file.link_to is None:
                place = Path(folder, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(file.content, encoding="utf-8")
        try:
            proof = load_headers(Path(folder, package), checkpoint)
        except ScaffoldError as error:
            headers = read_checkpoint(checkpoint)
            strange = _stranger([entry.name for entry in headers.entries], pipeline)
            if strange is None:
                return f"not known: {error.message}"
            source, line, more = headers.source, strange, 0
        else:
            if proof.holds:
                notes += proof.notes
                return proof.summary
            source, line, more = proof.source, finding_lines(proof)[0], len(proof.findings) - 1
            strange = None if proof.tensors else _stranger(proof.names, pipeline)
            line = f"{strange}; {line}" if strange else line
    form = other_form(read_checkpoint(checkpoint))
    line = f"{form}; {line}" if form else line
    also = f" (and {more} more findings)" if more else ""
    raise MisfitError(
        f"{source} is not a checkpoint of this pipeline as it is: {line.rstrip('.')}{also}",
        hint=f"nothing is written; without --checkpoint the package is written, and {shown} shows it in full",
    )


def _stranger(names: Sequence[str], pipeline: str) -> str | None:
    """Return a message if the checkpoint has less than half of the released tensor names, ignoring layer numbers."""
    layout = layouts().get(pipeline)
    if layout is None:
        return None
    released = {_NUMBER.sub(".", entry.name) for entry in layout.headers().entries}
    given = {_NUMBER.sub(".", name) for name in names}
    if 2 * len(released & given) >= len(released):
        return None
    return f"its tensors are not those of {layout.repository}, {quoted(names[0])} first"


def weight_file_notes(report: Report, headers: CheckpointHeaders) -> list[str]:
    """Return a warning if the checkpoint has none of the files the pipeline loads: the rollout would not start.

    Args:
        report: what ``inspect`` found; if the files are not certain, there is no warning.
        headers: of the checkpoint, or of a folder or file inside it.
    """
    files = report.fact("answers.checkpoint.files")
    if not files.value or files.confidence != "certain":
        return []
    names = [f"/{headers.source}/{file.name}" for file in headers.files] + [f"/{headers.source}"]
    if any(fnmatchcase(name, f"*/{pattern}") for name in names for pattern in files.value):
        return []
    place = files.evidence[0]
    loads = f"{report.upstream.pipeline} loads {', '.join(files.value)} ({place.file}:{place.line})"
    return [f"{loads}, and {headers.source} has no such file: a rollout does not start with this checkpoint as it is"]
