"""A table as the terminal shows it, through rich; and the tables that only commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from rich.table import Table as RichTable
from rich.text import Text

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.calls.costs import ForecastLine
from opensafeintent.calls.prices import Prices
from opensafeintent.hostile import one_line, terminal_safe
from opensafeintent.metrics import STATED_POLICY
from opensafeintent.report.cohort_columns import ANY_GRADES
from opensafeintent.report.columns import Column, Table, estimate_columns
from opensafeintent.report.costs import ALL, dollars_text
from opensafeintent.report.tables_comparisons import DETECTABLE, by_family
from opensafeintent.report.values import DASH, TEXTS, Cell, text
from opensafeintent.statistics import Difference, rank_intervals
from opensafeintent.taxonomy import Taxonomy

_HEADING = 14
"""Characters beyond which a heading of numbers is broken."""


_NARROWEST = 14
"""Characters of a text that a narrow terminal leaves on a line."""


_NAME_STYLE = 300
"""Characters of a name."""


def plain(text: str) -> Text:
    """Return a text as it is: no markup is read in it, and control characters are made visible."""
    return Text(terminal_safe(text))


def to_terminal(table: Table, *, narrow: int = 0) -> RichTable:
    """Return a table without its title and notes.

    Args:
        table: the table.
        narrow: from 1 on, intervals are below their values; from 2 on, each part of a name is on a
            line of its own.
    """
    shown = table.shown
    cells = [[_cell(column, row[index], narrow) for index, column in shown] for row in table.cells]
    lines = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, (_, column) in enumerate(shown):
        heading = column.heading or ""
        if column.style in TEXTS:
            longest = max((row[number].cell_len for row in cells), default=0)
            lines.add_column(plain(heading), overflow="fold", min_width=min(longest, _NARROWEST))
        else:
            if "\n" not in heading:
                heading = "\n".join(wrap(heading, _HEADING, break_long_words=False))
            lines.add_column(plain(heading), justify="right", no_wrap=True, vertical="top")
    for index, row in enumerate(cells):
        lines.add_row(*row, style="bold" if index in table.bold else None)
    return lines


def _cell(column: Column, cells: tuple[Cell, ...], narrow: int) -> Text:
    """Return one cell; lines of a text stay lines, and an undefined value is a dash."""
    if column.style == "name" and cells[0] is not None:
        return plain(
            one_line(str(cells[0]), _NAME_STYLE).replace("/", "/\n" if narrow > 1 else "/")
        )
    if column.style in TEXTS:
        return plain(DASH if cells[0] is None else str(cells[0]))
    number, space, limits = text(column.style, cells).partition(" [")
    shown = Text(number)
    if space:
        shown.append(f"{chr(10) if narrow else ' '}[{limits}", style="dim")
    return shown


def stated_policy_brief(cohort: Cohort) -> Table:
    """Return how well stated policy and behaviour separate malicious from dual-use prompts, for the
    models that were probed.
    """
    overall = cohort.estimates.overall
    return Table(
        name="stated_policy",
        title=("Malicious against dual-use prompts: by the strategy stated, and by the help given"),
        columns=(
            Column("model", "Model", "name"),
            *estimate_columns("stated", "Stated", headings={"n": "Sets"}),
            *estimate_columns("actual", "Actual"),
        ),
        rows=[
            (
                model,
                overall[model, STATED_POLICY.stated],
                overall[model, STATED_POLICY.actual],
            )
            for model in cohort.probed
        ],
    )


def pairs_of(cohort: Cohort, metric: str) -> list[Table]:
    """Return the differences of every two models in one metric, in the order in which they were
    named; those with a baseline in a table of their own.
    """
    return [_pairs_of(metric, found) for found in by_family(cohort, metric)]


def _pairs_of(metric: str, found: Sequence[tuple[str, str, Difference]]) -> Table:
    family = max(difference.pairs for *_, difference in found)
    own = ", each pair on its own" if len(found) > family else ""
    level = f"95 % interval{f' and p for all {family} pairs at once' if family > 1 else own}"
    moved = any(difference.worst_case != difference.interval for *_, difference in found)
    return Table(
        name="pairs",
        title=f"{metric}: second minus first, {level}",
        columns=(
            Column("metric"),
            Column("model_a", "First", "name"),
            Column("model_b", "Second", "name"),
            Column("difference", "Difference", "signed"),
            Column("worst_case", "Any grades" if moved else None, "span", part="worst_case"),
            Column("p_adjusted", "p", "p", part="p_adjusted"),
            Column("n", "Sets", "count", part="n"),
            DETECTABLE,
        ),
        rows=[(metric, *row) for row in found],
        bold=frozenset(index for index, (*_, difference) in enumerate(found) if difference.claimed),
        notes=(ANY_GRADES,) if moved else (),
    )


def ranks_of(cohort: Cohort, metric: str) -> Table:
    """Return the ranks that tests leave open to each model in one metric, the highest value
    first.
    """
    ranks = rank_intervals(cohort.estimates.comparisons[metric])
    return Table(
        name="ranks",
        title=f"{metric}: ranks that the tests leave open",
        columns=(
            Column("metric"),
            Column("model", "Model", "name"),
            Column("value", "Value", "number"),
            Column("rank", "Rank", "ranks"),
        ),
        rows=[
            (
                metric,
                cohort.models[index],
                cohort.estimates.by_metric[metric][index].value,
                ranks[index],
            )
            for index in cohort.estimates.ranked(metric)
        ],
    )


def expected(lines: Sequence[ForecastLine], prices: Prices) -> Table:
    """Return the costs of future calls, by model and purpose, and in all; calls without a price are
    not in the sum.
    """
    every = ForecastLine(
        model=ALL,
        purpose="",
        calls=sum(line.calls for line in lines),
        input_tokens=sum(line.input_tokens for line in lines),
        output_tokens=sum(line.output_tokens for line in lines),
    )
    priced = prices.tells(line.model for line in lines)

    def dollars(line: ForecastLine) -> float | None:
        if line is every:
            return sum((dollars(each) or 0.0 for each in lines), 0.0)
        price = prices.of(line.model)
        return None if price is None else price.of(line.input_tokens, line.output_tokens)

    return Table(
        name="expected",
        title="Calls and tokens by model and purpose",
        columns=(
            Column("model", "Model", "name"),
            Column("purpose", "Purpose"),
            Column("calls", "Calls", "count"),
            Column("input_tokens", "Tokens in", "count"),
            Column("output_tokens", "Tokens out", "count"),
            Column("dollars", "Dollars" if priced else None, "number"),
            Column(
                "seen",
                "by stored\ncalls" if any(line.seen for line in lines) else None,
                "count",
            ),
        ),
        rows=[
            (
                line.model,
                line.purpose,
                f"≤ {line.calls:,}" if line.at_most else line.calls,
                line.input_tokens,
                line.output_tokens,
                dollars_text(dollars(line)),
                line.seen or None,
            )
            for line in (*lines, every)
        ],
        bold=frozenset({len(lines)}),
    )


def cells(taxonomy: Taxonomy, sets: Mapping[tuple[str, str], int]) -> Table:
    """Return the prompt-sets of a dataset by harm domain and task type, with sums."""
    types = taxonomy.type_names
    counts = {
        domain: [sets.get((domain, task), 0) for task in types] for domain in taxonomy.domain_names
    }
    sums = [sum(column) for column in zip(*counts.values(), strict=True)]
    return Table(
        name="cells",
        title="Prompt-sets by harm domain and task type",
        columns=(
            Column("name", "Harm domain", "name"),
            *(Column(task, task.replace(" and ", " and\n"), "count") for task in types),
            Column("all", ALL, "count"),
        ),
        rows=[
            *((name, *(count or "·" for count in of), sum(of)) for name, of in counts.items()),
            (ALL, *sums, sum(sums)),
        ],
        bold=frozenset({len(counts)}),
    )


def lengths(words: Mapping[str, tuple[int, float, int]]) -> Table:
    """Return the least, median and greatest number of words by variant."""
    return Table(
        name="words",
        title="Words by variant",
        columns=(
            Column("variant", "Variant", "name"),
            Column("least", "Words,\nleast", "count"),
            Column("median", "Words,\nmedian", "count"),
            Column("most", "Words,\nmost", "count"),
        ),
        rows=[
            (variant, least, f"{median:g}", most)
            for variant, (least, median, most) in words.items()
        ],
    )
