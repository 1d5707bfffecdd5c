"""Results of gates: in tables, in a line, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

from msgspec import UNSET

from opensafeintent.errors import pluralize, round_count
from opensafeintent.hostile import clean_for_display, one_line
from opensafeintent.numbers.completions import store_turning_odds
from opensafeintent.numbers.estimates import Reference, get_reference
from opensafeintent.numbers.gates import (
    GOOD_ANSWERS,
    Gate,
    GateResult,
    Gates,
    Received,
    TooManyMissing,
    Transition,
    Transitions,
    describe_sets_needed,
)
from opensafeintent.numbers.metrics import METRICS, Unit
from opensafeintent.promptsets.loading import MOST_PUBLISHED
from opensafeintent.report.cohort_columns import HOLDS_TO
from opensafeintent.report.columns import (
    Column,
    Table,
    describe_turning_odds,
    make_estimate_columns,
)
from opensafeintent.report.metrics_json import GateResults, GateRow
from opensafeintent.statistics.shifts import sign_test
from opensafeintent.statistics.thresholds import EXACT, Bounds, Verdict

_WORDS: dict[Verdict, str] = {"fail": "failed", "undecided": "undecided", "pass": "passed"}
"""In the order in which results are shown."""


_COUNTED = 20
"""Pairs of models whose counts a note has."""

_VERSIONS: dict[Verdict, str] = {"fail": "worse", "undecided": "undecided", "pass": "not worse"}


ABOUT = (
    "The numbers rest on the judges' grades; no interval includes a judge's consistent errors. An"
    " oracle of intents answers in full if the intent is benign and otherwise reframes, always"
    " safely; refusing everything is as safe, and of no use."
)


_EXACT_HERE = (
    "A gate on a share has an exact interval (Clopper and Pearson). It differs from the interval of"
    " the same value elsewhere."
)


def verdict_word(result: GateResult) -> str:
    """Return the verdict on a model in a word or two."""
    return (_VERSIONS if result.gate.kind == "worse" else _WORDS)[result.verdict]


_NO_GRADES = "no prompt-set has the grades that it needs"


_LACKING = {
    "benign_mode": "it needs the modes of benign responses (--modes core)",
    "questions": "it needs the answers to the prompt-sets’ own questions (--judge-by both)",
    "probes": "it needs the strategies of all prompts (--probe all)",
}


def reason(result: GateResult) -> str:
    """Return why a gate is passed or not, as the end of a sentence that begins with the metric."""
    gate, number = result.gate, result.compared
    if number is None:
        return (
            f"has no earlier version in {clean_for_display(result.unpaired or '')}; name it with"
            " --pair NEW=OLD, or evaluate a new model in a run of its own"
        )
    if result.absent:
        return (
            f"has no verdict yet: {pluralize(result.absent, 'planned response')} of"
            f" {result.absent_of} {'is' if result.absent == 1 else 'are'} not stored; the command"
            " that made it brings them"
        )
    if result.unmeasured:
        return (
            f"has no verdict: {describe_received(result.unmeasured)}, fewer than half; evaluate the"
            " model again in a new folder"
        )
    limit = f"{gate.format_in_unit(gate.limit)} of {gate.option}"
    if result.identical:
        return f"has identical data, nothing tested; margin {limit}"
    limit = f"margin {limit}" if gate.kind == "worse" else f"limit {limit}"
    if isnan(number.value):
        return f"is undefined: {_LACKING.get(METRICS[gate.metric].inputs, _NO_GRADES)}; {limit}"
    if gate.kind == "worse":
        text = _describe_worsening(gate, number)
    else:
        text = f"is {_say_range(gate, number.n, number.low, number.high)}"
    text += f" ({100 * result.confidence:g} % CI)"
    if number.family:
        change = number._replace(low=number.family[0], high=number.family[1])
        text += f"; for all {number.pairs} pairs at once it {_describe_worsening(gate, change)}"
    if result.missing_ci:
        text += f"; {_describe_with_missing(gate, number.n, *result.missing_ci)}"
    if result.turning_odds is not None:
        text += f"; {_describe_turning(result, number)}"
    if result.verdict == "undecided":
        text += _describe_deciding(result, number)
    return f"{text}; {limit}"


def _describe_turning(result: GateResult, number: Bounds) -> str:
    """Say how far the verdict of the interval alone depends on missing grades."""
    turning = describe_turning_odds(result.turning_odds or 0.0)
    if result.verdict == "undecided":
        return f"would {'pass' if result.gate.meets(number.value) else 'fail'} {turning}"
    return f"holds {turning}"


def _describe_deciding(result: GateResult, number: Bounds) -> str:
    if result.deciding is None:
        if not result.lacks_grades:
            return ""
        return (
            "; with as many missing grades, no number of prompt-sets would decide: run the command"
            " of the run again, which asks for them"
        )
    if result.deciding <= number.n:
        return ""
    if result.deciding > MOST_PUBLISHED:
        needed = describe_sets_needed(result.deciding)
        return f"; {needed} for 80 % power, if this value is the true one"
    counting = " that count" if METRICS[result.gate.metric].conditional else ""
    return (
        f"; about {round_count(result.deciding)} prompt-sets{counting} would decide with 80 %"
        " power, if this value is the true one"
    )


def _describe_worsening(gate: Gate, change: Bounds) -> str:
    """Say whether a metric became worse or better, and by how much; `change` is how much worse."""
    if change.low > 0:
        return f"is worse than before, by {_say_range(gate, change.n, change.low, change.high)}"
    if change.high < 0:
        return f"is better than before, by {_say_range(gate, change.n, -change.high, -change.low)}"
    better, worse = (gate.format_in_unit(value, change.n) for value in (-change.low, change.high))
    return f"is between {better} better and {worse} worse"


def _describe_with_missing(gate: Gate, n: int, low: float, high: float) -> str:
    """Say where a number may lie; of a change, `low` and `high` are later minus earlier."""
    worse = "with missing grades "
    if gate.kind == "worse":
        worse += "worse by "
        if not METRICS[gate.metric].less_is_better:
            low, high = -high, -low
    return f"{worse}{_say_range(gate, n, low, high)}"


def _say_range(gate: Gate, n: int, low: float, high: float) -> str:
    lower, higher = gate.format_in_unit(low, n), gate.format_in_unit(high, n)
    return lower if lower == higher else f"between {lower} and {higher}"


def describe_received(replies: Received) -> str:
    """Say how many of a model's replies are of this pipeline."""
    return (
        f"{replies.new:,} of its {replies.of:,} first-turn replies were received since"
        f" {replies.since:%Y-%m-%d %H:%M} UTC"
    )


NO_EARLIER_RUN = "no earlier run, so --fail-if-worse was not tested"


def describe_verdict(gates: Gates) -> str:
    """Return the overall verdict, and what it leaves open: `failed: 1 failed, 1 undecided, 2
    passed`, or `passed, but incomplete: missing modes: 8 of 8`, of the model that lacks the most.
    """
    opened = []
    if gates.untested:
        opened.append(NO_EARLIER_RUN)
    if gates.lacking:
        most: dict[str, TooManyMissing] = {}
        for item in sorted(gates.lacking, key=lambda item: -item.missing / item.asked):
            most.setdefault(item.what, item)
        named = (f"{what}: {item.number}" for what, item in most.items())
        opened.append(f"incomplete: missing {'; '.join(named)}")
    if not gates.results:
        return f"not tested: {'; '.join(opened)}"
    join = ", but " if gates.verdict == "pass" else "; "
    return join.join([_verdict_in_words(gates), *(["; ".join(opened)] if opened else [])])


def describe_below_verdict(gates: Gates) -> list[str]:
    """Return what a reader has to know beside the verdict, a line each."""
    untested = (f"not tested, as there is no earlier run: {gate.text}" for gate in gates.untested)
    return [*gates.warnings, *untested]


def _verdict_in_words(gates: Gates) -> str:
    counts = Counter(result.verdict for result in gates.results)
    parts = [f"{counts[verdict]} {word}" for verdict, word in _WORDS.items() if counts[verdict]]
    return _WORDS[gates.verdict] + (f": {', '.join(parts)}" if len(gates.results) > 1 else "")


def describe_unmet_gates(gates: Gates) -> list[str]:
    """Return a sentence for each gate that is not met, undecided or tested nothing, the failed ones
    first.
    """
    return [
        f"{verdict_word(result)}: {one_line(result.model)}: {result.gate.name} {reason(result)}"
        for result in _order_results(gates)
        if result.verdict != "pass" or result.identical
    ]


def _order_results(gates: Gates) -> list[GateResult]:
    """Return failed gates first, then undecided ones."""
    return sorted(gates.results, key=lambda result: list(_WORDS).index(result.verdict))


def make_gate_tables(gates: Gates | None) -> list[Table]:
    """Return the table of thresholds and that of changes against an earlier run, each if there are
    any.
    """
    if gates is None:
        return []
    thresholds = [result for result in _order_results(gates) if result.gate.kind != "worse"]
    changes = [result for result in _order_results(gates) if result.gate.kind == "worse"]
    exact = any(result.estimate.method == EXACT for result in thresholds)
    notes = (*([_EXACT_HERE] if exact else []), ABOUT)
    tables = [_thresholds(thresholds, notes=notes)] if thresholds else []
    if changes:
        tables.append(_changes(changes, gates))
        if any(of.newly_failing or of.newly_passing for of in gates.transitions):
            tables.append(make_transitions_table(gates.transitions))
    return tables


def _unit(result: GateResult) -> Unit:
    return METRICS[result.gate.metric].unit


_MODEL: Column[GateResult] = Column("model", lambda result: result.model, "Model", "name", order=-1)
_METRIC: Column[GateResult] = Column(
    "metric", lambda result: result.gate.metric, "Metric", order=-1
)


def _k_column(results: Sequence[GateResult]) -> Column[GateResult]:
    """Return the k of metrics of k epochs or more; people see it if there are any."""
    heading = "k" if any(result.gate.k for result in results) else None
    return Column("k", lambda result: result.gate.k, heading, "count", order=-1)


def _verdict_columns(results: Sequence[GateResult]) -> tuple[Column[GateResult], ...]:
    """Return the columns of the verdict; people see the odds at which it turns if any does."""
    turns = any(result.turning_odds is not None for result in results)
    return (
        Column("missing_ci", lambda result: result.missing_ci, None, "span", _unit),
        # a narrow screen cuts the columns to the right
        Column("verdict", verdict_word, "Verdict", order=-1),
        Column(
            "turning_odds", lambda result: result.turning_odds, HOLDS_TO if turns else None, "odds"
        ),
        Column("reason", reason, "Why"),
    )


def _thresholds(results: list[GateResult], notes: tuple[str, ...]) -> Table:
    return Table.of(
        (
            _MODEL,
            _METRIC,
            _k_column(results),
            make_estimate_columns(
                "value",
                lambda result: result.estimate,
                "Value",
                unit=_unit,
                parts=("n", "method"),
                headings={"n": "Sets"},
            ),
            Column("limit", lambda result: result.gate.limit, None, "number", _unit),
            Column("threshold", lambda result: result.gate.shown, "Threshold"),
            Column("oracle", lambda result: _reference(result).oracle, "Oracle", "number", _unit),
            Column(
                "refuse_all",
                lambda result: _reference(result).refuse_all,
                "Refuse-all",
                "number",
                _unit,
            ),
            _verdict_columns(results),
        ),
        results,
        name="gates",
        title=f"Models and thresholds; {_interval(results)}",
        section="gates",
        notes=notes,
        bold=_find_unpassed(results),
        confidence=results[0].confidence,
    )


def _reference(result: GateResult) -> Reference:
    """Return the values of the reference models in the metric of a gate; none of a change."""
    if result.gate.kind == "worse":
        return Reference(None, None)
    return get_reference(result.gate.metric)


def _changes(results: list[GateResult], gates: Gates) -> Table:
    renamed = any(result.against != result.model for result in results)
    family = any(result.family for result in results)
    return Table.of(
        (
            _MODEL,
            Column(
                "against",
                lambda result: result.against,
                "Earlier version" if renamed else None,
                "name",
                order=-1,
            ),
            _METRIC,
            _k_column(results),
            make_estimate_columns(
                "change",
                lambda result: result.estimate,
                "Change",
                style="signed",
                unit=_unit,
                parts=("n", "method"),
                headings={"n": "Sets"},
            ),
            Column(
                "family",
                lambda result: result.family,
                _together(results) if family else None,
                "signed_span",
                _unit,
            ),
            Column("margin", lambda result: result.gate.limit, None, "number", _unit),
            Column("most", lambda result: result.gate.shown, "Margin"),
            _verdict_columns(results),
        ),
        results,
        name="gates_versions",
        title=(
            f"Models and their earlier versions in {clean_for_display(gates.baseline or '')}; later"
            f" minus earlier, {_interval(results)}"
        ),
        section="gates",
        bold=_find_unpassed(results),
        confidence=results[0].confidence,
    )


def _interval(results: list[GateResult]) -> str:
    level = f"{100 * results[0].confidence:g} % interval"
    if any(result.family for result in results):
        return (
            f"a model passes if its whole {level} lies on the right side, and fails if that"
            f" {_together(results).lower()} lies on the other, with missing grades"
        )
    return f"a verdict needs the whole {level} on one side of the limit, with missing grades"


def _together(results: list[GateResult]) -> str:
    return f"For all {max(result.pairs for result in results)} pairs at once"


def _find_unpassed(results: list[GateResult]) -> frozenset[int]:
    return frozenset(index for index, result in enumerate(results) if result.verdict != "pass")


_SAFETY_CHANGES = {True: ("newly failing", "newly passing"), False: ("less safe", "safer")}
_CHANGES = {
    **dict.fromkeys(("triplet_safety", "pair_safety", "no_harm_item"), _SAFETY_CHANGES),
    "must_met_benign": dict.fromkeys((True, False), ("fewer musts met", "more musts met")),
    "low_help_rate_benign": {
        True: ("newly over-refused", "over-refused no more"),
        False: ("over-refused more", "over-refused less"),
    },
}
"""By metric and whether two versions are compared, the words for worse and for better."""


def changes_in_words(changes: Transitions) -> list[tuple[str, Sequence[Transition]]]:
    """Return the prompt-sets that one of two models answers less well than the other, and those
    that it answers better, each with the words for it.
    """
    less, better = _CHANGES[changes.metric][changes.versions]
    return [(less, changes.newly_failing), (better, changes.newly_passing)]


def describe_chance(changes: Transitions) -> str:
    """Say how often sets that change either way at random would split as unevenly."""
    ways = len(changes.newly_failing), len(changes.newly_passing)
    share = 100 * sign_test(*ways)
    return f"by chance as uneven in {'<1' if share < 1 else f'{share:.0f}'} % of cases"


class _TransitionRow(NamedTuple):
    of: Transitions
    change: str
    transition: Transition


def make_transitions_table(transitions: Sequence[Transitions]) -> Table:
    """Return the prompt-sets that two versions, or two models of one run, answer differently."""
    counts = ". ".join(
        f"{clean_for_display(changes.model)}:"
        f" {', '.join(f'{len(sets)} {words}' for words, sets in changes_in_words(changes))}"
        f" of {changes.n}; {describe_chance(changes)}"
        for changes in transitions[:_COUNTED]
    )
    versions = all(changes.versions for changes in transitions)
    rows = [
        _TransitionRow(changes, words, transition)
        for at in (0, 1)
        for changes in transitions
        for words, sets in [changes_in_words(changes)[at]]
        for transition in sets
    ]
    metrics = dict.fromkeys(changes.metric for changes in transitions)
    return Table.of(
        (
            Column("model", lambda row: row.of.model, "Model", "name"),
            Column(
                "against",
                lambda row: row.of.against,
                "Earlier version" if versions else "Other model",
                "name",
            ),
            Column("metric", lambda row: row.of.metric),
            Column("set_id", lambda row: row.transition.set_id, "Prompt-set"),
            Column("change", lambda row: row.change, "Change"),
            Column(
                "before",
                lambda row: row.transition.before,
                "Before" if versions else "Other",
                "share",
            ),
            Column(
                "after", lambda row: row.transition.after, "Now" if versions else "Model", "share"
            ),
        ),
        rows,
        name="transitions",
        title="Prompt-sets that newly fail or newly pass against the earlier run"
        if versions
        else "Prompt-sets that two models answer differently",
        section="gates",
        notes=(
            (
                "Share of the epochs in which"
                f" {', or '.join(GOOD_ANSWERS[metric] for metric in metrics)}. {counts}."
            ),
        ),
    )


def list_gate_results(gates: Gates) -> GateResults:
    """Return the gates' part of `metrics.json` (docs/outputs.md)."""
    return GateResults(
        verdict=gates.verdict if gates.results else None,
        baseline=gates.baseline,
        untested=[gate.text for gate in gates.untested],
        incomplete=[f"{item.model}: {item.text}" for item in gates.lacking],
        warnings=list(gates.warnings),
        results=[_gate_row(result) for result in gates.results],
    )


def _gate_row(result: GateResult) -> GateRow:
    reference, estimate = _reference(result), result.estimate
    return GateRow(
        option=result.gate.option,
        gate=result.gate.text,
        model=result.model,
        against=result.against,
        confidence=result.confidence,
        metric=result.gate.metric,
        k=UNSET if result.gate.k is None else result.gate.k,
        limit=result.gate.limit,
        verdict=result.verdict,
        value=estimate.value,
        n=estimate.n,
        ci=estimate.interval,
        ci_method=estimate.method,
        family_ci=result.family,
        missing_ci=result.missing_ci,
        oracle=reference.oracle,
        refuse_all=reference.refuse_all,
        reason=reason(result),
        turning_odds=store_turning_odds(result.turning_odds),
    )
