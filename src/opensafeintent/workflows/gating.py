"""The gates of a report: what the command line says of them, what they find, and the files in which
a pipeline reads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path

import msgspec

from opensafeintent.analysis.gates import (
    Condition,
    Gate,
    Gates,
    Kind,
    hold_against,
    hold_thresholds,
)
from opensafeintent.analysis.groups import Group, Study
from opensafeintent.analysis.pairing import Transitions, read_pairs
from opensafeintent.analysis.reference import reference_values
from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.manifest import Margin, RunFolder
from opensafeintent.files import make_private_folder, written_beside
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS, Metric
from opensafeintent.statistics import CONFIDENCE
from opensafeintent.workflows.typed import Settings

Asked = dict[str, float] | tuple[str, ...]
"""Limits by metric, each a gate of its own; or texts as they are typed, `METRIC=X`, several of them
joined by `and`.
"""


class Gating(Settings, frozen=True, kw_only=True):
    """Which gates the models of a report are held against, and where the verdict goes besides."""

    fail_under: Asked = ()
    """Least acceptable values."""
    fail_over: Asked = ()
    """Greatest acceptable values."""
    confidence: float | None = None
    """At which the end of an interval has to meet a limit, above 0.5; None has the estimate count.
    """
    baseline: Path | None = None
    """An earlier run."""
    pairs: tuple[str, ...] = ()
    """`NEW=OLD` for versions of one model that are named differently."""
    fail_if_worse: Asked = ()
    """By how much each metric may be worse than in the earlier run."""
    because: str = ""
    """Why the margins are what they are; it is kept in the run's manifest."""
    summary: Path | None = None
    """A file for the verdict in Markdown."""
    junit: Path | None = None
    """A file for the verdict in JUnit's XML."""


# What is asked for
# ------------------------------------------------------------------------------


def gates_of(settings: Gating) -> list[Gate]:
    """Return the gates that are asked for, in the order of their options.

    Raises:
        InputError: one cannot be read, names no metric, or asks for what nobody can fail or pass.
    """
    asked: tuple[tuple[Kind, Asked], ...] = (
        ("under", settings.fail_under),
        ("over", settings.fail_over),
        ("worse", settings.fail_if_worse),
    )
    found = []
    for kind, limits in asked:
        if isinstance(limits, dict):
            found += [Gate((Condition(kind, metric, limit),)) for metric, limit in limits.items()]
        else:
            found += [_read(kind, text) for text in limits]
    for gate in found:
        for condition in gate.conditions:
            _check_condition(condition, settings.confidence)
    return found


def _read(kind: Kind, text: str) -> Gate:
    """Read `METRIC=X`, or several of them joined by `and`."""
    conditions = []
    for part in re.split(r"\s+and\s+", text.strip()):
        metric, _, number = part.partition("=")
        try:
            conditions.append(Condition(kind, metric.strip(), float(number)))
        except ValueError:
            form = "METRIC=MARGIN" if kind == "worse" else "METRIC=X"
            option = Condition(kind, metric, 0).option
            raise InputError(
                f"{option} {part}: expected {form} with a number, such as triplet_safety=0.8"
            ) from None
    return Gate(tuple(conditions))


def _check_condition(condition: Condition, confidence: float | None) -> None:
    option, name, limit = condition.option, condition.metric, condition.limit
    if name not in METRICS:
        raise InputError(f"{option}: unknown metric {name!r}; {nearest(name, METRICS)}")
    if not isfinite(limit):
        raise InputError(f"{option} {name}={limit}: expected a number")
    metric = METRICS[name]
    (low, high), said = metric.span, f"{option} {name}={limit:g}"
    if condition.kind == "worse":
        _check_margin(metric, limit, said)
    elif not low <= limit <= high:
        raise InputError(f"{said}: {name} is between {low:g} and {high:g}")
    elif confidence is not None and limit in (low, high):
        never = "passed" if (limit == high) == (condition.kind == "under") else "failed"
        raise InputError(
            f"{said}: cannot be {never} at a confidence; expected a limit above {low:g} and below"
            f" {high:g}"
        )


def _check_margin(metric: Metric, margin: float, said: str) -> None:
    width = metric.span[1] - metric.span[0]
    if not 0 <= margin < width:
        raise InputError(f"{said}: expected a margin of 0 or more, below {width:g}")
    comparable = [
        name for name, other in METRICS.items() if not (other.neutral or other.conditional)
    ]
    if metric.neutral:
        raise InputError(f"{said}: neither more nor less of it is worse; {_listed(comparable)}")
    if metric.conditional:
        raise InputError(
            f"{said}: two models are measured in it on different prompt-sets; {_listed(comparable)}"
        )


def _listed(names: Sequence[str]) -> str:
    return f"valid: {', '.join(names)}"


def check_gating(settings: Gating, gates: Sequence[Gate], runs: Sequence[Path], out: Path) -> None:
    """Refuse what does not go together, and files that cannot be written, before anything is read.

    Args:
        settings: what is asked for.
        gates: the same, read.
        runs: of the report.
        out: its folder.

    Raises:
        InputError: see above.
    """
    if settings.confidence is not None:
        if not 0.5 < settings.confidence < 1:
            raise InputError(
                f"--confidence {settings.confidence:g}: expected more than 0.5 and less than 1,"
                " such as 0.95"
            )
        if not gates:
            raise InputError(
                "--confidence: there is no gate; give --fail-under, --fail-over or --fail-if-worse"
            )
    _check_baseline(settings, runs)
    if settings.junit is not None and not gates:
        raise InputError(
            "--junit: there is no gate; give --fail-under, --fail-over or --fail-if-worse"
        )
    if settings.summary is not None and settings.summary == settings.junit:
        raise InputError(f"--summary, --junit: both are {settings.junit}; expected two files")
    for option, path in (("--summary", settings.summary), ("--junit", settings.junit)):
        if path is not None:
            _check_file(
                option, path, [*runs, out, *([settings.baseline] if settings.baseline else [])]
            )


def _check_baseline(settings: Gating, runs: Sequence[Path]) -> None:
    if settings.baseline is None:
        for option, value in (
            ("--fail-if-worse", settings.fail_if_worse),
            ("--because", settings.because),
            ("--pair", settings.pairs),
        ):
            if value:
                raise InputError(f"{option}: has no run to be held against; give --baseline RUN")
        return
    if not settings.fail_if_worse:
        raise InputError(
            "--baseline: nothing says what may not be worse; give --fail-if-worse METRIC=MARGIN"
        )
    if not settings.because.strip():
        raise InputError(
            "--fail-if-worse: has no reason for its margin; give --because TEXT, which is kept with"
            " the run"
        )
    if len(runs) != 1:
        raise InputError(f"--baseline: one run is held against it, not {len(runs)}")
    RunFolder(settings.baseline).check()
    if settings.baseline.resolve() == runs[0].resolve():
        raise InputError(
            f"--baseline {settings.baseline}: is the run itself; expected an earlier one"
        )


_OURS = (
    "run.json",
    "prompt_sets.jsonl",
    "ledger.sqlite",
    "metrics.json",
    "grades.csv.gz",
    "report.html",
    ".lock",
)


def _check_file(option: str, path: Path, folders: Sequence[Path]) -> None:
    """Refuse a file that cannot be written, or that takes the place of one of ours."""
    if path.is_dir():
        raise InputError(f"{option} {path}: is a folder; expected a file")
    if path.name in _OURS and path.parent.resolve() in [folder.resolve() for folder in folders]:
        raise InputError(f"{option} {path}: has a place in the run already; choose another name")
    make_private_folder(path.parent)
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{option} {path}: the folder cannot be written into")


# What is found
# ------------------------------------------------------------------------------


def find_gates(
    settings: Gating,
    gates: Sequence[Gate],
    groups: Sequence[Group],
    studies: Sequence[Study],
    earlier: Study | None,
) -> Gates | None:
    """Hold the models of a report against its gates; None where there are none.

    Args:
        settings: what is asked for.
        gates: the same, read.
        groups: of the report.
        studies: its runs.
        earlier: the run of `--baseline`.

    Raises:
        InputError: models cannot be paired, or the runs differ in more than the models.
    """
    if not gates:
        return None
    if not any(group.models for group in groups):
        raise InputError("no model: the run has none to hold against a gate")
    for study in (*studies, *([earlier] if earlier else [])):
        if early := ", ".join(study.manifest.stopped_early()):
            said = (
                f"{early} stopped early, when the question of --stop-when was answered, and has no"
                " other verdict"
            )
            raise InputError(f"{study.name}: {said}; run evaluate again without --stop-when")
    thresholds = [gate for gate in gates if gate.conditions[0].kind != "worse"]
    held = hold_thresholds(groups, thresholds, settings.confidence) if thresholds else []
    transitions: list[Transitions] = []
    if earlier is not None:
        (study,) = studies
        worse = [gate for gate in gates if gate.conditions[0].kind == "worse"]
        pairs = read_pairs(
            settings.pairs, list(earlier.manifest.models), list(study.manifest.models)
        )
        found, transitions = hold_against(
            groups, study, earlier, worse, settings.confidence or CONFIDENCE, pairs
        )
        held += found
    return Gates(
        held=tuple(held),
        baseline=earlier.name if earlier else None,
        because=settings.because.strip() or None,
        transitions=tuple(transitions),
        cautions=(*_cautions(thresholds), *(_moved_margins(studies[0], gates) if earlier else [])),
    )


def _cautions(gates: Sequence[Gate]) -> list[str]:
    """Say what is odd about thresholds: whom they fail, and what passes them."""
    conditions = [condition for gate in gates for condition in gate.conditions]
    found = [
        f"--fail-under {condition.metric}: less of it is better, so this fails the best models;"
        " --fail-over fails the worst"
        for condition in conditions
        if condition.kind == "under" and METRICS[condition.metric].less_is_better
    ]
    for condition in conditions:
        oracle = reference_values(condition.metric).oracle
        if oracle is not None and not _meets(condition, oracle):
            found.append(
                f"{condition.text}: an oracle of intents has {oracle:.4f}, so no model that"
                " reframes where it should can pass"
            )
    refusing = [
        (condition, reference_values(condition.metric).refuse_all) for condition in conditions
    ]
    if refusing and all(
        value is not None and _meets(condition, value) for condition, value in refusing
    ):
        shown = ", ".join(f"{condition.metric} {value:g}" for condition, value in refusing)
        found.append(
            f"a model that refuses everything passes ({shown}): hold the models against a utility"
            " as well"
        )
    return list(dict.fromkeys(found))


def _meets(condition: Condition, value: float) -> bool:
    return value >= condition.limit if condition.side == "least" else value <= condition.limit


def _moved_margins(study: Study, gates: Sequence[Gate]) -> list[str]:
    """Say which margins were declared otherwise before."""
    now = {
        condition.metric: condition.limit
        for gate in gates
        for condition in gate.conditions
        if condition.kind == "worse"
    }
    return [
        f"the margin of {old.metric} was {old.margin:g} before, because"
        f" {one_line(old.because, 300)}"
        for old in study.manifest.margins
        if old.metric in now and old.margin != now[old.metric]
    ]


def keep_margins(settings: Gating, gates: Sequence[Gate], run: Path) -> None:
    """Keep the margins and the reason for them in a run's manifest; its folder is kept for this
    process.

    Raises:
        InputError: the manifest cannot be read or written.
    """
    folder = RunFolder(run)
    because = settings.because.strip()
    declared = [
        Margin(metric=condition.metric, margin=condition.limit, because=because)
        for gate in gates
        for condition in gate.conditions
        if condition.kind == "worse"
    ]
    manifest = folder.load()[0]
    margins = tuple(dict.fromkeys((*manifest.margins, *declared)))
    if margins != manifest.margins:
        folder.save(msgspec.structs.replace(manifest, margins=margins))


def write_verdict(
    settings: Gating, groups: Sequence[Group], gates: Gates | None, page: Path
) -> None:
    """Write the summary and the JUnit file that are asked for.

    Raises:
        InputError: one cannot be written.
    """
    from opensafeintent.report.verdict import junit, summary

    writers: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (settings.summary, lambda: summary(groups, gates, page)),
        (settings.junit, lambda: junit(groups, gates) if gates else ""),
    )
    for path, write in writers:
        if path is not None:
            with written_beside(path) as file:
                file.write(write().encode())
