"""`--stop-when`: no more prompt-sets than a question about the models needs (docs/stop-when.md).

Prompt-sets count in the order of `promptsets.sample_order`, as a prefix of those whose calls have all ended: slow answers
cannot decide which ones do. A model whose question is answered keeps the prefix that
answered it, as if `--limit` had named it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Literal, NamedTuple

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.manifest import Answer, Manifest, StopQuestion
from opensafeintent.evaluation.pipeline import ModelWork, Task
from opensafeintent.evaluation.records import GradedResponse
from opensafeintent.grades import grade_row, to_array
from opensafeintent.metrics import METRICS, Grades, Metric
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics.sequential import Evidence, confidence_sequence, fewest

__all__ = ["Question", "StopWhen", "read_question"]


class Question(NamedTuple):
    """What is asked: of a model's metric and a threshold, or of a model and each of the others."""

    text: str
    metric: Metric
    at_least: bool
    threshold: float
    better: str | None
    """The model that is asked to be better; None if a threshold is asked about."""

    def subjects(self, models: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the models whose values each answer rests on, by the model that it is an answer about."""
        if self.better is None:
            return {model: (model,) for model in models}
        return {model: (self.better, model) for model in models if model != self.better}

    def scaled(self, values: Sequence[float]) -> float:
        """Return a set's value, or the difference of two, as a number from 0 to 1."""
        low, high = self.metric.span
        if self.better is None:
            return (values[0] - low) / (high - low)
        sign = -1 if self.metric.less_is_better else 1
        return (sign * (values[0] - values[1]) / (high - low) + 1) / 2

    @property
    def scaled_threshold(self) -> float:
        """The threshold as a number from 0 to 1."""
        low, high = self.metric.span
        return 0.5 if self.better is not None else (self.threshold - low) / (high - low)

    def unscaled(self, interval: tuple[float, float]) -> tuple[float, float]:
        """Return an interval of numbers from 0 to 1 as one of the metric, or of how much better the first model is."""
        low, width = self.metric.span[0], self.metric.span[1] - self.metric.span[0]
        start, end = interval
        if self.better is None:
            return low + width * start, low + width * end
        return (2 * start - 1) * width, (2 * end - 1) * width


def read_question(text: str, models: Sequence[str]) -> Question:
    """Read `METRIC >= X`, `METRIC <= X` or `MODEL better METRIC`.

    Raises:
        InputError: it is none of these, or nobody could answer it.
    """
    said = f"--stop-when {text!r}"
    if found := re.fullmatch(r"\s*(\S+?)\s*([<>]=)\s*(\S+)\s*", text):
        name, sign, number = found.groups()
        better = None
        try:
            threshold = float(number)
        except ValueError:
            raise InputError(f"{said}: {number} is no number") from None
    elif found := re.fullmatch(r"\s*(\S+)\s+better\s+(\S+)\s*", text):
        (better, name), sign, threshold = found.groups(), ">=", 0.0
        if better not in models:
            raise InputError(f"{said}: {better} is not evaluated; {nearest(better, models)}")
        if len(models) < 2:
            raise InputError(f"{said}: there is no other model to compare with; name one more")
    else:
        raise InputError(f"{said}: expected 'METRIC >= X', 'METRIC <= X' or 'MODEL better METRIC'")
    if name not in METRICS:
        raise InputError(f"{said}: unknown metric {name!r}; {nearest(name, METRICS)}")
    metric = METRICS[name]
    low, high = metric.span
    if metric.conditional:
        raise InputError(f"{said}: {name} is no mean over all prompt-sets; a question needs one that is")
    if better is not None and metric.neutral:
        raise InputError(f"{said}: neither more nor less of {name} is better")
    if better is None and not low < threshold < high:
        raise InputError(f"{said}: expected a number above {low:g} and below {high:g}")
    return Question(text.strip(), metric, sign == ">=", threshold, better)


class _Test:
    """The evidence for one answer."""

    def __init__(self, question: Question, error: float) -> None:
        self.evidence = Evidence(question.scaled_threshold, error)
        self.values: list[float] = []
        self.sets = 0
        """Prompt-sets of the prefix, those without a value included."""
        self.answer: Answer | None = None


class StopWhen:
    """Follows a run's graded responses, and tells which models need no more of them.

    Args:
        question: what is asked.
        manifest: of the run.
        dataset: its prompt-sets.
        work: what is to be done, each model's tasks set by set.
        confidence: the probability of a wrong answer is 1 − this at most, over all models.
        max_missing: nothing is decided while a greater share of the prefix has no value.

    Raises:
        InputError: the run was asked another question.
    """

    def __init__(
        self,
        question: Question,
        manifest: Manifest,
        dataset: Dataset,
        work: Sequence[ModelWork],
        *,
        confidence: float,
        max_missing: float,
    ) -> None:
        self.question = question
        self._dataset, self._confidence, self._max_missing = dataset, confidence, max_missing
        self._mode_judges = {model: entry.mode_judge for model, entry in manifest.models.items()}
        self._subjects = question.subjects([item.model for item in work])
        self._error = (1 - confidence) / len(self._subjects)
        self._order = list(dict.fromkeys(task.set_id for item in work for task in item.tasks))
        self._waiting: dict[tuple[str, str], int] = defaultdict(int)
        for item in work:
            for task in item.tasks:
                self._waiting[item.model, task.set_id] += 1
        self._graded: dict[tuple[str, str], list[GradedResponse]] = defaultdict(list)
        self._tests = {subject: _Test(question, self._error / 2) for subject in self._subjects}
        self._held = self._asked_before(manifest)

    def _asked_before(self, manifest: Manifest) -> int | None:
        """Take up the answers that the run has; return how many prompt-sets it held when the question was asked."""
        before = manifest.stop_when
        if before is None:
            return None
        if (before.question, before.confidence) != (self.question.text, self._confidence):
            asked = f"{before.question!r} at --confidence {before.confidence:g}"
            raise InputError(
                f"--stop-when: the run was asked {asked}; a run has one question: repeat it, or choose a new --out"
            )
        for subject, answer in before.answers.items():
            if subject in self._tests:
                self._tests[subject].answer = answer
        return before.held

    def impossible(self) -> list[str]:
        """Say which answers no outcome of so many prompt-sets can give."""
        needed = dict(zip(("yes", "no"), fewest(self.question.scaled_threshold, self._error / 2), strict=True))
        if not self.question.at_least:
            needed = {"yes": needed["no"], "no": needed["yes"]}
        return [
            f"--stop-when: {len(self._order)} prompt-sets cannot give the answer {answer!r}, whatever they show: "
            f"{n} are needed"
            for answer, n in needed.items()
            if n > len(self._order)
        ]

    def begun(self) -> None:
        """Take what was graded so far for what the run held when the question was asked, if it is asked now."""
        if self._held is None:
            self._held = len({set_id for (_, set_id), graded in self._graded.items() if graded})

    def take(self, graded: GradedResponse) -> None:
        """Take a response whose calls have all ended."""
        self._graded[graded.key.model, graded.key.set_id].append(graded)
        for subject, models in self._subjects.items():
            if graded.key.model in models:
                self._advance(subject, models)

    def wants(self, task: Task) -> bool:
        """Whether a task is still needed: no answer that rests on its model has been found on a prefix without its set."""
        answers = [self._tests[subject].answer for subject, models in self._subjects.items() if task.model in models]
        ends = [answer.sets for answer in answers if answer is not None]
        return len(ends) < len(answers) or task.set_id in self._order[: max(ends)]

    def _advance(self, subject: str, models: Sequence[str]) -> None:
        """Take up the prompt-sets that follow and whose calls have all ended."""
        test = self._tests[subject]
        while test.answer is None and test.sets < len(self._order):
            set_id = self._order[test.sets]
            if any(len(self._graded[model, set_id]) < self._waiting[model, set_id] for model in models):
                return
            test.sets += 1
            values = [self._value(model, set_id) for model in models]
            if not any(map(isnan, values)):
                test.values.append(self.question.scaled(values))
                test.evidence.add(test.values[-1])
            above, missing = test.evidence.verdict, test.sets - len(test.values)
            if above is not None and missing <= self._max_missing * test.sets:
                verdict: Literal["yes", "no"] = "yes" if above == self.question.at_least else "no"
                test.answer = Answer(verdict=verdict, sets=test.sets, missing=missing, ci=self._limits(test))

    def _value(self, model: str, set_id: str) -> float:
        """Return the metric of one prompt-set; NaN if it is not defined there."""
        rows = (grade_row(graded, self._mode_judges[model]) for graded in self._graded[model, set_id])
        one = Dataset(self._dataset.name, (self._dataset.by_id[set_id],), self._dataset.taxonomy)
        return float(self.question.metric.ratio(Grades(to_array(rows, one, [model]))).value.values[0])

    def _limits(self, test: _Test) -> tuple[float, float]:
        return self.question.unscaled(confidence_sequence(test.values, self._error))

    def exit_codes(self) -> set[int]:
        """Return the exit code of every answer: 0 yes, 4 no, 5 undecided."""
        return {{"yes": 0, "no": 4}[test.answer.verdict] if test.answer else 5 for test in self._tests.values()}

    def concluded(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the answers, and each answered model's prompt-sets limited to those that answered it."""
        answers = {subject: test.answer for subject, test in self._tests.items() if test.answer}
        before = manifest.stop_when.answers if manifest.stop_when else {}
        entries = dict(manifest.models)
        for model, sets in self._ends().items():
            entries[model] = msgspec.structs.replace(entries[model], limit=sets)
        asked = StopQuestion(
            question=self.question.text, confidence=self._confidence, held=self._held or 0, answers=before | answers
        )
        return msgspec.structs.replace(manifest, models=entries, stop_when=asked)

    def _ends(self) -> Mapping[str, int]:
        """Return how many prompt-sets each model is done with; those that are not are left out."""
        found: dict[str, list[int | None]] = defaultdict(list)
        for subject, models in self._subjects.items():
            answer = self._tests[subject].answer
            for model in models:
                found[model].append(answer.sets if answer else None)
        return {model: max(filter(None, ends)) for model, ends in found.items() if None not in ends}

    def lines(self) -> Iterable[str]:
        """Yield what is to be said of each answer."""
        for subject, test in self._tests.items():
            about = f"{self.question.better} against {subject}" if self.question.better else subject
            low, high = test.answer.ci if test.answer else self._limits(test)
            sets = test.answer.sets if test.answer else test.sets
            verdict = test.answer.verdict if test.answer else "undecided"
            what = "the difference" if self.question.better else self.question.metric.name
            level = f"{100 * (1 - self._error):.4g} %"
            yield (
                f"{self.question.text}: {verdict} for {about}, after {sets} of {len(self._order)} prompt-sets; "
                f"{what} lies between {low:.3g} and {high:.3g} ({level} confidence sequence)"
            )
        if self._held:
            yield f"--stop-when: the run held responses to {self._held} prompt-sets before the question was asked"
