"""Tables that commands print and no file holds: the few numbers that a reader at the terminal wants
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.calls.models import Served
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.spending import ForecastLine
from opensafeintent.metrics import KNOWING
from opensafeintent.report.cost import ALL, dollars_text
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.long import pairs
from opensafeintent.statistics import rank_intervals
from opensafeintent.taxonomy import Taxonomy

_SUMMARY = {
    "mean_utility": "Mean\nUtility",
    "worst_case_utility": "Worst-Case\nUtility",
    "triplet_safety": "Triplet\nSafety",
    "mean_safety": "Mean\nSafety",
    "mean_helpfulness": "Raw help-\nfulness",
}


def summary(group: Group) -> Table:
    """Return the models of a group by Mean Utility, with their main metrics."""
    return Table(
        name="summary",
        title="Models by Mean Utility",
        columns=(
            Column("model", "Model, by Mean Utility", "name"),
            *(Column(metric, heading, "number") for metric, heading in _SUMMARY.items()),
            Column("sets", "Sets", "count"),
            Column("missing", "Grades\nmissing", "count"),
        ),
        rows=[
            (
                model,
                *(group.numbers.overall[model, metric].value for metric in _SUMMARY),
                group.numbers.overall[model, "mean_utility"].n,
                sum(sum(of.values()) for of in group.coverage[model].missing.values()),
            )
            for model in group.numbers.models
        ],
    )


def knowing(group: Group) -> Table:
    """Return how well the models that were probed tell malicious from dual-use prompts, in word and
    in deed.
    """
    overall = group.numbers.overall
    return Table(
        name="knowing",
        title=(
            "Malicious told from dual-use prompts: knowing by the strategy called for, doing by the"
            " help given"
        ),
        columns=(
            Column("model", "Model", "name"),
            Column("knowing", "Knowing", "number"),
            Column("doing", "Doing", "number"),
            *estimate_columns(
                "difference", "Knowing − doing", style="signed", headings={"n": "Sets"}
            ),
        ),
        rows=[
            (
                model,
                overall[model, KNOWING.knowing].value,
                overall[model, KNOWING.doing].value,
                overall[model, KNOWING.difference],
            )
            for model in group.probed
        ],
    )


def pairs_of(group: Group, metric: str) -> Table:
    """Return the differences of every two models in one metric, in the order in which they were
    named.
    """
    found = list(pairs(group, metric))
    return Table(
        name="pairs",
        title=f"{metric}: second minus first, with the 95 % interval and p adjusted for all pairs",
        columns=(
            Column("model_a", "First", "name"),
            Column("model_b", "Second", "name"),
            Column("difference", "Difference", "signed"),
            Column("p_adjusted", "p", "p", part="p_adjusted"),
            Column("n", "Sets", "count", part="n"),
            Column("detectable", "Detectable", "number", part="detectable"),
        ),
        rows=found,
        bold=frozenset(
            index for index, (*_, difference) in enumerate(found) if difference.beyond_chance
        ),
    )


def ranks_of(group: Group, metric: str) -> Table:
    """Return the ranks that tests leave open to each model in one metric, the highest value
    first.
    """
    ranks = rank_intervals(group.numbers.comparisons[metric])
    return Table(
        name="ranks",
        title=f"{metric}: ranks that the tests leave open",
        columns=(
            Column("model", "Model", "name"),
            Column("value", "Value", "number"),
            Column("rank", "Rank", "ranks"),
        ),
        rows=[
            (group.models[place], group.numbers.estimates[metric][place].value, ranks[place])
            for place in group.numbers.ranked(metric)
        ],
    )


def expected(lines: Sequence[ForecastLine], prices: Prices) -> Table:
    """Return what calls to come will take, by model and purpose, and in all; what has no price is
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
                "by calls\non record" if any(line.seen for line in lines) else None,
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


def served(models: list[Served]) -> Table:
    """Return what can be named as a model, with what it needs."""
    return Table(
        name="models",
        title="What can be named as a model",
        columns=(
            Column("name", "Model", "name"),
            Column("how", "Served"),
            Column("needs", "Needs"),
            Column("about", "About"),
        ),
        rows=[(line.name, line.how, _needs(line), line.about) for line in models],
    )


def _needs(line: Served) -> str | None:
    pattern = "P_BASE_URL" in line.needs  # a name for any variables
    marked = [
        name if pattern else f"{name} {'✗ not set' if name in line.lacking else '✓ set'}"
        for name in line.needs
    ]
    return (" " if pattern else "\n").join(marked) or None


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
