"""What the check of a dataset finds as tables, and the page that holds them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from opensafeintent.construction.controls.records import (
    Alike,
    DatasetCheck,
    Difference,
    Evenness,
    Likeness,
    Measure,
    Spread,
)
from opensafeintent.hostile import one_line
from opensafeintent.report.formats import to_markdown
from opensafeintent.report.table import Column, Table
from opensafeintent.statistics import Estimate

_ESCAPED = str.maketrans({char: f"\\{char}" for char in string.punctuation})
"""Markdown takes a backslash before any ASCII punctuation."""


def check_tables(found: DatasetCheck) -> list[Table]:
    """Return every table of a check; those of controls that were left out have no rows."""
    return [
        _balance(found),
        _cells(found),
        _lengths(found),
        _differences(found),
        *_words(found),
        _likeness(found),
        _alike(found),
    ]


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


class _Spread(NamedTuple):
    """Prompt-sets over one kind of groups."""

    of: str
    found: Evenness


def _balance(found: DatasetCheck) -> Table:
    balance = found.balance
    return Table(
        name="balance",
        title="Prompt-sets over the taxonomy",
        section="coverage",
        columns=(
            Column("of", "", "name"),
            Column("groups", "Number", "count", attrgetter("found.groups")),
            Column("empty", "Empty", "count", attrgetter("found.empty")),
            Column("least", "Fewest sets", "count", attrgetter("found.least")),
            Column("most", "Most sets", "count", attrgetter("found.most")),
            Column("least_share", get=attrgetter("found.least_share")),
            Column("most_share", "Largest share", "share", attrgetter("found.most_share")),
            Column("evenness", "Evenness", "number", attrgetter("found.evenness")),
        ),
        rows=[
            _Spread("Cells", balance.cells),
            _Spread("Harm domains", balance.harm_domains),
            _Spread("Task types", balance.task_types),
        ],
        notes=(
            (
                "Evenness is the entropy of the shares over that of equal shares: 1 is equal, 0 is"
                " all in one."
            ),
        ),
    )


def _cells(found: DatasetCheck) -> Table:
    return Table(
        name="cells",
        title="Prompt-sets by cell",
        columns=(
            Column("harm_domain", "Harm domain", "name"),
            Column("task_type", "Task type"),
            Column("sets", "Sets", "count"),
        ),
        rows=found.balance.counts,
    )


class _Measured(NamedTuple):
    """One measure of the prompts of one intent, or of two."""

    measure: Measure
    found: Spread | Difference


def _lengths(found: DatasetCheck) -> Table:
    return Table(
        name="lengths",
        title="Length and readability by intent",
        section="lengths",
        columns=(
            Column("measure", "Measure", "name"),
            Column("intent", "Intent", get=attrgetter("found.intent")),
            *(
                Column(name, name.capitalize(), "number", attrgetter(f"found.{name}"))
                for name in ("mean", "median", "least", "most")
            ),
        ),
        rows=[_Measured(part.measure, spread) for part in found.parity for spread in part.intents],
        notes=("Readability is the Automated Readability Index: the higher, the harder.",),
    )


def _mean_of(line: _Measured) -> Estimate | None:
    pair = line.found
    if not isinstance(pair, Difference) or pair.mean is None:
        return None
    limits = None if pair.low is None or pair.high is None else (pair.low, pair.high)
    return Estimate(value=pair.mean, n=pair.n, interval=limits)


def _differences(found: DatasetCheck) -> Table:
    return Table(
        name="differences",
        title="Differences between the intents of a set, first minus second",
        columns=(
            Column("measure", "Measure", "name"),
            Column("first", "First", get=attrgetter("found.first")),
            Column("second", "Second", get=attrgetter("found.second")),
            Column("n", "Sets", "count", attrgetter("found.n")),
            Column("mean", "Mean difference", "signed", _mean_of),
            Column("d_z", "d_z", "number", attrgetter("found.standardised")),
            Column("greater", "Greater in", "share", attrgetter("found.greater")),
            Column("less", "Less in", "share", attrgetter("found.less")),
            Column("p", get=attrgetter("found.p")),
            Column("p_adjusted", "p", "p", attrgetter("found.p_adjusted")),
            Column("detectable", "Detectable", "number", attrgetter("found.detectable")),
        ),
        rows=[_Measured(part.measure, pair) for part in found.parity for pair in part.pairs],
        notes=(
            (
                "With 95 % intervals; p is adjusted for the three pairs of a measure; detectable is"
                " what so many sets find four times in five."
            ),
        ),
    )


def _words(found: DatasetCheck) -> tuple[Table, Table, Table]:
    there = found.artefacts
    accuracies = Table(
        name="classifier",
        title="How often words alone tell the intent",
        section="words",
        columns=(
            Column("intents", "Among", "name", lambda item: ", ".join(item.intents)),
            Column("chance", "Chance", "number"),
            Column("accuracy", "Accuracy", "interval", lambda item: item),
        ),
        rows=there.accuracies if there else (),
        notes=("In prompt-sets that the classifier has not seen.",),
    )
    confusion = Table(
        name="confusion",
        title="What the classifier takes a prompt for",
        columns=(
            Column("intent", "Intent", "name"),
            Column("taken_for", "Taken for"),
            Column("prompts", "Prompts", "count"),
        ),
        rows=there.confusion if there else (),
    )
    words = Table(
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
        rows=there.words if there else (),
        notes=(
            (
                "In how many sets the prompt of each intent has the word; the weight is that of the"
                " logistic regression."
            ),
        ),
    )
    return accuracies, confusion, words


class _Likeness(NamedTuple):
    """How alike some prompts of one set are."""

    prompts: str
    found: Likeness

    @property
    def highest(self) -> float | None:
        return self.found.highest.score if self.found.highest else None


def _likeness(found: DatasetCheck) -> Table:
    return Table(
        name="likeness",
        title="How alike the prompts of one set are, by ROUGE-L",
        section="similarity",
        columns=(
            Column("prompts", "Prompts", "name"),
            Column("sets", "Sets", "count", attrgetter("found.sets")),
            Column("mean", "Mean", "number", attrgetter("found.mean")),
            Column("median", "Median", "number", attrgetter("found.median")),
            Column("highest", "Highest", "number"),
            Column(
                "alike",
                f"Sets above {found.near_duplicates.threshold:g}",
                "count",
                attrgetter("found.alike"),
            ),
        ),
        rows=[
            _Likeness("core prompts", found.within_sets.triplet),
            _Likeness("dual-use wordings", found.within_sets.dual_use),
        ],
    )


class _Alike(NamedTuple):
    """Two prompts that are alike."""

    kind: str
    pair: Alike


def _alike(found: DatasetCheck) -> Table:
    near, within = found.near_duplicates, found.within_sets
    closest = [near.highest] if near.highest and not near.found else []
    most = [item.highest for item in (within.triplet, within.dual_use) if item.highest]
    return Table(
        name="alike",
        title="Prompts that are alike",
        columns=(
            Column("kind", "Kind", "name"),
            Column("first_id", "Set", get=attrgetter("pair.first_id")),
            Column("first_variant", "Prompt", get=attrgetter("pair.first_variant")),
            Column("second_id", "Other set", get=attrgetter("pair.second_id")),
            Column("second_variant", "Other prompt", get=attrgetter("pair.second_variant")),
            Column("score", "ROUGE-L", "number", attrgetter("pair.score")),
        ),
        rows=[
            *(_Alike("near-duplicate", pair) for pair in near.found),
            *(_Alike("most alike of two sets", pair) for pair in closest),
            *(_Alike("most alike of one set", pair) for pair in most),
            *(_Alike("identical", pair) for pair in within.identical),
        ],
    )
