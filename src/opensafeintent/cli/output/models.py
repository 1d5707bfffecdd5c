"""The models that can be named."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.calls.models import Served
from opensafeintent.cli.output.console import new_console, print_table
from opensafeintent.report.columns import Column, Table


def show_models(models: Sequence[Served]) -> None:
    """Print every model that can be named: those ready first, then the others with their needs."""
    console = new_console()
    ready = Table(
        name="ready",
        title="Ready: no key needed, or its key is set",
        columns=(Column("name", "Model"), Column("about", "About")),
        rows=[(line.name, line.about) for line in models if not line.lacking],
    )
    lacking = Table(
        name="lacking",
        title="Ready once these variables are set, and these packages installed",
        columns=(Column("name", "Model"), Column("needs", "Needs")),
        rows=[(line.name, "\n".join(_needs(line))) for line in models if line.lacking],
    )
    for table in (ready, lacking):
        console.print(table.title, style="bold")
        print_table(console, table)
        console.print()


def _needs(model: Served) -> Sequence[str]:
    if "/P/" in model.name:
        return (*model.lacking, model.about)
    return model.lacking
