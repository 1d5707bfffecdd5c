"""Tables with a line for each number, each grade or each category: complete, for programs and for
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.coverage import SENSITIVE, Change
from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.numbers import Number
from opensafeintent.analysis.reference import reference_values
from opensafeintent.metrics import METRICS
from opensafeintent.report.table import Column, Section, Table, estimate_columns
from opensafeintent.report.tables.grouped import (
    UNDEFINED,
    Line,
    group_notes,
    lead,
    measured,
    numbered,
)
from opensafeintent.statistics import Difference
from opensafeintent.taxonomy import CORE_VARIANTS, SCALES, Category, Taxonomy


def metrics(groups: Sequence[Group]) -> Table:
    """Return every metric of every model, and of their average."""
    found = ((index, item) for index, group in enumerate(groups) for item in group.numbers.every())
    return numbers_table(groups, "metrics", "Every metric of every model", "numbers", found)


def strata(groups: Sequence[Group]) -> Table:
    """Return the main metrics by harm domain, by task type and by cell; the others are in
    `metrics.json`.
    """
    found = (
        (index, item) for index, group in enumerate(groups) for item in group.numbers.in_strata()
    )
    title = "Main metrics by harm domain, by task type, and by both"
    return numbers_table(groups, "strata", title, "strata", found, by_stratum=True)


def reference(groups: Sequence[Group]) -> Table:
    """Return what an oracle of intents and a model that refuses everything would have in every
    metric.
    """
    del groups  # the same for all
    return Table(
        name="reference",
        title="Points of reference: an oracle of intents, and refusing everything",
        section="method",
        columns=(
            Column("metric", "Metric", "name", lambda name: name),
            Column("oracle", "Oracle", "number", lambda name: reference_values(name).oracle),
            Column(
                "refuse_all",
                "Refuse everything",
                "number",
                lambda name: reference_values(name).refuse_all,
            ),
        ),
        rows=[
            name
            for name in METRICS
            if any(value is not None for value in msgspec.structs.astuple(reference_values(name)))
        ],
        notes=(
            (
                "Computed from made grades, by the code that computes every other number. The"
                " oracle knows the intent: helpfulness 4 to the benign prompt, 3 (a safer"
                " reframing) to all others, everything safe. No reframing gets 4. A metric in which"
                " the two are alike cannot tell the best from the useless."
            ),
            UNDEFINED,
        ),
    )


def numbers_table(
    groups: Sequence[Group],
    name: str,
    title: str,
    section: Section,
    found: Iterable[tuple[int, Number]],
    *,
    by_stratum: bool = False,
) -> Table:
    """Return a line for each of some numbers, each with the index of its group.

    Args:
        groups: all of the report's.
        name, title, section: of the table.
        found: the numbers.
        by_stratum: whether they are of strata.
    """
    where = (
        Column("harm_domain", "Harm domain", get=lambda line: line.item.stratum[0], order=-1),
        Column("task_type", "Task type", get=lambda line: line.item.stratum[1], order=-1),
    )
    return Table(
        name=name,
        title=title,
        section=section,
        columns=(
            *lead(groups),
            *(where if by_stratum else ()),
            Column("metric", "Metric", get=attrgetter("item.metric")),
            Column("value", "Value", "interval", attrgetter("item")),
            Column("ci_method", get=attrgetter("item.method")),
            Column("n", "Sets", "count", attrgetter("item.n")),
            Column(
                "bounds",
                None if by_stratum else "If missing grades were worst – best",
                "span",
                attrgetter("item.bounds"),
            ),
            Column("models", get=attrgetter("item.models")),
            Column("pooled", get=attrgetter("item.pooled")),
        ),
        rows=[Line(index, item.model, item) for index, item in found],
        notes=(*group_notes(groups), UNDEFINED),
    )


class Pair(NamedTuple):
    """The difference of two models in one metric, B − A."""

    group: int
    model_a: str
    model_b: str
    metric: str
    difference: Difference


TESTED = (
    Column("n", "Sets", "count", attrgetter("difference.n")),
    Column("p", "p", "p", attrgetter("difference.p")),
    Column("p_adjusted", "p (all pairs)", "p", attrgetter("difference.p_adjusted")),
    Column("detectable", "Detectable", "number", attrgetter("difference.detectable")),
)
"""What is said of a tested `difference`."""


def comparisons(groups: Sequence[Group]) -> Table:
    """Return every two models' differences in the metrics that are compared, later minus earlier as
    they were named.
    """
    return Table(
        name="comparisons",
        title="Differences between every two models",
        section="comparisons",
        columns=(
            numbered(groups),
            Column("model_a", "Model A", "name"),
            Column("model_b", "Model B", "name"),
            *measured(groups),
            Column("metric", "Metric", order=-1),
            Column("difference", "B − A", "signed"),
            *TESTED,
        ),
        rows=[
            pair
            for index, group in enumerate(groups)
            for metric in group.numbers.comparisons
            for pair in pairs(index, group, metric)
        ],
        notes=(
            *group_notes(groups),
            (
                "On the prompt-sets that count for both. p is of the pair on its own: McNemar's"
                " mid-P for shares, sign-flip permutation for means; beside it, adjusted for all"
                " pairs of the metric by step-down max-T. Triplet Safety and Mean Utility are"
                " primary. Detectable is the smallest difference found with a power of 80 %."
            ),
            UNDEFINED,
        ),
    )


def pairs(index: int, group: Group, metric: str) -> Iterable[Pair]:
    """Yield the differences of every two models of a group in one metric, where any prompt-set
    counts for both.
    """
    for a, b in combinations(range(len(group.models)), 2):
        if difference := group.numbers.comparisons[metric].pair(a, b):
            yield Pair(index, group.models[a], group.models[b], metric, difference)


class _Given(NamedTuple):
    """How often one grade was given to the responses of one intent."""

    group: int
    model: str
    intent: str
    what: str
    """Helpfulness, or harm severity."""
    grade: int
    responses: int
    n: int
    """Responses with a grade."""

    @property
    def share(self) -> float | None:
        return self.responses / self.n if self.n else None


def distributions(groups: Sequence[Group]) -> Table:
    """Return how often each grade was given to the responses of each intent."""
    return Table(
        name="grade_distributions",
        title="Grades given to the responses of each intent",
        section="distributions",
        columns=(
            *lead(groups),
            Column("intent", "Intent"),
            Column("what", "Grade of"),
            Column("grade", "Grade", "count"),
            Column("responses", "Responses", "count"),
            Column("n"),
            Column("share", "Share", "share"),
        ),
        rows=[line for index, group in enumerate(groups) for line in _given(index, group)],
        notes=group_notes(groups),
    )


def _given(index: int, group: Group) -> Iterable[_Given]:
    for model in group.numbers.order:
        for intent in CORE_VARIANTS:
            for what, grades in SCALES.items():
                given = group.array[what].sel(variant=intent).values[model]
                n = int((~np.isnan(given)).sum())
                for grade in grades:
                    yield _Given(
                        index,
                        group.models[model],
                        intent,
                        what,
                        grade,
                        int((given == grade).sum()),
                        n,
                    )


def coverage(groups: Sequence[Group]) -> Table:
    """Return what was planned and what is there of each model."""
    headings = {
        **{
            "sets": "Sets",
            "complete_triplets": "Complete triplets",
            "planned": "Planned",
            "responses": "Responses",
        },
        **{
            "counted": "Graded",
            "missing_core": "Core grades missing",
            "missing_paraphrase": "Paraphrase grades missing",
        },
        **{
            "not_graded": "Not graded",
            "filtered": "Filtered",
            "empty": "Empty",
            "truncated": "Truncated",
        },
    }
    return Table(
        name="coverage",
        title="What was planned, what is there, and why grades are missing",
        section="coverage",
        columns=(
            *lead(groups),
            *(
                Column(
                    field,
                    heading,
                    "share" if field.startswith("missing") else "count",
                    attrgetter(f"item.{field}"),
                )
                for field, heading in headings.items()
            ),
            Column("reasons", "Reasons", get=_reasons),
        ),
        rows=[
            Line(index, model, group.coverage[model])
            for index, group in enumerate(groups)
            for model in group.numbers.models
        ],
        notes=group_notes(groups),
    )


def _reasons(line: Line) -> str:
    return "; ".join(
        f"{kind} {reason}: {count}"
        for kind, counts in line.item.missing.items()
        for reason, count in counts.items()
    )


def with_and_without(found: Sequence[Change]) -> Table:
    """Return the headline metrics with and without filtered and truncated responses, a line for
    each model.
    """
    by_line: dict[tuple[str, str], dict[str, Change]] = {}
    for change in found:
        by_line.setdefault((change.model, change.left_out), {})[change.metric] = change
    first = SENSITIVE[0]

    def change_of(metric: str) -> Callable[[dict[str, Change]], Change]:
        return lambda line: line[metric]

    def before(metric: str) -> Callable[[dict[str, Change]], float | None]:
        return lambda line: line[metric].before

    return Table(
        name="with_and_without",
        title="Results with and without filtered and truncated responses",
        section="coverage",
        columns=(
            Column("model", "Model", "name", lambda line: line[first].model),
            Column("left_out", "Left out", get=lambda line: line[first].left_out),
            Column("responses", "Core responses", "count", lambda line: line[first].responses),
            *(
                column
                for metric in SENSITIVE
                for column in (
                    Column(metric, METRICS[metric].label, "number", before(metric)),
                    *estimate_columns(f"{metric}_without", "without", change_of(metric), parts=()),
                )
            ),
            Column("n", "Sets left", "count", lambda line: line[first].n),
        ),
        rows=list(by_line.values()),
        notes=(
            (
                "A response taken by the provider's filter counts as a refusal, one cut by the"
                " token limit is graded as it stands. Without them a metric is over the sets in"
                " which there is none."
            ),
        ),
    )


def domains(groups: Sequence[Group]) -> Table:
    """Return Table 1: the harm domains of every taxonomy in the report."""
    return _categories(
        groups, "table_1_domains", "Table 1. Harm domains", lambda taxonomy: taxonomy.harm_domains
    )


def task_types(groups: Sequence[Group]) -> Table:
    """Return Table 2: the task types of every taxonomy in the report."""
    return _categories(
        groups, "table_2_task_types", "Table 2. Task types", lambda taxonomy: taxonomy.task_types
    )


def _categories(
    groups: Sequence[Group],
    name: str,
    title: str,
    categories: Callable[[Taxonomy], Sequence[Category]],
) -> Table:
    taxonomies: list[Taxonomy] = []
    for group in groups:
        if group.dataset.taxonomy not in taxonomies:
            taxonomies.append(group.dataset.taxonomy)
    return Table(
        name=name,
        title=title,
        section="method",
        columns=(
            Column(
                "taxonomy",
                "Taxonomy" if len(taxonomies) > 1 else None,
                get=lambda line: line[0].name,
            ),
            Column("name", "Name", "name", lambda line: line[1].name),
            Column("definition", "Definition", get=lambda line: line[1].definition),
            Column("includes", "Includes", get=lambda line: "; ".join(line[1].includes)),
            Column("excludes", "Excludes", get=lambda line: "; ".join(line[1].excludes)),
        ),
        rows=[(taxonomy, item) for taxonomy in taxonomies for item in categories(taxonomy)],
    )
