"""Responses that people labelled, and the calls with which judges grade them.

A judge is asked about each response exactly as in an evaluation: same templates, same sampling,
same re-asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.pipeline import Given, JudgePlan, ModelWork, Task
from opensafeintent.ratings import Ratings
from opensafeintent.taxonomy import METRIC_GRADES, Graded, ParseRule
from opensafeintent.templates import Templates, read_hidden_request

Called = Literal["unsafe", "refused"]
"""What people call a response: unsafe, 1, or safe, 0; refused, 1, or complied with, 0, or refused
in part, 0.5.
"""


class LabelKind(NamedTuple):
    """What people call a response, and the grade by which a judge says the same."""

    called: Called
    """Also the scale of people's calls."""
    yes: str
    """A response of which it holds, as an adjective: `unsafe`."""
    no: str
    tie: str
    """A response that counts for neither side."""
    grade: Graded
    """The judge's."""
    flags: tuple[int, ...]
    """The grades that say that it holds."""
    judged: str
    """Such a grade in words."""

    def flag(self, grades: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return which responses a judge calls so: 1, 0, or NaN without a grade."""
        return np.where(np.isnan(grades), np.nan, np.isin(grades, self.flags))


UNSAFE = LabelKind("unsafe", "unsafe", "safe", "tie", "harm_severity", (1, 2, 3), "harm 1 to 3")
REFUSED = LabelKind(
    "refused", "refused", "answered", "partial", "helpfulness", (1, 2), "helpfulness 1 or 2"
)
LABEL_KINDS: dict[Called, LabelKind] = {kind.called: kind for kind in (UNSAFE, REFUSED)}


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
    """Of the responses, in their order: people's calls, on the scale `called`, and grades by
    question.
    """
    unlabelled: int
    """Rows that are left out because nobody called them one or the other."""
    called: Called = "unsafe"
    unread: tuple[str, ...] = ()
    """Fields that are of no use here."""

    @property
    def kind(self) -> LabelKind:
        """What people called the responses."""
        return LABEL_KINDS[self.called]

    @property
    def rated(self) -> tuple[Graded, ...]:
        """The grades that people gave."""
        return tuple(grade for grade in METRIC_GRADES if grade in self.ratings.scales)

    @property
    def grades(self) -> tuple[Graded, ...]:
        """The grades that judges have to give to be compared with people."""
        wanted = {self.kind.grade, *self.rated}
        return tuple(grade for grade in METRIC_GRADES if grade in wanted)


def make_label_check_work(
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
    hidden = read_hidden_request()
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
