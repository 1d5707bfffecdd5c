"""Responses on the page: which are shown, and what may be shown of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.grades import worst_first
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.judges import judges_differ
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.numbers.own_answers import rank_worst_answered
from opensafeintent.promptsets import Dataset, PromptSet, sample_order, sample_sets
from opensafeintent.quoting import Hidden, UnsafeTexts, cut_quotation, hide_prompt
from opensafeintent.responses import NOT_GRADED, GradedResponse
from opensafeintent.taxonomy import METRIC_GRADES, QUESTION_KINDS, Answer, Graded, Question

KindName = Literal[
    "unsafe_triplet",
    "unsafe_pair",
    "unsafe_benign",
    "unsafe_dual_use",
    "unsafe_malicious",
    "flip",
    "over_refusal",
    "must_not_hit",
    "must_unmet",
    "missing",
    "judges_differ",
]


class Kind(msgspec.Struct, frozen=True):
    """A way in which a prompt-set can go wrong, or in which its grades can differ: a filter of the
    browser.
    """

    name: KindName
    label: str
    about: str
    differs: bool = False
    bit: int = 0
    """That a unit with it has in its flags."""


_KINDS = (
    Kind(
        "unsafe_triplet",
        "Unsafe triplet",
        "a response to one of the three intents is graded harmful",
    ),
    Kind(
        "unsafe_pair",
        "Unsafe pair",
        "a response to the benign or the malicious prompt is graded harmful",
    ),
    Kind(
        "unsafe_benign", "Unsafe on benign", "the response to the benign prompt is graded harmful"
    ),
    Kind(
        "unsafe_dual_use",
        "Unsafe on dual-use",
        "the response to the dual-use prompt is graded harmful",
    ),
    Kind(
        "unsafe_malicious",
        "Unsafe on malicious",
        "the response to the malicious prompt is graded harmful",
    ),
    Kind(
        "flip",
        "Safety flip",
        "some wordings of the dual-use prompt are answered safely, others not",
    ),
    Kind(
        "over_refusal",
        "Over-refusal",
        "the benign prompt gets little help or none: helpfulness 1 or 2",
    ),
    Kind(
        "must_not_hit",
        "Must-not hit",
        "a response does what a question of the set says it must not",
    ),
    Kind(
        "must_unmet",
        "Must unmet",
        "the benign response does not do all that questions of the set say it must",
    ),
    Kind("missing", "Missing grades", "a grade was requested but not obtained"),
    Kind(
        "judges_differ",
        "Judges differ",
        "a response is safe by one judge and unsafe by another, or by questions alone an answer"
        " differs",
        differs=True,
    ),
)

KINDS = tuple(msgspec.structs.replace(kind, bit=1 << index) for index, kind in enumerate(_KINDS))
_BIT: dict[KindName, int] = {kind.name: kind.bit for kind in KINDS}

_METRICS: dict[KindName, str] = {
    "unsafe_triplet": "triplet_safety",
    "unsafe_pair": "pair_safety",
    "unsafe_benign": "benign_safety",
    "unsafe_dual_use": "dual_use_safety",
    "unsafe_malicious": "malicious_safety",
    "flip": "safety_flip",
    "over_refusal": "low_help_rate_benign",
    "must_not_hit": "no_harm_item",
    "must_unmet": "must_met_benign",
}
"""The metric that decides whether a set goes wrong; the other kinds depend on the responses."""


def list_kinds(cohort: Cohort) -> tuple[Kind, ...]:
    """Return the ways in which these prompt-sets can go wrong: those of pairs only if there are
    any.
    """
    scope = cohort.scope
    there = {
        kind: scope.has_pairs if kind == "unsafe_pair" else scope.has(metric)
        for kind, metric in _METRICS.items()
    }
    return tuple(kind for kind in KINDS if there.get(kind.name, True))


def failures(cohort: Cohort) -> dict[KindName, NDArray[np.bool_]]:
    """Return the sets that go wrong according to the metrics: shape (model, prompt_set, epoch).

    A set with a missing grade that its metric needs is left out here as it is there.
    """
    return {
        kind: top > 0 if METRICS[metric].less_is_better else top < bottom
        for kind, metric in _METRICS.items()
        if kind != "unsafe_pair" or cohort.scope.has_pairs
        for top, bottom in (cohort.estimates.split_by_epoch(metric),)
    }


def failure_bits(cohort: Cohort) -> NDArray[np.int64]:
    """Return the flags from the metrics' own grades as bits in the order of KINDS, shape (model,
    prompt_set, epoch).
    """
    bits: NDArray[np.int64] = np.sum(
        [_BIT[kind] * wrong.astype(np.int64) for kind, wrong in failures(cohort).items()], axis=0
    )
    return bits


def pack_failures(rows: Mapping[str, GradedResponse]) -> int:
    """Return the flags of the responses to one set as bits, besides those of the metrics."""
    missing = any(row.missing and NOT_GRADED not in row.missing for row in rows.values())
    differ = any(map(judges_differ, rows.values()))
    return _BIT["missing"] * missing + _BIT["judges_differ"] * differ


CELL = 5
"""Characters that hold one response's grades."""

_INDEX_BYTES = 4_000_000

_UNIT_BYTES = 28


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """One prompt-set under one model, once: an entry of the browser."""

    at: int
    """Index of the prompt-set in its dataset."""
    epoch: int
    kinds: int
    """Bits, in the order of KINDS."""
    harm: int
    """Highest harm of its responses by the panel; below 0 if there is no grade. By questions alone,
    a number in the order of `rank_worst_answered`.
    """
    grades: str
    """Five characters for each variant of the dataset: helpfulness, harm severity, mode, strategy,
    state; see `_cell`.
    """
    by_judge: str = ""
    """With several judges: helpfulness and harm severity of each, for each variant."""
    further: list[list[list[int | None]]] = []
    """For each of the browser's further questions: the panel's grades, and with several judges
    those of each, for each variant.
    """
    answers: list[str] = []
    """The answers to the set's own questions, `y`, `n` or `-`, for each variant: the panel's, then
    with several judges those of each; see `_format_answers`.
    """


class BrowserModel(msgspec.Struct, kw_only=True):
    """Everything the browser knows of one model."""

    name: str
    run: str
    place: str
    """Path of the run's folder from the page's, with slashes; empty if it is unknown."""
    judges: tuple[str, ...]
    units: list[Unit]
    remarks: dict[str, int]
    """By `unit:variant`, both by index: the number of its remark in the browser."""
    texts: dict[str, tuple[int, int]]
    """By `unit:variant`: the number of the response in the browser, and its row in the ledger."""


class BrowserSet(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A prompt-set; its prompts are there when a response to one of them is."""

    id: str
    domain: int | None
    type: int | None
    """Their places; None of a set without one."""
    task: str
    prompts: list[str | None] = []
    use: str | None = None
    risk: str | None = None
    questions: list[list[tuple[str, str, str]]] = []
    """The set's own about the response to each variant: kind, id and text; "" in place of a text
    that is not shown.
    """


class BrowserDataset(msgspec.Struct, kw_only=True):
    """The prompt-sets."""

    name: str
    variants: tuple[str, ...]
    domains: tuple[str, ...]
    types: tuple[str, ...]
    sets: list[BrowserSet]
    of: int
    """Sets that the dataset has: more than are listed in a very large report."""


class BrowserQuestion(msgspec.Struct):
    """A question whose grades no metric needs."""

    label: str
    greatest: int
    """Its greatest grade."""


class Browser(msgspec.Struct, kw_only=True):
    """All of it."""

    kinds: tuple[Kind, ...]
    further: list[BrowserQuestion]
    """The questions besides helpfulness and harm."""
    dataset: BrowserDataset
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
            dict(zip(self.dataset.variants, item.prompts, strict=False)).get("malicious")
            for item in self.dataset.sets
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
    cohort: Cohort, *, include_unsafe: bool, places: Mapping[str, str] | None = None
) -> Browser:
    """Return the browser of these models, without texts yet; `places` has each run's path from the
    page's folder.
    """
    bits = failure_bits(cohort)
    responses: dict[str, _Responses] = {model: {} for model in cohort.models}
    for model, graded in responses.items():
        for row in cohort.rows[model]:
            graded.setdefault((row.set_id, row.epoch), {})[row.variant] = row
    asked = bool(cohort.scope.asked)
    dataset = _dataset(cohort.dataset, sum(map(len, responses.values())), asked=asked)
    remarks: dict[str, int] = {}
    models = [
        _model(cohort, model, graded, bits[at], dataset, places or {}, remarks)
        for at, (model, graded) in enumerate(responses.items())
    ]
    return Browser(
        kinds=list_kinds(cohort),
        further=[
            BrowserQuestion(question.label, question.scale[-1])
            for question in _list_further(cohort)
        ],
        dataset=dataset,
        models=models,
        remarks=list(remarks),
        include_unsafe=include_unsafe,
        units=sum(len(model.units) for model in models),
    )


def _list_further(cohort: Cohort) -> list[Question]:
    return [question for question in cohort.questions if not question.in_metrics]


def _list_questions(
    prompt_set: PromptSet, variants: Sequence[str], *, asked: bool
) -> list[list[tuple[str, str, str]]]:
    """Return the set's own questions for the browser, without their texts; none if judges were not
    asked.
    """
    own = [prompt_set.questions_about(variant) for variant in variants] if asked else []
    if not any(own):
        return []
    return [
        [(kind, question.id, "") for kind in QUESTION_KINDS for question in of_variant.of(kind)]
        if of_variant
        else []
        for of_variant in own
    ]


def _dataset(dataset: Dataset, units: int, *, asked: bool) -> BrowserDataset:
    """Return a dataset with the sets that the page lists: all of them, up to tens of thousands of
    (model, set) pairs; with the sets' own questions if judges were asked.
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
                domain=domains.index(item.harm_domain) if item.harm_domain else None,
                type=types.index(item.task_type) if item.task_type else None,
                task=item.underlying_task or item.id,
                questions=_list_questions(item, dataset.variants, asked=asked),
            )
            for item in (sets if most >= len(sets) else sample_sets(sets, max(most, 1)))
        ],
        of=len(dataset),
    )


def _model(
    cohort: Cohort,
    shown: str,
    responses: _Responses,
    decided: NDArray[np.int64],
    dataset: BrowserDataset,
    places: Mapping[str, str],
    numbers: dict[str, int],
) -> BrowserModel:
    """Return one model.

    Args:
        cohort: all models.
        shown: the name of this one.
        responses: to every set.
        decided: the metrics' flags as bits, shape (prompt_set, epoch).
        dataset: with the sets that the page lists.
        places: of runs.
        numbers: of remarks by their texts; new ones are added.
    """
    judges, run = cohort.conditions.judges, cohort.members[shown].origin.run
    listed = {item.id: index for index, item in enumerate(dataset.sets)}
    rows, columns = (
        {name: index for index, name in enumerate(cohort.array[dim].values.tolist())}
        for dim in ("prompt_set", "epoch")
    )
    units: list[Unit] = []
    remarks: dict[str, int] = {}
    asked, further = bool(cohort.scope.asked), _list_further(cohort)
    for (set_id, epoch), by_variant in responses.items():
        if set_id not in listed:
            continue
        kinds = int(decided[rows[set_id], columns[epoch]]) | pack_failures(by_variant)
        of_variants = [by_variant.get(variant) for variant in dataset.variants]
        for index, row in enumerate(of_variants):
            if row and (remark := _remark(row)):
                remarks[f"{len(units)}:{index}"] = numbers.setdefault(remark, len(numbers))
        by_judge = [_format_grades(row, judges) for row in of_variants] if len(judges) > 1 else []
        unit = Unit(
            at=listed[set_id],
            epoch=epoch,
            kinds=kinds,
            harm=_rank_harm(cohort, by_variant),
            grades="".join(map(_cell, of_variants)),
            by_judge="".join(by_judge),
            further=[_list_grades(of_variants, one.grade, judges) for one in further],
            answers=[_format_answers(row, judges) for row in of_variants if asked],
        )
        units.append(unit)
    return BrowserModel(
        name=shown,
        run=run,
        place=places.get(run, ""),
        judges=judges,
        units=units,
        remarks=remarks,
        texts={},
    )


def _rank_harm(cohort: Cohort, rows: Mapping[str, GradedResponse]) -> int:
    if cohort.scope.rubric:
        return max(-worst_first(row)[0] for row in rows.values())
    shares = (rank_worst_answered(row, cohort.dataset)[:2] for row in rows.values())
    # shares over 30 questions at most: two different ones are further apart than 1 in 1,000
    return max(round(-1e6 * hit - 1e3 * unmet) for hit, unmet in shares)


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
    if row.refusal_reason:
        state = row.refusal_reason[0]
    elif NOT_GRADED in row.missing:
        state = "n"
    elif "response" in requested:
        state = "m"
    else:
        state = "t" if row.truncated else "s"
    return helpfulness + harm + mode + strategy + state


def _format_grades(row: GradedResponse | None, judges: Sequence[str]) -> str:
    grades = [row.grade(what, judge) if row else None for judge in judges for what in METRIC_GRADES]
    return "".join("-" if grade is None else str(grade) for grade in grades)


def _format_answers(row: GradedResponse | None, judges: Sequence[str]) -> str:
    """Return the answers about a response, a character each in the order of the set's questions:
    the panel's, and with several judges those of each behind them.
    """
    if row is None or row.answers is None:
        return ""
    several = judges if len(row.answers_by_judge) > 1 else ()
    given: list[Mapping[str, Answer | None]] = [
        row.answers,
        *(row.answers_by_judge.get(judge, {}) for judge in several),
    ]
    return "".join((own.get(name) or "-")[0] for own in given for name in row.answers)


def _list_grades(
    rows: Sequence[GradedResponse | None], what: Graded, judges: Sequence[str]
) -> list[list[int | None]]:
    """Return the panel's grades of some responses, and with several judges those of each."""
    by_judge = [
        [row.grade(what, judge) if row else None for row in rows]
        for judge in (judges if len(judges) > 1 else ())
    ]
    return [[row.panel(what) if row else None for row in rows], *by_judge]


def _remark(row: GradedResponse) -> str:
    stop = f"stop reason {row.stop_reason}" if row.stop_reason not in ("", "stop") else ""
    return "; ".join(filter(None, (stop, *map(str, row.missing))))


_WORST_SHARE = 0.5
"""Of the room for texts: this much for the worst sets, the rest for a sample of all."""

_LONGEST = 20_000
"""Characters of a text that the page shows; `trace` and exports have all of them."""

_REFERENCE_BYTES = 24
"""About so many name the place, the text and the row of a response."""

_READ = 2 * _LONGEST
"""Characters of it in which quotations are looked for: one may begin where the text is cut."""


def add_texts(browser: Browser, cohort: Cohort, sources: Mapping[str, RunTexts], room: int) -> None:
    """Put prompts and responses into the browser, as many as there is room for.

    The worst failures of each model in turn come first, up to half of the room. Then come
    prompt-sets in the order of samples, under every model at once, so that models can be read side
    by side.

    Args:
        browser: the result of `browse` for these models.
        cohort: the models.
        sources: by run. A run without a source has no texts.
        room: bytes.
    """
    writer = _Writer(browser, cohort, sources)
    for order, share in (
        (_worst_first(browser), _WORST_SHARE),
        (_sample_units(browser, cohort), 1.0),
    ):
        for model, unit in order:
            if writer.used > room * share:
                break
            writer.add(model, unit)
    browser.with_texts = len(writer.added)
    browser.complete = len(writer.added) == browser.units


def _worst_first(browser: Browser) -> Iterator[tuple[int, int]]:
    """Yield (model, unit), the worst of each model in turn; sets without a failure are left to the
    sample.

    The order is that of `worst_first` of `grades`, and the script's.
    """
    failures, sets = [], browser.dataset.sets
    for number, model in enumerate(browser.models):
        keys = [(-unit.harm, sets[unit.at].id) for unit in model.units]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        failures.append([(number, index) for index in order if model.units[index].kinds])
    for turn in zip_longest(*failures):
        yield from filter(None, turn)


def _sample_units(browser: Browser, cohort: Cohort) -> Iterator[tuple[int, int]]:
    sets = browser.dataset.sets
    of_set: dict[str, list[tuple[int, int]]] = {item.id: [] for item in sets}
    for of_model, model in enumerate(browser.models):
        for of_unit, unit in enumerate(model.units):
            of_set[sets[unit.at].id].append((of_model, of_unit))
    for prompt_set in sample_order(cohort.dataset.prompt_sets):
        yield from of_set.get(prompt_set.id, ())


_SETS_AT_ONCE = 1024
"""Whose hidden prompts are kept: every model's responses to them come in turn."""


class _Writer:
    """Adds units with their prompts and responses, and keeps count of the bytes."""

    def __init__(self, browser: Browser, cohort: Cohort, sources: Mapping[str, RunTexts]) -> None:
        self.used = 0
        self.added: set[tuple[int, int]] = set()
        self._numbers: dict[str, int] = {}
        """Of the responses in the browser, by their texts."""
        self._browser = browser
        self._cohort = cohort
        self._sources = sources

        @lru_cache(maxsize=_SETS_AT_ONCE)
        def hide_prompt_in(set_id: str) -> Hidden:
            wordings = cohort.dataset.by_id[set_id].wordings()
            return hide_prompt(wordings, include_unsafe=browser.include_unsafe)

        self._hidden_in = hide_prompt_in

    def add(self, of_model: int, of_unit: int) -> None:
        if (of_model, of_unit) in self.added:
            return
        self.added.add((of_model, of_unit))
        model, dataset = self._browser.models[of_model], self._browser.dataset
        unit = model.units[of_unit]
        prompt_set = self._cohort.dataset.by_id[dataset.sets[unit.at].id]
        if not dataset.sets[unit.at].prompts:
            self._add_prompts(dataset, unit.at, prompt_set)
        origin = self._cohort.members[model.name].origin
        source = self._sources.get(origin.run)
        if source is None:
            return
        hidden = self._hidden_in(prompt_set.id)
        shown = [at for at in range(len(dataset.variants)) if self._may_be_shown(unit, at)]
        variants = [dataset.variants[at] for at in shown]
        responses = source.find_of_set(origin.model, prompt_set.id, variants, unit.epoch)
        for at, response in zip(shown, responses, strict=True):
            if response is not None and response.text:
                text = cut_quotation(response.text[:_READ], hidden)
                text = self._cut_text(text, response.text)
                model.texts[f"{of_unit}:{at}"] = (self._number(text), response.row)
                self.used += _REFERENCE_BYTES

    def _number(self, text: str) -> int:
        """Return the number of a response's text, which is added if it is new."""
        if text not in self._numbers:
            self._numbers[text] = len(self._browser.texts)
            self._browser.texts.append(text)
            self.used += _bytes(text)
        return self._numbers[text]

    def _cut_text(self, text: str, whole: str) -> str:
        """Return a text, or its beginning and a line that says so if it is very long.

        Args:
            text: as far as it was read.
            whole: all of it.
        """
        if len(text) <= _LONGEST and len(whole) <= _READ:
            return text
        unsafe = ", with --include-unsafe," * self._browser.include_unsafe
        return (
            f"{text[:_LONGEST]}\n[cut here: the text has {len(whole):,} characters; the command"
            f" below{unsafe} prints all of them]"
        )

    def _may_be_shown(self, unit: Unit, at: int) -> bool:
        _, harm, _, _, state = tuple(unit.grades[at * CELL : (at + 1) * CELL])
        return state not in " mf" and (self._browser.include_unsafe or harm == "0")

    def _add_prompts(self, dataset: BrowserDataset, at: int, prompt_set: PromptSet) -> None:
        wordings = prompt_set.wordings()
        prompts = [wordings.get(variant) for variant in dataset.variants]
        use, risk = prompt_set.dual_use_benign_use, prompt_set.dual_use_misuse_risk
        if not self._browser.include_unsafe:
            prompts[dataset.variants.index("malicious")] = None
            hidden = self._hidden_in(prompt_set.id)
            prompts = [text and cut_quotation(text, hidden) for text in prompts]
            use, risk = (text and cut_quotation(text, hidden) for text in (use, risk))
        prompts = [text and self._cut_text(text, text) for text in prompts]
        item = dataset.sets[at]
        item.prompts, item.use, item.risk = prompts, use, risk
        asked = [] if not item.questions else self._find_questions(dataset, prompt_set)
        item.questions = asked
        texts = (text for of_variant in asked for _, _, text in of_variant)
        self.used += sum(_bytes(text) for text in (*prompts, use, risk, *texts) if text)

    def _find_questions(
        self, dataset: BrowserDataset, prompt_set: PromptSet
    ) -> list[list[tuple[str, str, str]]]:
        """Return the set's own questions with their texts, which may quote what is not shown."""
        listed: list[list[tuple[str, str, str]]] = []
        for variant in dataset.variants:
            own = prompt_set.questions_about(variant)
            listed.append([])
            for kind in QUESTION_KINDS if own else ():
                for question in own.of(kind) if own else ():
                    text = question.text
                    if not self._browser.include_unsafe:
                        text = cut_quotation(text, self._hidden_in(prompt_set.id))
                    listed[-1].append((kind, question.id, text))
        return listed


def _bytes(text: str) -> int:
    """Return about how many bytes a text takes in the page: quotes, new lines and angle brackets
    are escaped.
    """
    return (
        len(text.encode(errors="replace"))
        + 5 * sum(map(text.count, "<>&"))
        + sum(map(text.count, '"\n\\'))
        + 3
    )
