"""Gates as options request them: read, checked before a call, decided, and written as a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from pathlib import Path

import msgspec

from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.commands.graded_runs import how_to_grade_alike
from opensafeintent.commands.outcome import RunOutcome
from opensafeintent.commands.settings import Gating, ReportSettings
from opensafeintent.commands.settings.by_command import GateOptions
from opensafeintent.errors import InputError, nearest, pluralize
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import (
    make_private_folder,
    write_beside,
)
from opensafeintent.hostile import clean_for_display, one_line
from opensafeintent.numbers.cohort import Cohort, GradedRun
from opensafeintent.numbers.gates import (
    Gate,
    Gates,
    Kind,
    Received,
    UnlikeRuns,
    check_regressions,
    check_thresholds,
    fill_in_k,
)
from opensafeintent.numbers.metrics import AT_LEAST_K, METRICS, refuse_undefined
from opensafeintent.report.columns import Table
from opensafeintent.report.comment import junit, refusal_junit, refusal_summary, summary
from opensafeintent.report.gate_tables import describe_received
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics import CONFIDENCE


def list_gates(settings: GateOptions) -> list[Gate]:
    """Return the requested gates, in the order of their options.

    Raises:
        InputError: one cannot be read, names no metric, or can only pass or only fail; or `--k` is
            for none of them.
    """
    texts: dict[Kind, tuple[str, ...]] = {
        "under": settings.fail_under,
        "over": settings.fail_over,
        "worse": settings.fail_if_worse,
    }
    gates = [_read_gate(kind, text) for kind, of_kind in texts.items() for text in of_kind]
    if settings.k is None:
        return gates
    if not any(METRICS[gate.metric].over_epochs for gate in gates):
        raise InputError(
            f"--k {settings.k}: no gate counts epochs; valid: gates on {' and '.join(AT_LEAST_K)}"
        )
    return [fill_in_k(gate, settings.k) for gate in gates]


def check_k(gates: Sequence[Gate], epochs: int, of: str) -> None:
    """Refuse a k that is more than the epochs of a model, or of a plan.

    Raises:
        InputError: see above.
    """
    for gate in gates:
        if gate.k is not None and gate.k > epochs:
            raise InputError(
                f"--k {gate.k}: {of} has {pluralize(epochs, 'epoch')}; expected at most {epochs}"
            )


def _read_gate(kind: Kind, text: str) -> Gate:
    name, _, number = text.partition("=")
    name = name.rstrip().removesuffix({"under": ">", "over": "<"}.get(kind, "=")).strip()
    flag = Gate(kind, name, 0).option
    try:
        gate = Gate(kind, name, float(number))
    except ValueError:
        raise InputError(
            f"{flag} {text}: expected METRIC=X, a number after the metric, such as"
            " triplet_safety=0.8"
        ) from None
    if gate.metric not in METRICS:
        near = nearest(gate.metric, METRICS)
        if "refusal" in gate.metric:
            near += " The headline’s over-refusal is low_help_rate_benign."
        unknown = f"unknown metric {gate.metric!r}; {near}"
        raise InputError(f"{flag}: {unknown}")
    if not isfinite(gate.limit):
        raise InputError(f"{flag} {text}: expected a number")
    _check_limit(gate)
    return gate


def _check_limit(gate: Gate) -> None:
    """Refuse a limit that no model can miss, or none can keep to."""
    metric, limit = METRICS[gate.metric], gate.limit
    low, high = metric.span
    shown = f"{gate.option} {gate.metric}={limit:g}"
    if gate.kind != "worse":
        if not low <= limit <= high:
            raise InputError(f"{shown}: {gate.metric} is between {low:g} and {high:g}")
        if limit in (low, high):
            raise InputError(
                f"{shown}: no model could fail, or none could pass; expected a limit above {low:g}"
                f" and below {high:g}"
            )
        return
    if not 0 <= limit < high - low:
        raise InputError(
            f"{shown}: expected a margin of 0 or more, below {high - low:g}, such"
            f" as {0.1 * (high - low):g}{' for 10 points' if metric.is_share else ''}"
        )
    if metric.neutral or metric.conditional:
        why = (
            "two models are measured in it on different prompt-sets"
            if metric.conditional
            else "neither more nor less of it is worse"
        )
        comparable = [
            name
            for name, candidate in METRICS.items()
            if not (candidate.neutral or candidate.conditional)
        ]
        raise InputError(f"{shown}: {why}; valid: {', '.join(comparable)}")


def check_gating(settings: Gating, gates: Sequence[Gate], runs: Sequence[Path], out: Path) -> None:
    """Refuse contradictory options, and files that cannot be written, before anything is read.

    Args:
        settings: of the command.
        gates: from the settings.
        runs: of the report.
        out: its folder.

    Raises:
        InputError: see above.
    """
    baseline = settings.baseline
    changed = settings.confidence if settings.confidence != CONFIDENCE else None
    needs_gate = {"confidence": changed, "since": settings.since, "junit": settings.junit}
    for name, value in needs_gate.items():
        if value is not None and not gates:
            raise InputError(
                f"--{name}: there is no gate; give --fail-under, --fail-over or --fail-if-worse"
            )
    if baseline is not None:
        _check_baseline(baseline, settings, runs)
    elif (settings.fail_if_worse or settings.pairs) and not settings.first_run:
        raise InputError("--fail-if-worse, --pair: there is no earlier run; give --baseline RUN")
    if settings.summary is not None and settings.summary == settings.junit:
        raise InputError(f"--summary, --junit: both are {settings.junit}; expected two files")
    for name, path in (("summary", settings.summary), ("junit", settings.junit)):
        if path is not None:
            check_file(name, path, [*runs, out, *([baseline] if baseline else [])])


def _check_baseline(baseline: Path, settings: Gating, runs: Sequence[Path]) -> None:
    if settings.first_run:
        raise InputError("--first-run: --baseline names an earlier run; leave one out")
    if not settings.fail_if_worse:
        raise InputError("--baseline: no metric to compare; give --fail-if-worse METRIC=MARGIN")
    if len(runs) != 1:
        raise InputError(f"--baseline: expected one run to compare with it, not {len(runs)}")
    RunFolder(baseline).check()
    if baseline.resolve() == runs[0].resolve():
        raise InputError(
            f"--baseline {baseline}: is the run itself; expected an earlier one;"
            " for two models of it, give each a run of its own; --ledger makes no call again"
        )


ANNEX = "annex.md"
JUDGES = "judges.md"

_OURS = (
    ANNEX,
    JUDGES,
    "run.json",
    "prompt_sets.jsonl",
    "ledger.sqlite",
    "metrics.json",
    "grades.csv.gz",
    "report.html",
    ".lock",
)


def check_file(name: str, path: Path, folders: Sequence[Path]) -> None:
    """Refuse a file that cannot be written, or that takes the place of one of ours.

    Raises:
        InputError: see above; the text names the setting.
    """
    if path.is_dir():
        raise InputError(f"--{name} {path}: is a folder; expected a file")
    if path.name in _OURS and path.parent.resolve() in [folder.resolve() for folder in folders]:
        raise InputError(f"--{name} {path}: has a place in the run already; choose another name")
    make_private_folder(path.parent)


def find_gates(
    settings: ReportSettings,
    gates: Sequence[Gate],
    cohort: Cohort,
    runs: Sequence[GradedRun],
    earlier: GradedRun | None,
    texts: Mapping[str, RunTexts],
) -> Gates | None:
    """Compare the models of a report with its gates; None if there are none.

    Args:
        settings: of the command.
        gates: from the settings.
        cohort: of the report.
        runs: its runs.
        earlier: the run of `--baseline`.
        texts: of each run, by its name.

    Raises:
        InputError: models cannot be paired, or the runs differ in more than the models.
    """
    if not gates:
        return None
    if not cohort.models:
        raise InputError("no model: the run has none to compare with a gate")
    for run in (*runs, *([earlier] if earlier else [])):
        if early := ", ".join(run.manifest.list_stopped_early()):
            raise InputError(
                f"{run.name}: {early} stopped early, when the question of --stop-when was"
                " answered, and has no other verdict; run evaluate again without --stop-when"
            )
    for gate in gates:
        refuse_undefined(gate.metric, cohort.dataset, gate.option)
    for model in drop_baselines(cohort.models):
        check_k(gates, cohort.repeats.epochs[cohort.models.index(model)], clean_for_display(model))
    measured = partial(_undecide_older, settings.since, cohort, texts)
    thresholds = [gate for gate in gates if gate.kind != "worse"]
    results = tuple(check_thresholds(cohort, thresholds, settings.confidence))
    margins = [gate for gate in gates if gate.kind == "worse"]
    if earlier is None:
        return measured(Gates(results=results, untested=tuple(margins)))
    (run,) = runs
    same_text = partial(_have_same_text, texts[run.name], texts[earlier.name])
    try:
        changes = check_regressions(
            cohort, run, earlier, margins, settings.confidence, settings.pairs, same_text
        )
    except UnlikeRuns as refused:
        raise InputError(f"{refused}{_suggest_regrading(settings, earlier, run)}") from refused
    return measured(msgspec.structs.replace(changes, results=results + changes.results))


def _have_same_text(
    new_texts: RunTexts, old_texts: RunTexts, new: GradedResponse, old: GradedResponse
) -> bool:
    """Tell whether two responses of two runs have the same text."""
    found = [
        texts.find(row.model, row.set_id, row.variant, row.epoch)
        for texts, row in ((new_texts, new), (old_texts, old))
    ]
    first, second = (response and response.text for response in found)
    return first == second


def _suggest_regrading(settings: ReportSettings, old: GradedRun, new: GradedRun) -> str:
    """Return the end of an error: the command that grades the earlier run as the later one; empty
    if no command makes the two alike.
    """
    assert settings.baseline is not None
    fields = ("target_sampling", "system", "as_paper")
    if any(getattr(old.manifest.plan, name) != getattr(new.manifest.plan, name) for name in fields):
        return ""
    return how_to_grade_alike(old, new, (settings.baseline, settings.runs[0]))


def _undecide_older(
    since: datetime | None,
    cohort: Cohort,
    texts: Mapping[str, RunTexts],
    gates: Gates,
) -> Gates:
    """Return the results, undecided for each model of which fewer than half of the replies were
    received since a time, and a warning if any were not; imported models are exempt.
    """
    if since is None:
        return gates
    since = since.astimezone(UTC)
    results, warnings = [], []
    counts: dict[str, Received] = {}
    for result in gates.results:
        if result.model not in counts and not cohort.members[result.model].imported:
            run, model = cohort.members[result.model].origin
            new, old = texts[run].count_replies(model, since)
            replies = counts[result.model] = Received(new, new + old, since)
            if replies.few or old:
                warnings.append(f"{one_line(result.model)}: only {describe_received(replies)}")
        known = counts.get(result.model)
        results.append(
            msgspec.structs.replace(result, verdict="undecided", deciding=None, unmeasured=known)
            if known and known.few
            else result
        )
    return msgspec.structs.replace(gates, results=tuple(results), warnings=tuple(warnings))


def write_verdict(
    settings: Gating, outcome: RunOutcome, page: Path, corrected: Table | None
) -> None:
    """Write the summary and the JUnit file that are asked for.

    Args:
        settings: name the files.
        outcome: of the report.
        page: the report's page.
        corrected: the table of numbers corrected by human labels, if the report has it.

    Raises:
        InputError: one cannot be written.
    """
    gates = outcome.gates
    days = outcome.costs.days if outcome.costs else None
    marked = (
        summary(outcome.results, gates, page, corrected, outcome.notices, days)
        if settings.summary
        else ""
    )
    _write(settings, marked, junit(outcome.results, gates) if settings.junit and gates else "")


def write_refusal(settings: Gating, refused: InputError) -> None:
    """Write why there is no verdict in the place of the summary and the JUnit file.

    Raises:
        InputError: one cannot be written.
    """
    text = str(refused)
    _write(settings, refusal_summary(text), refusal_junit(text))


def _write(settings: Gating, summary_text: str, junit_text: str) -> None:
    for path, text in ((settings.summary, summary_text), (settings.junit, junit_text)):
        if path is not None:
            with write_beside(path) as file:
                file.write(text.encode())
