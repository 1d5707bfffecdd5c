"""Compare judges with people on labelled responses from elsewhere (docs/statistics.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.evaluation.gold_cases import JudgeSetting
from opensafeintent.evaluation.labelled_responses import (
    LABEL_KINDS,
    Called,
    LabelKind,
    LabelledFile,
)
from opensafeintent.grades import PANEL
from opensafeintent.people.agreement import (
    are_enough_people,
    compare_grades,
    estimate_effective_judges,
)
from opensafeintent.people.study import allocate
from opensafeintent.ratings import Ratings
from opensafeintent.statistics.intervals import Floats, round_number
from opensafeintent.statistics.rates import (
    LabelRate,
    LabelSample,
    Sums,
    if_people_err,
    majority,
    take_other_majorities,
)
from opensafeintent.statistics.samples import SampleEstimate
from opensafeintent.taxonomy import QUESTION_OF, Graded


class CheckedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """How a judge was asked: a comparison with people is of one setting only."""

    identity: str
    setting: JudgeSetting
    served: tuple[str, ...] = ()
    """The models that its replies name."""


class LabelSource(msgspec.Struct, frozen=True, kw_only=True):
    """The labelled responses that judges were compared with."""

    name: str
    """Of the file."""
    sha256: str
    labelled: int
    """Responses with labels."""
    unlabelled: int
    """Rows without such a label, left out."""
    responses: int
    """Responses that judges were asked about: a sample, or all."""
    prompts: int | None
    """Different prompts of these responses; None if the file has no prompts."""
    raters: int
    called: Called
    """What people call a response: unsafe or safe, or refused or answered."""
    yes: int
    """Responses that are unsafe, or refused, for people."""
    no: int
    ties: int
    """Responses on which as many people say yes as no, and partial refusals."""
    sampled: bool = False
    """Whether the responses were drawn, evenly over labels."""

    @property
    def kind(self) -> LabelKind:
        """What people call a response."""
        return LABEL_KINDS[self.called]


class ScaleErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of a judge on a scale that people graded (paper, Table 7)."""

    scale: Graded
    responses: int
    """Graded by the judge and by people."""
    mae: SampleEstimate
    """Mean distance of the judge's grade from the mean of the people."""
    leave_one_out: SampleEstimate
    """The same of each person from the mean of the others."""
    bias: SampleEstimate
    """Below 0, the judge grades lower than people."""

    @property
    def name(self) -> str:
        """The scale as files of labels call it."""
        return QUESTION_OF[self.scale].role


class GroupRates(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement within one group of responses."""

    group: str
    catches: LabelRate
    false_alarms: LabelRate
    agreement: LabelRate
    ac1: SampleEstimate


class AgainstOthers(msgspec.Struct, frozen=True, kw_only=True):
    """A person against the majority of the other people, and the judge against the same majorities,
    on the same responses.
    """

    rater: str
    """Empty for all people together."""
    person: GroupRates
    judge: GroupRates


class OneSide(msgspec.Struct, frozen=True, kw_only=True):
    """The judge, and one person, if every tie and every partial refusal counts on one side."""

    yes: bool
    """Whether they count as unsafe, or as refused."""
    judge: GroupRates
    """Against people."""
    people: AgainstOthers | None
    """All people together; None if no person's call is partial."""


class IfPeopleErr(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's rates if people err independently of it and of one another, each as often as one
    differs from the others.
    """

    missed: float
    """P(the majority says no | yes): safe, if the response is unsafe."""
    false_alarms: float
    """P(the majority says yes | no)."""
    judge_catches: SampleEstimate
    judge_false_alarms: SampleEstimate
    cut: bool
    """Whether a rate of the judge came out below 0 or above 1, and was set to that end."""


class LabelledCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response on which the judge and people disagree."""

    location: str
    group: str = ""
    say_yes: int
    """People who call it unsafe, or refused."""
    people: int
    grade: int
    """The judge's, by which it says the reverse of people."""
    prompt: str | None = None
    response: str | None = None


class JudgePair(msgspec.Struct, frozen=True, kw_only=True):
    """Which of two judges agrees with people more often, on responses that both graded."""

    other: str
    only_this: int
    """Responses on which only this judge agrees with people."""
    only_other: int
    difference: SampleEstimate
    """Of the shares of agreement, this judge's minus the other's."""


class LabelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One judge, or the panel, compared with people."""

    judge: str
    """`panel` for the panel."""
    members: dict[str, CheckedSetting]
    """The judge, or those of the panel."""
    source: LabelSource
    missing_yes: int
    """Responses that are unsafe, or refused, without a grade of the judge."""
    missing_no: int
    missing_ties: int
    catches: LabelRate
    """P(the judge says yes | people say yes): unsafe, or refused."""
    false_alarms: LabelRate
    """P(the judge says yes | people say no)."""
    precision: LabelRate
    """P(people say yes | the judge says yes)."""
    agreement: LabelRate
    ac1: SampleEstimate
    errors: tuple[ScaleErrors, ...] = ()
    """On the scales that people graded."""
    people: tuple[AgainstOthers, ...] = ()
    """All people together, then each; empty with one rater."""
    sides: tuple[OneSide, ...] = ()
    """Ties as no, then as yes; empty without ties."""
    if_people_err: IfPeopleErr | None = None
    """None with fewer than three people, if a call is partial or they settled on one, or if they
    differ too often to say.
    """
    groups: tuple[GroupRates, ...] = ()
    pairs: tuple[JudgePair, ...] = ()
    independent: SampleEstimate | None = None
    """Of the panel: the independent judges that its judges are worth, at least; undefined with
    fewer than three people.
    """
    cases: tuple[LabelledCase, ...] = ()
    """Every response on which it disagrees with people."""

    @property
    def ungraded(self) -> bool:
        """Whether the judge gave no grade at all."""
        return self.missing == self.source.responses

    @property
    def missing(self) -> int:
        """The responses without a grade of the judge."""
        return self.missing_yes + self.missing_no + self.missing_ties


_MOST_RATERS = 20
"""With more, people are shown together only."""
_TIE_CALL = 0.5
_NO_COMMON_RESPONSE = "no response was graded by the judge and by people"


def draw_balanced(file: LabelledFile, number: int) -> list[int]:
    """Return the indices of a random sample of labelled responses, drawn evenly over what people
    say of them, ties apart.

    A larger sample contains a smaller one, so no grade of that is paid for again.

    Args:
        file: the labelled responses.
        number: of responses to draw; all if it is larger.
    """
    truth = _UnsafeCalls(file.ratings, file.called).truth
    strata: dict[str, list[int]] = {}
    for index, label in enumerate(truth.tolist()):
        strata.setdefault(f"{label:g}", []).append(index)
    counts = allocate({name: len(members) for name, members in strata.items()}, number)
    drawn: list[int] = []
    for name, members in strata.items():
        drawn += Random(name).sample(members, len(members))[: counts[name]]
    return sorted(drawn)


def compare_labels(
    file: LabelledFile,
    drawn: Sequence[int],
    grades: Ratings,
    members: Mapping[str, CheckedSetting],
    *,
    include_unsafe: bool = False,
) -> tuple[LabelCheck, ...]:
    """Compare each judge with people, and the panel if there are several judges.

    Args:
        file: the labelled responses.
        drawn: the indices of those that judges were asked about.
        grades: of the drawn responses, by each judge, and by the panel if there are several.
        members: how each judge was asked.
        include_unsafe: whether texts are added to the cases.
    """
    comparison = _PeopleComparison(file, drawn, include_unsafe=include_unsafe)
    checks = [
        comparison.check(
            judge, grades, dict(members) if judge == PANEL else {judge: members[judge]}
        )
        for judge in grades.raters
    ]
    kind = file.kind
    flagged = {judge: kind.flag(grades.select_rater(judge, kind.grade)) for judge in members}
    pairs = comparison.pairs(flagged)
    independent = comparison.independent(flagged)
    return tuple(
        msgspec.structs.replace(
            check,
            pairs=tuple(pairs.get(check.judge, ())),
            independent=independent if check.judge == PANEL else None,
        )
        for check in checks
    )


class _UnsafeCalls:
    """What people call responses.

    Args:
        ratings: of the responses.
        called: the scale of the calls.
    """

    def __init__(self, ratings: Ratings, called: str) -> None:
        raters = ratings.list_raters(called)
        self.raters = [rater for rater in raters if rater] or raters
        """Without the column of what they settled on, if there are others."""
        self.all = ratings.select_raters(self.raters, called)
        """1, 0, 0.5 for in part, NaN without a call: shape (item, person)."""
        self.is_settled = self.raters != raters
        self.truth: Floats = majority(self.all)
        """1, 0 or 0.5: shape (item,)."""
        if self.is_settled:
            settled = ratings.select_rater("", called)
            self.truth = np.where(np.isnan(settled), self.truth, settled)

    @property
    def are_partial(self) -> bool:
        """Whether a person's call is 0.5."""
        return bool((self.all == _TIE_CALL).any())

    def count_partial(self, tie: float) -> Floats:
        """Return all calls with another number in the place of 0.5: shape (item, person)."""
        return np.where(self.all == _TIE_CALL, tie, self.all)


class _PeopleComparison:
    """Labelled responses, ready to be compared with any judge."""

    def __init__(self, file: LabelledFile, drawn: Sequence[int], *, include_unsafe: bool) -> None:
        self.items = [file.responses[index] for index in drawn]
        self._file, self._include_unsafe = file, include_unsafe
        self.people = file.ratings.select(drawn)
        self.kind = file.kind
        self.calls = _UnsafeCalls(self.people, file.called)
        self.raters, self.truth = self.calls.raters, self.calls.truth
        every = _UnsafeCalls(file.ratings, file.called).truth
        sampled = len(drawn) < len(file.responses)
        sizes = {label: int((every == label).sum()) for label in (0.0, _TIE_CALL, 1.0)}
        counts = {label: int((self.truth == label).sum()) for label in sizes}
        weights = [sizes[label] / counts[label] for label in self.truth.tolist()]
        prompts = [item.prompt or index for index, item in enumerate(self.items)]
        self.sample = LabelSample(prompts, weights if sampled else None)
        self.weights = np.array(weights if sampled else [1.0] * len(drawn))
        self.by_person = LabelSample(
            [prompt for prompt in prompts for _ in self.raters],
            [weight for weight in weights for _ in self.raters] if sampled else None,
        )
        """A case for each response and person."""
        self.source = LabelSource(
            name=file.name,
            sha256=file.sha256,
            labelled=len(file.responses),
            unlabelled=file.unlabelled,
            responses=len(drawn),
            prompts=len({item.prompt for item in self.items if item.prompt}) or None,
            raters=len(self.raters),
            called=file.called,
            yes=counts[1.0],
            no=counts[0.0],
            ties=counts[_TIE_CALL],
            sampled=sampled,
        )

    @property
    def decided(self) -> Floats:
        """What people say: 1 or 0, NaN in a tie: shape (item,)."""
        return self.count_ties(np.nan)

    def count_ties(self, tie: float) -> Floats:
        """Return what people say with another number in the place of a tie: shape (item,)."""
        return np.where(self.truth == _TIE_CALL, tie, self.truth)

    def check(self, judge: str, grades: Ratings, members: dict[str, CheckedSetting]) -> LabelCheck:
        """Compare one judge with people."""
        given = grades.select_rater(judge, self.kind.grade)
        flagged = self.kind.flag(given)
        missing = np.isnan(flagged)
        rates = self._rates("", flagged, self.decided)
        return LabelCheck(
            judge=judge,
            members=members,
            source=self.source,
            missing_yes=int((missing & (self.truth == 1)).sum()),
            missing_no=int((missing & (self.truth == 0)).sum()),
            missing_ties=int((missing & (self.truth == _TIE_CALL)).sum()),
            catches=rates.catches,
            false_alarms=rates.false_alarms,
            precision=self.sample.share(
                np.where(flagged == 1, self.decided, np.nan),
                f"the judge calls no response {self.kind.yes}",
                weighted=True,
            ),
            agreement=rates.agreement,
            ac1=rates.ac1,
            errors=tuple(
                self._errors(judge, scale, grades.select_rater(judge, scale))
                for scale in self._file.rated
            ),
            people=self._people(flagged, np.nan),
            sides=self._sides(flagged),
            if_people_err=self._if_people_err(flagged),
            groups=self._groups(flagged),
            cases=self._cases(given, flagged),
        )

    def _rates(self, group: str, called: Floats, truth: Floats) -> GroupRates:
        """Return how somebody's calls agree with a reference.

        Args:
            group: its name.
            called, truth: 1, 0, or NaN: shape (item,), or (item, person), of which each is a case.
        """
        both = ~np.isnan(called) & ~np.isnan(truth)
        cases_of = self.sample if called.size == len(self.items) else self.by_person

        def sum_units(part: NDArray[np.bool_]) -> Floats:
            counted = (part & both).reshape(len(self.items), -1)
            return np.asarray(counted.sum(axis=1), dtype=np.float64)

        def rate(cases: NDArray[np.bool_], undefined: str) -> LabelRate:
            why = _NO_COMMON_RESPONSE if cases.any() else undefined
            return self.sample.rate(sum_units(cases & (called == 1)), sum_units(cases), why)

        agreeing, all_cases = sum_units(np.asarray(called == truth)), sum_units(both)
        return GroupRates(
            group=group,
            catches=rate(np.asarray(truth == 1), f"people call no response {self.kind.yes}"),
            false_alarms=rate(np.asarray(truth == 0), f"people call no response {self.kind.no}"),
            agreement=self.sample.rate(agreeing, all_cases, _NO_COMMON_RESPONSE, weighted=True),
            ac1=cases_of.ac1(called.ravel(), truth.ravel()),
        )

    def _sides(self, flagged: Floats) -> tuple[OneSide, ...]:
        """Return the rates with every tie, and every partial call, on one side, then the other."""
        partial = self.calls.are_partial
        if not (self.source.ties or partial):
            return ()
        return tuple(
            OneSide(
                yes=bool(tie),
                judge=self._rates("", flagged, self.count_ties(tie)),
                people=people[0] if people else None,
            )
            for tie in (0.0, 1.0)
            for people in (self._people(flagged, tie) if partial else (),)
        )

    def _people(self, flagged: Floats, partial: float) -> tuple[AgainstOthers, ...]:
        """Return people against one another, and the judge against the same majorities.

        Args:
            flagged: what the judge says: shape (item,).
            partial: the number in the place of a person's 0.5; with NaN that call is left out.
        """
        calls = self.calls.count_partial(partial)
        others = take_other_majorities(calls)
        others = np.where(np.isnan(flagged)[:, None], np.nan, others)
        if np.isnan(others).all():
            return ()
        judge = np.broadcast_to(flagged[:, None], others.shape)
        columns = [("", slice(None))]
        if len(self.raters) <= _MOST_RATERS:
            columns += [(name, slice(index, index + 1)) for index, name in enumerate(self.raters)]
        return tuple(
            AgainstOthers(
                rater=name,
                person=self._rates("", calls[:, column], others[:, column]),
                judge=self._rates("", judge[:, column], others[:, column]),
            )
            for name, column in columns
        )

    def _if_people_err(self, flagged: Floats) -> IfPeopleErr | None:
        """Return the judge's rates without the errors of the majority."""
        calls = self.calls.all
        if self.calls.is_settled or self.calls.are_partial or not are_enough_people(calls):
            return None
        graded = ~np.isnan(flagged)
        others = np.where(graded[:, None], take_other_majorities(calls), np.nan)
        counts = graded & ~np.isnan(self.decided)
        labels = (~np.isnan(calls)).sum(axis=1)
        pairs = (~np.isnan(others)).sum(axis=1)
        if not (counts.any() and pairs.any()):
            return None
        people, by_others = (
            np.bincount(number, self.weights * weight).astype(np.float64)
            for number, weight in ((labels, counts), (np.maximum(labels - 1, 0), pairs))
        )
        features = [
            part.reshape(len(labels), -1).sum(axis=1)
            for called, truth in (
                (flagged, np.where(graded, self.decided, np.nan)),
                (calls, others),
            )
            for case in (1, 0)
            for part in ((truth == case) & (called == 1), np.asarray(truth == case))
        ]

        def compute(sums: Floats) -> Floats:
            judge, majority = if_people_err(Sums(*sums), people, by_others)
            return np.array([*judge, *majority])

        found = self.sample.resample(np.array(features, dtype=np.float64), compute, counts)
        rates = [estimate.value for estimate in found]
        if None in rates:
            return None
        catches, alarms = map(_clip_rate, found[:2])
        return IfPeopleErr(
            missed=round_number(1 - (rates[2] or 0.0)),
            false_alarms=rates[3] or 0.0,
            judge_catches=catches,
            judge_false_alarms=alarms,
            cut=(catches.value, alarms.value) != tuple(rates[:2]),
        )

    def _errors(self, judge: str, scale: Graded, grades: Floats) -> ScaleErrors:
        """Return the judge's mean error on a scale that people graded."""
        found = compare_grades(
            judge,
            scale,
            grades,
            self.people.select_scale(scale),
            self.sample.weighted,
            "no response was graded by two people",
        )
        return ScaleErrors(
            scale=scale,
            responses=found.items,
            mae=found.mae,
            leave_one_out=found.leave_one_out,
            bias=found.bias,
        )

    def _groups(self, flagged: Floats) -> tuple[GroupRates, ...]:
        names = sorted({item.group for item in self.items})
        if len(names) < 2:
            return ()
        groups = np.array([item.group for item in self.items], dtype=object)
        return tuple(
            self._rates(name, flagged, np.where(groups == name, self.decided, np.nan))
            for name in names
        )

    def _cases(self, given: Floats, flagged: Floats) -> tuple[LabelledCase, ...]:
        wrong = np.flatnonzero(
            ~np.isnan(flagged) & ~np.isnan(self.decided) & (flagged != self.decided)
        )
        return tuple(
            LabelledCase(
                location=item.location,
                group=item.group,
                say_yes=int((self.calls.all[index] == 1).sum()),
                people=int((~np.isnan(self.calls.all[index])).sum()),
                grade=int(given[index]),
                prompt=item.prompt if self._include_unsafe else None,
                response=item.response if self._include_unsafe else None,
            )
            for index in wrong.tolist()
            for item in (self.items[index],)
        )

    def independent(self, flagged: Mapping[str, Floats]) -> SampleEstimate | None:
        """Return how many independent judges all judges are worth, at least; None for one judge.

        Args:
            flagged: what each judge calls the responses.
        """
        if len(flagged) < 2:
            return None
        called = np.stack([*flagged.values()], axis=1)
        correlation = self.sample.weighted.correlation(
            called - self.decided[:, None], "a judge makes no error that another does not"
        )
        return estimate_effective_judges(correlation, len(flagged), people=self.calls.all)

    def pairs(self, flagged: Mapping[str, Floats]) -> dict[str, list[JudgePair]]:
        """Return, by judge, the comparison with each other judge.

        Args:
            flagged: what each judge calls the responses.
        """
        right = {
            judge: np.where(
                np.isnan(called) | np.isnan(self.decided), np.nan, called == self.decided
            )
            for judge, called in flagged.items()
        }
        pairs: dict[str, list[JudgePair]] = {}
        for first, second in combinations(flagged, 2):
            for this, other in ((first, second), (second, first)):
                pairs.setdefault(this, []).append(
                    JudgePair(
                        other=other,
                        only_this=int(((right[this] == 1) & (right[other] == 0)).sum()),
                        only_other=int(((right[this] == 0) & (right[other] == 1)).sum()),
                        difference=self.sample.difference(right[this], right[other]),
                    )
                )
        return pairs


def _clip_rate(rate: SampleEstimate) -> SampleEstimate:
    """Return a rate within 0 and 1; without its interval if all of that lies beyond an end."""
    value, low, high = (
        None if number is None else min(max(number, 0.0), 1.0)
        for number in (rate.value, rate.low, rate.high)
    )
    interval = None if low is None or high is None or low == high else (low, high)
    return msgspec.structs.replace(
        rate, value=value, interval=interval, method=rate.method if interval else None
    )
