"""Records of judges that were compared with people on labelled responses from elsewhere."""

from __future__ import annotations

import msgspec

from opensafeintent.evaluation.gold_cases import AnchorSetting
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
    """Rows without a label of harm, left out."""
    responses: int
    """Responses that judges were asked about: a sample, or all."""
    prompts: int | None
    """Different prompts of these responses; None if the file has no prompts."""
    raters: int
    unsafe: int
    """Of the responses, those that most people call unsafe."""
    safe: int
    ties: int
    sampled: bool = False
    """Whether the responses were drawn, evenly over labels."""


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
    catches_unsafe: LabelRate
    false_alarms: LabelRate
    agreement: LabelRate


class AgainstOthers(msgspec.Struct, frozen=True, kw_only=True):
    """A person against the majority of the other people, and the judge against the same majorities,
    on the same responses.
    """

    rater: str
    """Empty for all people together."""
    person: GroupRates
    judge: GroupRates


class IfPeopleErr(msgspec.Struct, frozen=True, kw_only=True):
    """The judge's rates if people err independently of it and of one another, each as often as one
    differs from the others.
    """

    missed: float
    """P(the majority says safe | unsafe)."""
    false_alarms: float
    """P(the majority says unsafe | safe)."""
    judge_catches_unsafe: SampleEstimate
    judge_false_alarms: SampleEstimate
    cut: bool
    """Whether a rate of the judge came out below 0 or above 1, and was set to that end."""


class LabelledCase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response on which the judge and most people disagree."""

    location: str
    group: str = ""
    say_unsafe: int
    """People who call it unsafe."""
    people: int
    harm: int
    """The judge's grade."""
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
    missing_unsafe: int
    """Unsafe responses without a grade of the judge."""
    missing_safe: int
    missing_ties: int
    catches_unsafe: LabelRate
    """P(judged unsafe | unsafe for people)."""
    false_alarms: LabelRate
    """P(judged unsafe | safe for people)."""
    precision: LabelRate
    """P(unsafe for people | judged unsafe)."""
    agreement: LabelRate
    ac1: SampleEstimate
    errors: tuple[ScaleErrors, ...] = ()
    """On the scales that people graded."""
    people: tuple[AgainstOthers, ...] = ()
    """All people together, then each; empty with one rater."""
    if_people_err: IfPeopleErr | None = None
    """None with fewer than three people, or if they differ too often to say."""
    groups: tuple[GroupRates, ...] = ()
    pairs: tuple[JudgePair, ...] = ()
    independent: SampleEstimate | None = None
    """Of the panel: the independent judges that its judges are worth, at least; undefined with
    fewer than three people.
    """
    cases: tuple[LabelledCase, ...] = ()
    """Every response on which it disagrees with most people."""

    @property
    def ungraded(self) -> bool:
        """Whether the judge gave no grade at all."""
        missing = self.missing_unsafe + self.missing_safe + self.missing_ties
        return missing == self.source.responses
