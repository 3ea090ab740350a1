"""The file a report goes to: which format its suffix means, whether it can be written, and writing it whole."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scaffold.errors import ScaffoldError
from scaffold.files.reading import expanded

if TYPE_CHECKING:
    from scaffold.verify.result import VerifyReport


def write_report(report: VerifyReport, path: Path) -> None:
    """Write ``report`` to ``path``, whole or not at all; an earlier report there is replaced.

    Args:
        report: what ``verify`` found.
        path: ``.html`` for the page, ``.md`` for the section of a pull request.

    Raises:
        ScaffoldError: another suffix, no such folder, something there that is not a regular file, or the disk refused.
    """
    path = expanded(path)
    check_destination(path)
    if path.suffix.lower() == ".html":
        from scaffold.verify.report.html import html_report as made
    else:
        from scaffold.verify.report.markdown import markdown_report as made
    text = made(report)
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(6)}")
    try:
        # Created rather than copied, so that the user's umask decides who may read it.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ScaffoldError(f"cannot write the report {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def check_suffix(path: Path) -> None:
    """Raise unless the suffix of ``path`` names a format, in either case.

    Raises:
        ScaffoldError: another suffix.
    """
    if Path(path).suffix.lower() not in (".html", ".md"):
        raise ScaffoldError(
            f"a report {str(path)!r} has no known format",
            hint="end the name in .html for a page or in .md for a pull request's Test section",
        )


def check_destination(path: Path) -> None:
    """Raise where :func:`write_report` would, as far as can be told without writing.

    Raises:
        ScaffoldError: another suffix, no such folder, or something at ``path`` that is not a regular file.
    """
    path = expanded(path)
    check_suffix(path)
    try:
        if not path.parent.is_dir():
            raise ScaffoldError(
                f"cannot write the report {path}: {path.parent} is not a folder", hint="create it first"
            )
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ScaffoldError(f"cannot write the report {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise ScaffoldError(f"cannot write the report {path}: it is {kind}", hint="give another name")
