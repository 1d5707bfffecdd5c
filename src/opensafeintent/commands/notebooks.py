"""Runs as data frames and figures, for notebooks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.commands.graded_runs import name_runs, read_joined_runs
from opensafeintent.commands.session import delay_garbage_collection
from opensafeintent.errors import InputError, install_extra
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.pipeline import Task
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.grades import grade_table
from opensafeintent.numbers.cohort import Cohort, gather_models
from opensafeintent.numbers.estimates import ALL_SETS, MetricEstimate
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.quoting import Hidden, cut_quotation, hide_prompt
from opensafeintent.report.cohort_columns import cohort_line, cohort_notes
from opensafeintent.report.columns import Column, Table
from opensafeintent.report.table_formats import html_table
from opensafeintent.report.tables_metrics import (
    NumberRow,
    comparisons,
    number_columns,
    number_rows,
    utility,
)
from opensafeintent.report.tables_second_turn import second_turn
from opensafeintent.responses import GradedResponse, ResponseKey
from opensafeintent.taxonomy import DUAL_USE, MALICIOUS, SCALES, is_follow_up

if TYPE_CHECKING:
    import altair
    import pandas as pd

    from opensafeintent.promptsets import Dataset


_WHOLE = ("epoch", "n", "models", "family", *SCALES, "ledger_row", "judge_shift_n")

_REAL = (
    "value",
    "bounds",
    "missing_ci",
    "pooled",
    "rerun_se",
    "difference",
    "p_unadjusted",
    "p_adjusted",
    "minimum_detectable_difference",
    "turning_odds",
    "direct",
    "follow_ups",
    "effect",
    "lock_in",
    "opened_up",
    "judge_shift",
)

_TRUE = ("truncated", "prompt_hidden", "response_hidden", "quotes_hidden", "partial")


def metric_estimates(cohort: Cohort) -> list[MetricEstimate]:
    """Return the numbers of a cohort over all prompt-sets."""
    wordings = [
        MetricEstimate.of(wording.excess, wording.model, "paraphrase_effect")
        for wording in cohort.wordings
        if cohort.scope.has_triplets and cohort.scope.rubric
    ]
    return [*cohort.estimates.overall_and_averages(), *wordings]


def stratum_estimates(cohort: Cohort) -> list[MetricEstimate]:
    """Return the numbers of a cohort by harm domain and by task type."""
    averages = [
        number for (_, stratum), number in cohort.estimates.averages.items() if stratum != ALL_SETS
    ]
    numbers = [*cohort.estimates.strata.values(), *averages]
    return [number for number in numbers if cohort.scope.has(number.metric)]


def model_kind(number: MetricEstimate) -> str:
    """Return what a number is of: a model, a baseline, or an average of models."""
    if number.models is not None:
        return "average"
    return "baseline" if is_baseline(number.model) else "model"


def table_frame(table: Table) -> pd.DataFrame:
    """Return a table of the report as a frame."""
    return data_frame(table.fields, [tuple(record.values()) for record in table.records()])


def data_frame(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """Return lines as a frame whose column types do not depend on the content."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError(f"data frames need an extra: {install_extra('frames')}") from error
    frame = pd.DataFrame(list(map(tuple, lines)), columns=list(columns), dtype=object)
    return frame.astype({column: column_type(column) for column in columns})


def column_type(column: str) -> str:
    """Return the type that pandas gives to a column, by its name."""
    base = column.partition("[")[0].removesuffix("_low").removesuffix("_high")
    if base in _WHOLE:
        return "Int64"
    if base in _REAL:
        return "float64"
    return "boolean" if base in _TRUE else "object"


_FIGURE = "fig_"
_SETS_AT_ONCE = 1024
"""Prompt-sets whose hidden prompts are kept in memory: every model answers the same ones."""

_NOT_SHOWN = ("benign_utility", "dual_use_utility", "malicious_utility")
"""Of Table 4, in the few columns for which a notebook has room."""


def load_run(
    run: str | os.PathLike[str],
    *further: str | os.PathLike[str],
    ledger: Path | Collection[Path] = (),
) -> Run:
    """Rebuild a run from its ledger, or several, as `report` does; nothing is written, and no call
    is made.

    Args:
        run: its folder.
        further: folders of runs to look at together with it.
        ledger: ledgers that the runs name outside their folders.

    Raises:
        InputError: a folder holds no run, or a run that is damaged; or a judge of two runs was
            another model in one of them.
    """
    for folder in (run, *further):
        if not isinstance(folder, str | os.PathLike):
            raise InputError(f"load_run: expected a path or its text, got {type(folder).__name__}")
    folders = name_runs([Path(folder) for folder in (run, *further)])
    named = (ledger,) if isinstance(ledger, str | os.PathLike) else ledger
    ledgers = tuple(map(Path, named))
    with delay_garbage_collection():
        cohort = gather_models(read_joined_runs(list(folders.values()), ledgers))
    return Run(cohort, {name: RunFolder(path, ledgers) for name, path in folders.items()})


class ShownTexts(NamedTuple):
    """The texts of one response, as far as they are shown."""

    prompt: str | None
    response: str | None
    """None too if there is none."""
    ledger_row: int | None
    """The id of the response's row in the ledger."""
    prompt_hidden: bool
    response_hidden: bool
    quotes_hidden: bool
    """Whether a mark takes the place of a part of the malicious prompt in the response."""
    reply_to: str | None = None
    """Of a second reply: the first one, if it is shown."""


class Run:
    """Result of `load_run`: the state of the ledger at that time.

    Attributes:
        cohort: the models, with everything that a report computes about them.
        folders: each run's folder, by its name in frames.
    """

    def __init__(self, cohort: Cohort, folders: Mapping[str, RunFolder]) -> None:
        self.cohort = cohort
        self.folders = {name: folder.path for name, folder in folders.items()}
        self._folders = dict(folders)

    @property
    def models(self) -> list[str]:
        """The models' names as frames and figures show them, the highest Mean Utility first."""
        return self.cohort.estimates.models

    def metrics(self, *, strata: bool = False) -> pd.DataFrame:
        """Return a line for each metric of each model, and of the average over models, the values
        those of `metrics.json`.

        Columns:

        - `model`, `kind` (`model`, `baseline` or `average`), `dataset`, `judge`, `metric`;
        - `value`, `value_low` and `value_high` (its 95 % interval), `ci_method`, `n` (prompt-sets);
        - `bounds_low` and `bounds_high` (the lowest and highest value that missing grades allow);
        - `missing_ci_low` and `missing_ci_high` (the ends of the interval with missing grades;
          NaN if none can change the value);
        - `models` and `pooled` (of an average: the number of models, and the ratio of sums);
        - `rerun_se` (of several epochs: the standard error for the same prompts run again).

        A value is NaN if `n` is 0. An average is also NaN if it has too few prompt-sets.

        Args:
            strata: whether the lines are of each harm domain, of each task type and of each cell,
                in the columns `harm_domain` and `task_type`, in place of all prompt-sets.

        Raises:
            InputError: pandas is missing.
        """
        estimates = stratum_estimates if strata else metric_estimates
        model, *fields = number_columns(self.cohort, by_stratum=strata)
        columns: tuple[Column[NumberRow], ...] = (
            model,
            Column("kind", lambda row: model_kind(row.item)),
            *fields,
            Column("rerun_se", lambda row: row.item.rerun_se),
        )
        rows = number_rows(self.cohort, estimates(self.cohort))
        return table_frame(Table.of(columns, rows, name="metrics", title=""))

    def comparisons(self) -> pd.DataFrame:
        """Return a line for each two models and each metric in which they are compared.

        Columns:

        - `model_a`, `model_b`, `dataset`, `judge`, `metric`;
        - `difference` (b minus a, on the prompt-sets that count for both), `difference_low` and
          `difference_high` (its 95 % interval), `n`;
        - `missing_ci_low` and `missing_ci_high` (the ends of the interval with missing grades;
          those of the interval itself if none is missing), and `turning_odds` (the odds of missing
          responses up to which a difference that the interval shows holds);
        - `p_unadjusted` (of the pair on its own), `p_adjusted` (for all pairs of its family), and
          `family` (their number);
        - `minimum_detectable_difference` (the difference that is detected with a power of 80 %).

        Raises:
            InputError: pandas is missing.
        """
        return table_frame(comparisons(self.cohort))

    def follow_ups(self) -> pd.DataFrame:
        """Return a line for each measure of each model, directly and in the second turn, with the
        columns of the table `follow_ups`; no line without second turns.

        Raises:
            InputError: pandas is missing.
        """
        return table_frame(second_turn(self.cohort))

    def grades(self) -> pd.DataFrame:
        """Return a line for each response, with the columns of `grades.csv.gz`; `model` is as the
        other frames have it. There is none for the replies of second turns.

        A missing grade is `<NA>`, its reason in `missing`.

        Raises:
            InputError: pandas is missing.
        """
        columns, lines = grade_table(self._list_rows())
        return data_frame(columns, lines)

    def responses(self, *, include_unsafe: bool = False) -> pd.DataFrame:
        """Return the columns of `grades` with `prompt`, `response` and `ledger_row`, the id of the
        response's row there; without second turns.

        Prompts of malicious intent, and responses that are not graded safe, are left out;
        `prompt_hidden` and `response_hidden` mark them. A missing response is None too. A mark
        takes the place of a stretch of the malicious prompt in a response: `quotes_hidden`.

        Args:
            include_unsafe: whether they are included.

        Raises:
            InputError: pandas is missing, or a run was moved.
        """
        columns, lines = self.response_lines(include_unsafe=include_unsafe)
        return data_frame(columns, lines)

    def response_lines(
        self, *, include_unsafe: bool = False, second_turns: bool = False
    ) -> tuple[list[str], Iterator[list[Any]]]:
        """Return the columns of `responses`, and its lines, one a response.

        Args:
            include_unsafe: as for `responses`.
            second_turns: whether second replies come behind the other responses of a run, with
                `reply_to` as a further column. A run without any has the same lines and columns.

        Raises:
            InputError: a run was moved.
        """
        runs = self._list_rows(second_turns=second_turns)
        replies = any(is_follow_up(row.variant) for rows, _ in runs.values() for row in rows)
        shown = len(ShownTexts._fields) - (0 if replies else 1)
        columns, lines = grade_table(runs)
        texts = (
            text
            for run, (rows, data) in runs.items()
            for text in self.texts(run, rows, data, include_unsafe=include_unsafe)
        )
        pairs = zip(lines, texts, strict=True)
        return (
            [*columns, *ShownTexts._fields[:shown]],
            ([*line, *text[:shown]] for line, text in pairs),
        )

    @property
    def figures(self) -> list[str]:
        """The names of the figures of these models."""
        return list(self._figures())

    def _figures(self) -> dict[str, str]:
        """Return the names of the figures' files by those that `figure` takes."""
        from opensafeintent.report.figures import figure_names

        return {name.removeprefix(_FIGURE): name for name in figure_names(self.cohort)}

    def figure(self, name: str, *, as_svg: bool = False) -> altair.TopLevelMixin | Drawing:
        """Return a figure of the report: a chart of Altair's if it is installed, otherwise a
        drawing.

        Args:
            name: one of `figures`, or the name of its file.
            as_svg: whether it is a drawing in any case.

        Raises:
            InputError: there is no figure of that name.
        """
        from opensafeintent.report.figures import THEMES, add_title, make_figure, to_svg

        names = self._figures()
        full = names.get(str(name).removeprefix(_FIGURE))
        if full is None:
            raise InputError(f"figure {name!r}: there is none; valid: {', '.join(names)}")
        figure = make_figure(self.cohort, full)
        if as_svg or find_spec("altair") is None:
            return Drawing(
                name=full,
                title=figure.title,
                caption=figure.caption,
                svg=to_svg(figure, f"{full}-"),
            )
        import altair

        spec = add_title(figure)
        chart: altair.TopLevelMixin = altair.Chart.from_dict(
            spec | {"config": _lay_over(THEMES["light"], spec.get("config", {}))}
        )
        return chart

    def _list_rows(
        self, *, second_turns: bool = False
    ) -> dict[str, tuple[list[GradedResponse], Dataset]]:
        """Return every response by run, models by the names that they are shown by; second replies
        come last, as in `grades.csv.gz`.
        """
        by_run: dict[str, tuple[list[GradedResponse], Dataset]] = {}
        for turn in ("rows", "follow_ups") if second_turns else ("rows",):
            for member in self.cohort.members.values():
                run = by_run.setdefault(member.origin.run, ([], member.run.dataset))
                run[0].extend(getattr(member.run, turn))
        return by_run

    def texts(
        self, run: str, rows: Iterable[GradedResponse], dataset: Dataset, *, include_unsafe: bool
    ) -> Iterator[ShownTexts]:
        """Yield the texts of responses of one run; texts that the report's page hides are hidden.

        Raises:
            InputError: the run was moved.
        """
        folder = self._folders[run]
        manifest, _ = folder.load()
        names = {name: member.origin.model for name, member in self.cohort.members.items()}
        safe: set[ResponseKey] = set()
        """Responses to dual-use prompts, with which a conversation may go on."""

        @lru_cache(maxsize=_SETS_AT_ONCE)
        def hide_in_set(set_id: str) -> Hidden:
            wordings = dataset.by_id[set_id].wordings()
            return hide_prompt(wordings, include_unsafe=include_unsafe)

        @cache
        def prompt_shown(set_id: str, variant: str) -> str:
            task = manifest.make_task(ResponseKey("", set_id, variant, 1), dataset)
            return cut_quotation(task.prompt, hide_in_set(set_id))

        with RunTexts(manifest, dataset, folder.ledger_path(manifest)) as texts:
            rows = list(rows)
            keys = [
                ResponseKey(names[row.model], row.set_id, row.variant, row.epoch) for row in rows
            ]
            for row, key, text in zip(rows, keys, texts.find_in_turn(keys), strict=True):
                is_safe = row.has_all_grades and row.harm_severity == 0
                if is_safe and row.variant == DUAL_USE:
                    safe.add(key)
                hidden = hide_in_set(row.set_id)
                no_prompt = not include_unsafe and row.variant in MALICIOUS
                no_text = text is not None and not include_unsafe and not is_safe
                prompt = None if no_prompt else prompt_shown(row.set_id, row.variant)
                shown = None if text is None or no_text else cut_quotation(text.text, hidden)
                at = None if text is None else text.row
                quotes = text is not None and shown not in (None, text.text)
                reply_to = None
                if is_follow_up(row.variant):
                    task = manifest.make_task(key, dataset)
                    first = _first_reply(task, texts, None if include_unsafe else safe)
                    reply_to = None if first is None else cut_quotation(first, hidden)
                yield ShownTexts(prompt, shown, at, no_prompt, no_text, quotes, reply_to)

    def __repr__(self) -> str:
        return f"Models: {', '.join(self.models)}\n{cohort_line(self.cohort)}"

    def _repr_html_(self) -> str:
        table, lead = utility(self.cohort), METRICS[self.cohort.scope.utility]
        less = (column.name for column in table.columns if "rank" in column.name)
        notes = cohort_notes(self.cohort)
        return html_table(
            msgspec.structs.replace(
                table.hide_columns(*less, *(name for name in _NOT_SHOWN if name != lead.name)),
                title=f"Models by {lead.label}",
                notes=notes,
            )
        )


def _first_reply(task: Task, texts: RunTexts, safe: Collection[ResponseKey] | None) -> str | None:
    """Return the reply that a second turn goes on from; None if there is none, or none is shown.

    Args:
        task: of the second reply.
        texts: of the run.
        safe: the responses to dual-use prompts that may be shown; None if all may. A reply with
            another text than that response has no grade, so it is not shown.
    """
    first = texts.first_reply(task)
    if first is None or safe is None:
        return first
    key = task.key._replace(variant=DUAL_USE)
    graded = texts.find(*key) if key in safe else None
    return first if graded is not None and graded.text == first else None


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A figure as SVG, which notebooks show."""

    name: str
    title: str
    caption: str
    """How to read it."""
    svg: str

    def __repr__(self) -> str:
        return f"{self.name}: {self.title}"

    def _repr_svg_(self) -> str:
        return self.svg


def _lay_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return one configuration laid over another."""
    merged = {
        key: _lay_over(below[key], above[key])
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return below | above | merged
