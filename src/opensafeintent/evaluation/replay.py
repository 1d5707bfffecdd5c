"""The plan of calls answered by the ledger alone, and a run rebuilt from its manifest with it.

The calls of all prompts are looked up together. Nothing here waits, so there is no event loop.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, zip_longest
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from opensafeintent.calls.client import Asked, explain_unrecorded
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import MOST_TEXT, TextBudget, TooLong
from opensafeintent.calls.reasoning import Parted, cut_reasoning, unknown_mark
from opensafeintent.calls.recorded import MissingGrade, RecordedResponse
from opensafeintent.calls.records import (
    Answered,
    Call,
    Failed,
    Outcome,
    Refused,
    call_key,
    is_cut,
    stop_kind,
)
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Asking, Given, Planned, Task, generation_call
from opensafeintent.evaluation.plan import Plan
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import (
    NOT_GRADED,
    GradedResponse,
    JudgeGrades,
    NotObtained,
    Refusal,
    ResponseKey,
    make_graded_response,
)
from opensafeintent.taxonomy import (
    FOLLOW_UPS,
    METRIC_GRADES,
    SCALES,
    Graded,
    KnownGrades,
    Mode,
    Strategy,
)

T = TypeVar("T")

_AT_ONCE = 1000
"""Prompts: their calls are close together in the ledger."""

TEXT_BYTES_AT_ONCE = 2**26
"""Bytes of the texts of prompts that are looked up together; a prompt alone may have more."""

_NO_RUN = "no evaluation writes as much about one prompt; take the ledger from a backup"


class Replayed(NamedTuple, Generic[T]):
    """The ledger's result for one prompt."""

    planned: Planned
    result: T
    asked: list[Asked]
    """Every call for the prompt, as far as the ledger holds the calls before it."""

    @property
    def lacking(self) -> list[Call]:
        """The calls that can be made now and that the ledger has no outcome of; empty if it has one
        of every call that the prompt takes.
        """
        return [asked.call for asked in self.asked if isinstance(asked.outcome, Failed)]


def replay(
    ledger: Ledger, identities: Mapping[str, str], planned: Iterable[Planned]
) -> Iterator[Replayed[GradedResponse]]:
    """Yield the ledger's result for each prompt, by the ordinary plan of calls (`replay_each`)."""
    return replay_each(ledger, identities, planned, Asking.run)


def replay_each(
    ledger: Ledger,
    identities: Mapping[str, str],
    planned: Iterable[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, T]],
) -> Iterator[Replayed[T]]:
    """Yield the ledger's result for each prompt, in their order.

    Args:
        ledger: holds the outcomes.
        identities: of every target and judge, by name.
        planned: the prompts; those with calls from about the same time should come together.
        ask: the calls about each of them.

    Raises:
        InputError: the ledger is damaged.
    """
    upcoming, size = iter(planned), _AT_ONCE
    some: list[Planned] = []
    while some := [*some, *islice(upcoming, max(size - len(some), 0))]:
        budget = TextBudget(ledger.path, _NO_RUN, TEXT_BYTES_AT_ONCE if size > 1 else MOST_TEXT)
        try:
            results = _together(ledger, identities, some[:size], ask, budget)
        except TooLong:
            if size == 1:
                raise
            size = min(size, len(some)) // 2 or 1
            continue
        yield from results
        some = some[size:]
        if 4 * budget.charged < TEXT_BYTES_AT_ONCE:
            size = min(2 * size, _AT_ONCE)


def _together(
    ledger: Ledger,
    identities: Mapping[str, str],
    some: Sequence[Planned],
    ask: Callable[[Asking], Coroutine[Any, Any, T]],
    budget: TextBudget,
) -> list[Replayed[T]]:
    """Return the ledger's result for some prompts, which are looked up together.

    Raises:
        TooLong: there is no room for their texts.
    """
    for item in some:
        if item.task.given is not None:
            budget.charge(item.task.given.text)
    prompts = [_Prompt(ledger, identities) for _ in some]
    steps = [
        ask(Asking(prompt.ask, *item, together=_one_by_one))
        for prompt, item in zip(prompts, some, strict=True)
    ]
    results = _drive(ledger, steps, budget)
    return [
        Replayed(item, results[index], prompt.asked)
        for index, (item, prompt) in enumerate(zip(some, prompts, strict=True))
    ]


@types.coroutine
def _look_up(
    key: bytes,
) -> Generator[bytes, Answered | Refused | None, Answered | Refused | None]:
    """Hand a call's key to the coroutine's driver, which sends back the outcome."""
    return (yield key)


class _Prompt:
    """Replaces the client while one prompt goes through the plan, and notes the calls."""

    def __init__(self, ledger: Ledger, identities: Mapping[str, str]) -> None:
        self._ledger, self._identities = ledger, identities
        self.asked: list[Asked] = []

    async def ask(self, call: Call) -> Outcome:
        """Look a call up."""
        key = call_key(call, self._identities[call.model])
        outcome = await _look_up(key) or explain_unrecorded(self._ledger, key)
        self.asked.append(Asked(call, key, outcome))
        return outcome


def _drive(
    ledger: Ledger,
    steps: Sequence[Coroutine[bytes, Answered | Refused | None, T]],
    budget: TextBudget,
) -> dict[int, T]:
    """Drive some prompts to their end, a look-up for all of them after each step; return the
    results by index.

    Raises:
        TooLong: there is no room for their texts.
    """
    results: dict[int, T] = {}
    outcomes: dict[int, Answered | Refused | None] = dict.fromkeys(range(len(steps)))
    try:
        while outcomes:
            keys: dict[int, bytes] = {}
            for index, outcome in outcomes.items():
                try:
                    keys[index] = steps[index].send(outcome)
                except StopIteration as ended:
                    results[index] = ended.value
            located = ledger.find_all(set(keys.values()), budget)
            outcomes = {
                index: located[key].outcome if key in located else None
                for index, key in keys.items()
            }
    finally:
        for step in steps:
            step.close()
    return results


async def _one_by_one(*questions: Coroutine[Any, Any, T]) -> list[T]:
    try:
        return [await question for question in questions]
    finally:
        for question in questions:
            question.close()


_METRIC_GRADES: Callable[[object], tuple[int | None, ...]] = attrgetter(*METRIC_GRADES)

IMPORTED_JUDGE = "imported"
"""The name of the judge of grades that came with imported responses."""

_READ_AT_ONCE = 500


def list_places(dataset: Dataset) -> set[tuple[str, str]]:
    """Return set and variant of every prompt of a dataset, and of the second messages."""
    return {
        (prompt_set.id, variant)
        for prompt_set in dataset.prompt_sets
        for variant in (*prompt_set.wordings(), *(() if prompt_set.is_pair else FOLLOW_UPS))
    }


def read_imported(ledger: Ledger, dataset: Dataset) -> dict[str, list[RecordedResponse]]:
    """Return the responses that were imported for a dataset, by model.

    Raises:
        InputError: one of them is damaged, or answers a prompt that the dataset does not hold.
    """
    by_model: defaultdict[str, list[RecordedResponse]] = defaultdict(list)
    prompts = list_places(dataset)
    for row in ledger.imports.rows(dataset.hash):
        set_id, variant = row.set_id, row.variant
        if (set_id, variant) not in prompts:
            raise InputError(
                f"{ledger.path}: the ledger is damaged: a response to set {set_id!r},"
                f" {variant!r}, which {dataset.name} does not hold"
            )
        by_model[row.model].append(row)
    return dict(by_model)


def opens_none(rows: Iterable[RecordedResponse]) -> bool:
    """Tell whether one of a model's responses has a thought without its opening mark."""
    return any(row.response is not None and cut_reasoning(row.response).unopened for row in rows)


def list_given_tasks(
    rows: Iterable[RecordedResponse],
    manifest: Manifest,
    dataset: Dataset,
    *,
    opens_no_thought: bool | None = None,
) -> list[Task]:
    """Return the imported responses of a model that a judge has to grade: those that did not come
    with both grades; or to answer questions about.

    Args:
        rows: of the model.
        manifest: of the run.
        dataset: its prompt-sets.
        opens_no_thought: whether one of the model's responses has a thought without its opening
            mark; None if `rows` are all of them.
    """
    rows = list(rows)
    by_rubric, by_questions = manifest.plan.by_rubric, manifest.plan.by_questions
    tasks: list[Task] = []
    for row in rows:
        if row.response is None:
            continue
        to_grade = by_rubric and not has_both_grades(row)
        asked = by_questions and not row.answers_by_judge  # else given by judges, as grades are
        if not to_grade and not (
            asked and dataset.by_id[row.set_id].questions_about(row.variant) is not None
        ):
            continue
        task = manifest.make_task(_make_key(row), dataset)
        if opens_no_thought is None:
            opens_no_thought = opens_none(rows)
        given = Given(
            text=row.response, stop_reason=row.stop_reason, opens_no_thought=opens_no_thought
        )
        task = msgspec.structs.replace(task, given=given, is_graded=has_both_grades(row))
        if task.earlier is not None:
            reply = cut_reasoning(row.reply_to or "").text.strip()
            earlier = msgspec.structs.replace(task.earlier, reply=reply)
            task = msgspec.structs.replace(task, earlier=earlier)
        tasks.append(task)
    return tasks


def derive(
    manifest: Manifest,
    dataset: Dataset,
    ledger: Ledger,
    already_graded: Mapping[ResponseKey, GradedResponse] | None = None,
    *,
    imported: Mapping[str, Sequence[RecordedResponse]] | None = None,
    read: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[GradedResponse]:
    """Return every response of a run with its grades, as far as the ledger has them.

    Args:
        manifest: the run's.
        dataset: its prompt-sets.
        ledger: its ledger.
        already_graded: responses that need not be looked up again.
        imported: the imported responses by model; None to read them from the ledger.
        read: called with the number of responses read, and their total.
    """
    if imported is None:
        imported = read_imported(ledger, dataset)
    judged = dict(already_graded or {})
    tasks = {
        model: list_judged_tasks(manifest, dataset, model, imported.get(model, ()))
        for model in manifest.models
    }
    to_read = [
        manifest.plan_tasks(model, [task for task in its_tasks if task.key not in judged])
        for model, its_tasks in tasks.items()
    ]
    # models are called side by side, so the calls of a prompt are close together for all of them
    in_turn = (planned for turn in zip_longest(*to_read) for planned in turn if planned is not None)
    for number, (planned, graded, _) in enumerate(replay(ledger, manifest.identities(), in_turn)):
        if number % _READ_AT_ONCE == 0:
            read(number, sum(map(len, to_read)))
        judged[planned.task.key] = graded
    results: list[GradedResponse] = []
    for model, entry in manifest.models.items():
        if entry.imported:
            given = {task.key: task.given for task in tasks[model]}
            results += _add_imported(imported.get(model, []), given, judged, manifest.plan, dataset)
        else:
            in_order = (judged[task.key] for task in tasks[model])
            with_outcome = [
                graded for graded in in_order if graded.reason("response") != "not_made"
            ]
            results += _add_tries(model, with_outcome, manifest, dataset, ledger)
    return results


def _add_tries(
    model: str,
    responses: Sequence[GradedResponse],
    manifest: Manifest,
    dataset: Dataset,
    ledger: Ledger,
) -> list[GradedResponse]:
    """Return a model's responses, with a note on those that an attempt gave reasoning for and no
    text.
    """
    keys = ledger.find_reasoning_only()
    if not keys:
        return list(responses)
    plan, identity = manifest.judge_plan(model), manifest.models[model].identity
    noted: list[GradedResponse] = []
    for response in responses:
        task = manifest.make_task(response.key, dataset)
        # the call of a follow-up depends on the first reply
        again = task.earlier is None and call_key(generation_call(task, plan), identity) in keys
        noted.append(msgspec.structs.replace(response, reasoning_only=again))
    return noted


def list_judged_tasks(
    manifest: Manifest, dataset: Dataset, model: str, rows: Iterable[RecordedResponse]
) -> list[Task]:
    """Return the tasks that judges were asked about for a model.

    Args:
        manifest: of the run.
        dataset: its prompt-sets.
        model: in the run.
        rows: the model's responses that were imported.
    """
    entry = manifest.models[model]
    return (
        list_given_tasks(rows, manifest, dataset)
        if entry.imported
        else manifest.list_tasks(model, dataset)
    )


def _add_imported(
    rows: Iterable[RecordedResponse],
    given: Mapping[ResponseKey, Given | None],
    judged: Mapping[ResponseKey, GradedResponse],
    plan: Plan,
    dataset: Dataset,
) -> Iterator[GradedResponse]:
    for row in rows:
        if not plan.by_rubric and dataset.by_id[row.set_id].questions_about(row.variant) is None:
            continue
        key = _make_key(row)
        graded = judged.get(key)
        if graded is not None and not has_both_grades(row):
            yield _add_labels(graded, row, plan.mode_judge)
            continue
        own = _from_import(row, plan.mode_judge)
        ungraded = given.get(key) if row.answers is None and NOT_GRADED in own.missing else None
        if ungraded is not None:
            own = _explain_ungraded(own, ungraded)
        own = _put_recorded_answers(own, row, dataset)
        yield _add_answers(own, graded, plan) if plan.by_questions else own


def _put_recorded_answers(
    own: GradedResponse, recorded: RecordedResponse, dataset: Dataset
) -> GradedResponse:
    """Return a response with the answers to its set's questions that its file has, if it has any:
    those to other questions are not the set's.
    """
    if recorded.answers is None:
        return own
    if (questions := dataset.by_id[own.set_id].questions_about(own.variant)) is None:
        return own
    answers = {question.id: recorded.answers.get(question.id) for question in questions.all}
    known = {own_id: answer for own_id, answer in answers.items() if answer is not None}
    reasons = [item for item in recorded.missing if item.what == "checklist"]
    if len(known) < len(answers) and not reasons:
        reasons = [MissingGrade("checklist", "not_recorded")]
    graded, by_judge = bool(own.by_judge), recorded.answers_by_judge or {IMPORTED_JUDGE: known}
    missing = [*(item for item in own.missing if item != NOT_GRADED), *reasons]
    return msgspec.structs.replace(
        own,
        judge_by="both" if graded else "questions",
        answers=answers,
        answers_by_judge=by_judge,
        by_judge=own.by_judge or dict.fromkeys(by_judge, KnownGrades()),
        # in the order of `make_graded_response`
        missing=tuple(sorted(missing, key=lambda item: item.what in ("mode", "strategy"))),
    )


def _add_answers(own: GradedResponse, graded: GradedResponse | None, plan: Plan) -> GradedResponse:
    """Return a response with the grades of its file, and the answers of judges to its set's
    questions; None if they were not asked.
    """
    if graded is None:
        return msgspec.structs.replace(own, judge_by=plan.judge_by)
    lacking = (item for item in graded.missing if item.what == "checklist")
    return msgspec.structs.replace(
        own,
        judge_by=plan.judge_by,
        answers=graded.answers,
        answers_by_judge=graded.answers_by_judge,
        missing=(*own.missing, *lacking),
        served=graded.served,
    )


def _make_key(recorded: RecordedResponse) -> ResponseKey:
    return ResponseKey(recorded.model, recorded.set_id, recorded.variant, recorded.epoch)


def _add_labels(
    graded: GradedResponse, recorded: RecordedResponse, mode_judge: str
) -> GradedResponse:
    """Return a response with the mode and strategy of its file, if the file has them: they are
    final, since the target cannot be asked again.
    """
    labels = {name: label for name in ("mode", "strategy") if (label := getattr(recorded, name))}
    return msgspec.structs.replace(
        graded,
        **labels,
        mode_judge=mode_judge if "mode" in labels else graded.mode_judge,
        missing=tuple(missing for missing in graded.missing if missing.what not in labels),
    )


def has_both_grades(recorded: RecordedResponse) -> bool:
    """Tell whether a response was imported with the grades that metrics need."""
    return None not in _METRIC_GRADES(recorded)


def _from_import(recorded: RecordedResponse, mode_judge: str) -> GradedResponse:
    parted = cut_reasoning(recorded.response or "")
    graded = _grade_as_given(
        *_GIVEN(recorded), tuple(recorded.by_judge.items()), mode_judge, *_GRADES(recorded)
    )
    refusal_reason = _refusal(recorded, parted)
    return msgspec.structs.replace(
        graded,
        model=recorded.model,
        set_id=recorded.set_id,
        variant=recorded.variant,
        epoch=recorded.epoch,
        stop_reason=recorded.stop_reason,
        truncated=is_cut(recorded.stop_reason)
        and not (graded.reason("response") or refusal_reason),
        refusal_reason=refusal_reason,
        mark=unknown_mark(parted.text),
    )


def _explain_ungraded(own: GradedResponse, given: Given) -> GradedResponse:
    """Return a response that no judge was asked about, with what is known of it all the same: that
    it holds no text to grade, or is a refusal.
    """
    reason, refusal_reason = "", own.refusal_reason
    match given.classify():
        case Failed(kind=kind):
            reason = kind
        case Answered(text="", truncated=True):
            reason = "truncated"
        case Refused():
            refusal_reason = "filter"
    if not reason:
        cut = own.truncated and not refusal_reason
        return msgspec.structs.replace(own, refusal_reason=refusal_reason, truncated=cut)
    missing = (MissingGrade("response", reason), *(x for x in own.missing if x != NOT_GRADED))
    return msgspec.structs.replace(own, refusal_reason="", truncated=False, missing=missing)


_GIVEN = attrgetter("missing", "mode", "strategy")
_GRADES = attrgetter(*SCALES)


@lru_cache(maxsize=4096)
def _grade_as_given(
    missing: tuple[MissingGrade, ...],
    mode: Mode | None,
    strategy: Strategy | None,
    known: tuple[tuple[str, KnownGrades], ...],
    mode_judge: str,
    *grades: int | None,
) -> GradedResponse:
    """Return what all imported responses with some grades have in common."""
    reasons = {(item.what, item.judge): item.reason for item in missing}
    own = KnownGrades(*grades)
    graded = None not in _METRIC_GRADES(own) or any((what, "") in reasons for what in SCALES)
    by_judge = dict(known)
    if not by_judge and graded:
        by_judge = {IMPORTED_JUDGE: own}

    def make_grades(judge: str, grades: KnownGrades) -> JudgeGrades:
        by_scale: dict[Graded, int | NotObtained] = {}
        for what in SCALES:
            if (value := grades.of(what)) is not None:
                by_scale[what] = value
            elif reason := reasons.get((what, judge)) or reasons.get((what, "")):
                by_scale[what] = NotObtained(reason)
            elif what in METRIC_GRADES:  # of another scale, the file has none
                by_scale[what] = NotObtained("not_recorded")
        return by_scale

    def explain(what: Literal["mode", "strategy"]) -> NotObtained | None:
        return NotObtained(reasons[what, ""]) if (what, "") in reasons else None

    return make_graded_response(
        ResponseKey("", "", "", 1),
        missing_response=reasons.get(("response", ""), ""),
        grades={judge: make_grades(judge, grades) for judge, grades in by_judge.items()},
        mode=mode or explain("mode"),
        mode_judge=mode_judge,
        strategy=strategy or explain("strategy"),
    )


def _refusal(recorded: RecordedResponse, parted: Parted) -> Refusal:
    """Tell the refusals that take no judge, as in a response that we asked for ourselves."""
    if recorded.response is None:
        return "text_not_kept" if stop_kind(recorded.stop_reason) == "refusal" else ""
    if parted.reasoned or parted.text.strip():
        return ""
    kind = stop_kind(recorded.stop_reason)
    return {"refusal": "filter", "end": "empty", "none": "empty"}.get(kind, "")  # type: ignore[return-value]
