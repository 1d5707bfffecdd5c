"""What a command ends with: its results, notes and exit code; and lines about missing grades."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from opensafeintent.calls.client import Client
from opensafeintent.calls.costs import Tally
from opensafeintent.calls.prices import PriceList
from opensafeintent.calls.reasoning import unknown_mark
from opensafeintent.calls.records import Sampling
from opensafeintent.commands.session import choose_ways, note_beyond_budget, takes_batches
from opensafeintent.commands.settings import Calling
from opensafeintent.errors import pluralize
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.evaluation.gold_cases import JudgeCheck
from opensafeintent.evaluation.missing import (
    KINDS,
    UNPARSED,
    Kind,
    OpenQuestion,
    kinds_asked,
    yield_missing,
)
from opensafeintent.evaluation.pipeline import FIRST_ATTEMPT
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import (
    near,
)
from opensafeintent.hostile import clean_for_display
from opensafeintent.numbers.cohort import Cohort, GradedRun
from opensafeintent.numbers.gates import Gates, Transitions
from opensafeintent.numbers.label_checks import LabelCheck
from opensafeintent.quoting import UnsafeTexts
from opensafeintent.report.corrections import Correction
from opensafeintent.report.cost_tables import Costs
from opensafeintent.report.facts import Statement
from opensafeintent.report.printing.checks import show_judge_check, show_label_checks
from opensafeintent.report.printing.console import Printed, print_notes, print_notices
from opensafeintent.report.printing.results import (
    show_answers,
    show_calls,
    show_cohort,
    show_comparisons,
    show_forecast,
    show_gates,
    show_verdicts,
)
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import (
    QUESTIONS,
    SCALES,
)
from opensafeintent.templates import Role


class Outcome(Printed, msgspec.Struct, kw_only=True):
    """How a command that can make calls ended. `print` shows it as the command line does."""

    exit_code: int
    """0 done; 1 done, but too much is missing; 3 stopped by a provider; 4 a gate failed; 5 one is
    undecided.
    """
    out: Path | None = None
    """The folder that holds the results."""
    notes: list[str] = []
    """Remarks on the command, a line each."""
    stopped: list[str] = []
    """Failures that did not end the rest, a line each: models that stopped above all, or why a
    build ended before its last stage.
    """
    forecast: Forecast | None = None
    """Of a dry run, which makes no call."""
    prices: Path | PriceList | None = None
    """The user's file of prices, or its content as the run keeps it, for a forecast."""
    tally: Tally | None = None
    costs: Costs | None = None

    def __str__(self) -> str:
        errors = [f"error: {line}" for line in self.stopped]
        return "\n".join(filter(None, [super().__str__(), *errors]))


class RunOutcome(Outcome, kw_only=True):
    """Findings and files of a command, and how it ended."""

    cohort: Cohort | None = None
    """The models with their numbers; None if the command computes none."""
    corrected: list[Correction] = []
    """Numbers corrected by human labels, by model and metric."""
    gates: Gates | None = None
    """Results of the gates of a report; None if there are none."""
    notices: list[Statement] = []
    """What limits the results (docs/notices.md), the warnings first."""
    findings: list[Statement] = []
    """What the results show."""
    checks: tuple[JudgeCheck, ...] = ()
    """Results of judges on the gold cases; of `judge-check`."""
    labels: tuple[LabelCheck, ...] = ()
    """Comparisons of judges with people; of `judge-check` with labelled responses."""
    judge_files: dict[str, Path] = {}
    """By judge, the file with its results; of `judge-check`."""
    following: str = ""
    """A command that goes on from here with the same settings; of `judge-check`."""
    again: bool = False
    """Whether answers are missing that the same command, run again, can bring."""

    @property
    def results(self) -> Cohort:
        """The models with their numbers, of a command that computes them."""
        assert self.cohort is not None
        return self.cohort

    def show(self, console: Console, *, verbose: bool = False) -> None:
        """Print the results, and last what decides.

        Args:
            console: the output.
            verbose: whether every case of a judge check is printed.
        """
        if self.forecast is not None:
            show_forecast(console, self.forecast, self.prices, self.notes)
            return
        if self.cohort is not None:
            console.print()
            show_cohort(console, self.cohort)
        print_notices(console, self.notices)
        print_notes(console, self.notes)
        show_calls(console, self.tally, self.costs)
        if self.gates is not None:
            show_gates(console, self.gates)
        elif self.cohort is not None:
            show_answers(console, self.cohort)
        for check in self.checks:
            console.print()
            show_judge_check(console, check, verbose=verbose)
        if self.labels:
            show_label_checks(console, self.labels, verbose=verbose)

    @classmethod
    def from_forecast(
        cls,
        expected: Forecast,
        settings: Calling,
        notes: list[str],
        prices: Path | PriceList | None = None,
        *,
        names: Iterable[str],
    ) -> RunOutcome:
        """Return the outcome of a dry run, by the prices of the settings, or others; `names` are
        the models that `check_batch_models` checks.
        """
        prices = prices or settings.prices
        expected = msgspec.structs.replace(
            expected,
            connections=settings.max_connections,
            chosen=choose_ways(settings, (line.model for line in expected.lines)),
            batches=takes_batches(settings, names),
        )
        waits = (
            f"a model that answers with rate limits (429) alone for {settings.retry_for:g} minutes"
            " is stopped, and the run ends with exit code 3 (--retry-for)"
        )
        further = [*note_beyond_budget(expected, settings, prices), waits] if expected.lines else ()
        lines = [*notes, *further]
        return cls(exit_code=0, forecast=expected, prices=prices, notes=lines)

    def add_call_notes(self, client: Client) -> RunOutcome:
        """Return this outcome with notes on the calls that led to it."""
        failed = (
            f"{model}: a call that failed said: {error}"
            for model, error in client.last_errors.items()
            if model not in client.stopped_models
        )
        notes = [*self.notes, *client.request_notes, *failed]
        return msgspec.structs.replace(self, tally=client.tally, notes=notes)


class Compared(RunOutcome, kw_only=True):
    """Differences between models."""

    runs: tuple[Path, ...]
    """Folders of the runs."""
    transitions: list[Transitions]
    """Which prompt-sets two models of one run answer differently; or which newly fail and newly
    pass from the first of two runs to the second.
    """

    def show(self, console: Console, *, verbose: bool = False) -> None:
        """Print differences, ranks and prompt-sets, and last which models are better."""
        show_comparisons(console, self.results, self.transitions, self.runs)
        print_notices(console, self.notices)
        print_notes(console, self.notes)
        show_verdicts(console, self.results)


def run_again_can_bring(rows: Sequence[GradedResponse], only_stored: Collection[str]) -> bool:
    """Tell whether the same command, run again, can bring an answer that is missing.

    Args:
        rows: every response with its grades.
        only_stored: the judges that it does not call.
    """
    return any(
        part.record.again
        for row in rows
        for part in yield_missing(row)
        if not part.judge or part.judge not in only_stored
    )


def describe_unsafe_texts(texts: UnsafeTexts) -> str:
    """Say which texts the files of a command hold because somebody asked for them."""
    return (
        f"--include-unsafe: the files hold {pluralize(texts.responses, 'response')} not graded safe"
        f" and {pluralize(texts.prompts, 'malicious prompt')}; do not send them on"
    )


def describe_unparsed(
    run: GradedRun, texts: RunTexts, path: Path, max_missing: float
) -> Iterator[str]:
    """Yield a line for each judge, or model that was probed, of which too large a share of the
    replies to a question could not be parsed: the form, one of the replies, and the next step. If
    reasoning is the cause, the line says so.

    Args:
        run: the run.
        texts: its texts.
        path: its folder.
        max_missing: the share.
    """
    lost = Counter[tuple[str, Kind]]()
    example: dict[tuple[str, Kind], tuple[GradedResponse, OpenQuestion]] = {}
    for row in run.rows:
        for part in yield_missing(row):
            if part.what in (*SCALES, *_FORMED) and part.reason in UNPARSED:
                kind = part.kind if part.kind in _FORMED else "core"
                who = part.judge or _name_asked(row, kind)
                lost[who, kind] += 1
                example.setdefault((who, kind), (row, part))
    for (who, kind), (row, part) in example.items():
        purpose = _FORMED.get(kind, part.what)
        asked = _count_asked(run, who, kind)
        replies = [
            traced.reply
            for traced in texts.trace(row.set_id)
            if (traced.target, traced.variant, traced.epoch) == (row.model, row.variant, row.epoch)
            and traced.model == who
            and purpose.startswith(traced.purpose)
            and traced.attempt < FIRST_ATTEMPT
            and traced.reply is not None
        ]
        if replies and lost[who, kind] > max_missing * asked:
            contract = run.manifest.judge_templates().of(_ROLES[part.what]).contract
            form = contract.form if contract else "a grade"
            yield (
                f"{'model' if kind == 'strategy' else 'judge'} {who}: {lost[who, kind]:,} of"
                f" {asked:,} {KINDS[kind].removeprefix('core ')} could not be parsed"
                f" after {len(replies)} attempts; expected {form}, got"
                f"{_quote_reply(replies[0], part.reason)}. See opensafeintent trace {near(path)}"
                f" --set {row.set_id}.{_suggest_next_step(run, who, kind, part.reason)}"
            )


_FORMED: dict[Kind, str] = {"mode": "mode", "strategy": "probe"}
"""Purposes of the calls behind answers that have a form of their own and are no grades."""


_ROLES: dict[str, Role] = {
    **{question.grade: question.role for question in QUESTIONS},
    "mode": "mode",
    "strategy": "strategy",
}
"""Of the template that asks for each part."""


def _name_asked(row: GradedResponse, kind: Kind) -> str:
    """Return who was asked: the model itself, or a judge."""
    judge = row.mode_judge if kind == "mode" else ""
    return row.model if kind == "strategy" else judge or next(iter(row.by_judge), "")


def _count_asked(run: GradedRun, who: str, kind: Kind) -> int:
    """Return how many answers of a kind a run asked a judge, or a probed model, for."""
    if kind not in _FORMED:
        return len(run.manifest.grades) * sum(who in row.by_judge for row in run.rows)
    return sum(kind in kinds_asked(row) and _name_asked(row, kind) == who for row in run.rows)


def _suggest_next_step(run: GradedRun, who: str, kind: Kind, reason: str) -> str:
    if kind == "strategy":
        return ""
    if kind == "mode":
        return " Try another --mode-judge"
    limit = run.manifest.plan.judge_samplings.get(who, Sampling()).max_tokens
    return (
        " Try a larger --judge-arg max_tokens"
        f" ({limit}){_WITHOUT_REASONING if reason != 'unparsed' else ''} or another judge"
    )


_WITHOUT_REASONING = ", less reasoning (--judge-arg reasoning_effort=)"


def _quote_reply(reply: str, reason: str) -> str:
    if reason == "reasoning_only":
        return " reasoning and no text"
    quoted = f' "{clean_for_display(reply)}"'
    if reason == "unknown_mark":
        quoted += f", which begins with reasoning under the unknown mark {unknown_mark(reply)}"
    return quoted


def grade_command(run: Path | None) -> str:
    """Return the command that lets judges grade responses of a run, up to the judge's name."""
    named = "RUN" if run is None else shlex.quote(str(near(run)))
    return f"opensafeintent grade {named} --judge MODEL"
