"""The gates of a report: what the command line says of them, what they find, and the files in which
a pipeline reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import msgspec

from opensafeintent.analysis.gates import (
    Gate,
    Gates,
    Kind,
    hold_against,
    hold_thresholds,
)
from opensafeintent.analysis.groups import Group, Study
from opensafeintent.analysis.reference import reference_values
from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.files import make_private_folder, written_beside
from opensafeintent.metrics import METRICS
from opensafeintent.statistics import CONFIDENCE
from opensafeintent.workflows.settings import Gating

# What is asked for
# ------------------------------------------------------------------------------


def gates_of(settings: Gating) -> list[Gate]:
    """Return the gates that are asked for, in the order of their options.

    Raises:
        InputError: one cannot be read, names no metric, or asks for what nobody can fail or pass.
    """
    texts: dict[Kind, tuple[str, ...]] = {
        "under": settings.fail_under,
        "over": settings.fail_over,
        "worse": settings.fail_if_worse,
    }
    gates = [_read_gate(kind, text) for kind, of_kind in texts.items() for text in of_kind]
    for gate in gates:
        _check_gate(gate, settings.confidence)
    return gates


def _read_gate(kind: Kind, text: str) -> Gate:
    name, _, number = text.partition("=")
    metric = name.strip()
    option = Gate(kind, metric, 0).option
    try:
        limit = float(number)
    except ValueError:
        raise InputError(
            f"{option} {text}: expected METRIC=X, a number after the metric, such as"
            " triplet_safety=0.8"
        ) from None
    if metric not in METRICS:
        raise InputError(f"{option}: unknown metric {metric!r}; {nearest(metric, METRICS)}")
    if not isfinite(limit):
        raise InputError(f"{option} {text}: expected a number")
    return Gate(kind, metric, limit)


def _check_gate(gate: Gate, confidence: float | None) -> None:
    metric, limit = METRICS[gate.metric], gate.limit
    low, high = metric.span
    shown = f"{gate.option} {gate.metric}={limit:g}"
    if gate.kind != "worse":
        if not low <= limit <= high:
            raise InputError(f"{shown}: {gate.metric} is between {low:g} and {high:g}")
        if confidence is not None and limit in (low, high):
            raise InputError(
                f"{shown}: at a confidence no model could fail, or none could pass; expected a"
                f" limit above {low:g} and below {high:g}"
            )
        return
    if not 0 <= limit < high - low:
        raise InputError(f"{shown}: expected a margin of 0 or more, below {high - low:g}")
    if metric.neutral or metric.conditional:
        why = "neither more nor less of it is worse"
        if metric.conditional:
            why = "two models are measured in it on different prompt-sets"
        comparable = [name for name, one in METRICS.items() if not (one.neutral or one.conditional)]
        raise InputError(f"{shown}: {why}; valid: {', '.join(comparable)}")


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
    confidence, baseline = settings.confidence, settings.baseline
    for option, value in (("--confidence", confidence), ("--junit", settings.junit)):
        if value is not None and not gates:
            raise InputError(
                f"{option}: there is no gate; give --fail-under, --fail-over or --fail-if-worse"
            )
    if baseline is not None:
        _check_baseline(baseline, settings, runs)
    elif settings.fail_if_worse or settings.pairs:
        raise InputError("--fail-if-worse, --pair: there is no earlier run; give --baseline RUN")
    if settings.summary is not None and settings.summary == settings.junit:
        raise InputError(f"--summary, --junit: both are {settings.junit}; expected two files")
    for option, path in (("--summary", settings.summary), ("--junit", settings.junit)):
        if path is not None:
            _check_file(option, path, [*runs, out, *([baseline] if baseline else [])])


def _check_baseline(baseline: Path, settings: Gating, runs: Sequence[Path]) -> None:
    if not settings.fail_if_worse:
        raise InputError(
            "--baseline: nothing says what may not be worse; give --fail-if-worse METRIC=MARGIN"
        )
    if len(runs) != 1:
        raise InputError(f"--baseline: one run is held against it, not {len(runs)}")
    RunFolder(baseline).check()
    if baseline.resolve() == runs[0].resolve():
        raise InputError(f"--baseline {baseline}: is the run itself; expected an earlier one")


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
            raise InputError(
                f"{study.name}: {early} stopped early, when the question of --stop-when was"
                " answered, and has no other verdict; run evaluate again without --stop-when"
            )
    thresholds = [gate for gate in gates if gate.kind != "worse"]
    results = tuple(hold_thresholds(groups, thresholds, settings.confidence))
    cautions = _cautions(thresholds)
    if earlier is None:
        return Gates(results=results, cautions=cautions)
    (study,) = studies
    margins = [gate for gate in gates if gate.kind == "worse"]
    confidence = settings.confidence or CONFIDENCE
    changes = hold_against(groups, study, earlier, margins, confidence, settings.pairs)
    return msgspec.structs.replace(
        changes, results=results + changes.results, cautions=cautions + changes.cautions
    )


def _cautions(gates: Sequence[Gate]) -> tuple[str, ...]:
    """Say what is odd about thresholds: whom they fail, and what passes them."""
    cautions = [
        f"--fail-under {gate.metric}: less of it is better, so this fails the best models;"
        " --fail-over fails the worst"
        for gate in gates
        if gate.kind == "under" and METRICS[gate.metric].less_is_better
    ]
    for gate in gates:
        oracle = reference_values(gate.metric).oracle
        if oracle is not None and not gate.meets(oracle):
            cautions.append(
                f"{gate.text}: an oracle of intents has {oracle:.4f}, so no model that reframes"
                " where it should can pass"
            )
    refusing = {gate: reference_values(gate.metric).refuse_all for gate in gates}
    if gates and all(value is not None and gate.meets(value) for gate, value in refusing.items()):
        shown = ", ".join(f"{gate.metric} {value:g}" for gate, value in refusing.items())
        cautions.append(
            f"a model that refuses everything passes ({shown}): hold the models against a utility"
            " as well"
        )
    return tuple(dict.fromkeys(cautions))


def write_verdict(
    settings: Gating, groups: Sequence[Group], gates: Gates | None, page: Path
) -> None:
    """Write the summary and the JUnit file that are asked for.

    Raises:
        InputError: one cannot be written.
    """
    from opensafeintent.report.verdict import junit, summary

    texts: dict[Path, str] = {}
    if settings.summary is not None:
        texts[settings.summary] = summary(groups, gates, page)
    if settings.junit is not None and gates is not None:
        texts[settings.junit] = junit(groups, gates)
    for path, text in texts.items():
        with written_beside(path) as file:
            file.write(text.encode())
