"""From runs to files that a reader opens, and to the verdict of a release gate; comparisons of
models.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from filecmp import cmp
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import UNSET, UnsetType

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display, display_for
from opensafeintent.commands.checking_judges import (
    add_known_checks,
    default_judge_files,
    list_label_checks,
    read_judge_files,
)
from opensafeintent.commands.gate_check import (
    ANNEX,
    JUDGES,
    check_gating,
    find_gates,
    list_gates,
    write_refusal,
    write_verdict,
)
from opensafeintent.commands.graded_runs import (
    check_join,
    check_results_folder,
    choose_prices,
    name_runs,
    open_run,
    read_joined_runs,
)
from opensafeintent.commands.outcome import (
    Compared,
    RunOutcome,
    describe_unparsed,
    describe_unsafe_texts,
)
from opensafeintent.commands.reproduce import reconstruct_command
from opensafeintent.commands.session import delay_garbage_collection
from opensafeintent.commands.settings import CompareSettings, ReportSettings
from opensafeintent.errors import (
    InputError,
    first_exit_code,
)
from opensafeintent.evaluation.forecast import sum_spent_on_run
from opensafeintent.evaluation.labelled_responses import UNSAFE
from opensafeintent.evaluation.manifest import RunFolder, label_models
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import to_json, write_beside, write_private
from opensafeintent.grades import write_run_grades
from opensafeintent.numbers.cohort import (
    Cohort,
    GradedRun,
    gather_models,
    rename_model,
    select_label_checks,
)
from opensafeintent.numbers.gates import (
    Gate,
    Gates,
    list_transitions_between,
    list_transitions_within,
)
from opensafeintent.numbers.label_checks import LabelCheck
from opensafeintent.promptsets import Dataset
from opensafeintent.replacing import Taken, lock_folder, replace_together, write_together
from opensafeintent.report.annex import render_annex
from opensafeintent.report.columns import Table
from opensafeintent.report.conditions import render_judge_requests
from opensafeintent.report.corrections import (
    Correction,
    correct,
    correction_table,
    make_corrected_metrics,
    read_human_labels,
)
from opensafeintent.report.cost_tables import Costs, encode_costs, make_cost_tables
from opensafeintent.report.figures import (
    draw_all_figures,
    list_figure_files,
    write_figures,
    write_for_print,
)
from opensafeintent.report.figures.drawing import PRINT
from opensafeintent.report.findings import collect_findings, rank_or_compare_models
from opensafeintent.report.gate_tables import (
    describe_unmet_gates,
    list_gate_results,
    make_gate_tables,
    make_transitions_table,
)
from opensafeintent.report.metrics_json import (
    CorrectedMetrics,
    MetricsFile,
    list_finding_facts,
    list_notice_facts,
    make_metrics_file,
)
from opensafeintent.report.notices import Results, collect_notices, find_too_many_missing
from opensafeintent.report.page import PageOptions, render_page
from opensafeintent.report.printing.results import names_deciding_sample
from opensafeintent.report.tables import list_table_files, make_all_tables, write_tables
from opensafeintent.report.tables_metrics import comparisons
from opensafeintent.report.tables_people import make_label_tables
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import MISSING_ODDS


def write_report(settings: ReportSettings, *, quiet: bool = False) -> RunOutcome:
    """Rebuild the results of one or more runs from their ledgers: `metrics.json`, grades, tables,
    figures and the page.

    All of them are of one state of the ledgers, and replace earlier ones together.

    Raises:
        InputError: a folder holds no run or is being written to, `out` holds another run or a
            build, a gate cannot be used, human
            labels do not belong to the runs, or the results cannot be written.
    """
    gates = list_gates(settings)
    if len(set(settings.runs)) > 1 and settings.out is None:
        raise InputError(
            "--out: is not given; a report over several runs needs a place of its own, --out DIR"
        )
    out = settings.out or settings.runs[0]
    for run in settings.runs:
        RunFolder(run).check()  # before the lock, which makes a folder
    check_results_folder(out, settings.runs)
    check_gating(settings, gates, settings.runs, out)
    try:
        with (
            closing(display_for(quiet=quiet)) as screen,
            delay_garbage_collection(),
            # a copy to share has no file that names this machine
            lock_folder(out, "writing a report into", lock_stays=RunFolder(out).exists()),
        ):
            outcome = _write_report_files(settings, gates, out, screen)
    except InputError as refusal:
        hint = "; or give --out DIR for a report on the results so far"
        taken = isinstance(refusal, Taken) and not settings.out
        refused = InputError(f"{refusal}{hint}") if taken else refusal
        if gates:
            write_refusal(settings, refused)
        raise refused from refusal.__cause__
    if outcome.gates is not None:
        outcome.notes += describe_unmet_gates(outcome.gates)
        outcome.exit_code = first_exit_code(outcome.exit_code, outcome.gates.exit_code)
    _, corrected = _make_correction_outputs(outcome.corrected, outcome.results)
    try:
        write_verdict(settings, outcome, out / "report.html", next(iter(corrected), None))
    except InputError as error:  # all the rest is there
        outcome.stopped.append(str(error))
        outcome.exit_code = first_exit_code(outcome.exit_code, error.exit_code)
    return outcome


def _write_report_files(
    settings: ReportSettings, gates: Sequence[Gate], out: Path, display: Display
) -> RunOutcome:
    """Read the runs, and write the report into `out`, which this process has locked."""
    with replace_together(out, lambda: _list_report_files(out)) as staging, ExitStack() as stack:
        folders = (*settings.runs, *([settings.baseline] if settings.baseline else []))
        opened = [
            stack.enter_context(open_run(RunFolder(path, settings.ledger), name, display))
            for name, path in name_runs(folders).items()
        ]
        texts = {run.name: RunTexts(run.manifest, run.dataset, ledger) for run, ledger in opened}
        baseline = opened.pop()[0] if settings.baseline else None
        files = read_judge_files(settings.checks)
        manifests = label_models([run.manifest for run, _ in opened], settings.label)
        corrector = None
        if settings.human_labels:
            corrector = partial(correct, read_human_labels(settings.human_labels), texts=texts)
        spent = {
            run.name: sum_spent_on_run(run.manifest, run.dataset, ledger) for run, ledger in opened
        }
        runs = [
            add_known_checks(run._replace(manifest=manifest), files)
            for (run, ledger), manifest in zip(opened, manifests, strict=True)
        ]
        # beside a baseline of the same name, a run has another one than alone
        folders_of_runs = dict(
            zip([run.name for run in runs], name_runs(settings.runs).values(), strict=True)
        )
        display.stage("estimating")
        prices, unlike_prices = choose_prices(settings.prices, manifests)
        outcome, tables = _write_numbers(
            runs,
            staging,
            settings.max_missing,
            Costs(spent, prices),
            corrector,
            labels=list_label_checks(files),
            folders=folders_of_runs,
            gate=lambda cohort: find_gates(settings, gates, cohort, runs, baseline, texts),
            missing_odds=settings.missing_odds,
        )
        for run in runs:
            path = folders_of_runs[run.name]
            unparsed = describe_unparsed(run, texts[run.name], path, settings.max_missing)
            outcome.notes += unparsed
        outcome.notes += unlike_prices
        display.stage("drawing")
        _write_page(settings, runs, outcome, tables, texts, staging, present=out)
        if settings.annex:
            days = {run.name: ledger.latest() for run, ledger in opened}
            _write_annex(settings, runs, outcome, tables, texts, days, staging)
            outcome.notes.append(f"the annex is {out / ANNEX}")
    outcome.out = out
    return outcome


def _write_annex(
    settings: ReportSettings,
    runs: Sequence[GradedRun],
    outcome: RunOutcome,
    tables: Sequence[Table],
    texts: Mapping[str, RunTexts],
    latest: Mapping[str, str],
    out: Path,
) -> None:
    """Write the annex of a safety report.

    Args:
        settings, runs, outcome, tables, texts, out: as for `_write_page`.
        latest: when a call was last made, by run.
    """
    annex = render_annex(
        outcome.results,
        runs,
        tables,
        texts,
        latest,
        gates=outcome.gates,
        include_unsafe=settings.include_unsafe,
        notices=outcome.notices,
    )
    write_private(out / ANNEX, annex)


Corrector = Callable[[Cohort], "tuple[list[Correction], list[str]]"]
"""Corrects the numbers of a report, and returns notes on labels that were left out."""


def _write_page(
    settings: ReportSettings,
    runs: Sequence[GradedRun],
    outcome: RunOutcome,
    tables: Sequence[Table],
    texts: Mapping[str, RunTexts],
    out: Path,
    *,
    present: Path,
) -> None:
    """Write the figures, the page and what judges were asked.

    Args:
        settings: of the report.
        runs: with every check that is known of their judges.
        outcome: the results.
        tables: of the results.
        texts: of the runs.
        out: the folder where the new report is written.
        present: the folder that the new report will replace; unchanged figures are taken from it.
    """
    figures, places = (
        draw_all_figures(outcome.results),
        _find_run_paths(settings.runs, runs, present),
    )
    write_figures(figures, out / "figures", earlier=present / "figures")
    if settings.figures_for == "print":
        write_for_print(draw_all_figures(outcome.results, for_print=True), out / "figures" / PRINT)
    if asked := render_judge_requests(runs):
        write_private(out / JUDGES, asked)
    options = PageOptions(
        include_unsafe=settings.include_unsafe,
        drawings=out / "figures",
        notices=outcome.notices,
        gates=outcome.gates,
        places=places,
        reproduction=reconstruct_command(settings, (run.manifest for run in runs)),
        days=outcome.costs.days if outcome.costs else None,
        judges_asked=bool(asked),
    )
    page = render_page(outcome.results, tables, figures, texts, options)
    with write_beside(out / "report.html", private=True) as file:
        file.writelines(page.pieces)
    if settings.include_unsafe:
        outcome.notes.append(describe_unsafe_texts(page.unsafe))


def _find_run_paths(
    folders: Sequence[Path], runs: Sequence[GradedRun], page_folder: Path
) -> dict[str, str]:
    """Return the path of each run from the folder of the page; a run on another drive has none."""
    places: dict[str, str] = {}
    for path, run in zip(name_runs(folders).values(), runs, strict=True):
        with suppress(ValueError):
            places[run.name] = Path(os.path.relpath(path, page_folder.resolve())).as_posix()
    return places


def compare(settings: CompareSettings, *, quiet: bool = False) -> Compared:
    """Compare every two models of one or more runs on the prompt-sets that count for both.

    Raises:
        InputError: a folder holds no run, there are not two models, or they were evaluated on other
            datasets or judged differently, or `out` holds another run or a build.
    """
    if settings.out is not None:
        check_results_folder(settings.out, settings.runs)
    with closing(display_for(quiet=quiet)) as screen, delay_garbage_collection():
        files, _ = default_judge_files()
        runs = [
            add_known_checks(run, files)
            for run in read_joined_runs(settings.runs, settings.ledger, screen)
        ]
        cohort = gather_models(runs, settings.missing_odds)
        if len(cohort.models) < 2:
            raise InputError("nothing to compare: there are not two models")
        screen.stage("estimating")
        _ = cohort.estimates.comparisons
    transitions = (
        list_transitions_within(cohort)
        if len(runs) == 1
        else list_transitions_between(cohort, *runs)
        if len(runs) == 2
        else []
    )
    if settings.out is not None:
        tables = [
            comparisons(cohort),
            *([make_transitions_table(transitions)] if transitions else []),
        ]
        with write_together(settings.out) as staging:
            write_tables(tables, staging)
    return Compared(
        exit_code=0,
        out=settings.out,
        runs=settings.runs,
        cohort=cohort,
        transitions=transitions,
        notices=collect_notices(
            Results(cohort=cohort, runs=runs, undecided=names_deciding_sample(cohort))
        ),
        findings=[*rank_or_compare_models(cohort), *collect_findings(cohort)],
    )


def write_results(
    run: GradedRun,
    folder: RunFolder,
    max_missing: float,
    display: Display | None = None,
    *,
    page: bool = False,
) -> RunOutcome:
    """Write all derived files of a run into its folder, and return notes for a reader.

    Args:
        run: the run.
        folder: its folder, held by this process.
        max_missing: share of missing grades beyond which the exit code is 1.
        display: is called when page and figures are drawn.
        page: whether they are drawn; otherwise those of an earlier report are removed if they
            show other numbers.
    """
    out, source = folder.path, (run.manifest, run.dataset)
    page_file = out / "report.html"
    removes_page = False

    def list_obsolete() -> list[Path]:
        nonlocal removes_page
        if not page and _holds_same_files(staging, out):
            return []
        removes_page = page_file.exists() and not page
        return _list_report_files(out)

    with (
        Ledger(folder.ledger_path(run.manifest), readonly=True) as ledger,
        replace_together(out, list_obsolete) as staging,
    ):
        spent = sum_spent_on_run(*source, ledger)
        files, unread = default_judge_files()
        run = add_known_checks(run, files)
        outcome, tables = _write_numbers(
            [run],
            staging,
            max_missing,
            Costs({run.name: spent}, run.manifest.prices or None),
            labels=list_label_checks(files),
            folders={run.name: out},
        )
        texts = {run.name: RunTexts(*source, ledger)}
        unparsed = describe_unparsed(run, texts[run.name], out, max_missing)
        outcome.notes += [*unread, *unparsed]
        if page:
            (display or Display()).stage("drawing")
            settings = ReportSettings(runs=(out,), max_missing=max_missing)
            _write_page(settings, [run], outcome, tables, texts, staging, present=out)
    outcome.out = out
    if removes_page:
        line = f"the earlier {page_file} was removed, for it is out of date"
        outcome.notes.append(line)
    return outcome


def read_tables(path: Path, ledgers: Sequence[Path]) -> tuple[list[Table], list[str]]:
    """Return every table of a run, and notes for a reader.

    Args:
        path: the run's folder, which stays as it is.
        ledgers: of its calls, if they are outside the folder.

    Raises:
        InputError: the folder holds no run, or one that is damaged.
    """
    (name,) = name_runs([path])
    with (
        TemporaryDirectory() as new,
        open_run(RunFolder(path, ledgers), name, Display()) as (run, ledger),
    ):
        files, unread = default_judge_files()
        spent = sum_spent_on_run(run.manifest, run.dataset, ledger)
        outcome, tables = _write_numbers(
            [add_known_checks(run, files)],
            Path(new),
            1.0,
            Costs({run.name: spent}, run.manifest.prices or None),
            labels=list_label_checks(files),
            folders={run.name: path},
        )
    return tables, [*unread, *outcome.notes]


def _write_numbers(
    runs: Sequence[GradedRun],
    out: Path,
    max_missing: float,
    costs: Costs,
    corrector: Corrector | None = None,
    labels: Sequence[LabelCheck] = (),
    folders: Mapping[str, Path] = {},
    gate: Callable[[Cohort], Gates | None] = lambda cohort: None,
    missing_odds: float = MISSING_ODDS,
) -> tuple[RunOutcome, list[Table]]:
    """Write metrics, costs, grades and tables; return the results, and the tables.

    Args:
        runs, out: the runs and the folder.
        max_missing: share of missing grades beyond which the exit code is 1.
        costs: of the runs.
        corrector: corrects the numbers by human labels, beside the judge's own.
        labels: comparisons of judges with people.
        folders: of the runs, by name.
        gate: compares the models with the gates of a report.
        missing_odds: `--missing-odds`.
    """
    check_join(runs, folders)
    cohort = gather_models(runs, missing_odds)
    costs.names = dict(zip(cohort.origins, cohort.models, strict=True))
    lacking = tuple(find_too_many_missing(cohort, max_missing))
    if (gates := gate(cohort)) is not None:
        gates = msgspec.structs.replace(gates, lacking=lacking)
    corrected, left_aside = corrector(cohort) if corrector else ([], [])
    correction, correction_tables = _make_correction_outputs(corrected, cohort)
    compared = select_label_checks(labels, cohort)
    results = Results(
        cohort=cohort,
        runs=runs,
        max_missing=max_missing,
        corrected=any(item.corrected for item in corrected),
        compared={item.judge for item in compared if item.source.called == UNSAFE.called},
        gates=gates,
        dollars_a_grade=costs.average_grades(cohort.conditions.judges),
    )
    outcome = RunOutcome(
        exit_code=1 if lacking else 0,
        cohort=cohort,
        corrected=corrected,
        gates=gates,
        notices=collect_notices(results),
        findings=[*rank_or_compare_models(cohort), *collect_findings(cohort)],
        notes=left_aside,
        costs=costs,
    )
    write_private(out / "metrics.json", to_json(_collect_metrics(outcome, compared, correction)))
    write_run_grades(_rename_models_in_rows(runs, costs.names), out / "grades.csv.gz")
    write_private(out / "cost.json", encode_costs(costs))
    labelled = make_label_tables(compared, in_report=True)
    further = (*labelled, *correction_tables, *make_gate_tables(gates), *make_cost_tables(costs))
    tables = [*make_all_tables(cohort), *further]
    write_tables(tables, out / "tables")
    return outcome, tables


def _collect_metrics(
    outcome: RunOutcome, compared: list[LabelCheck], corrected: CorrectedMetrics | UnsetType
) -> MetricsFile:
    """Return the content of `metrics.json`."""
    gates, costs = outcome.gates, outcome.costs
    return msgspec.structs.replace(
        make_metrics_file(outcome.results),
        gates=UNSET if gates is None else list_gate_results(gates),
        other_models=UNSET if costs is None else costs.other_models,
        notices=list_notice_facts(outcome.notices),
        findings=list_finding_facts(outcome.findings),
        judge_labels=compared or UNSET,
        corrected=corrected,
    )


def _rename_models_in_rows(
    runs: Sequence[GradedRun], shown: Mapping[tuple[str, str], str]
) -> dict[str, tuple[list[GradedResponse], Dataset]]:
    """Return by run its responses, second replies last, and its dataset. Each response has the
    model's name in tables.

    Args:
        runs: the runs.
        shown: the name in tables of each model, by (run, model).
    """
    return {
        run.name: (
            [rename_model(row, shown[run.name, row.model]) for row in (*run.rows, *run.follow_ups)],
            run.dataset,
        )
        for run in runs
    }


def _holds_same_files(new: Path, out: Path) -> bool:
    """Tell whether every file of `new` is in `out` too, with the same content."""
    pairs = [(path, out / path.relative_to(new)) for path in new.rglob("*") if path.is_file()]
    return all(old.is_file() and cmp(path, old, shallow=False) for path, old in pairs)


def _list_report_files(out: Path) -> list[Path]:
    """Return the files of an earlier report in a folder that a new one may leave out: page, annex,
    judges' requests, figures and tables.
    """
    page = [path for name in ("report.html", ANNEX, JUDGES) if (path := out / name).is_file()]
    return [*page, *list_figure_files(out / "figures"), *list_table_files(out / "tables")]


def _make_correction_outputs(
    corrected: Sequence[Correction], cohort: Cohort
) -> tuple[CorrectedMetrics | UnsetType, list[Table]]:
    """Return the `metrics.json` entry of a correction by human labels, and its table."""
    if not corrected:
        return UNSET, []
    return make_corrected_metrics(corrected), [correction_table(corrected, cohort)]
