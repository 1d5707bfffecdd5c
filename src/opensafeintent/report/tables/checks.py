"""What the check of a dataset finds as tables, and the page that holds them."""

from __future__ import annotations

import string
from collections.abc import Sequence

from opensafeintent.construction.controls.records import DatasetCheck
from opensafeintent.hostile import one_line
from opensafeintent.report.formats import to_markdown
from opensafeintent.report.table import Column, Table

_ESCAPED = str.maketrans({char: f"\\{char}" for char in string.punctuation})
"""Markdown takes a backslash before any ASCII punctuation."""


def check_page(found: DatasetCheck, tables: Sequence[Table]) -> str:
    """Return what was found as Markdown: the findings first, then the tables that have rows."""
    heading = (
        f"# {one_line(found.dataset).translate(_ESCAPED)}: {found.sets:,} prompt-sets,"
        f" {found.prompts:,} prompts"
    )
    lines = [heading, "", f"SHA-256 {found.hash}, seed {found.seed}", ""]
    lines += [f"- {finding}" for finding in found.findings]
    if found.left_out:
        lines += ["", "Left out:", "", *(f"- {reason}" for reason in found.left_out)]
    return "\n".join([*lines, "", *(to_markdown(table) for table in tables if table.rows)])


def check_tables(found: DatasetCheck) -> list[Table]:
    """Return every table of a check; those of controls that were left out have no rows."""
    return [
        Table(
            name="balance",
            title="Prompt-sets over the taxonomy",
            columns=(
                Column("of", "", "name"),
                Column("groups", "Number", "count"),
                Column("empty", "Empty", "count"),
                Column("least", "Fewest sets", "count"),
                Column("most", "Most sets", "count"),
                Column("most_share", "Largest share", "share"),
                Column("evenness", "Evenness", "number"),
            ),
            rows=found.balance,
            notes=(
                "Evenness is the entropy of the shares over that of equal shares: 1 is equal, 0 is"
                " all in one.",
            ),
        ),
        Table(
            name="differences",
            title="Differences between the intents of a set, first minus second",
            columns=(
                Column("measure", "Measure", "name"),
                Column("first", "First"),
                Column("second", "Second"),
                Column("n", "Sets", "count"),
                Column("mean", "Mean difference", "signed"),
                Column("d_z", "d_z", "number"),
                Column("greater", "Greater in", "share"),
                Column("less", "Less in", "share"),
                Column("p"),
                Column("p_adjusted", "p", "p"),
                Column("detectable", "Detectable", "number"),
            ),
            rows=[
                (
                    *(row.measure, row.first, row.second, row.mean.n, row.mean, row.standardised),
                    *(row.greater, row.less, row.p, row.p_adjusted, row.detectable),
                )
                for row in found.differences
            ],
            notes=(
                "With 95 % intervals; p is adjusted for the three pairs of a measure; detectable is"
                " the difference that so many sets find four times in five. Readability is the"
                " Automated Readability Index: the higher, the harder.",
            ),
        ),
        Table(
            name="classifier",
            title="How often words alone tell the intent",
            columns=(
                Column("intents", "Among", "name"),
                Column("chance", "Chance", "number"),
                Column("accuracy", "Accuracy", "interval"),
            ),
            rows=[(", ".join(row.intents), row.chance, row.accuracy) for row in found.classifier],
            notes=("In prompt-sets that the classifier has not seen.",),
        ),
        Table(
            name="words",
            title="Words that speak for an intent",
            columns=(
                Column("intent", "Intent", "name"),
                Column("word", "Word"),
                Column("weight", "Weight", "number"),
                Column("benign", "Benign", "count"),
                Column("dual_use", "Dual-use", "count"),
                Column("malicious", "Malicious", "count"),
            ),
            rows=found.words,
            notes=(
                "In how many sets the prompt of each intent has the word; the weight is that of the"
                " logistic regression.",
            ),
        ),
        Table(
            name="likeness",
            title="How alike prompts are, by ROUGE-L",
            columns=(
                Column("prompts", "Prompts", "name"),
                Column("compared", "Compared", "count"),
                Column("mean", "Mean", "number"),
                Column("alike", "Above 0.7", "count"),
                Column("highest", "Highest", "number"),
                Column("first"),
                Column("second"),
            ),
            rows=found.likeness,
            notes=(
                "For two sets, pairs of prompts are compared and pairs of sets counted; within a"
                " set, sets.",
            ),
        ),
    ]
