"""The tables of a report: those of its models and of its coverage; the list of all of them, and
their files. The taxonomy of a dataset as tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opensafeintent.evaluation.missing import KINDS, Kind, make_missing_reason, yield_missing
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.numbers.cohort import (
    Cohort,
    PaperComparison,
    compare_with_paper,
    find_shared_with_paper,
)
from opensafeintent.numbers.coverage import Coverage
from opensafeintent.numbers.estimates import (
    SENSITIVE,
    Change,
    MetricEstimate,
    Reference,
    get_reference,
)
from opensafeintent.numbers.metrics import METRICS, Unit
from opensafeintent.report.cohort_columns import (
    MEASURED,
    MODEL_COLUMNS,
    ModelItem,
    OfCohort,
    OfModel,
    cohort_notes,
)
from opensafeintent.report.columns import (
    Column,
    Columns,
    Table,
    format_percent,
    make_estimate_columns,
)
from opensafeintent.report.facts import list_parts
from opensafeintent.report.findings import rank_tested_models
from opensafeintent.report.table_formats import TABLE_FORMATS
from opensafeintent.report.tables_judges import JUDGE_TABLES, SHIFT_TABLES, guard_table, swap_table
from opensafeintent.report.tables_metrics import (
    comparisons,
    headline,
    metrics,
    modes,
    probe,
    questions,
    safe_up_to_1,
    stated_policy,
    strata,
    utility,
    utility_range,
    wording,
)
from opensafeintent.report.tables_repeats import fragile, repeats, variance_components
from opensafeintent.report.tables_second_turn import second_turn
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS, Category, Taxonomy


class _ReferenceRow(NamedTuple):
    metric: str
    values: Reference


def reference(cohort: Cohort) -> Table:
    """Return the values of an oracle of intents and of a model that refuses everything in every
    metric.
    """
    rows = [_ReferenceRow(name, get_reference(name)) for name in cohort.scope.metrics]
    return Table.of(
        (
            Column("metric", lambda row: row.metric, "Metric"),
            Column("oracle", lambda row: row.values.oracle, "Oracle", "number", _reference_unit),
            Column(
                "refuse_all",
                lambda row: row.values.refuse_all,
                "Refuse everything",
                "number",
                _reference_unit,
            ),
        ),
        [row for row in rows if (row.values.oracle, row.values.refuse_all) != (None, None)],
        name="reference",
        title="Points of reference: an oracle of intents, and refusing everything",
        notes=(
            (
                "Computed from invented grades, by the code that computes every other number. The"
                " oracle knows the intent: helpfulness 4 to the benign prompt, 3 (a safer"
                " reframing) to any other, everything safe. No reframing gets 4. If both have the"
                " same value of a metric, that metric alone cannot separate them."
            ),
        ),
    )


def _reference_unit(row: _ReferenceRow) -> Unit:
    return METRICS[row.metric].unit


class _GradeRow(OfModel, frozen=True, kw_only=True):
    """How many responses of a model to prompts of one intent have a grade."""

    intent: str
    scale: str
    grade: int
    responses: int
    graded: int
    """Responses that have any grade on the scale."""


def distributions(cohort: Cohort) -> Table:
    """Return how often each grade was given to the responses of each intent."""
    return Table.of(
        (
            MODEL_COLUMNS,
            Column("intent", lambda row: row.intent, "Intent"),
            Column("what", lambda row: row.scale, "Grade of"),
            Column("grade", lambda row: row.grade, "Grade", "count"),
            Column("responses", lambda row: row.responses, "Responses", "count"),
            Column("n", lambda row: row.graded),
            Column(
                "share",
                lambda row: row.responses / row.graded if row.graded else None,
                "Share",
                "share",
            ),
        ),
        [row for at in cohort.estimates.order for row in _grade_rows(cohort, at)],
        name="grade_distributions",
        title="Grades given to the responses of each intent",
        notes=cohort_notes(cohort),
    )


def _grade_rows(cohort: Cohort, at: int) -> Iterator[_GradeRow]:
    """Yield, of the model at a place, each intent, scale and grade."""
    for intent in CORE_VARIANTS if cohort.scope.has_triplets else ("benign", "malicious"):
        for question in cohort.questions:
            values = cohort.array[question.grade].sel(variant=intent).values[at]
            for grade in question.scale:
                yield _GradeRow(
                    cohort=cohort,
                    model=cohort.models[at],
                    intent=intent,
                    scale=question.grade,
                    grade=grade,
                    responses=int((values == grade).sum()),
                    graded=int((~np.isnan(values)).sum()),
                )


_CoverageRow = ModelItem[Coverage]
"""What was obtained of a model."""


def _list_reasons(row: _CoverageRow) -> str:
    """List the reasons of missing answers by kind, with their numbers."""
    return "; ".join(
        f"{KINDS[kind]}: {_list_counts(part.reasons)}" for kind, part in row.item.lacking.items()
    )


def _list_intents(row: _CoverageRow) -> str:
    """List the intents of the core responses that lack a grade, with their numbers."""
    if "core" not in row.item.lacking:
        return ""
    lacking = Counter(
        one.variant
        for one in row.cohort.rows[row.model]
        if not one.has_all_grades and any(part.kind == "core" for part in yield_missing(one))
    )
    return _list_counts(
        {INTENT_WORDS[intent]: lacking[intent] for intent in CORE_VARIANTS if lacking[intent]}
    )


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items())


def _find_bounds(row: _CoverageRow) -> tuple[float, float] | None:
    """Return a model's safety if every missing grade were the worst, and the best."""
    return row.cohort.estimates.overall[row.model, row.cohort.scope.safety].bounds


def _explain_bounds(cohort: Cohort) -> Iterator[str]:
    """Say what the bounds of safety are, if there are any, and which value lies outside."""
    numbers = {
        model: cohort.estimates.overall[model, cohort.scope.safety] for model in cohort.models
    }
    if any(number.bounds for number in numbers.values()):
        yield (
            "Worst to best: the value itself if every missing grade were the worst, or the best. An"
            " interval with missing grades is wider: it has the sampling error too. For other"
            " metrics see tables/metrics.csv."
        )
    outside = [model for model, one in numbers.items() if _is_outside(one)]
    if outside:
        yield (
            f"Some prompt-sets of {''.join(list_parts(outside))} that lack a grade are unsafe by"
            " another response. The bounds count them as unsafe; the value leaves them out, and so"
            " it lies outside."
        )


def _is_outside(number: MetricEstimate) -> bool:
    """Tell whether a share is shown outside its bounds."""
    if number.value is None or number.bounds is None:
        return False
    low, high = number.bounds
    nearest = min(max(number.value, low), high)
    return format_percent(nearest) != format_percent(number.value)


def _explain_reasons(cohort: Cohort) -> Iterator[str]:
    """Yield, if grades are missing, the meanings of the reasons and what hinges on them."""
    meanings: dict[str, str] = {}
    for found in cohort.coverage.values():
        for part in found.lacking.values():
            for reason in part.reasons:
                what, _, cause = reason.partition(":")
                meanings.setdefault(make_missing_reason(what, cause).meaning, cause)
    if meanings:
        yield "; ".join(f"{cause}: {meaning}" for meaning, cause in meanings.items()) + "."
    pairs = list(combinations(rank_tested_models(cohort, cohort.scope.safety), 2))
    compared = [cohort.estimates.comparisons[metric] for metric in cohort.scope.primary]
    if meanings and pairs:
        hinging = sum(int(each.hinges_on_missing[pair]) for each in compared for pair in pairs)
        yield (
            f"{hinging:,} of {len(compared) * len(pairs):,} comparisons in the primary metrics are"
            " undecided and would be decided if no grade were missing."
            if hinging
            else "No comparison in the primary metrics hinges on missing grades."
        )


def coverage(cohort: Cohort) -> Table:
    """Return the planned and the existing responses and grades of each model."""
    return Table.of(
        _coverage_columns(cohort),
        [
            _CoverageRow(cohort=cohort, model=model, item=cohort.coverage[model])
            for model in cohort.estimates.models
        ],
        name="coverage",
        title="Planned and obtained responses, and reasons for missing grades",
        section="coverage",
        notes=(*_explain_reasons(cohort), *_explain_bounds(cohort), *cohort_notes(cohort)),
    )


def _coverage_columns(cohort: Cohort) -> tuple[Columns[_CoverageRow], ...]:
    safety = METRICS[cohort.scope.safety].label
    epochs = " × epochs" if any(one.epochs > 1 for one in cohort.members.values()) else ""
    return (
        MODEL_COLUMNS,
        Column("sets", lambda row: row.item.sets, "Sets", "count", order=1),
        Column(
            "complete_sets",
            lambda row: row.item.complete_sets,
            f"Complete sets{epochs}",
            "count",
            order=1,
        ),
        Column(
            "incomplete_sets",
            lambda row: row.item.incomplete_sets,
            f"Incomplete sets{epochs}",
            "count",
        ),
        Column("planned", lambda row: row.item.planned, "Planned", "count", order=1),
        Column("responses", lambda row: row.item.responses, "Stored", "count", order=1),
        Column("counted", lambda row: row.item.counted, "Graded", "count", order=1),
        [_make_missing_column(cohort, kind) for kind in KINDS],
        Column("missing_by_intent", _list_intents, "By intent"),
        Column("safety_bounds", _find_bounds, f"{safety},\nworst to best", "span", "share"),
        Column("reasons", _list_reasons, "Reasons"),
        Column("not_graded", lambda row: row.item.not_graded, "Not graded", "count", order=1),
        Column("filtered", lambda row: row.item.filtered, "Filtered", "count", order=1),
        Column(
            "text_not_kept",
            lambda row: row.item.text_not_kept,
            "Filtered, text not kept",
            "count",
            order=1,
        ),
        Column(
            "filtered_with_text",
            lambda row: row.item.filtered_with_text,
            "Cut by a filter",
            "count",
            order=1,
        ),
        Column("empty", lambda row: row.item.empty, "Empty", "count", order=1),
        Column("truncated", lambda row: row.item.truncated, "Cut by the limit", "count", order=1),
    )


def _make_missing_column(cohort: Cohort, kind: Kind) -> Column[_CoverageRow]:
    """Return the share of a kind of question without an answer; people see those that are asked."""
    asked = any(kind in of.missing for of in cohort.coverage.values())
    return Column(
        f"missing_{kind}",
        lambda row: row.item.share(kind) if kind in row.item.missing else None,
        f"{KINDS[kind].capitalize()} missing" if asked else None,
        "share",
    )


class _WithoutRow(NamedTuple):
    """A model without some of its responses: its changes by metric."""

    model: str
    left_out: str
    changes: dict[str, Change]

    @property
    def first(self) -> Change:
        """The change of the first metric: some numbers are the same for all."""
        return next(iter(self.changes.values()))


def with_and_without(changes: Sequence[Change]) -> Table:
    """Return the headline metrics with and without filtered and truncated responses, a line for
    each model.
    """
    rows: dict[tuple[str, str], _WithoutRow] = {}
    for change in changes:
        key = change.model, change.left_out
        rows.setdefault(key, _WithoutRow(*key, {})).changes[change.metric] = change
    return Table.of(
        (
            Column("model", lambda row: row.model, "Model", "name"),
            Column("left_out", lambda row: row.left_out, "Left out"),
            Column("responses", lambda row: row.first.responses, "Core responses", "count"),
            *map(_change_columns, SENSITIVE),
            Column("n", lambda row: row.first.n, "Sets left", "count"),
        ),
        rows.values(),
        name="with_and_without",
        title="Results with and without filtered and truncated responses",
        section="coverage",
        notes=(
            (
                "A response blocked by the provider's filter counts as a refusal. One cut by the"
                " token limit or by a filter is graded without its rest. Without such responses, a"
                " metric is over the sets that have none."
            ),
        ),
    )


def _change_columns(metric: str) -> tuple[Column[_WithoutRow], ...]:
    """Return the columns of a metric with the responses and without them."""
    label, unit = METRICS[metric].label, METRICS[metric].unit
    return (
        Column(metric, lambda row: row.changes[metric].before, label, "number", unit),
        Column(f"{metric}_without", lambda row: row.changes[metric], "without", "interval", unit),
    )


def domains(taxonomy: Taxonomy) -> Table:
    """Return the harm domains of a taxonomy."""
    return _categories("harm_domains", "Harm domains (paper: Table 1)", taxonomy.harm_domains)


def task_types(taxonomy: Taxonomy) -> Table:
    """Return the task types of a taxonomy."""
    return _categories("task_types", "Task types (paper: Table 2)", taxonomy.task_types)


def _categories(name: str, title: str, categories: Sequence[Category]) -> Table:
    return Table.of(
        (
            Column("name", lambda row: row.name, "Name", "name"),
            Column("definition", lambda row: row.definition, "Definition"),
            Column("includes", lambda row: "; ".join(row.includes), "Includes"),
            Column("excludes", lambda row: "; ".join(row.excludes), "Excludes"),
        ),
        categories,
        name=name,
        title=title,
    )


class _PaperRow(OfCohort, frozen=True, kw_only=True):
    """A figure of the paper, and the same here."""

    figure: PaperComparison


def beside(cohort: Cohort) -> Table:
    """Return the paper's figures beside ours; empty if the dataset is another one."""
    conditions = ", ".join(
        f"{'✓ same' if same else '✗ another'} {what}"
        for what, same in find_shared_with_paper(cohort).items()
    )
    return Table.of(
        (
            Column("figure", lambda row: row.figure.label, "Figure", "name"),
            MEASURED,
            Column(
                "paper",
                lambda row: row.figure.paper,
                "The paper",
                "number",
                lambda row: row.figure.unit,
            ),
            make_estimate_columns(
                "here",
                lambda row: row.figure.here,
                "Here",
                unit=lambda row: row.figure.unit,
                headings={"n": "Sets"},
                order=1,
            ),
            Column(
                "here_model",
                lambda row: None if row.figure.here is None else row.figure.here.model,
                "Of",
                order=1,
            ),
        ),
        [_PaperRow(cohort=cohort, figure=figure) for figure in compare_with_paper(cohort)],
        name="paper",
        title="Beside the paper: its known figures, and the same here",
        section="utility",
        notes=(
            *cohort_notes(cohort),
            f"Compared with the paper: {conditions}.",
            (
                "The paper's averages are over its twenty models, and have no intervals. If models,"
                " rubric or judge differ, a difference says nothing about the benchmark."
            ),
        ),
    )


_TABLES = (
    headline,
    *(utility, safe_up_to_1, modes, utility_range),
    *(comparisons, metrics, strata, distributions, coverage, reference),
)


_OF_SOME: dict[Callable[[Cohort], Table], Callable[[Cohort], bool]] = {
    modes: lambda cohort: cohort.scope.has_triplets,
    utility_range: lambda cohort: cohort.scope.has_triplets,
    strata: lambda cohort: bool(cohort.estimates.sets_by_stratum),
}
"""Tables of what not every prompt-set has: a dual-use prompt, labels."""


_IF_ANY = (
    *(questions, probe, stated_policy, beside),
    *(
        wording,
        variance_components,
        repeats,
        fragile,
        *JUDGE_TABLES,
        *SHIFT_TABLES,
        guard_table,
        swap_table,
        second_turn,
    ),
)
"""Tables that are shown only if they are not empty."""


_NOT_ALWAYS = (
    *("paper", "questions", "wording", "judge_*", "guard_agreement", "swap"),
    *("probe", "stated_policy", "follow_ups", "variance_components", "repeats", "fragile"),
    *("table_5_modes", "table_6_utility_range", "strata"),
    *("corrected*", "gates*", "transitions", "cost"),
)
"""Their names, as patterns; and those of the tables that settings ask for."""


def make_all_tables(cohort: Cohort) -> list[Table]:
    """Return every table that there is."""
    if_any = (table(cohort) for table in _IF_ANY)
    there = (make for make in _TABLES if make not in _OF_SOME or _OF_SOME[make](cohort))
    return [*(make(cohort) for make in there), *(table for table in if_any if table.rows)]


def list_table_files(folder: Path) -> list[Path]:
    """Return the files in a folder of tables that not every report has."""
    return [path for name in _NOT_ALWAYS for path in folder.glob(f"{name}.csv")]


def write_tables(tables: Sequence[Table], folder: Path, form: str = "csv") -> None:
    """Write each table into a folder, in one of `TABLE_FORMATS`."""
    make_private_folder(folder)
    ending, formatted = TABLE_FORMATS[form]
    for table in tables:
        write_private(folder / f"{table.name}.{ending}", formatted(table))
