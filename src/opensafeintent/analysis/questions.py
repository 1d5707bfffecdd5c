"""The question that a run is to decide, as a user writes it, and the models that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import NamedTuple

from opensafeintent.calls.baselines import contenders
from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS
from opensafeintent.statistics.decisions import Question, decidable

__all__ = ["FORMS", "Match", "matches_of", "parse_question", "question_text"]

FORMS = ("METRIC >= X", "METRIC <= X", "MODEL better METRIC", "MODEL not worse than MODEL by X METRIC")
"""What can be asked. A model's name with spaces in it stands in quotes."""

_MODEL = r"""("[^"]+"|'[^']+'|[^\s"']+)"""
_THRESHOLD = re.compile(r"(\S+?)\s*(>=|<=|≥|≤)\s*(\S+)")
_BETTER = re.compile(rf"{_MODEL}\s+better\s+(\S+)")
_NOT_WORSE = re.compile(rf"{_MODEL}\s+not\s+worse\s+than\s+{_MODEL}\s+by\s+(\S+)\s+(\S+)")


class Match(NamedTuple):
    """What one decision of a question is about: a model, or a model against another."""

    model: str
    against: str | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """The one or two models."""
        return (self.model,) if self.against is None else (self.model, self.against)

    def __str__(self) -> str:
        return self.model if self.against is None else f"{self.model} against {self.against}"


def parse_question(text: str, models: Sequence[str]) -> Question:
    """Return the question that a text asks of models that are evaluated together.

    Raises:
        InputError: it is in none of the `FORMS`, or names a metric that there is not or that cannot be decided on, a model
            that is not evaluated, or a number out of range.
    """
    text = text.strip()
    if found := _NOT_WORSE.fullmatch(text):
        model, against = (_model(name, models) for name in found.groups()[:2])
        metric = _metric(found[4], paired=True)
        if model == against:
            raise _wrong(f"{model!r} stands on both sides; expected two models")
        low, high = METRICS[metric].span
        margin = _number(found[3])
        if not 0 <= margin < high - low:
            raise _wrong(f"the margin is {found[3]}; expected a number from 0 to below {high - low:g}")
        return Question(metric=metric, kind="not_worse", model=model, against=against, margin=margin)
    if found := _BETTER.fullmatch(text):
        return Question(metric=_metric(found[2], paired=True), kind="better", model=_model(found[1], models))
    if found := _THRESHOLD.fullmatch(text):
        metric, threshold = _metric(found[1], paired=False), _number(found[3])
        if not 0 < threshold < 1:
            raise _wrong(f"the threshold is {found[3]}; expected a number between 0 and 1, neither of them")
        return Question(metric=metric, kind="at_least" if found[2] in (">=", "≥") else "at_most", threshold=threshold)
    raise _wrong(f"cannot read {one_line(text, 200)!r}; expected {', '.join(map(repr, FORMS[:-1]))} or {FORMS[-1]!r}")


def question_text(question: Question) -> str:
    """Return a question in the one form that `parse_question` reads as the same question."""
    match question.kind:
        case "not_worse":
            names = f"{_quoted(question.model)} not worse than {_quoted(question.against)}"
            return f"{names} by {question.margin!r} {question.metric}"
        case "better":
            return f"{_quoted(question.model)} better {question.metric}"
        case kind:
            return f"{question.metric} {'>=' if kind == 'at_least' else '<='} {question.threshold!r}"


def matches_of(question: Question, models: Iterable[str]) -> tuple[Match, ...]:
    """Return what a question asks: of every model, or of the one named against every other. Baselines are left aside.

    Where there are no other models than baselines, it is asked of them.

    Raises:
        InputError: there is no other model.
    """
    if question.kind == "not_worse":
        return (Match(str(question.model), question.against),)
    names = list(dict.fromkeys(models))
    asked = contenders(names)
    if question.kind != "better":
        return tuple(map(Match, asked))
    others = [name for name in asked if name != question.model] or [name for name in names if name != question.model]
    if not others:
        raise _wrong(f"there is nothing that {question.model} could be better than; name another model to evaluate")
    return tuple(Match(str(question.model), other) for other in others)


def _wrong(what: str) -> InputError:
    return InputError(f"--decide: {what}")


def _model(text: str, models: Sequence[str]) -> str:
    name = text[1:-1] if text[0] in "\"'" else text
    if name not in models:
        raise _wrong(f"the question names {one_line(name, 200)!r}, which is not evaluated here; {nearest(name, models)}")
    return name


def _metric(name: str, *, paired: bool) -> str:
    can = decidable(paired=paired)
    if name in can:
        return name
    if name not in METRICS:
        raise _wrong(f"no such metric: {one_line(name, 200)!r}; {nearest(name, can)}")
    of = "two models" if paired else "a threshold"
    raise _wrong(f"{name} is none of the metrics that can be decided on for {of}: {', '.join(can)}")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise _wrong(f"{one_line(text, 60)!r} is not a number; expected one such as 0.8")
    return number


def _quoted(name: str | None) -> str:
    assert name is not None
    if not re.search(r"""[\s"']""", name):
        return name
    return f"'{name}'" if '"' in name else f'"{name}"'
