"""From runs to files that a reader opens, and to the verdict of a release gate; comparisons of
models.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.analysis.cohort import Cohort, Coverage, GradedRun, into_cohorts
from opensafeintent.analysis.estimates import reference_values
from opensafeintent.analysis.gates import (
    Gate,
    Gates,
    Kind,
    Transitions,
    hold_against,
    hold_thresholds,
    most_sets,
    out_of_reach,
    transitions_between,
    unlike_conditions,
)
from opensafeintent.calls.budget import Tally
from opensafeintent.calls.client import Client
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display
from opensafeintent.calls.reasoning import unknown_mark
from opensafeintent.calls.recorded import Imports
from opensafeintent.calls.records import Sampling
from opensafeintent.calls.scripted import contenders
from opensafeintent.errors import InputError, counted, first_exit_code, nearest
from opensafeintent.evaluation.forecast import Forecast, spent_of_run
from opensafeintent.evaluation.judge_check import JudgeCheck
from opensafeintent.evaluation.manifest import Manifest, RunFolder, with_labels
from opensafeintent.evaluation.missing import missing_reason
from opensafeintent.evaluation.pipeline import FIRST_ATTEMPT
from opensafeintent.evaluation.regrade import Regrade, Swapped, derive_regrades
from opensafeintent.evaluation.responses import GradedResponse
from opensafeintent.evaluation.run import RunTexts, derive
from opensafeintent.files import (
    Taken,
    locked_folder,
    make_private_folder,
    near,
    replaced_together,
    write_private,
    written_beside,
    written_together,
)
from opensafeintent.grades import GradeRow, grade_row, sort_rows, write_grades_of_runs
from opensafeintent.hostile import one_line
from opensafeintent.metrics import METRICS
from opensafeintent.promptsets import Dataset
from opensafeintent.report.formats import Table
from opensafeintent.report.gates import (
    gate_tables,
    gates_json,
    junit,
    not_met,
    summary,
    transitions_table,
)
from opensafeintent.report.metrics_json import metrics_json, to_json
from opensafeintent.report.tables import (
    Costs,
    all_tables,
    comparisons,
    cost_json,
    cost_tables,
    tables_in,
    write_tables,
)
from opensafeintent.statistics import CONFIDENCE
from opensafeintent.statistics.comparisons import SECOND_LOOK
from opensafeintent.taxonomy import SCALES
from opensafeintent.workflows.loop import rare_collections
from opensafeintent.workflows.settings import (
    Calling,
    CompareSettings,
    EvaluateSettings,
    Gating,
    ReportSettings,
)

if TYPE_CHECKING:
    from opensafeintent.extensions.correction import Correction

# Requested gates
# ------------------------------------------------------------------------------


def gates_of(settings: Gating | EvaluateSettings) -> list[Gate]:
    """Return the requested gates, in the order of their options; with --first-run, those alone that
    need no earlier run.

    Raises:
        InputError: one cannot be read, names no metric, or can only pass or only fail.
    """
    texts: dict[Kind, tuple[str, ...]] = {
        "under": settings.fail_under,
        "over": settings.fail_over,
        "worse": settings.fail_if_worse,
    }
    gates = [_read_gate(kind, text) for kind, of_kind in texts.items() for text in of_kind]
    return [gate for gate in gates if gate.kind != "worse" or not settings.first_run]


def _read_gate(kind: Kind, text: str) -> Gate:
    name, _, number = text.partition("=")
    name = name.rstrip().removesuffix({"under": ">", "over": "<"}.get(kind, "=")).strip()
    option = Gate(kind, name, 0).option
    try:
        gate = Gate(kind, name, float(number))
    except ValueError:
        raise InputError(
            f"{option} {text}: expected METRIC=X, a number after the metric, such as"
            " triplet_safety=0.8"
        ) from None
    if gate.metric not in METRICS:
        near = nearest(gate.metric, METRICS)
        if "refusal" in gate.metric:
            near += " The headline’s over-refusal is low_help_rate_benign."
        unknown = f"unknown metric {gate.metric!r}; {near}"
        raise InputError(f"{option}: {unknown}")
    if not isfinite(gate.limit):
        raise InputError(f"{option} {text}: expected a number")
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
        comparable = [name for name, one in METRICS.items() if not (one.neutral or one.conditional)]
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
    for option, value in (("--confidence", changed), ("--junit", settings.junit)):
        if value is not None and not gates and not settings.first_run:
            raise InputError(
                f"{option}: there is no gate; give --fail-under, --fail-over or --fail-if-worse"
            )
    if baseline is not None:
        _check_baseline(baseline, settings, runs)
    elif (settings.fail_if_worse or settings.pairs) and not settings.first_run:
        raise InputError("--fail-if-worse, --pair: there is no earlier run; give --baseline RUN")
    if settings.summary is not None and settings.summary == settings.junit:
        raise InputError(f"--summary, --junit: both are {settings.junit}; expected two files")
    for option, path in (("--summary", settings.summary), ("--junit", settings.junit)):
        if path is not None:
            check_file(option, path, [*runs, out, *([baseline] if baseline else [])])


def _check_baseline(baseline: Path, settings: Gating, runs: Sequence[Path]) -> None:
    if settings.first_run:
        raise InputError("--first-run: --baseline names an earlier run; leave one out")
    if not settings.fail_if_worse:
        raise InputError("--baseline: no metric to compare; give --fail-if-worse METRIC=MARGIN")
    if len(runs) != 1:
        raise InputError(f"--baseline: expected one run to compare with it, not {len(runs)}")
    RunFolder(baseline).check()
    if baseline.resolve() == runs[0].resolve():
        raise InputError(f"--baseline {baseline}: is the run itself; expected an earlier one")


_ANNEX = "annex.md"
_OURS = (
    _ANNEX,
    "run.json",
    "prompt_sets.jsonl",
    "ledger.sqlite",
    "metrics.json",
    "grades.csv.gz",
    "report.html",
    ".lock",
)


def check_file(option: str, path: Path, folders: Sequence[Path]) -> None:
    """Refuse a file that cannot be written, or that takes the place of one of ours.

    Raises:
        InputError: see above; the text names `option`.
    """
    if path.is_dir():
        raise InputError(f"{option} {path}: is a folder; expected a file")
    if path.name in _OURS and path.parent.resolve() in [folder.resolve() for folder in folders]:
        raise InputError(f"{option} {path}: has a place in the run already; choose another name")
    make_private_folder(path.parent)


# Results
# ------------------------------------------------------------------------------


def find_gates(
    settings: Gating,
    gates: Sequence[Gate],
    cohorts: Sequence[Cohort],
    runs: Sequence[GradedRun],
    earlier: GradedRun | None,
    texts: Mapping[str, RunTexts],
) -> Gates | None:
    """Compare the models of a report with its gates; None if there are none.

    Args:
        settings: of the command.
        gates: from the settings.
        cohorts: of the report.
        runs: its runs.
        earlier: the run of `--baseline`.
        texts: of each run, by its name.

    Raises:
        InputError: models cannot be paired, or the runs differ in more than the models.
    """
    if not gates:
        return None
    if not any(cohort.models for cohort in cohorts):
        raise InputError("no model: the run has none to compare with a gate")
    for run in (*runs, *([earlier] if earlier else [])):
        if early := ", ".join(run.manifest.stopped_early()):
            raise InputError(
                f"{run.name}: {early} stopped early, when the question of --stop-when was"
                " answered, and has no other verdict; run evaluate again without --stop-when"
            )
    thresholds = [gate for gate in gates if gate.kind != "worse"]
    results = tuple(hold_thresholds(cohorts, thresholds, settings.confidence))
    epochs = max(cohort.array.sizes["epoch"] for cohort in cohorts)
    reach = out_of_reach(most_sets(results), settings.confidence, epochs)
    cautions = _cautions(thresholds) + reach
    if earlier is None:
        return _with_second_look(Gates(results=results, cautions=cautions))
    (run,) = runs
    margins = [gate for gate in gates if gate.kind == "worse"]

    def same_text(new: GradeRow, old: GradeRow) -> bool:
        pair = ((run.name, new), (earlier.name, old))
        one, other = (
            texts[name].find(row.model, row.set_id, row.variant, row.epoch) for name, row in pair
        )
        return (one and one.text) == (other and other.text)

    changes = hold_against(
        cohorts, run, earlier, margins, settings.confidence, settings.pairs, same_text
    )
    return _with_second_look(
        msgspec.structs.replace(
            changes, results=results + changes.results, cautions=cautions + changes.cautions
        )
    )


def _with_second_look(gates: Gates) -> Gates:
    """Say beside the advice to take a larger sample what a second look at it costs."""
    if not any(result.deciding for result in gates.results):
        return gates
    advice = f"{SECOND_LOOK}: take new prompt-sets, or --confidence 0.98"
    return msgspec.structs.replace(gates, cautions=(*gates.cautions, advice))


def _cautions(gates: Sequence[Gate]) -> tuple[str, ...]:
    """Return cautions about thresholds: those that no model can pass, and those that a useless one
    passes.
    """
    cautions = [
        f"{gate.option} {gate.metric}: {'less' if less else 'more'} of it is better, so this fails"
        f" the best models; --fail-{'over' if less else 'under'} fails the worst"
        for gate in gates
        for less in (METRICS[gate.metric].less_is_better,)
        if not METRICS[gate.metric].neutral and less == (gate.kind == "under")
    ]
    for gate in gates:
        oracle = reference_values(gate.metric).oracle
        if oracle is not None and not gate.meets(oracle):
            cautions.append(
                f"{gate.text}: an oracle of intents has {gate.in_unit(round(oracle, 4))}, so no"
                " model that reframes if it should can pass"
            )
    refusing = {gate: reference_values(gate.metric).refuse_all for gate in gates}
    if gates and all(value is not None and gate.meets(value) for gate, value in refusing.items()):
        shown = ", ".join(f"{gate.metric} {value:g}" for gate, value in refusing.items())
        cautions.append(f"a model that refuses everything passes ({shown}): add a gate on utility")
    return tuple(dict.fromkeys(cautions))


def write_verdict(
    settings: Gating, cohorts: Sequence[Cohort], gates: Gates | None, page: Path
) -> None:
    """Write the summary and the JUnit file that are asked for.

    Raises:
        InputError: one cannot be written.
    """
    if settings.summary is not None:
        with written_beside(settings.summary) as file:
            file.write(summary(cohorts, gates, page).encode())
    if settings.junit is not None and gates is not None:
        with written_beside(settings.junit) as file:
            file.write(junit(cohorts, gates).encode())


# From runs to files that a reader opens, and to the verdict of a release gate
# ------------------------------------------------------------------------------


class Outcome(msgspec.Struct, kw_only=True):
    """Findings and files of a command, and how it ended."""

    exit_code: int
    """0 done; 1 done, with too many grades missing; 3 stopped by a provider; 4 a gate failed; 5 one
    is undecided.
    """
    out: Path | None = None
    """The folder that holds the results."""
    cohorts: list[Cohort] = []
    corrected: list[Correction] = []
    """Numbers corrected by human labels, by model and metric."""
    transitions: list[Transitions] = []
    """By model, which prompt-sets newly fail and newly pass; of `compare` over two runs."""
    gates: Gates | None = None
    """Results of the gates of a report; None if there are none."""
    notes: list[str] = []
    """Notes for a reader, a line each."""
    stopped: list[str] = []
    """Failures that did not end the rest, models that stopped above all, a line each."""
    forecast: Forecast | None = None
    """Of a dry run, which makes no call."""
    prices: Path | None = None
    """The user's file of prices, for a forecast."""
    checks: tuple[JudgeCheck, ...] = ()
    """Results of judges on the gold cases; of `judge-check`."""
    tally: Tally | None = None
    costs: Costs | None = None

    @classmethod
    def forecasting(cls, expected: Forecast, settings: Calling, notes: list[str]) -> Outcome:
        """Return the outcome of a dry run."""
        expected = msgspec.structs.replace(expected, connections=settings.max_connections)
        waits = (
            f"a model that answers with rate limits (429) alone for {settings.retry_for:g} minutes"
            " is stopped, and the run ends with exit code 3 (--retry-for)"
        )
        notes = [*notes, waits] if expected.lines else notes
        return cls(exit_code=0, forecast=expected, prices=settings.prices, notes=notes)

    def with_calls(self, client: Client) -> Outcome:
        """Return this outcome with notes on the calls that led to it."""
        failed = [
            f"{model}: a call that failed said: {error}"
            for model, error in client.last_errors.items()
            if model not in client.stopped_models
        ]
        notes = [*self.notes, *client.notices, *failed]
        return msgspec.structs.replace(self, tally=client.tally, notes=notes)


def write_report(settings: ReportSettings, display: Display | None = None) -> Outcome:
    """Rebuild the results of one or more runs from their ledgers: `metrics.json`, grades, tables,
    figures and the page.

    All of them are of one state of the ledgers, and replace earlier ones together.

    Raises:
        InputError: a folder holds no run or is being written to, a gate cannot be used, human
            labels do not belong to the runs, or the results cannot be written.
    """
    gates = gates_of(settings)
    if len(set(settings.runs)) > 1 and settings.out is None:
        raise InputError(
            "--out: is not given; a report over several runs needs a place of its own, --out DIR"
        )
    out = settings.out or settings.runs[0]
    for run in settings.runs:
        RunFolder(run).check()  # before the lock, which makes a folder
    check_gating(settings, gates, settings.runs, out)
    try:
        with (
            closing(display or Display()) as screen,
            rare_collections(),
            locked_folder(out, "writing a report into"),
        ):
            outcome = _write_report(settings, gates, out, screen)
    except Taken as taken:
        hint = "" if settings.out else "; or give --out DIR for a report on the results so far"
        raise InputError(f"{taken}{hint}") from taken
    if outcome.gates is not None:
        outcome.notes += [*outcome.gates.cautions, *not_met(outcome.gates)]
        outcome.exit_code = first_exit_code(outcome.exit_code, outcome.gates.exit_code)
    try:
        write_verdict(settings, outcome.cohorts, outcome.gates, out / "report.html")
    except InputError as error:  # all the rest is there
        outcome.stopped.append(str(error))
        outcome.exit_code = first_exit_code(outcome.exit_code, error.exit_code)
    return outcome


def _write_report(
    settings: ReportSettings, gates: Sequence[Gate], out: Path, display: Display
) -> Outcome:
    """Read, compute, draw, and put everything in its place; the folder is kept for us."""
    with replaced_together(out, lambda: _ours(out)) as new, ExitStack() as stack:
        folders = (*settings.runs, *([settings.baseline] if settings.baseline else []))
        opened = [
            stack.enter_context(_open_run(RunFolder(path), name, display))
            for path, name in named_runs(folders).items()
        ]
        texts = {run.name: RunTexts(run.manifest, run.dataset, ledger) for run, ledger in opened}
        earlier = opened.pop()[0] if settings.baseline else None
        manifests = with_labels([run.manifest for run, _ in opened], settings.label)
        runs = [
            run._replace(manifest=manifest)
            for (run, _), manifest in zip(opened, manifests, strict=True)
        ]
        corrector = _corrector(settings, texts) if settings.human_labels else None
        spent = {
            run.name: spent_of_run(run.manifest, run.dataset, ledger) for run, ledger in opened
        }
        display.stage("estimating")
        outcome, tables = _write_numbers(
            runs,
            new,
            settings.max_missing,
            Costs(spent, settings.prices),
            corrector,
            gate=lambda cohorts: find_gates(settings, gates, cohorts, runs, earlier, texts),
        )
        for run, path in zip(runs, named_runs(settings.runs), strict=True):
            outcome.notes += run.notes
            outcome.notes += unparsed_lines(run, texts[run.name], path, settings.max_missing)
        display.stage("drawing")
        _write_page(settings, runs, outcome, tables, texts, new, earlier=out)
        if settings.annex:
            from opensafeintent.extensions.annex import render_annex

            annex = render_annex(
                outcome.cohorts,
                runs,
                tables,
                texts,
                {run.name: ledger.latest() for run, ledger in opened},
                gates=outcome.gates,
                include_unsafe=settings.include_unsafe,
                max_missing=settings.max_missing,
            )
            write_private(new / _ANNEX, annex)
            outcome.notes.append(f"the annex is {out / _ANNEX}")
    outcome.out = out
    return outcome


def read_graded_runs(runs: Sequence[Path], display: Display | None = None) -> list[GradedRun]:
    """Rebuild runs from their ledgers; one that is named twice is read once."""
    screen = display or Display()
    return [
        read_graded_run(RunFolder(path), name, screen) for path, name in named_runs(runs).items()
    ]


Corrector = Callable[[Sequence[Cohort]], "tuple[list[Correction], list[str]]"]
"""Corrects the numbers of a report's cohorts, and returns notes on labels that were left out."""


def _corrector(settings: ReportSettings, texts: Mapping[str, RunTexts]) -> Corrector:
    from opensafeintent.extensions.correction import correct, read_human_labels

    labels = read_human_labels(settings.human_labels)
    return lambda cohorts: correct(labels, cohorts, texts)


def _write_page(
    settings: ReportSettings,
    runs: Sequence[GradedRun],
    outcome: Outcome,
    tables: Sequence[Table],
    texts: Mapping[str, RunTexts],
    out: Path,
    *,
    earlier: Path,
) -> None:
    """Write the figures and the page; their libraries are loaded only here."""
    from opensafeintent.report.figures import all_figures, write_figures
    from opensafeintent.report.page import render_page

    figures = all_figures(outcome.cohorts)
    write_figures(figures, out / "figures", earlier=earlier / "figures")
    page = render_page(
        outcome.cohorts,
        runs,
        tables,
        figures,
        texts,
        include_unsafe=settings.include_unsafe,
        drawings=out / "figures",
        max_missing=settings.max_missing,
        gates=outcome.gates,
        places=_places(settings.runs, earlier),
    )
    write_private(out / "report.html", page)


def _places(runs: Sequence[Path], page_folder: Path) -> dict[str, str]:
    """Return the path of each run from the folder of the page; a run on another drive has none."""
    places: dict[str, str] = {}
    for path, name in named_runs(runs).items():
        with suppress(ValueError):
            places[name] = Path(os.path.relpath(path, page_folder.resolve())).as_posix()
    return places


def compare(settings: CompareSettings, display: Display | None = None) -> Outcome:
    """Compare every two models of one or more runs on the prompt-sets that count for both.

    Raises:
        InputError: a folder holds no run, there are not two models, or they were evaluated on other
            datasets or judged differently.
    """
    with closing(display or Display()) as screen, rare_collections():
        runs = read_graded_runs(settings.runs, screen)
        cohorts = into_cohorts(runs)
        _check_alike(runs, cohorts)
        screen.stage("estimating")
        for cohort in cohorts:
            _ = cohort.estimates.comparisons
    transitions = transitions_between(cohorts, *runs) if len(runs) == 2 else []
    if settings.out is not None:
        tables = [comparisons(cohorts), *([transitions_table(transitions)] if transitions else [])]
        with written_together(settings.out) as new:
            write_tables(tables, new)
    return Outcome(exit_code=0, out=settings.out, cohorts=cohorts, transitions=transitions)


def _check_alike(runs: Sequence[GradedRun], cohorts: Sequence[Cohort]) -> None:
    """Refuse runs of which no model can be compared with one of the first.

    Raises:
        InputError: see above; the text names the difference.
    """
    if sum(len(cohort.models) for cohort in cohorts) < 2:
        raise InputError("nothing to compare: there are not two models")
    first, *others = runs
    if not others and max(len(cohort.models) for cohort in cohorts) < 2:
        others = [first]  # its own models differ
    shared = [{origin.run for origin in cohort.origins.values()} for cohort in cohorts]
    for run in others:
        if run is not first and any({first.name, run.name} <= names for names in shared):
            continue
        one, other = contenders(first.manifest.models)[0], contenders(run.manifest.models)[-1]
        differences = "; ".join(unlike_conditions(first, run, one, other))
        raise InputError(
            f"{_named(first, one)} and {_named(run, other)} cannot be compared: {differences}"
        )


def _named(run: GradedRun, model: str) -> str:
    return f"{one_line(model, 200)} of {one_line(run.name, 200)}"


def named_runs(runs: Sequence[Path]) -> dict[Path, str]:
    """Return the name of each run, each of them once."""
    paths = list(dict.fromkeys(path.resolve() for path in runs))
    names = [path.name for path in paths]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in paths}


def read_graded_run(folder: RunFolder, name: str, display: Display | None = None) -> GradedRun:
    """Rebuild one run from its manifest and ledger."""
    with _open_run(folder, name, display or Display()) as (run, _):
        return run


@contextmanager
def _open_run(folder: RunFolder, name: str, display: Display) -> Iterator[tuple[GradedRun, Ledger]]:
    """Rebuild one run; the ledger stays as it was read, for the texts."""
    stage = f"reading {one_line(name, 60)}"
    display.stage(stage)
    manifest, dataset = folder.load()
    path = folder.ledger_path(manifest)
    if not path.is_file():
        raise InputError(f"{path}: the run's ledger is not there")

    def read(done: int, of: int) -> None:
        models = counted(len(manifest.models), "model")
        display.stage(f"{stage}: {done:,} of {of:,} responses of {models}")

    with Ledger(path, readonly=True) as ledger, ledger.snapshot():
        graded = derive(manifest, dataset, ledger, read=read)
        second = derive_regrades(manifest, dataset, ledger, graded)
        run = graded_run_of(name, manifest, dataset, graded, *second)
        run = run._replace(notes=_unreadable(path, ledger.imports))
        del graded  # a hundred thousand records, needed no longer
        yield run, ledger


_NAMED_ROWS = 5


def _unreadable(path: Path, imports: Imports) -> list[str]:
    """Say which imported responses are left out because they cannot be read."""
    gone = [
        f"{path}: an imported response of {one_line(model, 80)} to {one_line(set_id, 80)},"
        f" {one_line(variant, 40)}, was left out: {why}"
        for (model, set_id, variant, _), why in imports.unreadable.items()
    ]
    more = [f"{path}: … and {len(gone) - _NAMED_ROWS:,} more"] * (len(gone) > _NAMED_ROWS)
    return [*gone[:_NAMED_ROWS], *more]


def graded_run_of(
    name: str,
    manifest: Manifest,
    dataset: Dataset,
    graded: Sequence[GradedResponse],
    regrades: Sequence[Regrade] = (),
    swaps: Sequence[Swapped] = (),
) -> GradedRun:
    """Put graded responses in order."""
    rows = (grade_row(response, manifest.models[response.model].mode_judge) for response in graded)
    return GradedRun(
        name,
        manifest,
        dataset,
        sort_rows(rows, dataset, sorted(manifest.models)),
        regrades,
        swaps=swaps,
    )


def write_results(
    run: GradedRun,
    folder: RunFolder,
    max_missing: float,
    prices: Path | None = None,
    display: Display | None = None,
    *,
    page: bool = False,
) -> Outcome:
    """Write all derived files of a run into its folder, and return notes for a reader.

    Args:
        run: the run.
        folder: its folder, held by this process.
        max_missing: share of missing grades beyond which the exit code is 1.
        prices: the user's file of prices.
        display: is called when page and figures are drawn.
        page: whether they are drawn; otherwise those of an earlier report, which show other
            numbers, are removed.
    """
    out, source = folder.path, (run.manifest, run.dataset)
    earlier = out / "report.html"
    outdated = earlier.exists() and not page
    with (
        Ledger(folder.ledger_path(run.manifest), readonly=True) as ledger,
        replaced_together(out, lambda: _ours(out)) as new,
    ):
        costs = Costs({run.name: spent_of_run(*source, ledger)}, prices)
        outcome, tables = _write_numbers([run], new, max_missing, costs)
        outcome.notes += run.notes
        texts = {run.name: RunTexts(*source, ledger)}
        outcome.notes += unparsed_lines(run, texts[run.name], out, max_missing)
        if page:
            (display or Display()).stage("drawing")
            settings = ReportSettings(runs=(out,), max_missing=max_missing)
            _write_page(settings, [run], outcome, tables, texts, new, earlier=out)
    outcome.out = out
    if outdated:
        outcome.notes.append(f"the earlier {earlier} was removed, for it is out of date")
    return outcome


def _write_numbers(
    runs: Sequence[GradedRun],
    out: Path,
    max_missing: float,
    costs: Costs,
    corrector: Corrector | None = None,
    gate: Callable[[Sequence[Cohort]], Gates | None] = lambda cohorts: None,
) -> tuple[Outcome, list[Table]]:
    """Write metrics, costs, grades and tables; return the results, and the tables.

    Args:
        runs: the runs.
        out: the folder.
        max_missing: share of missing grades beyond which the exit code is 1.
        costs: of the runs.
        corrector: corrects the numbers by human labels; the corrected ones appear beside the
            judge's, never in their place.
        gate: compares the models with the gates of a report.
    """
    cohorts = into_cohorts(runs)
    gates = gate(cohorts)
    corrected, left_aside = corrector(cohorts) if corrector else ([], [])
    correction, correction_tables = _correction(corrected, cohorts)
    estimates = {
        **metrics_json(cohorts),
        **correction,
        **gates_json(gates),
        "other_models": costs.other_models,
    }
    write_private(out / "metrics.json", to_json(estimates))
    write_grades_of_runs({run.name: (run.rows, run.dataset) for run in runs}, out / "grades.csv.gz")
    write_private(out / "cost.json", cost_json(costs))
    tables = [
        *all_tables(cohorts),
        *correction_tables,
        *gate_tables(gates),
        *cost_tables(costs),
    ]
    write_tables(tables, out / "tables")
    covered = [one for cohort in cohorts for one in cohort.coverage.items()]
    beyond = [
        f"{model}: {_missing(cohort.rows[model], coverage, max_missing)}"
        for cohort in cohorts
        for model, coverage in cohort.coverage.items()
        if coverage.missing_beyond(max_missing)
    ]
    partial = [line for one in covered for lines in _LINES for line in lines(*one)]
    outcome = Outcome(
        exit_code=1 if beyond else 0,
        cohorts=cohorts,
        corrected=corrected,
        gates=gates,
        notes=[*partial, *left_aside, *beyond],
        costs=costs,
    )
    return outcome, tables


def _ours(out: Path) -> list[Path]:
    """Return files of an earlier report that a new one may not have; other files in the folder are
    not ours.
    """
    from opensafeintent.report.figures import figures_in

    page = [path for path in (out / "report.html", out / _ANNEX) if path.is_file()]
    return [*page, *figures_in(out / "figures"), *tables_in(out / "tables")]


def _correction(
    corrected: Sequence[Correction], cohorts: Sequence[Cohort]
) -> tuple[dict[str, Any], list[Table]]:
    """Return the `metrics.json` entry of a correction by human labels, and its table."""
    if not corrected:
        return {}, []
    from opensafeintent.extensions.correction import corrected_json, correction_table

    return {"corrected": corrected_json(corrected)}, [correction_table(corrected, cohorts)]


def _missing(rows: Sequence[GradeRow], coverage: Coverage, most: float) -> str:
    """Say how many of a model's responses and grades are missing, more than `most`, and why."""
    absent = (
        f" and {100 * coverage.absent:.1f} % of the planned responses are not stored"
        if coverage.absent
        else ""
    )
    reasons = [(row, gone) for row in rows for gone in row.missing]
    responses = Counter(gone.reason for _, gone in reasons if gone.what == "response")
    grades = Counter(gone.reason for row, gone in reasons if gone.what in SCALES and not row.counts)
    asked = 2 * (len(rows) - coverage.not_graded - responses.total())
    counts = (
        f"{counter.total():,} of {total:,} {what} are missing"
        f" ({', '.join(f'{reason}: {count}' for reason, count in sorted(counter.items()))})"
        for counter, total, what in (
            (responses, len(rows), "responses"),
            (grades, asked, "grades asked for"),
        )
        if counter
    )
    kinds = Counter(
        missing_reason(gone.what, gone.reason)
        for row, gone in reasons
        if gone.what == "response" or (gone.what in SCALES and not row.counts)
    )
    advice = "".join(
        f"; most often {kind.meaning}: {kind.advice}" for kind, _ in kinds.most_common(1)
    )
    return (
        f"{' and '.join(counts) or 'no grade is missing'}{absent}, more than the"
        f" {100 * most:g} % of --max-missing{advice}"
    )


def unparsed_lines(
    run: GradedRun, texts: RunTexts, path: Path, max_missing: float
) -> Iterator[str]:
    """Yield a line for each judge of which too large a share of the replies could not be parsed:
    one of them, and the next step. If reasoning is the cause, the line says so.

    Args:
        run: the run.
        texts: its texts.
        path: its folder.
        max_missing: the share.
    """
    asked, lost = Counter[str](), Counter[str]()
    example: dict[str, tuple[GradeRow, str, str]] = {}
    for row in run.rows:
        asked.update({judge: len(SCALES) for judge in row.by_judge})
        for gone in row.missing:
            if gone.what in SCALES and gone.reason in _UNPARSED:
                judge = gone.judge or next(iter(row.by_judge))
                lost[judge] += 1
                example.setdefault(judge, (row, gone.what, gone.reason))
    for judge, (row, what, reason) in example.items():
        replies = [
            traced.reply
            for traced in texts.trace(row.set_id)
            if (traced.subject, traced.variant, traced.epoch) == (row.model, row.variant, row.epoch)
            and traced.model == judge
            and what.startswith(traced.purpose)
            and traced.attempt < FIRST_ATTEMPT
            and traced.reply is not None
        ]
        if replies and lost[judge] > max_missing * asked[judge]:
            limit = (run.manifest.sampling_of_judge(judge) or Sampling()).max_tokens
            contract = run.manifest.templates_of(row.model).harm.contract
            form = "a JSON object" if getattr(contract, "reason", False) else "one integer"
            yield (
                f"judge {judge}: {lost[judge]:,} of {asked[judge]:,} grades could not be parsed"
                f" after {len(replies)} attempts; expected {form}, got"
                f"{_got(replies[0], reason)}. See opensafeintent trace {near(path)} --set"
                f" {row.set_id}. Try a larger --judge-max-tokens ({limit})"
                f"{_WITHOUT_REASONING if reason != 'unparsed' else ''} or another judge"
            )


_UNPARSED = ("unparsed", "reasoning_only", "unknown_mark")
"""Reasons of a grade that is missing because of the form of the judge's reply."""
_WITHOUT_REASONING = ", less reasoning (--judge-reasoning-effort, --judge-arg)"


def _got(reply: str, reason: str) -> str:
    if reason == "reasoning_only":
        return " reasoning and no text"
    quoted = f' "{one_line(reply, _EXAMPLE)}"'
    if reason == "unknown_mark":
        quoted += f", which begins with reasoning under the unknown mark {unknown_mark(reply)}"
    return quoted


_EXAMPLE = 40
"""Characters of a reply that is quoted: a longer one may quote the response."""


def reply_lines(model: str, coverage: Coverage) -> Iterator[str]:
    """Say how odd replies of a model were read, a line for each kind."""
    of = f"of {coverage.responses:,}"
    counts = (
        (coverage.empty, "empty replies counted as refusals"),
        (coverage.filtered_with_text, "responses cut by a content filter and graded as they are"),
        (coverage.text_not_kept, "filtered responses, text not kept, counted as refusals"),
    )
    yield from (f"{model}: {what}: {count:,} {of}" for count, what in counts if count)
    for field, what in (
        (coverage.unknown_stop_reasons, "unknown stop reasons of graded responses"),
        (coverage.unknown_marks, "unknown marks of reasoning at the beginning of graded responses"),
    ):
        if field:
            named = ", ".join(f"{one_line(name, 60)} ({count:,})" for name, count in field.items())
            yield f"{model}: {what}: {named}"
    if coverage.reasoning_only:
        by_intent = ", ".join(
            f"{own.tried_again:,} of {own.responses:,} {intent.replace('_', '-')}"
            for intent, own in coverage.reasoning_only.items()
        )
        yield f"{model}: first attempts with reasoning and no text, tried once more: {by_intent}"


def partial_lines(model: str, coverage: Coverage) -> Iterator[str]:
    """Say which of a model's responses or grades are not there yet."""
    if coverage.partial:
        stored = f"{coverage.responses:,} of {counted(coverage.planned, 'response')} stored"
        yield f"{model}: partial: {stored}"
    if coverage.withheld:
        yield (
            f"{model}: {counted(coverage.withheld, 'response')} withheld as unsafe, with missing"
            " grades: the numbers are not valid"
        )
    if coverage.not_graded:
        yield (
            f"{model}: {counted(coverage.not_graded, 'response')} without grades:"
            " opensafeintent grade RUN"
        )


_LINES = (partial_lines, reply_lines)
"""Notes on the coverage of a model."""
