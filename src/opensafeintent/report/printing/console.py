"""The console, and tables on it."""

from __future__ import annotations

import html
import io
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from textwrap import wrap
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from opensafeintent.calls.costs import ForecastLine, forecast_cost
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.service_tiers import STANDARD
from opensafeintent.hostile import TEXT, one_line, terminal_safe
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.metrics import METRICS, STATED_POLICY
from opensafeintent.report.cohort_columns import (
    explain_missing,
    explain_unranked,
    say_ranks_hold,
)
from opensafeintent.report.columns import (
    DASH,
    TEXTS,
    Cell,
    Column,
    Style,
    Table,
    format_value_and_limits,
    make_estimate_columns,
)
from opensafeintent.report.cost_tables import ALL, PARTIAL, dollars_text
from opensafeintent.report.facts import Statement
from opensafeintent.report.notices import select_urgent
from opensafeintent.report.table_formats import compact, explain_signs
from opensafeintent.report.tables_metrics import (
    DETECTABLE,
    PairRow,
    find_unit,
    group_by_family,
    make_difference,
    make_missing_columns,
)
from opensafeintent.statistics import compute_rank_intervals
from opensafeintent.taxonomy import Taxonomy

_HEADING = 14
"""Characters beyond which a heading of numbers is broken."""


_NUMBER = 40
"""Characters of the longest number with its interval."""
_NARROWEST = 14
"""Characters of a text that a narrow terminal leaves on a line."""


def plain(text: str) -> Text:
    """Return a text as it is: no markup is read in it, and control characters are made visible."""
    return Text(terminal_safe(text))


def to_terminal(table: Table, *, narrow: int = 0) -> RichTable:
    """Return a table without its title and notes.

    Args:
        table: the table.
        narrow: from 1 on, intervals are below their values, and each kind of missing answers is on
            a line; from 2 on, each part of a name too.
    """
    shown = table.shown
    cells = [
        [_cell(column.style, row[index], narrow) for index, column in shown] for row in table.rows
    ]
    lines = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, (_, column) in enumerate(shown):
        heading = column.heading or ""
        longest = max((row[number].cell_len for row in cells), default=0)
        if column.style in TEXTS:
            lines.add_column(plain(heading), overflow="fold", min_width=min(longest, _NARROWEST))
        else:
            if "\n" not in heading:
                heading = "\n".join(wrap(heading, _HEADING, break_long_words=False))
            number_alone = longest <= _NUMBER  # a count may be some words: 8 of 8 modes
            lines.add_column(plain(heading), justify="right", no_wrap=number_alone, vertical="top")
    for index, row in enumerate(cells):
        lines.add_row(*row, style="bold" if index in table.bold else None)
    return lines


def _cell(style: Style, cell: Cell, narrow: int) -> Text:
    """Return one cell; lines of a text stay lines, and an undefined value is a dash."""
    value = cell.fields[0]
    if style == "name" and value is not None:
        return plain(one_line(str(value)).replace("/", "/\n" if narrow > 1 else "/"))
    if style in TEXTS:
        return plain(DASH if value is None else str(value))
    number, limits = format_value_and_limits(style, cell)
    shown = Text(number.replace(", ", "\n") if narrow else number)  # what is missing, by kind
    if limits:
        shown.append(f"{chr(10) if narrow else ' '}{limits}", style="dim")
    return shown


def make_policy_brief(cohort: Cohort) -> Table:
    """Return how well stated policy and behaviour separate malicious from dual-use prompts, for the
    models that were probed.
    """
    overall = cohort.estimates.overall
    return Table.of(
        (
            Column("model", lambda model: model, "Model", "name"),
            make_estimate_columns(
                "stated",
                lambda model: overall[model, STATED_POLICY.stated],
                "Stated",
                headings={"n": "Sets"},
            ),
            make_estimate_columns(
                "actual", lambda model: overall[model, STATED_POLICY.actual], "Actual"
            ),
        ),
        cohort.with_stated_policy,
        name="stated_policy",
        title="Malicious against dual-use prompts: by the strategy stated, and by the help given",
    )


def pair_tables(cohort: Cohort, metric: str) -> list[Table]:
    """Return the differences of every two models in one metric, in the order in which they were
    named; those with a baseline in a table of their own.
    """
    return [_pair_table(metric, pairs) for pairs in group_by_family(cohort, metric)]


def _pair_table(metric: str, pairs: Sequence[PairRow]) -> Table:
    family = max(pair.difference.pairs for pair in pairs)
    level = "95 % interval"
    if family > 1:
        level += f" and p for all {family} pairs at once"
    elif len(pairs) > family:
        level += ", each pair on its own"
    moved = any(pair.difference.missing_ci != pair.difference.interval for pair in pairs)
    turns = any(pair.difference.turning_odds is not None for pair in pairs)
    return Table.of(
        (
            Column("metric", lambda row: row.metric),
            Column("model_a", lambda row: row.model_a, "Model A", "name"),
            Column("model_b", lambda row: row.model_b, "Model B", "name"),
            Column("difference", make_difference, "B − A", "signed", find_unit),
            make_missing_columns(missing=moved, turns=turns),
            Column("p_adjusted", lambda row: row.difference.p_adjusted, "p", "p"),
            Column("n", lambda row: row.difference.n, "Sets", "count"),
            DETECTABLE,
        ),
        pairs,
        name="pairs",
        title=f"{metric}: B − A, {level}",
        bold=frozenset(index for index, pair in enumerate(pairs) if pair.difference.significant),
        notes=explain_missing(missing=moved, turns=turns),
    )


def rank_table(cohort: Cohort, metric: str) -> Table:
    """Return the ranks that tests leave open to each model in one metric, the highest value
    first.
    """
    estimates = cohort.estimates.by_metric[metric]
    comparison = cohort.estimates.comparisons[metric]
    ranks, hold = compute_rank_intervals(comparison), say_ranks_hold([{metric: comparison}])
    return Table.of(
        (
            Column("metric", lambda at: metric),
            Column("model", lambda at: cohort.models[at], "Model", "name"),
            Column(
                "value", lambda at: estimates[at].value, "Value", "number", METRICS[metric].unit
            ),
            Column("n", lambda at: estimates[at].n, "Sets", "count"),
            Column("rank", lambda at: ranks[at], "Rank", "ranks"),
        ),
        cohort.estimates.rank(metric),
        name="ranks",
        title=f"{metric}: ranks that the tests leave open",
        notes=(note.strip(),) if (note := explain_unranked(cohort) + hold) else (),
    )


def forecast_table(
    lines: Sequence[ForecastLine], prices: Prices, chosen: Mapping[str, str]
) -> Table:
    """Return the costs of future calls, by model and purpose, and in all; calls without a price are
    not in the sum.

    Args:
        lines: the calls.
        prices: of the models.
        chosen: by model, the tier at which the command asks and that prices them; a model that is
            not named is asked at the standard tier.
    """
    priced = prices.tells(line.model for line in lines)
    partial = priced and bool(prices.find_unpriced(line.model for line in lines))
    total = ForecastLine(
        model=ALL,
        purpose=PARTIAL if partial else "",
        calls=sum(line.calls for line in lines),
        input_tokens=sum(line.input_tokens for line in lines),
        output_tokens=sum(line.output_tokens for line in lines),
    )

    def dollars(line: ForecastLine) -> float | None:
        if line is total:
            return sum((dollars(line) or 0.0 for line in lines), 0.0)
        return forecast_cost(line, prices, tier=chosen.get(line.model, STANDARD))

    any_stored = any(line.seen for line in lines)
    heading = "Dollars,\nas chosen" if chosen else "Dollars"
    return Table.of(
        (
            Column("model", lambda line: line.model, "Model", "name"),
            Column("purpose", lambda line: line.purpose, "Purpose"),
            Column(
                "calls",
                lambda line: f"≤ {line.calls:,}" if line.at_most else line.calls,
                "Calls",
                "count",
            ),
            Column("input_tokens", lambda line: line.input_tokens, "Tokens in", "count"),
            Column("output_tokens", lambda line: line.output_tokens, "Tokens out", "count"),
            Column(
                "dollars",
                lambda line: dollars_text(dollars(line)),
                heading if priced else None,
                "number",
            ),
            Column(
                "seen",
                lambda line: line.seen or None,
                "Stored calls\nbehind the tokens" if any_stored else None,
                "count",
            ),
        ),
        (*lines, total),
        name="expected",
        title="Calls and tokens by model and purpose",
        bold=frozenset({len(lines)}),
    )


class _TaxonomyRow(NamedTuple):
    name: str
    by_type: Mapping[str, int | str]
    """Prompt-sets, a dot for none, by task type."""
    total: int


_UNLABELLED = "none stated"
"""Heading of the prompt-sets without a label."""


def taxonomy_table(taxonomy: Taxonomy, sets: Mapping[tuple[str, str], int]) -> Table:
    """Return the prompt-sets of a dataset by harm domain and task type, with sums; those that lack
    a label have a line or a column of their own, the only one if all do.
    """
    types = _list_labels(taxonomy.type_names, {task for _, task in sets})
    domain_names = _list_labels(taxonomy.domain_names, {domain for domain, _ in sets})
    rows = []
    for domain in domain_names:
        counts = {task: sets.get((domain, task), 0) for task in types}
        shown = {task: count or "·" for task, count in counts.items()}
        rows.append(_TaxonomyRow(domain or _UNLABELLED, shown, sum(counts.values())))
    sums = {task: sum(sets.get((domain, task), 0) for domain in domain_names) for task in types}
    rows.append(_TaxonomyRow(ALL, sums, sum(sums.values())))
    return Table.of(
        (
            Column("name", lambda row: row.name, "Harm domain", "name"),
            [_task_type_column(task) for task in types],
            Column("all", lambda row: row.total, ALL, "count"),
        ),
        rows,
        name="cells",
        title="Prompt-sets by harm domain and task type",
        bold=frozenset({len(rows) - 1}),
    )


def _list_labels(names: Sequence[str], found: Set[str]) -> list[str]:
    return [""] if found == {""} else [*names, *({""} & found)]


def _task_type_column(task: str) -> Column[_TaxonomyRow]:
    heading = (task or _UNLABELLED).replace(" and ", " and\n")
    return Column(task or _UNLABELLED, lambda row: row.by_type[task], heading, "count")


def length_table(words: Mapping[str, tuple[int, float, int]]) -> Table:
    """Return the least, median and greatest number of words by variant."""
    return Table.of(
        (
            Column("variant", lambda variant: variant, "Variant", "name"),
            Column("least", lambda variant: words[variant][0], "Words,\nleast", "count"),
            Column("median", lambda variant: f"{words[variant][1]:g}", "Words,\nmedian", "count"),
            Column("most", lambda variant: words[variant][2], "Words,\nmost", "count"),
        ),
        words,
        name="lengths",
        title="Words by variant",
    )


def new_console() -> Console:
    """Return a console as wide as `COLUMNS` or the terminal; for other outputs, 120 columns."""
    return Console(width=_width(), highlight=False)


def _width() -> int:
    return shutil.get_terminal_size((120, 40)).columns


class Printed:
    """A result that prints as the command line shows it: `print(result)`, and in a notebook."""

    __slots__ = ()

    def show(self, console: Console) -> None:
        """Print the result."""
        raise NotImplementedError

    def __str__(self) -> str:
        kept = io.StringIO()
        self.show(Console(width=_width(), highlight=False, file=kept, force_jupyter=False))
        return "\n".join(map(str.rstrip, kept.getvalue().strip("\n").split("\n")))

    def _repr_html_(self) -> str:
        return f'<pre style="overflow-x: auto">{html.escape(str(self))}</pre>'


_UNBOUNDED = 10_000
"""Columns in which any table has room: a console measures within its own width."""


WIDEST = 100
"""Columns beyond which lines of text are hard to read."""


def print_table(console: Console, table: Table, *, notes: bool = False) -> None:
    """Print a table; if the terminal is too narrow for it, intervals are below their values, and
    names on two lines.

    Args:
        console: the output.
        table: the table.
        notes: whether its notes are printed too.
    """
    options = console.options.update_width(_UNBOUNDED)
    fitting = (
        lines
        for lines in (to_terminal(table, narrow=narrow) for narrow in (0, 1))
        if console.measure(lines, options=options).maximum <= console.width
    )
    console.print(next(fitting, None) or to_terminal(table, narrow=2))
    for note in explain_signs(table, compact(table)) if notes else ():
        console.print(plain(note), style="dim")


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print notes on a result, a note a line: a name in one of them cannot forge another."""
    for note in notes:
        console.print(plain(f"note: {one_line(note, TEXT)}"))


def print_notices(console: Console, notices: Iterable[Statement]) -> None:
    """Print warnings and cautions, a line each."""
    for said in select_urgent(notices):
        style = "bold yellow" if said.level == "warning" else ""
        line = one_line(f"{said.level}: {said.text}".replace("\u00a0", " "), TEXT)
        console.print(plain(line), style=style)


def print_stopped(lines: Iterable[str]) -> None:
    """Print as errors, a line each, failures after which results were written all the same."""
    for line in lines:
        print(terminal_safe(f"error: {line}"), file=sys.stderr)
