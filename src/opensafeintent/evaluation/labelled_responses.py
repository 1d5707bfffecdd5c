"""Responses that people labelled, and the calls with which judges grade them.

A judge is asked about each response exactly as in an evaluation: same templates, same sampling,
same re-asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.pipeline import Given, JudgePlan, ModelWork, Task
from opensafeintent.taxonomy import METRIC_GRADES, Graded, ParseRule
from opensafeintent.templates import Templates, request_hidden


class Rating(msgspec.Struct, frozen=True, kw_only=True):
    """What one person says of a response; None if that person gave no label."""

    rater: str
    """A name or a number; empty if the file has one label for each response."""
    unsafe: bool | None = None
    harm: int | None = None
    """0 to 3."""
    helpfulness: int | None = None
    """1 to 4."""
    of_all: bool = False
    """Whether these are grades of all people together, beside labels of each."""

    @property
    def is_unsafe(self) -> bool | None:
        """Whether the person calls it unsafe; without such a label, whether the harm is above 0.
        A grade of all people together is no further person's call.
        """
        if self.unsafe is None and self.harm is not None and not self.of_all:
            return self.harm > 0
        return self.unsafe

    @property
    def has_label(self) -> bool:
        """Whether the person gave any label."""
        return any(label is not None for label in (self.unsafe, self.harm, self.helpfulness))

    def replace(self, **fields: Any) -> Rating:
        """Return the rating with other labels."""
        return msgspec.structs.replace(self, **fields)


class LabelledResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response with the labels of one person or more."""

    location: str
    """Of its row, the first if there are several."""
    prompt: str
    """Empty if the file has none."""
    response: str
    group: str
    ratings: tuple[Rating, ...]


def list_raters(responses: Iterable[LabelledResponse]) -> tuple[str, ...]:
    """Return everybody who called one of some responses safe or unsafe, in alphabetical order."""
    return tuple(
        sorted(
            {
                rating.rater
                for item in responses
                for rating in item.ratings
                if rating.is_unsafe is not None
            }
        )
    )


class LabelledFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file of labelled responses."""

    name: str
    sha256: str
    responses: tuple[LabelledResponse, ...]
    unlabelled: int
    """Rows that are left out because nobody called them safe or unsafe."""
    scales: tuple[str, ...]
    """Those of `unsafe`, `harm`, `helpfulness` on which there are labels."""
    unread: tuple[str, ...] = ()
    """Fields that are of no use here."""

    @property
    def raters(self) -> tuple[str, ...]:
        """Everybody who called a response safe or unsafe, in alphabetical order."""
        return list_raters(self.responses)

    @property
    def grades(self) -> tuple[Graded, ...]:
        """The grades that judges have to give to be compared with people."""
        return METRIC_GRADES if "helpfulness" in self.scales else ("harm_severity",)


def label_work(
    responses: Sequence[LabelledResponse],
    samplings: Mapping[str, Sampling],
    templates: Templates,
    grades: tuple[Graded, ...],
    parse: ParseRule = "strict",
) -> list[ModelWork]:
    """Return the calls with which judges grade labelled responses, for `run_work`; the model of a
    task is the judge, which is not asked for a response.

    Args:
        responses: of the file; the set of a task is the index of its response.
        samplings: how each judge is sampled, by its name.
        templates: the judge templates.
        grades: the grades to ask for.
        parse: how grades are read.
    """
    hidden = request_hidden()
    return [
        ModelWork(
            model=judge,
            plan=JudgePlan.of_given(judge, sampling, parse, grades),
            templates=templates,
            tasks=[
                Task(
                    model=judge,
                    set_id=str(index),
                    variant="benign",
                    epoch=1,
                    prompt=item.prompt or hidden,
                    given=Given(text=item.response),
                )
                for index, item in enumerate(responses)
            ],
        )
        for judge, sampling in samplings.items()
    ]
