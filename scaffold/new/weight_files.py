"""Whether the checkpoint that is given is one that the pipeline would load."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaffold.checkpoint import CheckpointHeaders
    from scaffold.inspect.report import Report


def weight_file_notes(report: Report, headers: CheckpointHeaders) -> list[str]:
    """Say so where the checkpoint has none of the files that the pipeline loads; the rollout would not start on it.

    Args:
        report: what ``inspect`` found; where it is not certain of the files, nothing is said.
        headers: of the checkpoint; of a folder or file inside of the released one, too.
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
