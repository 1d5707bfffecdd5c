"""The `agreement` command."""

from __future__ import annotations

from typing import Any

import click

from opensafeintent.cli.options import MAX_ROWS, NAME, PATH, TAXONOMY

__all__ = ["agreement_command"]


@click.command("agreement", short_help="How far people agree, and a judge with people.")
@click.argument("labels", nargs=-1, required=True, type=PATH, metavar="LABELS...")
@click.option(
    "--run", type=PATH, metavar="RUN", help="The run whose responses were labelled: compare its judges with people."
)
@click.option(
    "--dataset", type=NAME, metavar="NAME", help="The dataset that was labelled: write it without the sets to drop."
)
@TAXONOMY
@MAX_ROWS
@click.option("--out", type=PATH, metavar="DIR", help="Write agreement.json, tables/ and cleaned.jsonl there.")
@click.option("--seed", type=int, metavar="N", help="Random seed of the bootstrap.")
def agreement_command(seed: int | None, **options: Any) -> None:
    """Tell how far people agree, and how far a judge agrees with them.

    LABELS are files that `annotate import` wrote. From labels of prompt-sets: yes rates and agreement by question, and the
    sets to drop. From labels of responses: the judges of RUN against people.
    """
    from opensafeintent.cli.show_agreement import show_agreement
    from opensafeintent.workflows.agreeing import AgreementSettings, agreement

    if seed is not None:
        options["seed"] = seed
    show_agreement(agreement(AgreementSettings(**options)))
