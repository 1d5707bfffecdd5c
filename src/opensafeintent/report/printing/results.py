"""Results of commands that evaluate, report or check judges."""

from __future__ import annotations

from rich.console import Console

from opensafeintent.analysis.gate_results import Gates
from opensafeintent.calls.budget import Tally
from opensafeintent.report.costs import Costs, cost_table, other_model_notes
from opensafeintent.report.gates import below_headline, gate_tables, headline
from opensafeintent.report.printing.cohort import show_transitions
from opensafeintent.report.printing.console import WIDEST, print_notes, print_table
from opensafeintent.report.printing.tables import plain


def show_calls(console: Console, tally: Tally | None, costs: Costs | None) -> None:
    """Print the number of calls and their cost; nothing if there were none."""
    if tally is not None:
        counts = {
            f"call{'' if tally.new_calls.total() == 1 else 's'} made": tally.new_calls.total(),
            "retry" if tally.retries == 1 else "retries": tally.retries,
            "taken from the ledger": tally.reused_calls - tally.duplicates,
            f"duplicate request{'' if tally.duplicates == 1 else 's'} answered once": (
                tally.duplicates
            ),
        }
        phrases = [f"{count:,} {what}" for what, count in counts.items() if count or "made" in what]
        console.print(plain(f"{', '.join(phrases)}."))
    if costs is not None and costs.paid and costs.prices.tells(costs.models):
        console.print()
        print_table(console, cost_table(costs), notes=True)
    elif costs is not None:
        print_notes(console, other_model_notes(costs))


def show_gates(console: Console, gates: Gates) -> None:
    """Print every gate with its verdict, and on a wide terminal the points of reference; the notes
    give the reason for a failure.
    """
    references = () if console.width >= WIDEST else ("oracle", "refuse_all")
    for table in gate_tables(gates):
        if table.name != "transitions":
            console.print()
            print_table(console, table.hiding("reason", *references))
            console.print(plain(f"{table.title}."), style="dim")
    show_transitions(console, gates.transitions)
    console.print(plain(f"Release gate {headline(gates)}."), style="bold")
    for line in below_headline(gates):
        console.print(plain(line), style="bold yellow")
