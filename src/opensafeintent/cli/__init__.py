"""The command line: thin. Every command is one call of a public function."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with the code that `opensafeintent --help` explains."""
    sys.exit(_run())


def _run() -> int:
    import click

    from opensafeintent.cli.commands import cli
    from opensafeintent.errors import OpenSafeIntentError

    try:
        code = cli.main(standalone_mode=False)
    except OpenSafeIntentError as error:
        for line in str(error).split("\n"):
            _complain(f"error: {line}")
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted; everything that was answered is kept: the same command goes on from there")
        return 130
    except BrokenPipeError:  # the reader of our output has gone (`… | head`)
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0


def _complain(line: str) -> None:
    from opensafeintent.hostile import terminal_safe

    print(terminal_safe(line), file=sys.stderr)
