"""A run rebuilt from its manifest and its ledger alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.reasoning import unknown_mark, without_reasoning
from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.calls.records import call_key, is_cut, stop_kind
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Given, Task, generation_call
from opensafeintent.evaluation.replay import replay
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import (
    GradedResponse,
    JudgeGrades,
    Missing,
    Refusal,
    ResponseKey,
    graded_response,
)
from opensafeintent.taxonomy import METRIC_GRADES, SCALES, Graded, KnownGrades, is_follow_up

IMPORTED_JUDGE = "imported"
"""The name of the judge of grades that came with imported responses."""

_READ_AT_ONCE = 500


def imported_rows(ledger: Ledger, dataset: Dataset) -> dict[str, list[RecordedResponse]]:
    """Return the responses that were imported for a dataset, by model.

    Raises:
        InputError: one of them is damaged, or answers a prompt that the dataset does not hold.
    """
    by_model: defaultdict[str, list[RecordedResponse]] = defaultdict(list)
    for row in ledger.imports.rows(dataset.hash):
        set_id, variant = row.set_id, row.variant
        prompt_set = dataset.by_id.get(set_id)
        known = prompt_set is not None and (
            variant in prompt_set.wordings() or is_follow_up(variant)
        )
        if not known:
            raise InputError(
                f"{ledger.path}: the ledger is damaged: a response to set {set_id!r},"
                f" {variant!r}, which {dataset.name} does not hold"
            )
        by_model[row.model].append(row)
    return dict(by_model)


def opens_none(rows: Iterable[RecordedResponse]) -> bool:
    """Tell whether one of a model's responses has a thought without its opening mark."""
    return any(
        row.response is not None and without_reasoning(row.response).unopened for row in rows
    )


def given_tasks(
    rows: Iterable[RecordedResponse],
    manifest: Manifest,
    dataset: Dataset,
    *,
    opens_no_thought: bool | None = None,
) -> list[Task]:
    """Return the imported responses of a model that a judge has to grade: those that did not come
    with both grades.

    Args:
        rows: of the model.
        manifest: of the run.
        dataset: its prompt-sets.
        opens_no_thought: whether one of the model's responses has a thought without its opening
            mark; None if `rows` are all of them.
    """
    rows = list(rows)
    if opens_no_thought is None:
        opens_no_thought = opens_none(rows)
    tasks: list[Task] = []
    for row in rows:
        if row.response is None or has_both_grades(row):
            continue
        given = Given(
            text=row.response, stop_reason=row.stop_reason, opens_no_thought=opens_no_thought
        )
        task = msgspec.structs.replace(manifest.task_of(_key_of(row), dataset), given=given)
        if task.earlier is not None:
            reply = without_reasoning(row.reply_to or "").text.strip()
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
    read: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[GradedResponse]:
    """Return every response of a run with its grades, as far as the ledger has them.

    Args:
        manifest: the run's.
        dataset: its prompt-sets.
        ledger: its ledger.
        already_graded: responses that need not be looked up again.
        read: called with the number of responses read, and their total.
    """
    imported = imported_rows(ledger, dataset)
    judged = dict(already_graded or {})
    tasks = {
        model: judged_tasks(manifest, dataset, model, imported.get(model, ()))
        for model in manifest.models
    }
    to_read = [
        manifest.planned(model, [task for task in its_tasks if task.key not in judged])
        for model, its_tasks in tasks.items()
    ]
    # models are called side by side, so the calls of a prompt are close together for all of them
    in_turn = (planned for turn in zip_longest(*to_read) for planned in turn if planned is not None)
    for number, (task, graded, _) in enumerate(replay(ledger, manifest.identities(), in_turn)):
        if number % _READ_AT_ONCE == 0:
            read(number, sum(map(len, to_read)))
        judged[task.key] = graded
    results: list[GradedResponse] = []
    for model, entry in manifest.models.items():
        if entry.imported:
            results += _with_imported(imported.get(model, []), judged, manifest.plan.mode_judge)
        else:
            in_order = (judged[task.key] for task in tasks[model])
            with_outcome = [
                graded for graded in in_order if graded.reason("response") != "not_made"
            ]
            results += _with_tries(model, with_outcome, manifest, dataset, ledger)
    return results


def _with_tries(
    model: str,
    responses: Sequence[GradedResponse],
    manifest: Manifest,
    dataset: Dataset,
    ledger: Ledger,
) -> list[GradedResponse]:
    """Return a model's responses, with a note on those that an attempt gave reasoning for and no
    text.
    """
    keys = ledger.reasoning_only()
    if not keys:
        return list(responses)
    plan, identity = manifest.judge_plan(model), manifest.models[model].identity
    noted: list[GradedResponse] = []
    for response in responses:
        task = manifest.task_of(response.key, dataset)
        # the call of a follow-up depends on the first reply
        again = task.earlier is None and call_key(generation_call(task, plan), identity) in keys
        noted.append(msgspec.structs.replace(response, reasoning_only=again))
    return noted


def judged_tasks(
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
        given_tasks(rows, manifest, dataset)
        if entry.imported
        else manifest.tasks_of(model, dataset)
    )


def _with_imported(
    rows: Iterable[RecordedResponse],
    judged: Mapping[ResponseKey, GradedResponse],
    mode_judge: str,
) -> Iterator[GradedResponse]:
    for row in rows:
        graded = judged.get(_key_of(row))
        if graded is None:
            yield _from_import(row, mode_judge)
        else:
            yield _with_labels(graded, row, mode_judge)


def _key_of(recorded: RecordedResponse) -> ResponseKey:
    return ResponseKey(recorded.model, recorded.set_id, recorded.variant, recorded.epoch)


def _with_labels(
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
    return all(getattr(recorded, what) is not None for what in METRIC_GRADES)


def _from_import(recorded: RecordedResponse, mode_judge: str) -> GradedResponse:
    reasons = {(missing.what, missing.judge): missing.reason for missing in recorded.missing}
    graded = has_both_grades(recorded) or any((what, "") in reasons for what in SCALES)
    by_judge = recorded.by_judge
    if not by_judge and graded:
        known = {what: getattr(recorded, what) for what in SCALES}
        by_judge = {IMPORTED_JUDGE: KnownGrades(**known)}

    def grade(what: Graded, judge: str, value: int | None) -> int | Missing | None:
        reason = reasons.get((what, judge)) or reasons.get((what, ""))
        if value is None and reason is None and what not in METRIC_GRADES:
            return None  # the file does not have this grade
        return Missing(reason or "not_recorded") if value is None else value

    def of_judge(judge: str, grades: KnownGrades) -> JudgeGrades:
        by_scale = {what: grade(what, judge, grades.of(what)) for what in SCALES}
        return {what: value for what, value in by_scale.items() if value is not None}

    def label(what: Literal["mode", "strategy"]) -> Any:
        missing = Missing(reasons[what, ""]) if (what, "") in reasons else None
        return getattr(recorded, what) or missing

    return graded_response(
        _key_of(recorded),
        stop_reason=recorded.stop_reason,
        truncated=is_cut(recorded.stop_reason) and ("response", "") not in reasons,
        refused=_refusal(recorded),
        mark=unknown_mark(without_reasoning(recorded.response or "").text),
        missing_response=reasons.get(("response", ""), ""),
        grades={judge: of_judge(judge, grades) for judge, grades in by_judge.items()},
        mode=label("mode"),
        mode_judge=mode_judge,
        strategy=label("strategy"),
    )


def _refusal(recorded: RecordedResponse) -> Refusal:
    """Tell the refusals that take no judge, as in a response that we asked for ourselves."""
    kind, text = stop_kind(recorded.stop_reason), recorded.response
    if text is None:
        return "text_not_kept" if kind == "refusal" else ""
    parted = without_reasoning(text)
    if parted.text.strip() or parted.reasoned:
        return ""
    return {"refusal": "filter", "end": "empty", "none": "empty"}.get(kind, "")  # type: ignore[return-value]
