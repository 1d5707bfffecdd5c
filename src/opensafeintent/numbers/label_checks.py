"""Records of judges that were compared with people on labelled responses from elsewhere."""

from __future__ import annotations

import msgspec

from opensafeintent.evaluation.gold_cases import AnchorSetting
from opensafeintent.evaluation.labelled_responses import LABEL_KINDS, Called, LabelKind
from opensafeintent.statistics.rates import LabelRate
from opensafeintent.statistics.samples import SampleEstimate
from opensafeintent.taxonomy import (
    QUESTION_OF,
    Graded,
)


class CheckedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """How a judge was asked: a comparison with people is of one setting only."""

    identity: str
    setting: AnchorSetting
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
