"""The command line. `run` is the console script; each command is a module of ``commands/``, found by walking."""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import sys
from typing import NoReturn

from scaffold.errors import ScaffoldError
from scaffold.files.reading import RefusedFileError
from scaffold.limits import own_process
from scaffold.terminal.interrupt import EXIT_CODE, line
from scaffold.terminal.printable import printable

# What a full disk, a quota, missing permissions or a machine at its limits look like; anything else is our bug.
_REFUSALS = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM", "EIO")
)
# What no file system takes for a path, whoever names it.
_NO_PATHS = frozenset({errno.ENAMETOOLONG, errno.ELOOP})

# The two forms in which click and typer name what is near.
_MEANT = r"\.? \(?(?:Did you mean|Possible options:) ([^()?]+)[)?]+$"


def run() -> NoReturn:
    """The console script: `main` in a process that ends with it, so garbage is left for the end to take."""
    gc.disable()
    own_process.MAY_CACHE = True
    try:
        main()
    finally:
        # Python looks for garbage twice before it leaves; in the syntax trees of a checkout that takes its time.
        gc.freeze()


def main() -> NoReturn:
    """Run the command; errors of the user's are one line on stderr."""
    _speak_utf8()
    try:
        # Imported here, so that Ctrl-C in the tenth of a second that it takes is not a traceback either.
        from scaffold.cli.app import app

        status = app(next(iter(sys.argv[1:]), ""))(prog_name="omni-scaffold", standalone_mode=False)
        if status == EXIT_CODE:  # typer makes Ctrl-C that while it reads the arguments
            raise KeyboardInterrupt
    except ScaffoldError as error:
        _fail(error.line, error.exit_code)
    except KeyboardInterrupt as interrupt:
        _fail(line("omni-scaffold", interrupt), EXIT_CODE)
    except BrokenPipeError:
        _reader_left()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # click and rich make it a plain 1
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
        if not str(error).startswith("Symlink loop"):  # what pathlib makes of one before Python 3.13
            raise
        _fail(str(error), ScaffoldError.exit_code)
    except Exception as error:
        _usage(error)
    sys.exit(status if isinstance(status, int) else 0)


def _reader_left() -> NoReturn:
    """The reader of a pipe has seen enough; Python would complain again while closing stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)


def _speak_utf8() -> None:
    """Print trees, patches and names of files as the bytes that they are, whatever the locale cannot spell."""
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _environment(error: OSError) -> NoReturn:
    """Say what the machine refused; where a command writes the user's files, it says so itself."""
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
    """Say what is wrong with the command line; typer keeps the exceptions for it to itself, under changing names."""
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
