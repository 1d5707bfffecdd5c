"""Which gates the models of a report pass: thresholds, and how much worse a model may be than its
earlier version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import Literal

import msgspec
import numpy as np

from opensafeintent.analysis.groups import (
    CHECK_WORDS,
    Group,
    Origin,
    Study,
    checked_judges,
    group_studies,
)
from opensafeintent.analysis.pairing import (
    Pair,
    Transitions,
    pair_models,
    transitions_of,
    what_changed,
)
from opensafeintent.analysis.reference import Reference, reference_values
from opensafeintent.calls.baselines import contenders, is_baseline
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.bounds import Parts, extreme_ratios
from opensafeintent.statistics.gates import (
    Ends,
    Side,
    Verdict,
    ends_of,
    ends_of_difference,
    verdict_of,
)

Kind = Literal["under", "over", "worse"]
_OPTIONS: dict[Kind, str] = {
    "under": "--fail-under",
    "over": "--fail-over",
    "worse": "--fail-if-worse",
}


class Condition(msgspec.Struct, frozen=True):
    """One metric and its limit: the least value, the most, or by how much it may have become
    worse.
    """

    kind: Kind
    metric: str
    limit: float

    @property
    def option(self) -> str:
        """The command line's."""
        return _OPTIONS[self.kind]

    @property
    def side(self) -> Side:
        """Whether the limit is the least or the most that the number may be."""
        return "least" if self.kind == "under" else "most"

    @property
    def text(self) -> str:
        """What it asks for: `triplet_safety ≥ 0.8`."""
        if self.kind == "worse":
            return f"{self.metric} worse by {self.limit:g} at most"
        return f"{self.metric} {'≥' if self.kind == 'under' else '≤'} {self.limit:g}"


class Gate(msgspec.Struct, frozen=True):
    """Conditions of one kind that a model has to meet together."""

    conditions: tuple[Condition, ...]

    @property
    def option(self) -> str:
        """The command line's."""
        return self.conditions[0].option

    @property
    def text(self) -> str:
        """What it asks for."""
        return " and ".join(condition.text for condition in self.conditions)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, held against one model."""

    condition: Condition
    verdict: Verdict
    found: Estimate
    """The metric, or how it changed, later minus earlier; each end of its interval holds at the
    confidence by itself.
    """
    worst_case: tuple[float, float] | None = None
    """The ends if every missing grade were the one that makes the number least, and greatest; None
    where none is missing.
    """
    reference: Reference | None = None
    """What an oracle and refusing everything would have; None for changes."""
    reason: str
    """Why, as the end of a sentence that begins with the metric."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A gate, held against one model of the report."""

    gate: Gate
    group: int
    """Index among the report's groups."""
    model: str
    against: str | None = None
    """Its earlier version, by the name in the earlier run."""
    confidence: float | None = None
    """None where the estimate itself counts."""
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """Passed where every condition is; failed where one is."""
        return joined(check.verdict for check in self.checks)


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Every gate of a report, held against every model under test."""

    held: tuple[Held, ...]
    baseline: str | None = None
    """The earlier run."""
    because: str | None = None
    """Why the margins are what they are."""
    cautions: tuple[str, ...] = ()
    """What is to be known of the gates themselves, a line each."""
    transitions: tuple[Transitions, ...] = ()
    """By model, the prompt-sets that newly fail and newly pass against the earlier run."""

    @property
    def verdict(self) -> Verdict:
        """What all of them come to."""
        return joined(held.verdict for held in self.held)

    @property
    def exit_code(self) -> int:
        """4 where one failed, else 5 where one is undecided."""
        codes: dict[Verdict, int] = {"fail": 4, "undecided": 5, "pass": 0}
        return codes[self.verdict]


def joined(verdicts: Iterable[Verdict]) -> Verdict:
    """Return what verdicts come to: failed where one is, else undecided where one is."""
    found = set(verdicts)
    return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"


# Thresholds
# ------------------------------------------------------------------------------


def hold_thresholds(
    groups: Sequence[Group], gates: Sequence[Gate], confidence: float | None
) -> list[Held]:
    """Hold thresholds against every model; baselines are reference points and count only where
    there is nothing else.

    Args:
        groups: of the report.
        gates: those of `--fail-under` and `--fail-over`.
        confidence: at which an end of the interval has to meet the limit; None where the estimate
            counts.
    """
    wanted = sorted({condition.metric for gate in gates for condition in gate.conditions})
    models = [
        (number, place) for number, group in enumerate(groups) for place in range(len(group.models))
    ]
    tested = [
        (number, place) for number, place in models if not is_baseline(groups[number].models[place])
    ] or models
    numbers = {
        number: _Grades(groups[number], wanted) for number in {number for number, _ in tested}
    }
    return [
        Held(
            gate=gate,
            group=number,
            model=groups[number].models[place],
            confidence=confidence,
            checks=tuple(
                _threshold(condition, numbers[number], place, confidence)
                for condition in gate.conditions
            ),
        )
        for number, place in tested
        for gate in gates
    ]


class _Grades:
    """Some metrics of a group's models, as they are and with what is missing at either extreme."""

    def __init__(self, group: Group, metrics: Sequence[str]) -> None:
        self.group = group
        self._extremes = extreme_ratios(group.array, metrics, group.numbers.ratios)

    def parts(self, metric: str, place: int) -> Parts:
        """Return numerator and denominator of a model, each of shape (prompt_set,)."""
        ratio = self.group.numbers.ratios[metric]
        return ratio.numerator.values[place], ratio.denominator.values[place]

    def extremes(self, metric: str, place: int) -> tuple[Parts, Parts] | None:
        """Return the same with every missing grade as it makes the metric least, and greatest; None
        where none is missing.
        """
        low, high = ((top[place], bottom[place]) for top, bottom in self._extremes[metric])
        known = self.parts(metric, place)
        alike = all(
            np.allclose(own, part)
            for end in (low, high)
            for own, part in zip(known, end, strict=True)
        )
        return None if alike else (low, high)


def _threshold(
    condition: Condition, grades: _Grades, place: int, confidence: float | None
) -> Check:
    metric = METRICS[condition.metric]

    def ends(parts: Parts) -> Ends:
        resamples = grades.group.numbers.resamples
        return ends_of(
            parts, resamples, span=metric.span, binary=metric.binary, confidence=confidence
        )

    known = ends(grades.parts(metric.name, place))
    extremes = grades.extremes(metric.name, place)
    return _check(
        condition,
        known,
        None if extremes is None else (ends(extremes[0]), ends(extremes[1])),
        confidence,
        found=known.record(sure=confidence is not None),
        reference=reference_values(metric.name),
    )


def _check(
    condition: Condition,
    known: Ends,
    extremes: tuple[Ends, Ends] | None,
    confidence: float | None,
    *,
    found: Estimate,
    reference: Reference | None = None,
) -> Check:
    """Hold a number against a limit, as it is and with what is missing at either extreme.

    What is undefined fails: it was not measured. At a confidence a verdict has to hold at both
    extremes as well.
    """
    first = verdict_of(known, condition.limit, condition.side)
    verdict: Verdict = "fail" if isnan(known.value) else first
    holds = extremes is None or all(
        verdict_of(end, condition.limit, condition.side) == first for end in extremes
    )
    if confidence is not None and not isnan(known.value) and not holds:
        verdict = "undecided"
    worst_case = None if extremes is None else _rounded(extremes[0].low, extremes[1].high)
    return Check(
        condition=condition,
        verdict=verdict,
        found=found,
        worst_case=worst_case,
        reference=reference,
        reason=_reason(condition, known, first, confidence, worst_case, holds=holds),
    )


def _rounded(low: float, high: float) -> tuple[float, float] | None:
    return None if isnan(low) or isnan(high) else (rounded(low), rounded(high))


def _reason(
    condition: Condition,
    known: Ends,
    verdict: Verdict,
    confidence: float | None,
    worst_case: tuple[float, float] | None,
    *,
    holds: bool,
) -> str:
    """Say why a number meets its limit or not, `verdict` being the one without what is missing."""
    limit = (
        f"the {'margin of ' * (condition.kind == 'worse')}{condition.limit:g} of {condition.option}"
    )
    if isnan(known.value):
        return f"is undefined, not held against {limit}"
    verb = "is worse by" if condition.kind == "worse" else "is"
    if verdict == "undecided":
        said = f"between {_exact(known.low)} and {_exact(known.high)}"
        if condition.kind == "worse" and known.low < 0:  # less than nothing is better
            verb, said = "is", f"between {_exact(-known.low)} better and {_exact(known.high)} worse"
        return f"{verb} {said}{_at(confidence)} either way, with {limit} in between"
    lower = (verdict == "fail") == (condition.side == "most")  # which end decides
    end, number = ("at least", known.low) if lower else ("at most", known.high)
    beyond = "above" if condition.side == "most" else "below"
    far = f"{end} {_exact(number)}" if confidence is not None else _exact(number)
    said = f"{verb} {far}{_at(confidence)}, {'not ' * (verdict == 'pass')}{beyond} {limit}"
    if condition.kind == "worse" and number < 0:
        said = f"is better by at least {_exact(-number)}{_at(confidence)}, within {limit}"
    if worst_case is None:
        return said
    could = worst_case[0 if lower else 1]
    if holds:
        return f"{said}; {end} {_exact(could)} whatever the missing grades are"
    return f"{said}; but {_exact(could)} if the missing grades are at their worst for that"


def _exact(number: float) -> str:
    return f"{number:.4f}".replace("-", "−")


def _at(confidence: float | None) -> str:
    return "" if confidence is None else f" at {100 * confidence:g} %"


# Against an earlier run
# ------------------------------------------------------------------------------


def hold_against(
    groups: Sequence[Group],
    new: Study,
    old: Study,
    gates: Sequence[Gate],
    confidence: float,
    named: Sequence[Pair] = (),
) -> tuple[list[Held], list[Transitions]]:
    """Hold the models of a run against their earlier versions; baselines count only where there is
    nothing else.

    Args:
        groups: of the report, which has the models of `new`.
        new, old: the run and the earlier one.
        gates: those of `--fail-if-worse`.
        confidence: at which a change has to be beyond, or within, the margin.
        named: models that were paired by hand.

    Raises:
        InputError: models cannot be paired, or were not treated alike in the two runs.
    """
    paired = pair_models(list(old.manifest.models), list(new.manifest.models), named)
    tested = contenders(new.manifest.models)
    pairs = [pair for pair in paired if pair.new in tested]
    _refuse_changes(old, new, pairs)
    shown = {
        origin: (number, name)
        for number, group in enumerate(groups)
        for name, origin in group.origins.items()
    }
    versions = _Versions(new, old, gates, confidence)
    held = []
    for name in tested:
        number, model = shown[Origin(new.name, name)]
        pair = next((pair for pair in pairs if pair.new == name), None)
        for gate in gates:
            checks = tuple(
                versions.check(condition, pair) if pair else _unpaired(condition, old)
                for condition in gate.conditions
            )
            against = pair.old if pair else None
            held.append(
                Held(
                    gate=gate,
                    group=number,
                    model=model,
                    against=against,
                    confidence=confidence,
                    checks=checks,
                )
            )
    return held, [versions.transitions(pair) for pair in pairs]


def _refuse_changes(old: Study, new: Study, pairs: Sequence[Pair]) -> None:
    """See that nothing but the model differs between the two versions of each."""
    found = {pair.new: changes for pair in pairs if (changes := what_changed(old, new, pair))}
    if found:
        lines = dict.fromkeys(change for changes in found.values() for change in changes)
        raise InputError(
            f"--baseline {old.name}: the runs differ in more than the models, and a change may be"
            f" owed to that: {'; '.join(lines)}"
        )


def _unpaired(condition: Condition, old: Study) -> Check:
    reason = (
        f"has no earlier version in {one_line(old.name, 100)} to be held against: name one with"
        " --pair NEW=OLD"
    )
    return Check(
        condition=condition, verdict="undecided", found=Estimate(value=None, n=0), reason=reason
    )


class _Versions:
    """The models of two runs that were treated alike, held against one another."""

    def __init__(self, new: Study, old: Study, gates: Sequence[Gate], confidence: float) -> None:
        self._new, self._old, self._confidence = new, old, confidence
        metrics = sorted({condition.metric for gate in gates for condition in gate.conditions})
        self._places: dict[Origin, tuple[_Grades, int]] = {}
        for group in group_studies([new, old]):
            grades = _Grades(group, metrics)
            self._places |= {
                origin: (grades, place) for place, origin in enumerate(group.origins.values())
            }

    def check(self, condition: Condition, pair: Pair) -> Check:
        """Hold a model against its earlier version; that it is not worse takes a judge that would
        have seen it.
        """
        new, old = Origin(self._new.name, pair.new), Origin(self._old.name, pair.old)
        found = self._compared(condition, new, old)
        if found.verdict != "pass" or not (unable := self._unable(condition, new, old)):
            return found
        reason = f"{found.reason}; but whether the judges would see it is not shown: {unable}"
        return msgspec.structs.replace(found, verdict="undecided", reason=reason)

    def transitions(self, pair: Pair) -> Transitions:
        """Return which prompt-sets newly fail and newly pass."""
        (grades, later), (_, earlier) = (
            self._places[Origin(study.name, model)]
            for study, model in ((self._new, pair.new), (self._old, pair.old))
        )
        return transitions_of(grades.group, later, earlier)

    def _compared(self, condition: Condition, new: Origin, old: Origin) -> Check:
        metric = METRICS[condition.metric]
        (grades, later), (_, earlier) = self._places[new], self._places[old]

        def ends(after: Parts, before: Parts) -> Ends:
            resamples = grades.group.numbers.resamples
            return ends_of_difference(
                after, before, resamples, span=metric.span, confidence=self._confidence
            )

        after, before = (grades.parts(metric.name, place) for place in (later, earlier))
        change = ends(after, before)
        extremes = [grades.extremes(metric.name, place) for place in (later, earlier)]
        worst = None
        if any(extremes):
            (new_low, new_high), (old_low, old_high) = (
                known if known else (own, own)
                for known, own in zip(extremes, (after, before), strict=True)
            )
            worst = ends(new_low, old_high), ends(new_high, old_low)
            if not metric.less_is_better:
                worst = _worsening(worst[1]), _worsening(worst[0])
        return _check(
            condition,
            change if metric.less_is_better else _worsening(change),
            worst,
            self._confidence,
            found=change.record(sure=True),
        )

    def _unable(self, condition: Condition, new: Origin, old: Origin) -> str:
        """Say why the judges may not see that a model became worse; empty where they would.

        They passed their check, and find a scripted baseline worse than the earlier version by more
        than the margin.
        """
        group = self._places[old][0].group
        judges = {*group.conditions.judges}
        if "mode" in METRICS[condition.metric].needs:
            judges.add(group.conditions.mode_judge)
        states = {item.judge: item.state for item in checked_judges(group)}
        for judge in sorted(judges):
            if (state := states.get(judge, "unchecked")) != "passed":
                return f"{one_line(judge, 100)} {CHECK_WORDS[state]} (evaluate --check-judge)"
        scripted = [
            origin
            for origin in group.origins.values()
            if is_baseline(origin.model) and origin not in (new, old)
        ]
        if not scripted:
            return (
                "no scripted baseline was evaluated in either run (baseline/comply-all,"
                " baseline/refuse-all)"
            )
        if not any(self._compared(condition, origin, old).verdict == "fail" for origin in scripted):
            names = ", ".join(sorted({origin.model for origin in scripted}))
            return f"they find no scripted baseline worse than the earlier version ({names})"
        return ""


def _worsening(ends: Ends) -> Ends:
    """Turn a change around: of a metric of which more is better, less is worse."""
    return ends._replace(value=-ends.value, low=-ends.high, high=-ends.low)
