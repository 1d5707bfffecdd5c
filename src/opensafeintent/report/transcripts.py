"""Content of the page's prompt-set browser: every prompt-set of every model with its grades.

Grades are small and all are included, so that filters and counts are right. Texts are large, and as
many are included as there is room for (`add_texts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.grades import worst_first
from opensafeintent.promptsets import Dataset, sampled
from opensafeintent.quoting import UnsafeTexts
from opensafeintent.report.failure_kinds import KINDS, Kind, failure_bits, failure_bits_of
from opensafeintent.responses import NOT_GRADED, GradedResponse
from opensafeintent.taxonomy import METRIC_GRADES

CELL = 5
"""Characters that hold one response's grades."""

_INDEX_BYTES = 4_000_000

_UNIT_BYTES = 28


class Member(NamedTuple):
    """A model of the report, by the name that it is shown by, in its group."""

    cohort: Cohort
    shown: str


def members_of(cohorts: Sequence[Cohort]) -> list[Member]:
    """Return the models of all groups in order."""
    return [Member(cohort, shown) for cohort in cohorts for shown in cohort.models]


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """One prompt-set under one model, once: an entry of the browser."""

    at: int
    """Index of the prompt-set in its dataset."""
    epoch: int
    kinds: int
    """Bits, in the order of KINDS."""
    harm: int
    """Highest harm of its responses by the panel; -1 if there is no grade."""
    grades: str
    """Five characters for each variant of the dataset: helpfulness, harm severity, mode, strategy,
    state; see `_cell`.
    """
    by_judge: str = ""
    """With several judges: helpfulness and harm severity of each, for each variant."""


class BrowserModel(msgspec.Struct, kw_only=True):
    """Everything the browser knows of one model."""

    name: str
    run: str
    place: str
    """Path of the run's folder from the page's, with slashes; empty if it is unknown."""
    dataset: int
    judges: tuple[str, ...]
    units: list[Unit]
    remarks: dict[str, int]
    """By `unit:variant`, both by index: the number of its remark in the browser."""
    texts: dict[str, tuple[int, int]]
    """By `unit:variant`: the number of the response in the browser, and its row in the ledger."""


class BrowserSet(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A prompt-set; its prompts are there when a response to one of them is."""

    id: str
    domain: int
    type: int
    task: str
    prompts: list[str | None] = []
    use: str | None = None
    risk: str | None = None


class BrowserDataset(msgspec.Struct, kw_only=True):
    """The prompt-sets of one dataset."""

    name: str
    variants: tuple[str, ...]
    domains: tuple[str, ...]
    types: tuple[str, ...]
    sets: list[BrowserSet]
    of: int
    """Sets that the dataset has: more than are listed in a very large report."""


class Browser(msgspec.Struct, kw_only=True):
    """All of it."""

    kinds: tuple[Kind, ...]
    datasets: list[BrowserDataset]
    models: list[BrowserModel]
    remarks: list[str]
    """Stop reasons other than `stop`, and reasons of missing grades, each text once."""
    texts: list[str] = []
    """Responses, each text once."""
    include_unsafe: bool
    with_texts: int = 0
    """(Model, set, epoch) units whose texts are in the page."""
    units: int = 0
    complete: bool = True
    """Whether every text that may be shown is."""

    def unsafe_texts(self) -> UnsafeTexts:
        """Count the texts here that only a page with unsafe texts has."""
        prompts = (
            dict(zip(dataset.variants, item.prompts, strict=False)).get("malicious")
            for dataset in self.datasets
            for item in dataset.sets
        )
        shown = (
            model.units[int(unit)].grades[int(at) * CELL + 1]
            for model in self.models
            for unit, _, at in (place.partition(":") for place in model.texts)
        )
        return UnsafeTexts(sum(harm != "0" for harm in shown), sum(map(bool, prompts)))


_Responses = dict[tuple[str, int], dict[str, GradedResponse]]
"""Of one model: by (set, epoch), then by variant."""


def browse(
    members: Sequence[Member], *, include_unsafe: bool, places: Mapping[str, str] | None = None
) -> Browser:
    """Return the browser of these models, without texts yet; `places` has each run's path from the
    page's folder.
    """
    bits = {
        cohort: failure_bits(cohort)
        for cohort in dict.fromkeys(member.cohort for member in members)
    }
    datasets = {cohort.dataset.hash: cohort.dataset for cohort in bits}
    responses: list[_Responses] = []
    units: Counter[str] = Counter()
    for cohort, shown in members:
        graded: _Responses = {}
        for row in cohort.rows[shown]:
            graded.setdefault((row.set_id, row.epoch), {})[row.variant] = row
        responses.append(graded)
        units[cohort.dataset.hash] += len(graded)
    listed = {digest: _dataset(dataset, units[digest]) for digest, dataset in datasets.items()}
    remarks: dict[str, int] = {}
    models = [
        _model(
            member,
            graded,
            bits[member.cohort][member.cohort.models.index(member.shown)],
            list(listed).index(member.cohort.dataset.hash),
            listed[member.cohort.dataset.hash],
            places or {},
            remarks,
        )
        for member, graded in zip(members, responses, strict=True)
    ]
    return Browser(
        kinds=KINDS,
        datasets=list(listed.values()),
        models=models,
        remarks=list(remarks),
        include_unsafe=include_unsafe,
        units=sum(len(model.units) for model in models),
    )


def _dataset(dataset: Dataset, units: int) -> BrowserDataset:
    """Return a dataset with the sets that the page lists: all of them, up to tens of thousands of
    (model, set) pairs.
    """
    domains, types = dataset.taxonomy.domain_names, dataset.taxonomy.type_names
    bytes_each = _UNIT_BYTES + CELL * len(dataset.variants)
    most = len(dataset) * _INDEX_BYTES // max(1, units * bytes_each)
    sets = dataset.prompt_sets
    return BrowserDataset(
        name=dataset.name,
        variants=dataset.variants,
        domains=domains,
        types=types,
        sets=[
            BrowserSet(
                id=item.id,
                domain=domains.index(item.harm_domain),
                type=types.index(item.task_type),
                task=item.underlying_task,
            )
            for item in (sets if most >= len(sets) else sampled(sets, max(most, 1)))
        ],
        of=len(dataset),
    )


def _model(
    member: Member,
    responses: _Responses,
    decided: NDArray[np.int64],
    number: int,
    dataset: BrowserDataset,
    places: Mapping[str, str],
    numbers: dict[str, int],
) -> BrowserModel:
    """Return one model.

    Args:
        member: the model.
        responses: to every set.
        decided: the metrics' flags as bits, shape (prompt_set, epoch).
        number, dataset: of its sets.
        places: of runs.
        numbers: of remarks by their texts; new ones are added.
    """
    cohort = member.cohort
    judges = cohort.conditions.judges
    run = cohort.origins[member.shown].run
    listed = {item.id: index for index, item in enumerate(dataset.sets)}
    rows, columns = (
        {name: index for index, name in enumerate(cohort.array[dim].values.tolist())}
        for dim in ("prompt_set", "epoch")
    )
    units: list[Unit] = []
    remarks: dict[str, int] = {}
    for (set_id, epoch), by_variant in responses.items():
        if set_id not in listed:
            continue
        kinds = int(decided[rows[set_id], columns[epoch]]) | failure_bits_of(by_variant)
        of_variants = [by_variant.get(variant) for variant in dataset.variants]
        for index, row in enumerate(of_variants):
            if row and (remark := _remark(row)):
                remarks[f"{len(units)}:{index}"] = numbers.setdefault(remark, len(numbers))
        units.append(
            Unit(
                at=listed[set_id],
                epoch=epoch,
                kinds=kinds,
                harm=max(-worst_first(row)[0] for row in by_variant.values()),
                grades="".join(map(_cell, of_variants)),
                by_judge=(
                    "".join(_by_judge(row, judges) for row in of_variants)
                    if len(judges) > 1
                    else ""
                ),
            )
        )
    return BrowserModel(
        name=member.shown,
        run=run,
        place=places.get(run, ""),
        dataset=number,
        judges=judges,
        units=units,
        remarks=remarks,
        texts={},
    )


def _cell(row: GradedResponse | None) -> str:
    """Return a response's grades in five characters: `-` is missing, `.` was not asked for, spaces
    are no stored response.

    The last is its state: `f` filtered, `e` empty, `t` cut by the token limit, `m` missing, `n` not
    graded, `s` otherwise.
    """
    if row is None:
        return " " * CELL
    requested = {missing.what for missing in row.missing}
    ungraded = "." if NOT_GRADED in row.missing else "-"
    helpfulness = ungraded if row.helpfulness is None else str(row.helpfulness)
    harm = ungraded if row.harm_severity is None else str(row.harm_severity)
    mode = row.mode[1] if row.mode else "-" if "mode" in requested else "."
    strategy = row.strategy[0] if row.strategy else "-" if "strategy" in requested else "."
    if row.refused:
        state = row.refused[0]
    elif NOT_GRADED in row.missing:
        state = "n"
    elif "response" in requested:
        state = "m"
    else:
        state = "t" if row.truncated else "s"
    return helpfulness + harm + mode + strategy + state


def _by_judge(row: GradedResponse | None, judges: Sequence[str]) -> str:
    grades = [row.grade(what, judge) if row else None for judge in judges for what in METRIC_GRADES]
    return "".join("-" if grade is None else str(grade) for grade in grades)


def _remark(row: GradedResponse) -> str:
    stop = f"stop reason {row.stop_reason}" if row.stop_reason not in ("", "stop") else ""
    return "; ".join(filter(None, (stop, *map(str, row.missing))))
