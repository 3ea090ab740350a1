"""The command line. `run` is the console script; each module of ``commands/`` is a command."""

from __future__ import annotations

import os
import sys

try:
    import contextlib
    import errno
    import gc
    import io
    import re
    from typing import NoReturn

    from scaffold import limits
    from scaffold.errors import ScaffoldError
    from scaffold.files.reading import RefusedFileError
    from scaffold.terminal.interrupt import EXIT_CODE, line
    from scaffold.terminal.printable import printable
except KeyboardInterrupt:  # as `main` says it, before there is anything to say it with
    os.write(2, b"error: omni-scaffold was interrupted; nothing was written; run the command again\n")
    os._exit(130)

# Errors of a full disk, a quota, missing permissions or exhausted resources; anything else is our bug.
_REFUSALS = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM", "EIO")
)
# Errors of a path that no file system accepts.
_NO_PATHS = frozenset({errno.ENAMETOOLONG, errno.ELOOP})

# The two forms in which click and typer suggest similar names.
_MEANT = r"\.? \(?(?:Did you mean|Possible options:) ([^()?]+)[)?]+$"


def run() -> NoReturn:
    """The console script: runs `main` in a process that then exits, so that garbage is never collected."""
    gc.disable()
    limits.MAY_CACHE = True
    try:
        main()
    finally:
        # Python collects garbage twice at exit, which is slow with the syntax trees of a checkout.
        gc.freeze()


def main() -> NoReturn:
    """Run the command; user errors are one line on stderr."""
    try:
        _stand_on_open_files()
        _speak_utf8()
        _drop_columns()
        # Imported here, so that Ctrl-C during the import, which takes 0.1 s, is not a traceback either.
        from scaffold.cli.app import app

        status = app(next(iter(sys.argv[1:]), ""))(prog_name="omni-scaffold", standalone_mode=False)
        if status == EXIT_CODE:  # typer raises this for Ctrl-C while it reads the arguments
            raise KeyboardInterrupt
    except ScaffoldError as error:
        _fail(error.line, error.exit_code)
    except KeyboardInterrupt as interrupt:
        _fail(line("omni-scaffold", interrupt), EXIT_CODE)
    except BrokenPipeError:
        _reader_left()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # click and rich turn it into exit code 1
            _reader_left()
        raise
    except (MemoryError, RecursionError) as error:
        from scaffold.limits.bounded import memory

        what = "nested too deeply" if isinstance(error, RecursionError) else f"too large for {memory()}"
        command = next(iter(sys.argv[1:]), "")
        _fail(f"`omni-scaffold {command}`: something that it reads is {what}", ScaffoldError.exit_code)
    except OSError as error:
        _environment(error)
    except RuntimeError as error:
        if not str(error).startswith("Symlink loop"):  # pathlib raises this for a link loop before Python 3.13
            raise
        _fail(str(error), ScaffoldError.exit_code)
    except Exception as error:
        _usage(error)
    sys.exit(status if isinstance(status, int) else 0)


def _stand_on_open_files() -> None:
    """Give input and messages that are closed the empty device, so that no other file takes their number.

    Raises:
        ScaffoldError: nothing can be printed.
    """
    closed = []
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            closed.append(number)
            os.open(os.devnull, os.O_RDWR)  # takes the smallest number that is free
    if sys.stderr is None or 2 in closed:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if 1 in closed:
        raise ScaffoldError("standard output is closed", hint="send it to a file, or to /dev/null")


def _drop_columns() -> None:
    """Leave a width out that no terminal has: nothing fits into 0 columns, and padding fills the memory."""
    with contextlib.suppress(KeyError):
        columns = os.environ["COLUMNS"]
        if not (columns.isdecimal() and 0 < len(columns) < 5 and int(columns) > 0):
            del os.environ["COLUMNS"]


def _reader_left() -> NoReturn:
    """Handle a closed pipe; Python would report it again while closing stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)


def _speak_utf8() -> None:
    """Print UTF-8 whatever the locale, so that trees, patches and file names keep their bytes."""
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _environment(error: OSError) -> NoReturn:
    """Return the message for an error of the machine; commands that write the user's files report those themselves."""
    if isinstance(error, RefusedFileError):
        _fail(f"{error.filename} {error.strerror}", ScaffoldError.exit_code)
    if error.errno == errno.ENOENT and error.filename is None:
        _fail("the working directory is gone; change to one that is there", ScaffoldError.exit_code)
    if error.errno in _NO_PATHS:
        _fail(f"{os.fsdecode(error.filename or '')[:200]}: {error.strerror}", ScaffoldError.exit_code)
    if error.errno not in _REFUSALS:
        raise error
    import tempfile

    place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    hint = f"is there room, and may you write, in {tempfile.gettempdir()} too?"
    _fail(ScaffoldError(f"{place}{error.strerror}", hint=hint).line, ScaffoldError.exit_code)


def _usage(error: Exception) -> NoReturn:
    """Return the message for a wrong command line; typer's exceptions for it are private, under changing names."""
    say = getattr(error, "format_message", None)
    if say is None:
        raise error
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        print(context.get_help(), file=sys.stderr)
        sys.exit(2)
    command = context.command_path if context is not None else "omni-scaffold"
    text, asked = re.subn(_MEANT, lambda found: f"; did you mean {found[1].replace(', ', ' or ')}?", say().rstrip("."))
    _fail(f"{text}{' See' if asked else '; see'} {command} --help", 2)


def _fail(text: str, status: int) -> NoReturn:
    print(f"error: {printable(text)}", file=sys.stderr)
    sys.exit(status)
