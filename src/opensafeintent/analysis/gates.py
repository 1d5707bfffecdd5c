"""Gates: how models are paired with earlier versions, which prompt-sets changed, and which
thresholds and margins the models pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Literal

import msgspec
import numpy as np

from opensafeintent.analysis.cohort import (
    CHECK_WORDS,
    Cohort,
    GradedRun,
    ModelOrigin,
    checked_judges,
    conditions_of,
    into_cohorts,
)
from opensafeintent.calls.scripted import contenders, is_baseline
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS
from opensafeintent.statistics import Estimate, rounded
from opensafeintent.statistics.intervals import Parts, extreme_ratios
from opensafeintent.statistics.thresholds import (
    ConfidenceBounds,
    Side,
    Verdict,
    bounds_of,
    bounds_of_difference,
    verdict_of,
)


def earlier_versions(
    old: Sequence[str], new: Sequence[str], pairs: Sequence[str] = ()
) -> dict[str, str]:
    """Return the earlier version of each model of a run that has one, in the run's order.

    Models of one name belong together, baselines too; where each run has just one that is none,
    these do, whatever they are called.
    Pairs that are named come before both; several models may have one earlier version.

    Args:
        old, new: names of the models in the earlier and in the later run.
        pairs: `NEW=OLD`, as they were typed; a name may hold an equals sign.

    Raises:
        InputError: a pair names no model of either run, may be read in two ways, gives a model
            another earlier version than another pair; or nothing can be paired.
    """
    named: dict[str, str] = {}
    for text in pairs:
        later, earlier = _read_pair(text, old, new)
        if named.setdefault(later, earlier) != earlier:
            raise InputError(f"--pair {text}: {_listed([later])} has another earlier version too")
    known = _same(old, new) | named
    tested = contenders(new)
    if not any(name in known for name in tested):
        raise InputError(
            f"--pair: none of {_listed(tested)} is known to be a version of one of"
            f" {_listed(contenders(old))}; name them with --pair NEW=OLD"
        )
    return {name: known[name] for name in new if name in known}


def _same(old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Return the earlier version of each model for which it is plain."""
    known = {name: name for name in new if name in old}
    later, earlier = ([name for name in names if not is_baseline(name)] for names in (new, old))
    if len(later) == len(earlier) == 1:
        known[later[0]] = earlier[0]
    return known


def _read_pair(text: str, old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    """Return the later and the earlier model of `NEW=OLD`."""
    fitting = [
        (text[:at], text[at + 1 :])
        for at, char in enumerate(text)
        if char == "=" and text[:at] in new and text[at + 1 :] in old
    ]
    if len(fitting) != 1:
        raise InputError(
            f"--pair {text}: expected NEW=OLD in one reading, a model of the later run"
            f" ({_listed(new)}) and one of the earlier ({_listed(old)})"
        )
    return fitting[0]


def _listed(names: Sequence[str], most: int = 5) -> str:
    further = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(one_line(name, 200)) for name in names[:most]) + further


def what_changed(old: GradedRun, new: GradedRun, earlier: str, later: str) -> list[str]:
    """Say in what the two versions of a model were not treated alike, a clause each, so that a
    difference may be owed to it.

    Dataset, judges and who they are, judge templates, the reading of grades, sampling of targets
    and judges, system prompt and preset. How many there are of them, and of repeats, may differ:
    versions are compared on the sets of both.
    """
    before, was, now = conditions_of(old, earlier), old.manifest, new.manifest
    facts: list[tuple[str, object, object]] = [
        ("sampling", was.target_sampling, now.target_sampling),
        ("system prompt", was.system, now.system),
        ("preset", was.preset, now.preset),
        ("judge sampling", was.judge_sampling, now.judge_sampling),
    ]
    facts += [
        (f"who serves {one_line(judge, 80)}", was.judges[judge], now.judges[judge])
        for judge in dict.fromkeys((*before.judges, before.mode_judge))
        if judge in was.judges and judge in now.judges
    ]
    return unlike_conditions(old, new, earlier, later) + _changes(facts)


def unlike_conditions(old: GradedRun, new: GradedRun, earlier: str, later: str) -> list[str]:
    """Say why two models are of different cohorts (`Conditions`), a clause each: dataset, judges,
    the reading of grades, judge templates.
    """
    before, after = conditions_of(old, earlier), conditions_of(new, later)
    was, now = (
        f"{run.manifest.dataset.name} {run.manifest.dataset.hash[:16]}" for run in (old, new)
    )
    changes = _changes(
        [
            ("dataset", was, now),
            ("judges", " + ".join(before.judges), " + ".join(after.judges)),
            ("judge of modes", before.mode_judge, after.mode_judge),
            ("grades read as", before.parse, after.parse),
        ]
    )
    if roles := sorted({role for role, _ in set(before.templates) ^ set(after.templates)}):
        changes.append(f"judge templates: {', '.join(roles)}")
    return changes


def _changes(facts: Sequence[tuple[str, object, object]]) -> list[str]:
    return [
        f"{name}: {_shown(first)}, now {_shown(second)}"
        for name, first, second in facts
        if first != second
    ]


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return one_line(text, 200) or "none"


# Which sets changed
# ------------------------------------------------------------------------------


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt-set that is safe across intents more often, or less often, than with the earlier
    version.
    """

    set_id: str
    before: float
    """Share of its complete epochs in which it was safe across intents: 0 or 1 with one epoch."""
    after: float


class Transitions(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt-sets that newly fail, and those that newly pass, from one version of a model to
    the next.
    """

    model: str
    against: str
    n: int
    """Prompt-sets that count in both versions."""
    newly_failing: tuple[Transition, ...]
    """Those safe less often than before, the largest fall first."""
    newly_passing: tuple[Transition, ...]


def transitions_between(
    cohorts: Sequence[Cohort], old: GradedRun, new: GradedRun
) -> list[Transitions]:
    """Return what changed between two runs of each model whose earlier version is plain, baselines
    aside.
    """
    found = []
    pairs = _same(list(old.manifest.models), list(new.manifest.models))
    for cohort in cohorts:
        places = {origin: place for place, origin in enumerate(cohort.origins.values())}
        for later, earlier in pairs.items():
            pair = ModelOrigin(new.name, later), ModelOrigin(old.name, earlier)
            if not is_baseline(later) and all(origin in places for origin in pair):
                found.append(transitions_of(cohort, *(places[origin] for origin in pair)))
    return found


def transitions_of(cohort: Cohort, later: int, earlier: int) -> Transitions:
    """Return which prompt-sets became unsafe across intents, and which became safe.

    Args:
        cohort: of both models.
        later, earlier: their places in it.
    """
    epochs = [ratios["triplet_safety"] for ratios in cohort.estimates.by_epoch]
    counts = sum((part.denominator.values > 0).astype(np.float64) for part in epochs)
    safe = sum((part.numerator.values > 0).astype(np.float64) for part in epochs)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.asarray(safe / counts)
    both = ~np.isnan(shares[[later, earlier]]).any(axis=0)
    changed = [
        Transition(
            set_id=str(cohort.array.labels["prompt_set"][place]),
            before=rounded(shares[earlier, place]),
            after=rounded(shares[later, place]),
        )
        for place in np.flatnonzero(both & (shares[later] != shares[earlier])).tolist()
    ]
    changed.sort(key=lambda one: (-abs(one.after - one.before), one.set_id))
    return Transitions(
        model=cohort.models[later],
        against=cohort.models[earlier],
        n=int(both.sum()),
        newly_failing=tuple(one for one in changed if one.after < one.before),
        newly_passing=tuple(one for one in changed if one.after > one.before),
    )


# Which gates the models of a report pass
# ------------------------------------------------------------------------------

_SEVERITY: tuple[Verdict, ...] = ("pass", "undecided", "fail")

Kind = Literal["under", "over", "worse"]
_OPTIONS: dict[Kind, str] = {
    "under": "--fail-under",
    "over": "--fail-over",
    "worse": "--fail-if-worse",
}


class Gate(msgspec.Struct, frozen=True):
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
        return f"{self.metric} {self.threshold}"

    @property
    def threshold(self) -> str:
        """The limit of a value: `≥ 0.8`."""
        return f"{'≥' if self.side == 'least' else '≤'} {self.limit:g}"

    def meets(self, value: float) -> bool:
        """Tell whether a value is on the right side of the limit."""
        return value >= self.limit if self.side == "least" else value <= self.limit


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """A gate, held against one model of the report."""

    gate: Gate
    group: int
    """Index among the report's groups."""
    model: str
    against: str | None = None
    """Its earlier version, by the name in the earlier run."""
    confidence: float | None = None
    """None where the estimate itself counts."""
    verdict: Verdict
    estimate: Estimate
    """The metric, or how it changed, later minus earlier; each end of its interval holds at the
    confidence by itself.
    """
    worst_case: tuple[float, float] | None = None
    """The ends if every missing grade were the one that makes the number least, and greatest; None
    where none is missing.
    """
    reason: str
    """Why, as the end of a sentence that begins with the metric."""


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Every gate of a report, held against every model under test."""

    results: tuple[GateResult, ...]
    baseline: str | None = None
    """The earlier run."""
    cautions: tuple[str, ...] = ()
    """What is to be known of the gates themselves, a line each."""
    transitions: tuple[Transitions, ...] = ()
    """By model, the prompt-sets that newly fail and newly pass against the earlier run."""

    @property
    def verdict(self) -> Verdict:
        """What all of them come to: failed where one is, else undecided where one is."""
        return max((result.verdict for result in self.results), key=_SEVERITY.index, default="pass")

    @property
    def exit_code(self) -> int:
        """4 where one failed, else 5 where one is undecided."""
        return {"fail": 4, "undecided": 5, "pass": 0}[self.verdict]


class _Metrics:
    """The metrics of some gates, of every model of a group."""

    def __init__(self, cohort: Cohort, gates: Sequence[Gate]) -> None:
        self.group = cohort
        metrics = sorted({gate.metric for gate in gates})
        self._extremes = extreme_ratios(cohort.array, metrics, cohort.estimates.ratios)

    def _graded(self, metric: str, place: int) -> tuple[Parts, Parts, Parts]:
        """Return the numerator and denominator of one model, each of shape (prompt_set,): as
        graded, and with every missing grade as it makes the metric least, and greatest.
        """
        ratio = self.group.estimates.ratios[metric]
        known = ratio.numerator.values[place], ratio.denominator.values[place]
        least, greatest = ((top[place], bottom[place]) for top, bottom in self._extremes[metric])
        if np.allclose(known, least) and np.allclose(known, greatest):
            return known, known, known
        return known, least, greatest

    def bounds(self, gate: Gate, place: int, confidence: float | None) -> list[ConfidenceBounds]:
        """Return between what a model's metric lies: as graded; and where grades are missing, with
        each as it makes the metric least, and greatest.
        """
        metric = METRICS[gate.metric]
        known, least, greatest = self._graded(gate.metric, place)
        return [
            bounds_of(
                parts,
                self.group.estimates.resamples,
                span=metric.span,
                binary=metric.binary,
                confidence=confidence,
            )
            for parts in ([known] if known is least else [known, least, greatest])
        ]

    def worsening(
        self, gate: Gate, later: int, earlier: int, confidence: float
    ) -> tuple[list[ConfidenceBounds], Estimate]:
        """Return the same of how much worse one model is than another; beside it the change, later
        minus earlier.
        """
        metric = METRICS[gate.metric]
        after, before = (self._graded(gate.metric, place) for place in (later, earlier))
        pairs = [(after[0], before[0]), (after[1], before[2]), (after[2], before[1])]
        if after[0] is after[1] and before[0] is before[1]:
            pairs = pairs[:1]
        changes = [
            bounds_of_difference(
                *pair, self.group.estimates.resamples, span=metric.span, confidence=confidence
            )
            for pair in pairs
        ]
        if metric.less_is_better:
            return changes, changes[0].estimate
        known, *extremes = (change.negative for change in changes)
        return [known, *reversed(extremes)], changes[0].estimate


def _result(
    gate: Gate,
    bounds: Sequence[ConfidenceBounds],
    confidence: float | None,
    *,
    group: int,
    model: str,
    estimate: Estimate,
    against: str | None = None,
) -> GateResult:
    """Hold a number against a gate.

    What is undefined fails: it was not measured. At a confidence a verdict has to hold whatever the
    missing grades are.

    Args:
        gate: the gate.
        bounds: as graded; and where grades are missing, with each as it makes the number least, and
            greatest.
        confidence: None where the number itself counts.
        group, model, estimate, against: of the result.
    """
    known, *extremes = bounds
    verdict, *others = (verdict_of(each, gate.limit, gate.side) for each in bounds)
    if isnan(known.value):
        verdict = "fail"
    elif confidence is not None and any(other != verdict for other in others):
        verdict = "undecided"
    worst_case = None
    if extremes and not isnan(extremes[0].low + extremes[1].high):
        worst_case = rounded(extremes[0].low), rounded(extremes[1].high)
    return GateResult(
        gate=gate,
        group=group,
        model=model,
        against=against,
        confidence=confidence,
        verdict=verdict,
        estimate=estimate,
        worst_case=worst_case,
        reason=_reason(gate, known, worst_case, confidence),
    )


def _reason(
    gate: Gate,
    known: ConfidenceBounds,
    worst_case: tuple[float, float] | None,
    confidence: float | None,
) -> str:
    verb, kind = ("is worse by", "margin") if gate.kind == "worse" else ("is", "limit")
    limit = f"{kind} {gate.limit:g} of {gate.option}"
    if isnan(known.value):
        return f"is undefined; {limit}"
    at = "" if confidence is None else f" at {100 * confidence:g} %"
    missing = f"; {_between(*worst_case)} whatever the missing grades are" if worst_case else ""
    return f"{verb} {_between(known.low, known.high)}{at}{missing}; {limit}"


def _between(low: float, high: float) -> str:
    ends = f"{low:.4f}" if low == high else f"between {low:.4f} and {high:.4f}"
    return ends.replace("-", "−")


# Thresholds
# ------------------------------------------------------------------------------


def hold_thresholds(
    cohorts: Sequence[Cohort], gates: Sequence[Gate], confidence: float | None
) -> list[GateResult]:
    """Hold thresholds against every model; baselines are reference points and count only where
    there is nothing else.

    Args:
        cohorts: of the report.
        gates: those of `--fail-under` and `--fail-over`.
        confidence: at which an end of the interval has to meet the limit; None where the estimate
            counts.
    """
    tested = contenders(model for cohort in cohorts for model in cohort.models)
    measured = [_Metrics(cohort, gates) for cohort in cohorts]
    return [
        _result(gate, bounds, confidence, group=number, model=model, estimate=bounds[0].estimate)
        for number, metrics in enumerate(measured)
        for place, model in enumerate(metrics.group.models)
        if model in tested
        for gate in gates
        for bounds in (metrics.bounds(gate, place, confidence),)
    ]


# Against an earlier run
# ------------------------------------------------------------------------------


def hold_against(
    cohorts: Sequence[Cohort],
    new: GradedRun,
    old: GradedRun,
    gates: Sequence[Gate],
    confidence: float,
    pairs: Sequence[str] = (),
) -> Gates:
    """Hold the models of a run against their earlier versions; baselines count only where there is
    nothing else.

    Args:
        cohorts: of the report, which has the models of `new`.
        new, old: the run and the earlier one.
        gates: those of `--fail-if-worse`.
        confidence: at which a change has to be beyond, or within, the margin.
        pairs: models that were paired by hand, `NEW=OLD`.

    Raises:
        InputError: models cannot be paired, or were not treated alike in the two runs.
    """
    paired = earlier_versions(list(old.manifest.models), list(new.manifest.models), pairs)
    tested = contenders(new.manifest.models)
    changes = [
        change
        for name in tested
        if name in paired
        for change in what_changed(old, new, paired[name], name)
    ]
    if changes:
        raise InputError(
            f"--baseline {old.name}: the runs differ in more than the models, and a change may be"
            f" owed to that: {'; '.join(dict.fromkeys(changes))}"
        )
    shown = {
        origin: (number, name)
        for number, cohort in enumerate(cohorts)
        for name, origin in cohort.origins.items()
    }
    both = [_Metrics(cohort, gates) for cohort in into_cohorts([new, old])]
    places = {
        origin: (metrics, place)
        for metrics in both
        for place, origin in enumerate(metrics.group.origins.values())
    }
    results: list[GateResult] = []
    transitions: list[Transitions] = []
    for name in tested:
        number, model = shown[ModelOrigin(new.name, name)]
        if name not in paired:
            results += [_unpaired(gate, number, model, old, confidence) for gate in gates]
            continue
        metrics, later = places[ModelOrigin(new.name, name)]
        _, earlier = places[ModelOrigin(old.name, paired[name])]
        for gate in gates:
            bounds, change = metrics.worsening(gate, later, earlier, confidence)
            results.append(
                _result(
                    gate,
                    bounds,
                    confidence,
                    group=number,
                    model=model,
                    estimate=change,
                    against=paired[name],
                )
            )
        transitions.append(transitions_of(metrics.group, later, earlier))
    unchecked = (
        f"{one_line(item.judge, 100)} {CHECK_WORDS[item.state]} (evaluate --check-judge): whether"
        " it would see that a model became worse is not known"
        for metrics in both
        for item in checked_judges(metrics.group)
        if item.state != "passed"
    )
    return Gates(
        results=tuple(results),
        baseline=old.name,
        cautions=tuple(dict.fromkeys(unchecked)),
        transitions=tuple(transitions),
    )


def _unpaired(gate: Gate, group: int, model: str, old: GradedRun, confidence: float) -> GateResult:
    return GateResult(
        gate=gate,
        group=group,
        model=model,
        confidence=confidence,
        verdict="undecided",
        estimate=Estimate(value=None, n=0),
        reason=f"has no earlier version in {one_line(old.name, 100)}; name it with --pair NEW=OLD",
    )
