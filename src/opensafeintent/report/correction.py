"""Corrected numbers as tables show them, and as `metrics.json` has them: beside the raw ones, never in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from opensafeintent.analysis.correction import CORRECTED, CorrectedGroup, Correction
from opensafeintent.analysis.numbers import Number
from opensafeintent.metrics import METRICS
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.report.tables.grouped import UNDEFINED, Line, group_notes, lead, measured, numbered
from opensafeintent.statistics import Estimate
from opensafeintent.statistics.correction import Corrected, Method, Refused
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_LABELS

__all__ = ["corrected_json", "correction_tables"]


_METHODS: dict[Method, tuple[str, str]] = {
    "ppi++": (
        "PPI++",
        "PPI++ takes for granted that the labelled responses, or whole prompt-sets, were drawn at random from this model's "
        "with the probabilities on record.",
    ),
    "rogan-gladen": (
        "Rogan–Gladen",
        "Rogan–Gladen takes for granted that at each intent the judge errs on this model's responses as often as on the "
        "labelled ones.",
    ),
    "rogan-gladen-pooled": (
        "Rogan–Gladen, intents pooled",
        "Rogan–Gladen with intents pooled takes for granted that the judge errs on this model's responses as often as on the "
        "labelled ones, and at one intent as often as at another.",
    ),
    "rates-product": (
        "Product of rates",
        "The product of rates takes for granted that the judge's errors within a prompt-set do not depend on one another, "
        "and that at each intent it errs on this model's responses as often as on the labelled ones.",
    ),
}
"""How a method is called, and what it assumes, in one sentence."""

_TRUTH = (
    "Truth is what most people say who graded a response: safe if more than half find no harm in it, a tie being unsafe. Its "
    "utility is 0 where it is unsafe, else the mean of their helpfulness, from 0 to 1. The intervals hold how few labels "
    "there are as well as how few prompt-sets; not that people may be wrong."
)


def correction_tables(corrected: Sequence[CorrectedGroup]) -> list[Table]:
    """Return the corrected metrics beside the raw ones, and the judge's error rates that they rest on."""
    return [_corrected_table(corrected), _rates_table(corrected)]


class _Corrected(NamedTuple):
    """A metric of a model as the judge has it, and corrected."""

    group: int
    model: str
    metric: str
    """As people are shown it."""
    raw: Number
    item: Correction

    @property
    def result(self) -> Corrected | None:
        """What the correction came to; None where it was refused."""
        return self.item.result if isinstance(self.item.result, Corrected) else None

    @property
    def refused(self) -> str | None:
        return self.item.result.reason if isinstance(self.item.result, Refused) else None


def _corrected_table(corrected: Sequence[CorrectedGroup]) -> Table:
    groups = [found.group for found in corrected]
    rows = [line for index, found in enumerate(corrected) for line in _lines(index, found)]
    methods = {line.result.method for line in rows if line.result}

    def of_result(get: Callable[[Corrected], object]) -> Callable[[_Corrected], object]:
        return lambda line: None if line.result is None else get(line.result)

    return Table(
        name="corrected",
        title="Metrics as the judge has them, and corrected by human labels",
        section="correction",
        columns=(
            *lead(groups),
            Column("metric", "Metric"),
            *estimate_columns("raw", "As judged"),
            Column("corrected", "Corrected", "interval", attrgetter("result")),
            Column("method", "Method", get=of_result(lambda result: _METHODS[result.method][0])),
            Column("labels", get=of_result(lambda result: result.n)),
            Column("units", get=of_result(lambda result: result.units)),
            Column("labelled_sets", get=of_result(lambda result: result.sets)),
            Column("of_models", get=lambda line: len(line.item.of) if line.result else None),
            Column("annotators", get=lambda line: line.item.annotators if line.result else None),
            Column("refused"),
            Column(
                "basis",
                "Rests on, or why there is none",
                get=lambda line: _rests_on(line.item, line.result) if line.result else line.refused,
            ),
        ),
        rows=rows,
        notes=(*group_notes(groups), _TRUTH, *(_METHODS[method][1] for method in _METHODS if method in methods), UNDEFINED),
    )


def _lines(index: int, found: CorrectedGroup) -> Iterable[_Corrected]:
    raw = found.group.numbers
    by_model = {(item.model, item.metric): item for item in found.corrections}
    for model in raw.models:
        for metric in CORRECTED:
            yield _Corrected(index, model, METRICS[metric].label, raw.overall[model, metric], by_model[model, metric])


def _rests_on(item: Correction, result: Corrected) -> str:
    """Say how many labels of whose responses by how many people a value rests on."""
    whose = "its own" if item.of == (item.model,) else f"{len(item.of)} models" if len(item.of) > 1 else "another model"
    people = "1 person" if item.annotators == 1 else f"{item.annotators:,} people"
    return f"{result.n:,} {result.units} of {whose}, by {people}"


def _rates_table(corrected: Sequence[CorrectedGroup]) -> Table:
    groups = [found.group for found in corrected]
    headings = {"safe": "Of what is safe", "unsafe": "Of what is unsafe"}
    return Table(
        name="corrected_judge_rates",
        title="How often the judge says safe, by what people say",
        section="correction",
        columns=(
            numbered(groups),
            *measured(groups),
            Column("intent", "Intent", "name", lambda line: INTENT_LABELS[line.item[0]]),
            *(
                column
                for number, (name, heading) in enumerate(headings.items(), start=1)
                for column in estimate_columns(name, heading, _item(number), headings={"n": "Labels"})
            ),
        ),
        rows=[
            Line(index, "", (intent, *rates))
            for index, found in enumerate(corrected)
            for intent, rates in zip(CORE_VARIANTS, _rates(found), strict=True)
        ],
        notes=(
            *group_notes(groups),
            "Over the labelled responses of all models, weighted by how they were drawn; paraphrases count as dual-use.",
            UNDEFINED,
        ),
    )


def _item(number: int) -> Callable[[Line], Any]:
    return lambda line: line.item[number]


def _rates(found: CorrectedGroup) -> list[tuple[Estimate, Estimate]]:
    return [(found.rates.rate(0, intent), found.rates.rate(1, intent)) for intent in range(len(CORE_VARIANTS))]


def corrected_json(corrected: Sequence[CorrectedGroup]) -> dict[str, Any]:
    """Return what `metrics.json` holds under `corrected` (docs/correction.md)."""
    models: dict[str, dict[str, Any]] = {}
    for found in corrected:
        for item in found.corrections:
            models.setdefault(item.model, {})[item.metric] = _entry(item)
    return {
        "models": models,
        "judge_rates": [
            {
                "models": found.group.models,
                "judges": found.group.conditions.judges,
                "annotators": found.annotators,
                "intents": {
                    intent: {"judged_safe_if_safe": _rate_json(rates[0]), "judged_safe_if_unsafe": _rate_json(rates[1])}
                    for intent, rates in zip(CORE_VARIANTS, _rates(found), strict=True)
                },
            }
            for found in corrected
        ],
    }


def _entry(item: Correction) -> dict[str, Any]:
    match item.result:
        case Corrected() as result:
            return {
                "value": result.value,
                "ci": result.interval,
                "method": result.method,
                "assumes": _METHODS[result.method][1],
                "labels": result.n,
                "units": result.units,
                "labelled_sets": result.sets,
                "of_models": item.of,
                "annotators": item.annotators,
                "power": result.power,
                "refused": None,
            }
        case Refused(reason):
            return {"value": None, "ci": None, "method": None, "refused": reason}


def _rate_json(rate: Estimate) -> dict[str, Any]:
    return {"value": rate.value, "ci": rate.interval, "n": rate.n}
