"""Rebuild what a run has found from its manifest and its ledger alone: no call is made."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.recorded import ImportedRow
from opensafeintent.calls.records import is_truncated
from opensafeintent.calls.replies import without_thinking
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import Given, Task
from opensafeintent.evaluation.records import GradedResponse, JudgeGrades, Missing
from opensafeintent.evaluation.replay import Planned, replay
from opensafeintent.evaluation.run import tasks_of
from opensafeintent.promptsets import Dataset

__all__ = ["IMPORTED_JUDGE", "derive", "given_tasks", "imported_rows"]

IMPORTED_JUDGE = "imported"
"""The name of whoever gave the grades that came with imported responses."""

_REASON = re.compile(r"([a-z_]+(?:\[.*\])?):(.*)", re.DOTALL)
"""`what:why`, or `what[judge]:why`."""

_READ_AT_ONCE = 500

Place = tuple[str, str, str, int]
"""Model, prompt-set, variant, epoch."""


def imported_rows(ledger: Ledger, dataset: Dataset) -> dict[str, list[ImportedRow]]:
    """Return the responses that were imported for a dataset, by model.

    Raises:
        InputError: one of them is damaged, or answers a prompt that the dataset does not hold.
    """
    by_model: defaultdict[str, list[ImportedRow]] = defaultdict(list)
    for row in ledger.imports.rows(dataset.hash):
        prompt_set = dataset.by_id.get(row.set_id)
        if prompt_set is None or row.variant not in prompt_set.wordings():
            place = f"set {row.set_id!r}, {row.variant!r}"
            raise InputError(
                f"{ledger.path}: the ledger is damaged: a response to {place}, which {dataset.name} does not hold"
            )
        by_model[row.model].append(row)
    return dict(by_model)


def given_tasks(rows: Iterable[ImportedRow], dataset: Dataset) -> list[Task]:
    """Return the imported responses that a judge has to grade: those that did not come with both grades."""
    return [
        Task(
            model=row.model,
            set_id=row.set_id,
            variant=row.variant,
            epoch=row.epoch,
            prompt=dataset.by_id[row.set_id].wordings()[row.variant],
            given=Given(text=row.response, stop_reason=row.record["stop_reason"]),
        )
        for row in rows
        if row.response is not None and not _has_both_grades(row)
    ]


def derive(
    manifest: Manifest,
    dataset: Dataset,
    ledger: Ledger,
    known: Mapping[Place, GradedResponse] | None = None,
    *,
    read: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[GradedResponse]:
    """Return every response of a run with its grades, as far as the ledger has them.

    Args:
        manifest: what the run is made of.
        dataset: its prompt-sets.
        ledger: its ledger.
        known: responses that need not be looked up again.
        read: told how many responses of how many there are to read have been read.
    """
    imported = imported_rows(ledger, dataset)
    tasks = {model: _tasks(manifest, dataset, model, imported.get(model, ())) for model in manifest.models}
    judged: dict[str, dict[Place, GradedResponse]] = {model: {} for model in tasks}
    left: dict[str, list[Planned]] = {}
    for model, its_tasks in tasks.items():
        if its_tasks:
            how = (manifest.plan(model), manifest.templates_of(model))
            judged[model] = {place: found for task in its_tasks if (found := (known or {}).get(place := _place(task)))}
            left[model] = [Planned(task, *how) for task in its_tasks if _place(task) not in judged[model]]
    count = sum(map(len, left.values()))
    # models are asked side by side, so the calls of a prompt lie together for all of them
    in_turn = (planned for turn in zip_longest(*left.values()) for planned in turn if planned is not None)
    for number, (task, graded, *_) in enumerate(replay(ledger, manifest.identities(), in_turn)):
        if number % _READ_AT_ONCE == 0:
            read(number, count)
        judged[task.model][_place(task)] = graded
    results: list[GradedResponse] = []
    for model, entry in manifest.models.items():
        if entry.imported:
            results += _with_imported(imported.get(model, []), judged[model])
        else:
            in_order = (judged[model][_place(task)] for task in tasks[model])
            results += [graded for graded in in_order if graded.missing_response != "not_made"]
    return results


def _tasks(manifest: Manifest, dataset: Dataset, model: str, rows: Iterable[ImportedRow]) -> list[Task]:
    """Return what judges were asked about a model."""
    entry = manifest.models[model]
    if not entry.judges:
        return []
    return given_tasks(rows, dataset) if entry.imported else tasks_of(model, manifest.sets_of(model, dataset), entry.epochs)


def _place(task: Task) -> Place:
    return task.model, task.set_id, task.variant, task.epoch


def _with_imported(rows: Iterable[ImportedRow], judged: Mapping[Place, GradedResponse]) -> Iterator[GradedResponse]:
    for row in rows:
        place = (row.model, row.set_id, row.variant, row.epoch)
        brought = _from_import(row)
        if place not in judged:
            yield brought
            continue
        # the target cannot be asked again: what the file says of mode and strategy stands
        labels = {name: label for name in ("mode", "strategy") if isinstance(label := getattr(brought, name), str)}
        yield msgspec.structs.replace(judged[place], **labels)


def _has_both_grades(row: ImportedRow) -> bool:
    return row.record.get("helpfulness") is not None and row.record.get("harm_severity") is not None


def _from_import(row: ImportedRow) -> GradedResponse:
    record = row.record
    parts = (_REASON.fullmatch(reason) for reason in record.get("missing", ()))
    reasons: dict[str, str] = {part[1]: part[2] for part in parts if part}
    graded = _has_both_grades(row) or "helpfulness" in reasons or "harm_severity" in reasons
    by_judge: dict[str, Any] = record.get("by_judge") or {}
    if not by_judge and graded:
        by_judge = {IMPORTED_JUDGE: (record.get("helpfulness"), record.get("harm_severity"))}

    def grade(what: str, judge: str, value: int | None) -> Any:
        reason = reasons.get(f"{what}[{judge}]") or reasons.get(what, "not_recorded")
        return Missing(reason) if value is None else value

    def label(what: str) -> Any:
        return record.get(what) or (Missing(reasons[what]) if what in reasons else None)

    stop_reason = record["stop_reason"]
    return GradedResponse(
        model=row.model,
        set_id=row.set_id,
        variant=row.variant,
        epoch=row.epoch,
        stop_reason=stop_reason,
        truncated=is_truncated(stop_reason) and "response" not in reasons,
        refused=_refusal(row, stop_reason),
        missing_response=reasons.get("response", ""),
        grades={
            judge: JudgeGrades(
                helpfulness=grade("helpfulness", judge, helpful), harm_severity=grade("harm_severity", judge, harm)
            )
            for judge, (helpful, harm) in by_judge.items()
        },
        mode=label("mode"),
        strategy=label("strategy"),
    )


def _refusal(row: ImportedRow, stop_reason: str) -> Literal["", "filter", "empty"]:
    """Tell the refusals that take no judge, as in a response that we asked for ourselves."""
    if stop_reason == "content_filter":
        return "filter"
    wordless = row.response is not None and not without_thinking(row.response).strip()
    return "empty" if wordless and not is_truncated(stop_reason) else ""


def imported_record(recorded: Any) -> dict[str, Any]:
    """Return what the ledger keeps of an imported response besides its text."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(recorded))  # as the ledger gives it back
    kept = ("stop_reason", "helpfulness", "harm_severity", "mode", "strategy", "missing", "by_judge")
    return {name: fields[name] for name in kept if fields[name] not in (None, [], {})}
