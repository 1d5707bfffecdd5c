"""`--stop-when`: no more prompt-sets than a question needs (docs/compare.md).

Prompt-sets count in the order of `promptsets.sample_order`, as a prefix of the sets whose calls
have all ended, so that slow answers cannot select. An answer is stored in the manifest as soon as
it is reached, and is final. The model then keeps the prefix that decided, as if `--limit` had named
it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from math import isnan, nan
from statistics import fmean
from typing import NamedTuple

import msgspec

from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.errors import InputError, nearest, pluralize
from opensafeintent.evaluation.manifest import Manifest, StopAnswer, StopQuestion, StopVerdict
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.grades import to_array
from opensafeintent.numbers.completions import Completions
from opensafeintent.numbers.equations import Grades
from opensafeintent.numbers.metrics import METRICS, Metric, is_defined, refuse_undefined
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import round_number
from opensafeintent.statistics.sequential import Evidence, confidence_sequence, fewest
from opensafeintent.taxonomy import is_follow_up

_OPTION_FOR_INPUT = {"benign_mode": ("--modes", "core"), "probes": ("--probe", "all")}
"""Which option asks for the grades that some metrics need."""


class StoppingRule(NamedTuple):
    """A question, asked of each model by itself, or of one model and each of the others."""

    text: str
    metric: Metric
    sign: int
    """1 if a greater value says yes, −1 if a smaller one does."""
    threshold: float
    """Of the metric, or 0 for a difference of two models."""
    subjects: dict[str, tuple[str, ...]]
    """By the model that an answer is about, the models whose values it rests on: itself, or the
    first minus itself.
    """

    @property
    def _scale(self) -> tuple[float, float]:
        """Centre and width of the range of values."""
        low, high = self.metric.span
        paired = any(len(models) > 1 for models in self.subjects.values())
        return (0.0, 2 * (high - low)) if paired else ((low + high) / 2, high - low)

    def scale(self, value: float) -> float:
        """Return a value as a number from 0 to 1: the greater, the more it says yes."""
        centre, width = self._scale
        return 0.5 + self.sign * (value - centre) / width

    def unscale(self, interval: tuple[float, float]) -> tuple[float, float]:
        """Return an interval of such numbers as one of values."""
        centre, width = self._scale
        low, high = sorted(
            round_number(centre + self.sign * (end - 0.5) * width) for end in interval
        )
        return low, high


def read_stopping_rule(text: str, models: Sequence[str]) -> StoppingRule:
    """Read `METRIC >= X`, `METRIC <= X` or `MODEL better METRIC`. Baselines are asked about only if
    there is nothing else.

    Raises:
        InputError: it is none of these, or no run could answer it.
    """
    prefix = f"--stop-when {text!r}"
    match = re.fullmatch(r"([^\s<>=≤≥]+)\s*([<>=≤≥]+)\s*(\S+)|(\S+) better (\S+)", text)
    if match is None:
        raise InputError(
            f"{prefix}: expected 'METRIC >= X', 'METRIC <= X' or 'MODEL better METRIC'"
        )
    name, sign, number, better = match[1] or match[5], *match.groups()[1:4]
    if name not in METRICS:
        raise InputError(f"{prefix}: unknown metric {name!r}; {nearest(name, METRICS)}")
    if (metric := METRICS[name]).conditional:
        raise InputError(
            f"{prefix}: {name} is no mean over all prompt-sets; a question needs one that is"
        )
    if better is None:
        if sign not in (">=", "<="):
            raise InputError(
                f"{prefix}: {sign} cannot be asked; write >= (at least) or <= (at most)"
            )
        threshold = _read_threshold(number, metric, prefix)
        subjects: dict[str, tuple[str, ...]] = {model: (model,) for model in drop_baselines(models)}
        rule = StoppingRule(text, metric, 1 if sign == ">=" else -1, threshold, subjects)
        # it was rounded to an end of the scale
        if not 0 < rule.scale(threshold) < 1:
            low, high = metric.span
            raise InputError(
                f"{prefix}: {number} rounds to an end of the scale; expected a number above {low:g}"
                f" and below {high:g}"
            )
        return rule
    if metric.neutral:
        raise InputError(f"{prefix}: neither more nor less of {name} is better")
    if better not in models:
        raise InputError(f"{prefix}: {better} is not evaluated; {nearest(better, models)}")
    if not (compared := drop_baselines(model for model in models if model != better)):
        raise InputError(f"{prefix}: there is no other model to compare with; name one more")
    return StoppingRule(
        text,
        metric,
        -1 if metric.less_is_better else 1,
        0.0,
        {model: (better, model) for model in compared},
    )


def _read_threshold(text: str, metric: Metric, prefix: str) -> float:
    """Return the number of a question; see `read_stopping_rule`."""
    low, high = metric.span
    is_number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.ASCII)
    threshold = float(text) if is_number else nan
    if not low < threshold < high:
        raise InputError(f"{prefix}: {text} is no number above {low:g} and below {high:g}")
    return threshold


class _Value(NamedTuple):
    """The metric of one prompt-set."""

    least: float
    greatest: float
    """Its ends whatever the missing grades are; NaN if it is defined with none."""
    unknown: bool
    """Whether it is undefined with the grades that there are."""


class _SequentialTest:
    """The evidence for one verdict."""

    def __init__(
        self, question: StoppingRule, models: Sequence[str], error: float, stored: StopAnswer | None
    ) -> None:
        self.models = models
        self.evidence = Evidence(question.scale(question.threshold), error)
        self.values: list[tuple[float, float, float]] = []
        """By prompt-set or family, the ends between which its value lies, from 0 to 1, equal if no
        grade is missing; and its weight. A set without one of its prompts has none.
        """
        self.sets = self.missing = 0
        """Prompt-sets of the prefix, and those of them that lack a value."""
        self.answer = stored if stored and stored.verdict != "undecided" else None


class StopWhen:
    """Follows a run's graded responses, and selects the prompts that are still needed.

    Args:
        text: the question.
        confidence: the probability of any wrong *yes*, and of any wrong *no*, is half of 1 − this
            at most, over all models.
        max_missing: nothing is decided while a greater share of the prefix has no value.
        manifest: of the run with this evaluation in it.
        dataset: its prompt-sets.
        work: the evaluation's tasks.

    Raises:
        InputError: the question cannot be used, or the run was asked another one.
    """

    def __init__(
        self,
        text: str,
        confidence: float,
        max_missing: float,
        manifest: Manifest,
        dataset: Dataset,
        work: Sequence[ModelWork],
    ) -> None:
        self.question = question = read_stopping_rule(
            " ".join(text.split()), [item.model for item in work]
        )
        refuse_undefined(question.metric.name, dataset, f"--stop-when {question.text!r}")
        self.manifest = manifest
        self._dataset, self._max_missing = dataset, max_missing
        self._save: Callable[[Manifest], None] | None = None
        for item in work:
            needed = _OPTION_FOR_INPUT.get(question.metric.inputs)
            if needed and needed[1] not in (item.plan.modes, item.plan.probe):
                raise InputError(
                    f"--stop-when {question.text!r}: {question.metric.name} needs"
                    f" {' '.join(needed)}"
                )
        # no metric that a question may ask about includes a follow-up
        tasks = [task for item in work for task in item.tasks if task.earlier is None]
        self._order = list(dict.fromkeys(task.set_id for task in tasks))
        self._place = {set_id: index for index, set_id in enumerate(self._order)}
        units = [[*members] for _, members in groupby(self._order, dataset.units.__getitem__)]
        self._unit_at = {self._place[unit[0]]: unit for unit in units}
        """By the place of its first set in the order, the sets of each unit."""
        self._largest = max(map(len, units), default=1)
        self._due = Counter((task.model, task.set_id) for task in tasks)
        self._graded: defaultdict[tuple[str, str], list[GradedResponse]] = defaultdict(list)
        subjects = dict.fromkeys(model for models in question.subjects.values() for model in models)
        self._asked = StopQuestion(
            question=question.text, confidence=confidence, models=tuple(subjects)
        )
        if before := manifest.stop_when:
            if msgspec.structs.replace(before, held=None, answers={}, limits={}) != self._asked:
                raise InputError(
                    f"--stop-when: the run was asked {before.question!r} at --confidence"
                    f" {before.confidence:g} of {', '.join(before.models)}; a run has one"
                    " question, of the same models: repeat it, or choose a new"
                    " --out"
                )
            self._asked = before
        self._error = (1 - confidence) / len(question.subjects)
        self._tests = {
            name: _SequentialTest(question, models, self._error / 2, self._asked.answers.get(name))
            for name, models in question.subjects.items()
        }

    def impossible(self) -> list[str]:
        """Return the answers that no outcome of this number of prompt-sets can give."""
        threshold = self.question.scale(self.question.threshold)
        units = [
            [set_id for set_id in unit if self._has(set_id)] for unit in self._unit_at.values()
        ]
        return [
            f"--stop-when: {pluralize(sum(map(len, units)), 'prompt-set')} cannot give the answer"
            f" {answer!r}, at any result: {n * self._largest:,} are needed"
            for answer, n in zip(("yes", "no"), fewest(threshold, self._error / 2), strict=True)
            if n > sum(map(bool, units))
        ]

    def begin(
        self, manifest: Manifest, save: Callable[[Manifest], None], work: Sequence[ModelWork]
    ) -> list[ModelWork]:
        """Store the question before the first call, and from now on each answer as it comes.

        Args:
            manifest: of the run.
            save: stores it.
            work: the remaining tasks; earlier ones are in the run.

        Returns:
            The work set by set, each prompt to be asked only if it is needed when its turn comes.
        """
        self.manifest, self._save = manifest, save
        if self._asked.held is None:
            stored_sets = Counter(model for (model, _), graded in self._graded.items() if graded)
            self._asked = msgspec.structs.replace(self._asked, held=dict(stored_sets))
        self.conclude()
        return [
            msgspec.structs.replace(
                item,
                tasks=sorted(item.tasks, key=lambda task: self._place[task.set_id]),
                wanted=self._is_wanted,
            )
            for item in work
        ]

    def take(self, graded: GradedResponse) -> None:
        """Take a response whose calls have all ended; a follow-up answers no question."""
        if is_follow_up(graded.variant):
            return
        self._graded[graded.model, graded.set_id].append(graded)
        for test in self._tests.values():
            if graded.model in test.models:
                self._advance(test)

    def _list_tests(self, model: str) -> list[_SequentialTest]:
        """Return the tests that a model takes part in; a baseline beside the models goes on until
        all of them have ended.
        """
        tests = list(self._tests.values())
        return [test for test in tests if model in test.models] or tests

    def _is_wanted(self, task: Task) -> bool:
        index = self._place[task.set_id]
        return any(
            test.answer is None or index < test.answer.sets for test in self._list_tests(task.model)
        )

    def _advance(self, test: _SequentialTest) -> None:
        """Take up the prompt-sets that follow and whose calls have all ended, a family at once. Its
        value is the mean over its sets, and its weight their number over that of the largest one:
        the question is about the mean over sets.
        """
        while test.answer is None and test.sets < len(self._order):
            unit = self._unit_at[test.sets]
            if any(
                len(self._graded[model, set_id]) < self._due[model, set_id]
                for model in test.models
                for set_id in unit
            ):
                return
            test.sets += len(unit)
            limits = [limit for set_id in unit if (limit := self._limits(test, set_id))]
            if limits:
                least, greatest = (fmean(ends) for ends in zip(*limits, strict=True))
                test.values.append((least, greatest, len(limits) / self._largest))
                test.evidence.add(*test.values[-1])
            shown = test.evidence.verdict
            if shown is not None and test.missing <= self._max_missing * test.sets:
                test.answer = self._answer(test, "yes" if shown else "no")
                self.conclude()

    def _limits(self, test: _SequentialTest, set_id: str) -> tuple[float, float] | None:
        """Return the ends between which the value of a prompt-set lies, from 0 to 1; None if it has
        none.
        """
        if not self._has(set_id):
            return None
        values = [self._value(model, set_id) for model in test.models]
        test.missing += any(value.unknown for value in values)
        if any(isnan(value.least) for value in values):
            return None
        first, *compared = values
        ends = (
            first.least - sum(value.greatest for value in compared),
            first.greatest - sum(value.least for value in compared),
        )
        least, greatest = sorted(map(self.question.scale, ends))
        return least, greatest

    def _has(self, set_id: str) -> bool:
        """Whether a prompt-set has what the metric is of; else it lacks no grade."""
        return is_defined(self.question.metric, self._dataset.by_id[set_id])

    def _value(self, model: str, set_id: str) -> _Value:
        """Return the metric of one prompt-set."""
        dataset = Dataset(
            self._dataset.name, (self._dataset.by_id[set_id],), self._dataset.taxonomy
        )
        array = to_array(self._graded[model, set_id], dataset, [model])
        name = self.question.metric.name
        ratio = self.question.metric.compute_ratio(Grades(array))
        bounds = Completions(array, {name: ratio}).bounds[name]
        least, greatest = (float(end[0]) for end in bounds)
        return _Value(least, greatest, unknown=isnan(float(ratio.value.values[0])))

    def _answer(self, test: _SequentialTest, verdict: StopVerdict) -> StopAnswer:
        return StopAnswer(
            verdict=verdict,
            sets=test.sets,
            missing=test.missing,
            ci=self.question.unscale(confidence_sequence(test.values, self._error)),
        )

    @property
    def answers(self) -> dict[str, StopAnswer]:
        """The present answer about each model."""
        return {
            subject: test.answer or self._answer(test, "undecided")
            for subject, test in self._tests.items()
        }

    def conclude(self) -> Manifest:
        """Store the answers, and limit the models that need no more to the prompt-sets that
        decided; return the manifest.
        """
        # the ledger's content is still being read
        if self._save is None:
            return self.manifest
        limits = dict(self._asked.limits)
        for model in {model for model, _ in self._due}:
            tests = self._list_tests(model)
            answered = [test.answer.sets for test in tests if test.answer]
            held = (self._asked.held or {}).get(model, 0)
            if len(answered) == len(tests) and model not in limits:
                limits[model] = max(*answered, held, 0)
        self._asked = msgspec.structs.replace(self._asked, answers=self.answers, limits=limits)
        self.manifest = msgspec.structs.replace(self.manifest, stop_when=self._asked)
        self._save(self.manifest)
        return self.manifest

    def exit_codes(self) -> list[int]:
        """Return the exit code of every verdict."""
        return [
            {"yes": 0, "no": 4, "undecided": 5}[answer.verdict] for answer in self.answers.values()
        ]

    def lines(self) -> Iterable[str]:
        """Yield a line for each answer."""
        for subject, test in self._tests.items():
            answer = self.answers[subject]
            low, high = answer.ci
            what = "the difference" if len(test.models) > 1 else self.question.metric.name
            yield (
                f"{self.question.text}: {answer.verdict} for {' against '.join(test.models)}, after"
                f" {answer.sets:,} of {pluralize(len(self._order), 'prompt-set')}; {what} lies"
                f" between {low:.3g} and {high:.3g} ({100 * (1 - self._error):.4g} %"
                " confidence sequence)"
            )
        if self._asked.held:
            yield (
                f"--stop-when: the run held responses to {max(self._asked.held.values()):,}"
                " prompt-sets before the question was asked"
            )
