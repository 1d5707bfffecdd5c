"""From runs to files that a reader opens, and to the verdict of a release gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import isnan
from operator import gt, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.calls.client import Client
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.tally import Tally
from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.derive import derive
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.records import GradedResponse
from opensafeintent.evaluation.regrading import Regrade, regrade
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.grades import grade_row, sort_rows, write_grades_of_runs
from opensafeintent.metrics import LESS_IS_BETTER, METRICS
from opensafeintent.promptsets import Dataset
from opensafeintent.report.coverage import Coverage
from opensafeintent.report.groups import Group, Study, group_studies
from opensafeintent.report.metrics_json import metrics_json, to_json
from opensafeintent.report.tables import Table, all_tables, remove_tables, write_tables
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.spreading.options import left_shards

if TYPE_CHECKING:
    from opensafeintent.report.correction import CorrectedGroup

__all__ = ["CompareSettings", "Outcome", "ReportSettings", "compare", "write_report"]

MAX_MISSING = 0.05
"""Share of missing core or paraphrase grades beyond which a command ends with exit code 1."""


class Outcome(msgspec.Struct, kw_only=True):
    """What a command found, wrote, and how it ended."""

    exit_code: int
    """0 done; 1 done, with too many grades missing; 3 stopped by a provider; 4 below a threshold."""
    out: Path | None = None
    """The folder that holds the results."""
    groups: list[Group] = []
    corrected: list[CorrectedGroup] = []
    """By group, what human labels make of its numbers."""
    notes: list[str] = []
    """What a reader should know, a line each."""
    stopped: list[str] = []
    """Models that stopped while the others went on, a line each."""
    forecast: Forecast | None = None
    tally: Tally | None = None


class ReportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to report, and where to."""

    runs: tuple[Path, ...]
    out: Path | None = None
    """The run's own folder, where there is one run."""
    include_unsafe: bool = False
    """Whether the page shows unsafe responses and prompts of malicious intent."""
    fail_under: Mapping[str, float] = {}
    """Lowest acceptable value by metric; the estimates as the judge has them are held against it."""
    fail_over: Mapping[str, float] = {}
    """Highest acceptable value by metric."""
    human_labels: tuple[Path, ...] = ()
    """Labels of responses, as `annotate import` writes them, by which the headline metrics are corrected."""
    max_missing: float = MAX_MISSING

    def __post_init__(self) -> None:
        check_share(self.max_missing)


def check_share(share: float) -> None:
    """Refuse a `--max-missing` that is not a share."""
    if not 0 <= share <= 1:
        raise InputError(f"--max-missing is {share}; expected a share from 0 to 1")


def write_report(settings: ReportSettings) -> Outcome:
    """Rebuild the results of one or more runs from their ledgers: `metrics.json`, grades, tables, figures and the page.

    Raises:
        InputError: a folder holds no run, a metric is unknown, human labels do not belong to the runs, or the results cannot
            be written.
    """
    _check_thresholds(settings)
    if len(set(settings.runs)) > 1 and settings.out is None:
        raise InputError("a report over several runs needs a place of its own: --out DIR")
    studies = read_studies(settings.runs)
    out = settings.out or settings.runs[0]
    with _texts_of(settings, studies) as texts:
        corrector = _corrector(settings, studies, texts) if settings.human_labels else None
        outcome = write_results(studies, out, settings.max_missing, drawn_anew=True, corrector=corrector)
        _write_page(settings, studies, outcome, texts, out)
    outcome.notes[:0] = [line for run in dict.fromkeys(settings.runs) for line in left_shards(run)]
    outcome.notes += [
        f"--fail-under {metric}: less of it is better, so this fails the best models; --fail-over fails the worst"
        for metric in settings.fail_under
        if metric in LESS_IS_BETTER
    ]
    failures = _beyond(outcome.groups, settings)
    if failures:
        outcome.notes += failures
        outcome.exit_code = 4
    return outcome


def read_studies(runs: Sequence[Path]) -> list[Study]:
    """Rebuild runs from their ledgers; one that is named twice is read once."""
    paths = list(dict.fromkeys(path.resolve() for path in runs))
    return [read_study(RunFolder(path), name) for path, name in zip(paths, _run_names(paths), strict=True)]


@contextmanager
def _texts_of(settings: ReportSettings, studies: Sequence[Study]) -> Iterator[dict[str, RunTexts]]:
    """Open the ledgers of the runs for reading: texts by the study's name."""
    paths = list(dict.fromkeys(path.resolve() for path in settings.runs))
    with ExitStack() as stack:
        yield {
            study.name: stack.enter_context(
                RunTexts(study.manifest, study.dataset, RunFolder(path).ledger_path(study.manifest))
            )
            for study, path in zip(studies, paths, strict=True)
        }


Corrector = Callable[[Sequence[Group]], "tuple[list[CorrectedGroup], list[str]]"]
"""Corrects the numbers of a report's groups; beside them come notes on what was left aside."""


def _corrector(settings: ReportSettings, studies: Sequence[Study], texts: Mapping[str, RunTexts]) -> Corrector:
    from opensafeintent.report.correction import correct, read_human_labels

    labels = read_human_labels(settings.human_labels)
    return lambda groups: correct(labels, groups, studies, texts)


def _write_page(
    settings: ReportSettings, studies: Sequence[Study], outcome: Outcome, texts: Mapping[str, RunTexts], out: Path
) -> None:
    """Write the figures and the page; only here is what draws them loaded."""
    from opensafeintent.report.figures import all_figures, write_figures
    from opensafeintent.report.page import render_page

    figures = all_figures(outcome.groups)
    _remove_drawings(out)  # some figures are drawn only where there is something to draw
    write_figures(figures, out / "figures")
    tables = [*all_tables(outcome.groups), *_correction_tables(outcome.corrected)]
    page = render_page(outcome.groups, studies, tables, figures, texts, include_unsafe=settings.include_unsafe)
    write_private(out / "report.html", page)


def _correction_tables(corrected: Sequence[CorrectedGroup]) -> list[Table]:
    if not corrected:
        return []
    from opensafeintent.report.correction import correction_tables

    return correction_tables(corrected)


class CompareSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to compare, and where the table goes."""

    runs: tuple[Path, ...]
    out: Path | None = None
    """A folder for the table of pairs; nothing is written without one."""


def compare(settings: CompareSettings) -> Outcome:
    """Compare every two models of one or more runs on the prompt-sets that count for both.

    Raises:
        InputError: a folder holds no run, or there are not two models that may be compared.
    """
    groups = group_studies(read_studies(settings.runs))
    if not any(len(group.models) > 1 for group in groups):
        raise InputError("nothing to compare: no two models share dataset, judges and templates")
    if settings.out is not None:
        write_tables([table for table in all_tables(groups) if table.name == "comparisons"], settings.out)
    return Outcome(exit_code=0, out=settings.out, groups=groups)


def _run_names(paths: Sequence[Path]) -> list[str]:
    names = [path.name for path in paths]
    return [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]


def read_study(folder: RunFolder, name: str) -> Study:
    """Rebuild one run from its manifest and ledger."""
    manifest, dataset = folder.load()
    path = folder.ledger_path(manifest)
    if not path.is_file():
        raise InputError(f"{path}: the run's ledger is not there")
    with Ledger(path, readonly=True) as ledger:
        graded = derive(manifest, dataset, ledger)
        regrades = run_async(lambda: regrade(Client(ledger, manifest.identities()), manifest, dataset, graded))
    return study_of(name, manifest, dataset, graded, regrades)


def study_of(
    name: str,
    manifest: Manifest,
    dataset: Dataset,
    graded: Sequence[GradedResponse],
    regrades: Sequence[Regrade] = (),
) -> Study:
    """Put graded responses in order."""
    rows = (grade_row(response, manifest.models[response.model].mode_judge) for response in graded)
    return Study(name, manifest, dataset, sort_rows(rows, dataset, sorted(manifest.models)), regrades)


def write_results(
    studies: Sequence[Study],
    out: Path,
    max_missing: float,
    *,
    drawn_anew: bool = False,
    corrector: Corrector | None = None,
) -> Outcome:
    """Write everything that is derived from runs but the page and figures, and say what a reader should know.

    Args:
        studies: the runs.
        out: the folder.
        max_missing: share of missing grades beyond which the exit code is 1.
        drawn_anew: whether the caller draws page and figures; those of an earlier report are removed otherwise.
        corrector: what human labels make of the numbers; they stand beside the judge's, never in their place.
    """
    groups = group_studies(studies)
    corrected, left_aside = corrector(groups) if corrector else ([], [])
    make_private_folder(out)
    write_private(out / "metrics.json", to_json(metrics_json(groups) | _corrected_json(corrected)))
    write_grades_of_runs({study.name: (study.rows, study.dataset) for study in studies}, out / "grades.csv.gz")
    for written_if_any in ("corrected*", "judge_*"):
        remove_tables(out / "tables", written_if_any)
    write_tables([*all_tables(groups), *_correction_tables(corrected)], out / "tables")
    removed = not drawn_anew and _remove_drawings(out)
    outdated = [f"the earlier {out}/report.html was removed, for it is out of date"] if removed else []
    beyond = [
        f"{model}: {_missing_shares(coverage)}, more than the {max_missing:.0%} of --max-missing"
        f"{f' ({reasons})' if (reasons := _reasons(coverage.missing)) else ''}"
        for group in groups
        for model, coverage in group.coverage.items()
        if coverage.missing_beyond(max_missing)
    ]
    notes = [*_partial(groups), *left_aside, *beyond, *outdated]
    return Outcome(exit_code=1 if beyond else 0, out=out, groups=groups, corrected=corrected, notes=notes)


def _corrected_json(corrected: Sequence[CorrectedGroup]) -> dict[str, Any]:
    if not corrected:
        return {}
    from opensafeintent.report.correction import corrected_json

    return {"corrected": corrected_json(corrected)}


def _remove_drawings(out: Path) -> bool:
    """Take away the page and figures of an earlier report, which show other numbers; what else is there is not ours.

    Returns:
        Whether there was a page.

    Raises:
        InputError: one of them cannot be removed.
    """
    from opensafeintent.report.figures import remove_figures

    page = out / "report.html"
    there = page.exists()
    try:
        page.unlink(missing_ok=True)
        if (out / "figures").is_dir():
            remove_figures(out / "figures")
    except OSError as error:
        raise InputError(f"{out}: cannot remove an earlier report: {error.strerror or error}") from error
    return there


def _missing_shares(coverage: Coverage) -> str:
    absent = f" and {coverage.absent:.1%} of the planned responses are not on record" if coverage.absent else ""
    return (
        f"{coverage.missing_core:.1%} of core and {coverage.missing_paraphrase:.1%} of paraphrase grades are missing{absent}"
    )


def _reasons(missing: Mapping[str, Mapping[str, int]]) -> str:
    counts: dict[str, int] = {}
    for by_reason in missing.values():
        for reason, count in by_reason.items():
            counts[reason] = counts.get(reason, 0) + count
    return ", ".join(f"{reason}: {count}" for reason, count in sorted(counts.items()))


def _partial(groups: Sequence[Group]) -> list[str]:
    lines = []
    for group in groups:
        for model, coverage in group.coverage.items():
            if coverage.partial:
                lines.append(f"{model}: partial: {coverage.responses:,} of {coverage.planned:,} responses are on record")
            if coverage.not_graded:
                lines.append(f"{model}: {coverage.not_graded:,} responses have no grades yet: opensafeintent grade RUN")
    return lines


def _check_thresholds(settings: ReportSettings) -> None:
    for option, thresholds in (("--fail-under", settings.fail_under), ("--fail-over", settings.fail_over)):
        for metric, limit in thresholds.items():
            if metric not in METRICS:
                raise InputError(f"{option}: unknown metric {metric!r}; {nearest(metric, METRICS)}")
            if isnan(limit):
                raise InputError(f"{option} {metric}={limit}: expected a number")


def _beyond(groups: Sequence[Group], settings: ReportSettings) -> list[str]:
    """Say which models miss a threshold. Baselines are reference points: they count only where there is nothing else."""
    models = [(group, place) for group in groups for place in range(len(group.models))]
    tested = [(group, place) for group, place in models if not is_baseline(group.models[place])] or models
    sides = (("below", "--fail-under", lt, settings.fail_under), ("above", "--fail-over", gt, settings.fail_over))
    lines = []
    for group, place in tested:
        for side, option, misses, thresholds in sides:
            for metric, limit in thresholds.items():
                value = float(group.ratios[metric].value.values[place])
                if isnan(value):
                    lines.append(f"{group.models[place]}: {metric} is undefined, not held against the {limit:g} of {option}")
                elif misses(value, limit):
                    lines.append(f"{group.models[place]}: {metric} is {value:.4f}, {side} the {limit:g} of {option}")
    return lines
