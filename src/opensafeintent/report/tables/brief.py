"""Tables that commands print and no file holds: the few numbers that a reader at the terminal wants
first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import Number
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

    def value_of(metric: str) -> Callable[[int], float | None]:
        return lambda index: group.numbers.estimates[metric][index].value

    def missing(index: int) -> int:
        return sum(
            count
            for reasons in group.coverage[group.models[index]].missing.values()
            for count in reasons.values()
        )

    return Table(
        name="summary",
        title="Models by Mean Utility",
        columns=(
            Column("model", "Model, by Mean Utility", "name", lambda index: group.models[index]),
            *(
                Column(metric, heading, "number", value_of(metric))
                for metric, heading in _SUMMARY.items()
            ),
            Column(
                "sets",
                "Sets",
                "count",
                lambda index: group.numbers.estimates["mean_utility"][index].n,
            ),
            Column("missing", "Grades\nmissing", "count", missing),
        ),
        rows=group.numbers.order,
    )


def knowing(group: Group) -> Table:
    """Return how well the models that were probed tell malicious from dual-use prompts, in word and
    in deed.
    """
    pair = KNOWING

    def number_of(metric: str) -> Callable[[str], Number]:
        return lambda model: group.numbers.overall[model, metric]

    return Table(
        name="knowing",
        title=(
            "Malicious told from dual-use prompts: knowing by the strategy called for, doing by the"
            " help given"
        ),
        columns=(
            Column("model", "Model", "name", lambda model: model),
            Column(
                "knowing",
                "Knowing",
                "number",
                lambda model: group.numbers.overall[model, pair.knowing].value,
            ),
            Column(
                "doing",
                "Doing",
                "number",
                lambda model: group.numbers.overall[model, pair.doing].value,
            ),
            *estimate_columns(
                *("difference", "Knowing − doing", number_of(pair.difference)),
                style="signed",
                headings={"n": "Sets"},
            ),
        ),
        rows=group.probed,
    )


def pairs_of(group: Group, metric: str) -> Table:
    """Return the differences of every two models in one metric, in the order in which they were
    named.
    """
    return Table(
        name="pairs",
        title=f"{metric}: second minus first, with the 95 % interval and p adjusted for all pairs",
        columns=(
            Column("model_a", "First", "name"),
            Column("model_b", "Second", "name"),
            Column("difference", "Difference", "signed"),
            Column("p_adjusted", "p", "p", lambda pair: pair.difference.p_adjusted),
            Column("n", "Sets", "count", lambda pair: pair.difference.n),
            Column("detectable", "Detectable", "number", lambda pair: pair.difference.detectable),
        ),
        rows=list(pairs(0, group, metric)),
    )


def ranks_of(group: Group, metric: str) -> Table:
    """Return the ranks that tests leave open to each model in one metric, the highest value
    first.
    """
    comparison = group.numbers.comparisons[metric]
    ranks = rank_intervals(comparison)
    return Table(
        name="ranks",
        title=f"{metric}: ranks that the tests leave open",
        columns=(
            Column("model", "Model", "name", lambda index: group.models[index]),
            Column(
                "value",
                "Value",
                "number",
                lambda index: group.numbers.estimates[metric][index].value,
            ),
            Column("rank", "Rank", "ranks", lambda index: ranks[index]),
        ),
        rows=group.numbers.ranked(metric),
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
            Column(
                "calls",
                "Calls",
                "count",
                lambda line: f"≤ {line.calls:,}" if line.at_most else line.calls,
            ),
            Column("input_tokens", "Tokens in", "count"),
            Column("output_tokens", "Tokens out", "count"),
            Column(
                "dollars",
                "Dollars" if priced else None,
                "number",
                lambda line: dollars_text(dollars(line)),
            ),
            Column(
                "seen",
                "by calls\non record" if any(line.seen for line in lines) else None,
                "count",
                lambda line: line.seen or None,
            ),
        ),
        rows=[*lines, every],
    )


def served(models: list[Served]) -> Table:
    """Return what can be named as a model, with what it needs."""

    def needs(line: Served) -> str | None:
        pattern = "P_BASE_URL" in line.needs  # a name for any variables
        marked = [
            name if pattern else f"{name} {'✗ not set' if name in line.lacking else '✓ set'}"
            for name in line.needs
        ]
        return (" " if pattern else "\n").join(marked) or None

    return Table(
        name="models",
        title="What can be named as a model",
        columns=(
            Column("name", "Model", "name"),
            Column("how", "Served"),
            Column("needs", "Needs", get=needs),
            Column("about", "About"),
        ),
        rows=models,
    )


class _Domains(NamedTuple):
    """A harm domain, or all of them together."""

    name: str
    domains: tuple[str, ...]


def cells(taxonomy: Taxonomy, sets: Mapping[tuple[str, str], int]) -> Table:
    """Return the prompt-sets of a dataset by harm domain and task type, with sums."""
    domains = taxonomy.domain_names

    def count(line: _Domains, task: str) -> int:
        return sum(sets.get((domain, task), 0) for domain in line.domains)

    def count_of(task: str) -> Callable[[_Domains], int | str]:
        return lambda line: count(line, task) or ("·" if len(line.domains) == 1 else 0)

    return Table(
        name="cells",
        title="Prompt-sets by harm domain and task type",
        columns=(
            Column("name", "Harm domain", "name"),
            *(
                Column(task, task.replace(" and ", " and\n"), "count", count_of(task))
                for task in taxonomy.type_names
            ),
            Column(
                "all",
                ALL,
                "count",
                lambda line: sum(count(line, task) for task in taxonomy.type_names),
            ),
        ),
        rows=[*(_Domains(name, (name,)) for name in domains), _Domains(ALL, domains)],
    )


class _Words(NamedTuple):
    """How long the prompts of one variant are, in words."""

    variant: str
    least: int
    median: float
    most: int


def lengths(words: Mapping[str, tuple[int, float, int]]) -> Table:
    """Return the least, median and greatest number of words by variant."""
    return Table(
        name="words",
        title="Words by variant",
        columns=(
            Column("variant", "Variant", "name"),
            Column("least", "Words,\nleast", "count"),
            Column("median", "Words,\nmedian", "count", lambda line: f"{line.median:g}"),
            Column("most", "Words,\nmost", "count"),
        ),
        rows=[_Words(variant, *numbers) for variant, numbers in words.items()],
    )
