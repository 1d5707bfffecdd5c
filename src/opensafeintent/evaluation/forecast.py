"""Counting the calls of a run: those that were made, and those to come."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opensafeintent.calls.costs import (
    ForecastLine,
    Spent,
    apply_experience,
    experience_in,
    sum_spent,
)
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Failed
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.evaluation.pipeline import ModelWork, Planned, Step, Task
from opensafeintent.evaluation.regrade import plan_regrades
from opensafeintent.evaluation.replay import (
    Replayed,
    list_judged_tasks,
    read_imported,
    replay,
    replay_each,
)
from opensafeintent.evaluation.run import has_text, was_judged
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import NO_FIRST_REPLY, GradedResponse, NotObtained, ResponseKey
from opensafeintent.taxonomy import DUAL_USE, SCALES
from opensafeintent.templates import IntegerContract, Template
from opensafeintent.templates.template import TemplateFile


def list_call_keys(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Iterator[bytes]:
    """Yield the key of every call behind a run's results, as far as its ledger holds the calls
    before it.
    """
    judged: set[ResponseKey] = set()
    for _, response, calls in replay_responses(manifest, dataset, ledger):
        if was_judged(response):
            judged.add(response.key)
        yield from (call.key for call in calls if call.call.counted)
    for regrading, planned in plan_regrades(manifest, dataset, ledger, judged):
        for _, _, calls in replay_each(ledger, manifest.identities(), planned, regrading.ask):
            yield from (call.key for call in calls if call.call.counted)


def replay_responses(
    manifest: Manifest, dataset: Dataset, ledger: Ledger
) -> Iterator[Replayed[GradedResponse]]:
    """Yield the replay of every response of a run that judges are asked about."""
    imported = read_imported(ledger, dataset)
    for model in manifest.models:
        tasks = list_judged_tasks(manifest, dataset, model, imported.get(model, ()))
        yield from replay(ledger, manifest.identities(), manifest.plan_tasks(model, tasks))


def sum_spent_on_run(manifest: Manifest, dataset: Dataset, ledger: Ledger) -> Spent:
    """Add up the calls of a run: every attempt in a ledger of its own, else the calls that its
    results use.
    """
    shared = Path(manifest.ledger).is_absolute()
    return sum_spent(ledger, list_call_keys(manifest, dataset, ledger) if shared else None)


class AskedInLedger(NamedTuple):
    """The calls of a check that a ledger holds."""

    keys: list[bytes]
    served: dict[str, tuple[str, ...]]
    """By model, the models that its replies name."""
    whole: bool
    """Whether every call has an outcome."""


def find_asked(
    ledger: Ledger, identities: Mapping[str, str], work: Iterable[ModelWork]
) -> AskedInLedger:
    """Find the calls of a check in a ledger.

    Args:
        ledger: holds the outcomes.
        identities: of the judges, by name.
        work: the calls.
    """
    keys: list[bytes] = []
    served: dict[str, set[str]] = {}
    whole = True
    for item in work:
        for replayed_task in replay(ledger, identities, item.planned):
            whole = whole and not replayed_task.lacking
            for call, key, outcome in replayed_task.asked:
                keys.append(key)
                if not isinstance(outcome, Failed) and outcome.served_model:
                    served.setdefault(call.model, set()).add(outcome.served_model)
    return AskedInLedger(
        keys, {model: tuple(sorted(names)) for model, names in served.items()}, whole
    )


RESPONSE_TOKENS = 600
"""Assumed length of a response; a guess, stated with every forecast."""

ASSUMED = f"responses assumed to have {RESPONSE_TOKENS} tokens"

_GRADE_TOKENS = 8

_REASON_TOKENS = 60

_CHARACTERS_A_TOKEN = 4


class Forecast(msgspec.Struct, frozen=True):
    """Calls and tokens by model and purpose, those aside that the ledger already holds."""

    lines: tuple[ForecastLine, ...]
    assumed: str = ""
    """Assumptions about unknown lengths; empty if all are known."""
    connections: int | None = None
    """Concurrent requests to a provider, if the user set them."""
    chosen: Mapping[str, str] = {}
    """By model, the service tier or `batch` in which the command asks; of the others, the standard
    tier.
    """
    batches: bool = False
    """Whether the command can ask all its models in batches."""

    @property
    def calls(self) -> int:
        """At most so many are made, re-asks and retries aside."""
        return sum(line.calls for line in self.lines)

    def scale(self, factor: float) -> Forecast:
        """Return the calls and tokens of another number of prompt-sets, which is greater by this
        factor.
        """
        lines = (
            msgspec.structs.replace(
                line,
                calls=round(line.calls * factor),
                input_tokens=round(line.input_tokens * factor),
                output_tokens=round(line.output_tokens * factor),
            )
            for line in self.lines
        )
        return msgspec.structs.replace(self, lines=tuple(lines))


def forecast(ledger: Ledger, identities: Mapping[str, str], work: Sequence[ModelWork]) -> Forecast:
    """Count the calls that are not in the ledger.

    Args:
        ledger: holds the outcomes.
        identities: of every target and judge, by name.
        work: the plan.
    """
    counter = CallCounter()
    for item in work:
        for replayed_task in replay(ledger, identities, item.planned):
            task = replayed_task.planned.task
            length = _measure_response(replayed_task)
            if length is not None and task.variant == DUAL_USE:
                counter.first_replies[task.key] = length
            for step in _list_owed(replayed_task):
                counter.add(step, replayed_task.planned, length)
    return Forecast(counter.lines(ledger), assumed=ASSUMED if counter.assumed else "")


def forecast_regrades(
    ledger: Ledger, manifest: Manifest, dataset: Dataset, graded: Collection[str]
) -> Forecast:
    """Count the remaining calls for asking the judges again.

    Args:
        ledger: holds the outcomes.
        manifest: of the planned run.
        dataset: its prompt-sets.
        graded: the models whose responses are to be graded before.
    """
    if not manifest.plan.asks_again:
        return Forecast(())
    lengths: dict[ResponseKey, int | None] = {}
    answered: dict[ResponseKey, bool] = {}
    """Of each response that judges grade, whether it is there."""
    for replayed_task in replay_responses(manifest, dataset, ledger):
        task, response = replayed_task.planned.task, replayed_task.result
        lengths[task.key] = _measure_response(replayed_task)
        lacking = _lacks_response(response)
        # a response without words takes no judge
        before = response.model in graded and (has_text(response) or (lacking and not task.given))
        if before or was_judged(response):
            answered[task.key] = not lacking
    lines: tuple[ForecastLine, ...] = ()
    assumed = ""
    for regrading, planned in plan_regrades(manifest, dataset, ledger, answered):
        counter = CallCounter()
        counter.first_replies |= {key: size for key, size in lengths.items() if size is not None}
        there = [item for item in planned if answered[item.task.key]]
        stored = {
            item.task.key: reply
            for item, reply, _ in replay_each(ledger, manifest.identities(), there, regrading.ask)
        }
        for item in planned:
            grades: Mapping[str, Mapping[str, Any]] = stored.get(item.task.key, {})
            for column, shown in regrading.shown(item.task).items():
                again = item._replace(task=shown)
                for step in again.grading:
                    by_judge = grades.get(column)
                    grade = by_judge[step.model][step.part] if by_judge else NotObtained("not_made")
                    if isinstance(grade, NotObtained) and _is_unmade(grade.reason):
                        counter.add(step, again, lengths[item.task.key], f", {regrading.why}")
        lines += counter.lines(ledger)
        assumed = assumed or (ASSUMED if counter.assumed else "")
    return Forecast(lines, assumed)


def _list_owed(prompt: Replayed[GradedResponse]) -> list[Step]:
    """Return the calls for a prompt that the ledger lacks, those without their input yet too."""
    graded, steps = prompt.result, prompt.planned.steps
    if _lacks_response(graded):
        return steps
    return [step for step in steps if any(map(_is_unmade, _yield_reasons(step, graded)))]


def _yield_reasons(step: Step, graded: GradedResponse) -> Iterator[str]:
    """Yield why the reply to a call is missing, or why it is not known whether it is made; empty if
    it is there.
    """
    if step.part == "guard":
        yield graded.guard_reason
        return
    yield graded.reason(step.part, step.model)
    if step.at_most and graded.strategy is None:
        yield from (graded.reason("harm_severity", judge) for judge in graded.by_judge)


def _is_unmade(reason: str) -> bool:
    """Tell of a call that was never made, or that failed and is tried again."""
    return reason.startswith(("not_made", "failed"))


def _lacks_response(graded: GradedResponse) -> bool:
    """Tell whether a response is still to come."""
    return graded.reason("response") not in ("", "truncated", NO_FIRST_REPLY)


def _measure_response(prompt: Replayed[GradedResponse]) -> int | None:
    """Return the characters of a response; None if there is none yet."""
    if (given := prompt.planned.task.given) is not None:
        return len(given.text)
    texts = (
        outcome.text
        for call, _, outcome in prompt.asked
        if call.purpose == "generate" and call.counted and isinstance(outcome, Answered)
    )
    return next(map(len, texts), None)


class CallCounter:
    """Adds up calls and tokens by model and purpose."""

    def __init__(self) -> None:
        self.sums: defaultdict[tuple[str, str, bool], Counter[str]] = defaultdict(Counter)
        """By model, purpose and whether it is a bound, the sums as `ForecastLine` has them."""
        self.first_replies: dict[ResponseKey, int] = {}
        """Characters of the responses to dual-use prompts, as far as there are any."""
        self.assumed = False
        """Whether the length of a response was assumed."""

    def add(self, step: Step, planned: Planned, response: int | None, why: str = "") -> None:
        """Count a call that is not made.

        Args:
            step: the call.
            planned: its prompt.
            response: the characters of the response; None if there is none yet.
            why: the name of such calls behind their purpose.
        """
        (task, plan, _), template = planned, step.template
        probe = step.part == "strategy"  # it shows the prompt alone
        further = 0 if probe else self._first_turn(task, template)
        size, output = len(task.prompt) + further, _GRADE_TOKENS
        if template is None:
            self.assumed = True
            size += len(plan.system or "")
            output = min(RESPONSE_TOKENS, plan.target_sampling.max_tokens or RESPONSE_TOKENS)
        else:
            size += 0 if probe else self._response_size(response)
        if isinstance(template, Template):
            size += len(template.source)
            if step.part == "checklist" and task.questions:
                size += sum(len(question.text) for question in task.questions.all)
                output = _GRADE_TOKENS * len(task.questions.all)
            if isinstance(template.contract, IntegerContract) and template.contract.reason:
                output = _REASON_TOKENS
        elif template is not None:
            size += len(template.body)
        if step.part in ("response", *SCALES):
            why = why or (", second turn" if task.earlier else "")
        sums = self.sums[step.model, f"{step.purpose}{why}", step.at_most]
        if not sums and isinstance(template, Template) and not probe:
            sums["beginning_tokens"] = len(template.beginning) // _CHARACTERS_A_TOKEN
        sums["calls"] += 1
        sums["input_tokens"] += size // _CHARACTERS_A_TOKEN
        sums["output_tokens"] += output
        sums["further_tokens"] += further // _CHARACTERS_A_TOKEN

    def _response_size(self, response: int | None) -> int:
        """Return the characters of a response, assumed or known."""
        self.assumed |= response is None
        return RESPONSE_TOKENS * _CHARACTERS_A_TOKEN if response is None else response

    def _first_turn(self, task: Task, template: TemplateFile | None) -> int:
        """Return the characters of a first turn, its reply assumed or known, with what a judge is
        told about a conversation; 0 without a first turn.
        """
        if task.earlier is None:
            return 0
        reply, texts = task.earlier.reply, task.earlier.texts
        stored = self.first_replies.get(task.key._replace(variant=DUAL_USE))
        told = len(texts.note(template.role)) if isinstance(template, Template) else 0
        size = self._response_size(stored if reply is None else len(reply))
        return len(task.earlier.prompt) + size + told

    def lines(self, ledger: Ledger) -> tuple[ForecastLine, ...]:
        """Return the counts: the models under test in turn, then the judges.

        If a ledger has such calls, tokens are their means; otherwise they are estimated from the
        lengths.
        """
        experience = experience_in(ledger) if self.sums else {}
        first = {model: index for index, (model, *_) in reversed(list(enumerate(self.sums)))}
        in_turn = sorted(
            self.sums.items(),
            key=lambda item: (not item[0][1].startswith(("generate", "probe")), first[item[0][0]]),
        )
        return tuple(
            apply_experience(
                ForecastLine(model=model, purpose=purpose, at_most=at_most, **sums), experience
            )
            for (model, purpose, at_most), sums in in_turn
        )
