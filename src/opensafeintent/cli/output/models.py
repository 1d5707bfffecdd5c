"""The models that can be named."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.calls.models import Served
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.printing.console import new_console, print_table


def show_models(models: Sequence[Served]) -> None:
    """Print every model that can be named: those ready first, then the others with their needs."""
    console = new_console()
    name: Column[Served] = Column("name", lambda model: model.name, "Model")
    about: Column[Served] = Column("about", lambda model: model.about, "About")
    needs: Column[Served] = Column("needs", lambda model: "\n".join(_needs(model)), "Needs")
    ready = Table.of(
        (name, about),
        [model for model in models if not model.lacking],
        name="ready",
        title="Ready: no key needed, or its key is set",
    )
    lacking = Table.of(
        (name, needs),
        [model for model in models if model.lacking],
        name="lacking",
        title="Ready once these variables are set, and these packages installed",
    )
    for table in (ready, lacking):
        console.print(table.title, style="bold")
        print_table(console, table)
        console.print()


def _needs(model: Served) -> Sequence[str]:
    if "/P/" in model.name:
        return (*model.lacking, model.about)
    return model.lacking
