"""The command line: thin. Every command is one call of a public function."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from itertools import pairwise

import click

from opensafeintent import __version__
from opensafeintent.calls.draining import handle_signals
from opensafeintent.cli.commands import Escaped, cli
from opensafeintent.cli.options import say_next
from opensafeintent.cli.terminal import safe_streams
from opensafeintent.errors import InputError, Interrupted, OpenSafeIntentError, Stopped
from opensafeintent.hostile import TEXT, one_line, terminal_safe
from opensafeintent.secrets import collect_secrets

__all__ = ["main"]

_TRACEBACK = "OPENSAFEINTENT_TRACEBACK"
"""The variable that has the traceback of an error of ours printed, in place of being put into a
file.
"""


def main() -> None:
    """Run the command line and exit with the code that `opensafeintent --help` explains."""
    # for numpy, which is not loaded yet: products as small as ours gain nothing from threads that
    # wait busily for the next
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("opensafeintent", "osi"):
        if os.environ.get(f"_{name.upper()}_COMPLETE"):  # a shell asks for completions
            cli(prog_name=name)
    with safe_streams() as streams:
        code = _run()
        sys.stdout.flush()
        if streams.lost is not None:
            _print_line(
                f"error: standard output: cannot write: {streams.lost.strerror or streams.lost}"
            )
            code = code if code in (130, 70) else 2
    sys.exit(code)


def _run() -> int:
    """Run the command that was typed; return its exit code, and print any error in a line."""
    from opensafeintent.errors import OpenSafeIntentError

    try:
        # they end a command as Ctrl-C does
        with handle_signals(signal.default_int_handler, "SIGTERM", "SIGHUP"):
            return _invoke()
    except OpenSafeIntentError as error:
        _print_error(error)
        _print_again(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        if (cause := interrupt.__cause__) is not None:  # a further error on the way
            _print_error(cause)
        if cause is None or isinstance(cause, Stopped):
            _print_error(Interrupted())
        _print_again(Interrupted.exit_code)
        return Interrupted.exit_code
    except BaseException as error:  # the last chance to print an error of ours in a line
        return _print_error(error)


def _invoke() -> int:
    _check_arguments(sys.argv)
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except Escaped as escaped:
        raise escaped.__cause__ or escaped from None
    except click.Abort as abort:  # click's word for an interruption
        raise abort.__cause__ or KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def _check_arguments(arguments: list[str]) -> None:
    """Refuse bytes of another encoding, which a shell hands on as they are, and NULs: no file of
    ours can hold them.
    """
    for before, argument in pairwise(arguments):
        shown = f"{before} {argument}" if before.startswith("-") else argument
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            encoding = sys.getfilesystemencoding()
            if encoding == "utf-8":
                raise InputError(f"{shown}: is not valid UTF-8") from error
            raise InputError(
                f"{shown}: is not {encoding}, the encoding of the locale; expected a locale of"
                " UTF-8, or PYTHONUTF8=1"
            ) from error
        if "\0" in argument:
            raise InputError(f"{shown}: holds a NUL character")


def _print_error(error: BaseException) -> int:
    """Print an error, and return its exit code."""
    if isinstance(error, OpenSafeIntentError):
        for line in error.lines:
            _print_line(line if error.exit_code == 130 else f"error: {line}")
        return error.exit_code
    is_shown = os.environ.get(_TRACEBACK, "0") not in ("", "0")
    if is_shown:
        sys.stderr.write(_traceback(error))
    if isinstance(error, OSError):  # the machine's, and the user's to fix: a disk, a file, a right
        where = (
            f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        )
        _print_line(f"error: {one_line(f'{where}{error.strerror or error}', TEXT)}")
        return 2
    what = one_line(f"{type(error).__name__}: {error}")
    hint = "" if is_shown else _keep_traceback(_traceback(error))
    _print_line(
        f"error: a bug of opensafeintent {__version__}, not of yours; please report: {what}"
        f" ({_module(error)}){hint}"
    )
    return 70


def _print_again(code: int) -> None:
    """Print the command to come back with, if batches may have been left to their providers."""
    tiers = (word.rpartition("=")[2].rpartition(":")[2] for word in sys.argv[1:])
    if "batch" in tiers and code in (3, 130):
        say_next("opensafeintent", *sys.argv[1:])


def _traceback(error: BaseException) -> str:
    return collect_secrets().scrub("".join(traceback.format_exception(error)))


def _module(error: BaseException) -> str:
    """Return the innermost of our modules that an error came through, and the line."""
    ours = [
        f"{frame.f_globals['__name__']}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == "opensafeintent"
    ]
    return ours[-1] if ours else "in none of our modules"


def _keep_traceback(text: str) -> str:
    """Put a traceback into a private file; return a line with its path."""
    import tempfile

    with contextlib.suppress(OSError):
        handle, path = tempfile.mkstemp(prefix="opensafeintent-", suffix=".traceback.txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        return f"; the traceback is in {path}, and may quote your data"
    return f"; {_TRACEBACK}=1 shows the traceback"


def _print_line(line: str) -> None:
    print(terminal_safe(collect_secrets().scrub(line)), file=sys.stderr)
