"""What gates found: in tables, in a line, and for other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from opensafeintent.analysis.gates import Check, Gates, Held
from opensafeintent.analysis.pairing import Transitions
from opensafeintent.hostile import one_line
from opensafeintent.report.metrics_json import estimate_json
from opensafeintent.report.table import Column, Table, estimate_columns
from opensafeintent.statistics.gates import Verdict

_WORDS: dict[Verdict, str] = {"pass": "passed", "fail": "failed", "undecided": "undecided"}
_ORDER: tuple[Verdict, ...] = ("fail", "undecided", "pass")
_VERSIONS: dict[Verdict, str] = {"pass": "not worse", "fail": "worse", "undecided": "undecided"}

ABOUT = (
    "The numbers are as the judges graded; what a judge gets wrong, no interval knows. An oracle of"
    " intents answers in full where intent is benign and reframes elsewhere, always safely;"
    " refusing everything is as safe, and of no use."
)


class _Line(NamedTuple):
    """One condition of a gate, held against one model."""

    held: Held
    check: Check


def verdict_word(held: Held, verdict: Verdict | None = None) -> str:
    """Return the verdict on a model, or on one condition of its gate, in a word or two."""
    words = (
        _WORDS if held.against is None and held.checks[0].condition.kind != "worse" else _VERSIONS
    )
    return words[verdict or held.verdict]


def headline(gates: Gates) -> str:
    """Return what all gates come to: `failed: 1 failed, 1 undecided, 2 passed`."""
    counts = Counter(held.verdict for held in gates.held)
    parts = [f"{counts[verdict]} {_WORDS[verdict]}" for verdict in _ORDER if counts[verdict]]
    return _WORDS[gates.verdict] + (f": {', '.join(parts)}" if len(gates.held) > 1 else "")


def not_met(gates: Gates) -> list[str]:
    """Return a sentence for each condition that is not met or undecided, the failed ones first."""
    lines = [
        (held, check)
        for verdict in _ORDER[:2]
        for held, check in _lines(gates)
        if check.verdict == verdict
    ]
    ends = {"fail": "", "undecided": ": undecided", "pass": ""}
    return [
        f"{one_line(held.model, 300)}: {check.condition.metric} {check.reason}{ends[check.verdict]}"
        for held, check in lines
    ]


def _lines(gates: Gates) -> list[_Line]:
    """Return every condition of every gate, those of gates that failed first, then of undecided
    ones.
    """
    held = sorted(gates.held, key=lambda held: _ORDER.index(held.verdict))
    return [_Line(item, check) for item in held for check in item.checks]


def gate_tables(gates: Gates | None) -> list[Table]:
    """Return the table of thresholds and that of changes against an earlier run, each where there
    are any.
    """
    if gates is None:
        return []
    thresholds = [line for line in _lines(gates) if line.check.condition.kind != "worse"]
    changes = [line for line in _lines(gates) if line.check.condition.kind == "worse"]
    tables = []
    if thresholds:
        tables.append(_thresholds(thresholds, notes=(*gates.cautions, ABOUT)))
    if changes:
        notes = () if thresholds else gates.cautions
        because = f"The margins: {one_line(gates.because or '', 1000)}"
        tables += [
            _changes(changes, gates, notes=(*notes, because)),
            transitions_table(gates.transitions),
        ]
    return tables


def _thresholds(lines: list[_Line], notes: tuple[str, ...]) -> Table:
    confidence = lines[0].held.confidence
    how = (
        "the estimate counts, not its interval"
        if confidence is None
        else f"each end of an interval holds at {100 * confidence:g} % by itself"
    )
    return Table(
        name="gates",
        title=f"Models and thresholds; {how}",
        section="gates",
        columns=(
            Column("model", "Model", "name", lambda line: line.held.model),
            Column("gate", None, "text", lambda line: line.held.gate.text),
            Column("metric", "Metric", "text", lambda line: line.check.condition.metric),
            *estimate_columns(
                "value",
                "Value",
                lambda line: line.check.found,
                parts=("n", "method"),
                headings={"n": "Sets"},
            ),
            Column("limit", None, "number", lambda line: line.check.condition.limit),
            Column("threshold", "Threshold", "text", _threshold),
            Column("oracle", "Oracle", "number", lambda line: line.check.reference.oracle),
            Column(
                "refuse_all", "Refuse-all", "number", lambda line: line.check.reference.refuse_all
            ),
            *_verdict_columns(lines),
        ),
        rows=lines,
        notes=notes,
    )


def _changes(lines: list[_Line], gates: Gates, notes: tuple[str, ...]) -> Table:
    confidence = lines[0].held.confidence or 0.0
    return Table(
        name="gates_versions",
        title=(
            f"Models and their earlier versions in {one_line(gates.baseline or '', 100)}; later"
            f" minus earlier, each end of an interval holds at {100 * confidence:g} % by itself"
        ),
        section="gates",
        columns=(
            Column("model", "Model", "name", lambda line: line.held.model),
            Column("against", "Earlier version", "name", lambda line: line.held.against),
            Column("gate", None, "text", lambda line: line.held.gate.text),
            Column("metric", "Metric", "text", lambda line: line.check.condition.metric),
            *estimate_columns(
                "change",
                "Change",
                lambda line: line.check.found,
                style="signed",
                parts=("n", "method"),
                headings={"n": "Sets"},
            ),
            Column("margin", None, "number", lambda line: line.check.condition.limit),
            Column(
                "most", "Worse by at most", "text", lambda line: f"{line.check.condition.limit:g}"
            ),
            *_verdict_columns(lines),
        ),
        rows=lines,
        notes=notes,
    )


def transitions_table(transitions: Sequence[Transitions]) -> Table:
    """Return the prompt-sets whose Triplet Safety changed from one version to the next."""
    rows = [(one, of, "newly failing") for of in transitions for one in of.newly_failing]
    rows += [(one, of, "newly passing") for of in transitions for one in of.newly_passing]
    counts = ", ".join(
        f"{one_line(of.model, 100)}: {len(of.newly_failing)} newly failing, {len(of.newly_passing)}"
        f" newly passing of {of.n}"
        for of in transitions
    )
    return Table(
        name="transitions",
        title="Prompt-sets that newly fail or newly pass against the earlier run",
        section="gates",
        columns=(
            Column("model", "Model", "name", lambda row: row[1].model),
            Column("against", "Earlier version", "name", lambda row: row[1].against),
            Column("set_id", "Prompt-set", "text", lambda row: row[0].set_id),
            Column("change", "Change", "text", lambda row: row[2]),
            Column("before", "Safe before", "share", lambda row: row[0].before),
            Column("after", "Safe now", "share", lambda row: row[0].after),
        ),
        rows=rows,
        notes=(
            (
                "Safe: all three intents are answered safely; with several epochs, the share of"
                f" them. {counts}."
            ),
        ),
    )


def _threshold(line: _Line) -> str:
    condition = line.check.condition
    return f"{'≥' if condition.side == 'least' else '≤'} {condition.limit:g}"


def _verdict_columns(lines: Iterable[_Line]) -> tuple[Column, ...]:
    """Return the columns of the verdict; that of the whole gate is shown where one joins
    conditions.
    """
    several = any(len(line.held.checks) > 1 for line in lines)
    return (
        Column("worst_case", None, "span", lambda line: line.check.worst_case),
        Column(
            "verdict", "Verdict", "text", lambda line: verdict_word(line.held, line.check.verdict)
        ),
        Column(
            "together",
            "Whole gate" if several else None,
            "text",
            lambda line: verdict_word(line.held),
        ),
        Column("reason", "Why", "text", lambda line: line.check.reason),
    )


def gates_json(gates: Gates | None) -> dict[str, Any]:
    """Return what `metrics.json` says of gates (docs/formats.md); nothing where there are none."""
    if gates is None:
        return {}
    return {
        "gates": {
            "verdict": gates.verdict,
            "baseline": gates.baseline,
            "because": gates.because,
            "cautions": gates.cautions,
            "held": [
                {
                    "option": held.gate.option,
                    "gate": held.gate.text,
                    "model": held.model,
                    "against": held.against,
                    "confidence": held.confidence,
                    "verdict": held.verdict,
                    "conditions": [_condition_json(check) for check in held.checks],
                }
                for held in gates.held
            ],
        }
    }


def _condition_json(check: Check) -> dict[str, Any]:
    reference = check.reference
    return {
        "metric": check.condition.metric,
        "limit": check.condition.limit,
        "verdict": check.verdict,
        **estimate_json(check.found),
        "worst_case": check.worst_case,
        "oracle": None if reference is None else reference.oracle,
        "refuse_all": None if reference is None else reference.refuse_all,
        "reason": check.reason,
    }
