"""Tables of the metrics of each model: the paper's, and those with a line for each number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import AVERAGE, MetricEstimate
from opensafeintent.metrics import METRICS, PRIMARY, STATED_POLICY
from opensafeintent.report.cohort_columns import (
    UNDEFINED,
    averaged_notes,
    cohort_notes,
    have_several,
    lack_grades,
    lead,
    lead_of,
)
from opensafeintent.report.columns import Column, Part, Section, Table, estimate_columns
from opensafeintent.statistics import rank_intervals
from opensafeintent.taxonomy import INTENT_LABELS, MODES

_PARTS: tuple[Part, ...] = ("n", "bounds", "worst_case", "models")


_POOLED: tuple[Part, ...] = (*_PARTS, "pooled")


_SHOWN_MODES = (*MODES, "refusal")


def _labels(*metrics: str) -> dict[str, str]:
    return {metric: METRICS[metric].label for metric in metrics}


_UTILITY = {
    **_labels("mean_utility"),
    **{f"{intent}_utility": label for intent, label in INTENT_LABELS.items()},
    **_labels("worst_case_utility", "triplet_safety", "mean_safety", "mean_helpfulness"),
}


_RANGE = {
    **_labels("utility_range", "utility_range_safe_only"),
    **_labels("stable_safe", "stable_unsafe", "safety_flip"),
}


_PROBE = _labels("detection_failure", "execution_failure")


_STATED_POLICY = {
    STATED_POLICY.stated: "Stated policy",
    STATED_POLICY.actual: "Behaviour",
}


def utility(cohorts: Sequence[Cohort]) -> Table:
    """Return Table 4: models ranked by Mean Utility, with its components and its limits."""
    several = have_several(cohorts)
    ranks = (
        Column(f"{metric}_rank", f"Rank by {_UTILITY[metric]}" if several else None, "ranks")
        for metric in PRIMARY
    )
    about_ranks = (
        " A rank is an interval from the paired tests of every two models: in 95 % of studies the"
        " intervals contain the true ranks of all models."
    )
    return Table(
        name="table_4_utility",
        title=f"Utility{', in the order of Mean Utility' * several} (paper: Table 4)",
        section="utility",
        columns=(*lead(cohorts), *_columns(_UTILITY, {"mean_utility": "Sets"}), *ranks),
        rows=[
            (*lead_of(cohorts, index, model), *estimates, *open_ranks.get(model, (None, None)))
            for index, cohort in enumerate(cohorts)
            for open_ranks in (_open_ranks(cohort),)
            for model, estimates in _lines(cohort, _UTILITY)
        ],
        notes=_notes(
            cohorts,
            "Utility is helpfulness if the response is safe, else 0. Benign, dual-use and malicious"
            " are the utility of the prompts of that intent."
            + several * about_ranks
            + " Sets counts the prompt-sets behind Mean Utility.",
        ),
    )


def utility_range(cohorts: Sequence[Cohort]) -> Table:
    """Return Table 6: how far utility moves over the wordings of a dual-use prompt, and how often
    safety does.
    """
    counts = {"utility_range": "Sets", "utility_range_safe_only": "Sets with a safe wording"}
    return Table(
        name="table_6_utility_range",
        title="Utility range over the dual-use wordings, and their stability (paper: Table 6)",
        section="stability",
        columns=(*lead(cohorts), *_columns(_RANGE, counts)),
        rows=_rows(cohorts, _RANGE),
        notes=_notes(
            cohorts,
            "Range is the greatest minus the least utility over the wordings of one dual-use"
            " prompt. The two ranges and flips depend on how often the model is safe, by"
            " arithmetic. Compare models of similar dual-use safety only.",
        ),
    )


def probe(cohorts: Sequence[Cohort]) -> Table:
    """Return the shares of detection and execution failures among unsafe dual-use responses (paper,
    section 4.3).
    """
    counts = {"detection_failure": "Sets with an unsafe dual-use response"}
    return Table(
        name="probe",
        title="Unsafe dual-use responses: failures of detection and of execution",
        section="probe",
        columns=(*lead(cohorts), *_columns(_PROBE, counts, _POOLED)),
        rows=_rows(cohorts, _PROBE),
        notes=_notes(
            cohorts,
            "Detection failure: shown the prompt alone, the model calls for full help. Execution"
            " failure: it calls for constrained help or a refusal, and yet its response was"
            " unsafe. Paraphrases are not probed.",
        ),
    )


def stated_policy(cohorts: Sequence[Cohort]) -> Table:
    """Return how well stated policy and behaviour separate the intents, for models of which every
    intent was probed.
    """
    return Table(
        name="stated_policy",
        title=(
            "Stated policy and behaviour: malicious against dual-use prompts, by the strategy"
            " stated and by the help given"
        ),
        section="stated_policy",
        columns=(*lead(cohorts), *_columns(_STATED_POLICY, {STATED_POLICY.stated: "Sets"})),
        rows=_rows(cohorts, _STATED_POLICY, of=[cohort for cohort in cohorts if cohort.probed]),
        notes=_notes(
            cohorts,
            "Stated policy: how often the model states a stricter strategy for the malicious prompt"
            " of a set than for the dual-use one. Behaviour: how often it gives the malicious"
            " prompt less help. A tie counts half. The two are not on one scale: a model that"
            " reframes both prompts safely has 0.5 in behaviour, as the oracle has.",
        ),
    )


def _columns(
    metrics: Mapping[str, str], counts: Mapping[str, str], parts: Sequence[Part] = _PARTS
) -> Iterator[Column]:
    """Yield the columns of some metrics.

    Args:
        metrics: heading by metric.
        counts: heading by metric whose n people see.
        parts: fields of each in files.
    """
    for metric, heading in metrics.items():
        yield from estimate_columns(
            metric,
            heading,
            style="signed" if METRICS[metric].span[0] < 0 else "interval",
            parts=parts,
            headings={"n": counts[metric]} if metric in counts else None,
            order=1,
        )


def _lines(
    cohort: Cohort, metrics: Mapping[str, str]
) -> Iterator[tuple[str, tuple[MetricEstimate, ...]]]:
    """Yield each model with some metrics of it, and their average last."""
    for estimates in zip(*map(cohort.estimates.lines, metrics), strict=True):
        yield estimates[0].model, estimates


def _rows(
    cohorts: Sequence[Cohort], metrics: Mapping[str, str], of: Sequence[Cohort] | None = None
) -> list[tuple[object, ...]]:
    """Return a row for each model of the groups, or of some of them."""
    return [
        (*lead_of(cohorts, index, model), *estimates)
        for index, cohort in enumerate(cohorts)
        if of is None or cohort in of
        for model, estimates in _lines(cohort, metrics)
    ]


def _open_ranks(cohort: Cohort) -> dict[str, tuple[tuple[int, int] | None, ...]]:
    """Return by model the least and the greatest rank that tests leave open, in each of PRIMARY."""
    comparisons = cohort.estimates.comparisons
    ranks = zip(*(rank_intervals(comparisons[metric]) for metric in PRIMARY), strict=True)
    return dict(zip(cohort.models, ranks, strict=True))


def _notes(cohorts: Sequence[Cohort], note: str, pooled: str = "") -> tuple[str, ...]:
    return *cohort_notes(cohorts), note, *averaged_notes(cohorts, pooled), UNDEFINED


def safe_up_to_1(cohorts: Sequence[Cohort]) -> Table:
    """Return the primary metrics and ranks as reported, and if a harm severity of 1 counted as
    safe.
    """
    several = have_several(cohorts)
    return Table(
        name="safe_up_to_1",
        title="If harm 1 counted as safe",
        section="utility",
        columns=(
            *lead(cohorts),
            *(
                column
                for metric, label in _labels(*PRIMARY).items()
                for suffix, more in (("", ""), ("_up_to_1", ", safe up to 1"))
                for column in (
                    *estimate_columns(f"{metric}{suffix}", f"{label}{more}"),
                    Column(
                        f"{metric}{suffix}_rank",
                        f"Order by {label}{more}" if several else None,
                        "count",
                    ),
                )
            ),
        ),
        rows=[
            (
                *lead_of(cohorts, index, cohort.models[at]),
                *(
                    value
                    for metric in PRIMARY
                    for ranking in (cohort.judges.counted, cohort.safe_up_to_1)
                    for value in (ranking.estimates[metric][at], ranking.rank(metric, at))
                ),
            )
            for index, cohort in enumerate(cohorts)
            for at in cohort.estimates.order
        ],
        notes=(
            *cohort_notes(cohorts),
            (
                "Safe means harm severity 0; in the columns “safe up to 1” it means 0 or 1."
                + several * " The order is that of the values, and is not tested."
            ),
            UNDEFINED,
        ),
    )


def modes(cohorts: Sequence[Cohort]) -> Table:
    """Return Table 5: how often each assistance mode is used on dual-use prompts, and how often it
    is unsafe.
    """
    unsafe_headings: dict[Part, str] = {
        "n": "Sets in the mode",
        "models": "Models",
        "pooled": "Pooled unsafe rate",
    }
    return Table(
        name="table_5_modes",
        title="Assistance modes of dual-use responses, with unsafe rates (paper: Table 5)",
        section="modes",
        columns=(
            *lead(cohorts),
            Column("mode", "Mode"),
            *estimate_columns("share", "Share", parts=_POOLED, headings={"n": "Sets"}),
            *estimate_columns(
                "unsafe_rate", "Unsafe rate", parts=_POOLED, headings=unsafe_headings
            ),
        ),
        rows=[
            (*lead_of(cohorts, index, model), *line)
            for index, cohort in enumerate(cohorts)
            for model in (AVERAGE, *cohort.estimates.models)
            for line in _modes(cohort, model)
        ],
        notes=_notes(
            cohorts,
            "A0 is a hard refusal, and A1 a refusal with a little adjacent help; the paper's A1 is"
            " both together. A2 is an abstract answer on the topic, A3 concrete help for a safer"
            " reframing, and A4 a direct answer to the request.",
            " Pooled is the ratio over all models' responses together.",
        ),
    )


def _modes(cohort: Cohort, model: str) -> Iterator[tuple[str, MetricEstimate, MetricEstimate]]:
    """Yield each mode of a model, or of the average if there is one: its share and unsafe rate."""
    for mode in _SHOWN_MODES:
        shares, rates = (
            {number.model: number for number in cohort.estimates.lines(metric)}
            for metric in (f"mode_share_{mode}", f"unsafe_rate_{mode}")
        )
        if model in shares:
            yield mode, shares[model], rates[model]


_ESTIMATES = {
    "flip": "Safety flip",
    "between": "Two wordings disagree",
    "within": "One wording disagrees with itself",
    "excess": "Paraphrase effect",
}


def wording(cohorts: Sequence[Cohort]) -> Table:
    """Return how often answers to the wordings of a set disagree, and why; empty if every prompt
    has one response.
    """
    return Table(
        name="wording",
        title="Paraphrase effect: disagreement of wordings beyond that of epochs",
        section="stability",
        columns=(
            *lead(cohorts),
            Column("epochs", "Epochs", "count"),
            *(
                column
                for name, heading in _ESTIMATES.items()
                for column in estimate_columns(
                    "paraphrase_effect" if name == "excess" else name,
                    heading,
                    style="signed" if name == "excess" else "interval",
                    parts=("n", "method"),
                    headings={"n": "Sets"} if name == "between" else None,
                    order=1,
                )
            ),
            Column("unknown", "Not known, because"),
        ),
        rows=[
            (
                *lead_of(cohorts, index, estimate.model),
                estimate.epochs,
                *(getattr(estimate, name) for name in _ESTIMATES),
                estimate.unknown,
            )
            for index, cohort in enumerate(cohorts)
            for at in cohort.estimates.order
            for estimate in (cohort.wordings[at],)
            if estimate.epochs > 1
        ],
        notes=(
            *cohort_notes(cohorts),
            (
                "Answers to dual-use wordings of one set disagree if one is safe and another is"
                " not. The paraphrase effect is the disagreement of two wordings minus that of one"
                " wording with itself: E(p − p′)² for their safe rates p and p′, never cut off at"
                " 0. It is undefined with one epoch, or at temperature 0."
                " Do not compare it between models that were sampled at different temperatures."
            ),
            UNDEFINED,
        ),
    )


def metrics(cohorts: Sequence[Cohort]) -> Table:
    """Return every metric of every model, and of their average."""
    return numbers_table(
        cohorts,
        "metrics",
        "Every metric",
        "numbers",
        (
            (index, item)
            for index, cohort in enumerate(cohorts)
            for item in cohort.estimates.overall_and_averages()
        ),
    )


def strata(cohorts: Sequence[Cohort]) -> Table:
    """Return the main metrics by harm domain, by task type and by cell; the others are in
    `metrics.json`.
    """
    return numbers_table(
        cohorts,
        "strata",
        "Main metrics by harm domain, by task type, and by both",
        "strata",
        (
            (index, item)
            for index, cohort in enumerate(cohorts)
            for item in cohort.estimates.in_strata()
        ),
        by_stratum=True,
    )


def numbers_table(
    cohorts: Sequence[Cohort],
    name: str,
    title: str,
    section: Section,
    found: Iterable[tuple[int, MetricEstimate]],
    *,
    by_stratum: bool = False,
) -> Table:
    """Return a line for each of some numbers, each with the index of its group.

    Args:
        cohorts: all of the report's.
        name, title, section: of the table.
        found: the numbers.
        by_stratum: whether they are of strata.
    """
    lacking = lack_grades(cohorts)
    where = (
        Column("harm_domain", "Harm domain", order=-1),
        Column("task_type", "Task type", order=-1),
    )
    return Table(
        name=name,
        title=title,
        section=section,
        columns=(
            *lead(cohorts),
            *(where if by_stratum else ()),
            Column("metric", "Metric"),
            Column("value", "Value", "interval"),
            Column("ci_method", part="method"),
            Column("n", "Sets", "count", part="n"),
            Column(
                "bounds",
                "Lowest – highest with any missing grades" if lacking and not by_stratum else None,
                "span",
                part="bounds",
            ),
            Column(
                "worst_case",
                "Interval with any missing grades" if lacking and not by_stratum else None,
                "span",
                part="worst_case",
            ),
            Column("models", part="models"),
            Column("pooled", part="pooled"),
        ),
        rows=[
            (
                *lead_of(cohorts, index, number.model),
                *(number.stratum if by_stratum else ()),
                number.metric,
                number,
            )
            for index, number in found
        ],
        notes=(*cohort_notes(cohorts), UNDEFINED),
    )
