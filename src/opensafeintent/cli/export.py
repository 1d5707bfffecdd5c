"""The `export` command."""

from __future__ import annotations

from pathlib import Path

import click

from opensafeintent.cli.options import PATH
from opensafeintent.hostile import terminal_safe

__all__ = ["export_command"]


@click.command("export", short_help="Write a run as logs that `inspect view` opens.")
@click.option("--inspect", "run", type=PATH, required=True, metavar="RUN", help="The run to write as logs of Inspect AI.")
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Folder of the logs, one .eval for each model.")
def export_command(run: Path, out: Path) -> None:
    """Write a run for other programs: as logs that `inspect view` opens, with grades and judge calls."""
    from opensafeintent.workflows.tracing import ExportSettings, export_inspect

    written = export_inspect(ExportSettings(run=run, out=out))
    for path in written:
        click.echo(terminal_safe(str(path)))
    click.echo(terminal_safe(f"To look at them: inspect view --log-dir {out}"))
