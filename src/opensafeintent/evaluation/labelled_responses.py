"""Responses that people labelled, and the calls with which judges grade them.

A judge is asked about each response exactly as in an evaluation: same templates, same sampling,
same re-asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.pipeline import Given, JudgePlan, ModelWork, Task
from opensafeintent.ratings import Ratings
from opensafeintent.taxonomy import METRIC_GRADES, Graded, ParseRule
from opensafeintent.templates import Templates, request_hidden

UNSAFE = "unsafe"
"""The scale on which people call a response unsafe, 1, or safe, 0."""


class LabelledResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response that somebody labelled."""

    location: str
    """Of its row, the first if there are several."""
    prompt: str
    """Empty if the file has none."""
    response: str
    group: str


class LabelledFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file of labelled responses."""

    name: str
    sha256: str
    responses: tuple[LabelledResponse, ...]
    ratings: Ratings
    """Of the responses, in their order: 1 on `UNSAFE` if a person calls one unsafe, 0 if safe; and
    grades by question.
    """
    unlabelled: int
    """Rows that are left out because nobody called them safe or unsafe."""
    unread: tuple[str, ...] = ()
    """Fields that are of no use here."""

    @property
    def rated(self) -> tuple[Graded, ...]:
        """The grades that people gave."""
        return tuple(grade for grade in METRIC_GRADES if grade in self.ratings.scales)

    @property
    def grades(self) -> tuple[Graded, ...]:
        """The grades that judges have to give to be compared with people."""
        wanted = {"harm_severity", *self.rated}
        return tuple(grade for grade in METRIC_GRADES if grade in wanted)


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
