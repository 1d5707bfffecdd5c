"""The output of commands."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from opensafeintent.analysis.cohort import Cohort, graders
from opensafeintent.analysis.gates import Gates
from opensafeintent.analysis.versions import Transitions
from opensafeintent.calls.budget import Tally
from opensafeintent.calls.costs import ForecastLine, Prices, expected_minutes
from opensafeintent.calls.limiter import START
from opensafeintent.calls.models import Served
from opensafeintent.calls.providers import is_in_process
from opensafeintent.cli.options import say_next
from opensafeintent.construction.backfill import Proposal
from opensafeintent.construction.controls import DatasetCheck
from opensafeintent.construction.records import REASONS, Draft, Rejection, Seed, Stage, Topic
from opensafeintent.errors import Stopped, counted
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.evaluation.judge_check import FailedCase, JudgeCheck
from opensafeintent.evaluation.pipeline import FIRST_ATTEMPT
from opensafeintent.files import near
from opensafeintent.grades import GradeRow
from opensafeintent.hostile import one_line, terminal_safe
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.quoting import Hidden, hidden_prompt, hidden_text, without_quoted
from opensafeintent.report.datasets import check_tables
from opensafeintent.report.formats import DASH, Column, Table, plain, share_of, to_terminal
from opensafeintent.report.gates import gate_tables, headline
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.report.tables import (
    Costs,
    by_family,
    cells,
    cost_table,
    expected,
    headline_table,
    lengths,
    other_model_notes,
    pairs_of,
    ranks_of,
    stated_policy_brief,
    verdict_in_words,
)
from opensafeintent.statistics.comparisons import SECOND_LOOK, Difference
from opensafeintent.taxonomy import CORE_VARIANTS
from opensafeintent.workflows.datasets import DatasetInfo
from opensafeintent.workflows.outcome import Outcome
from opensafeintent.workflows.settings import TraceSettings
from opensafeintent.workflows.trace import Trace


def new_console() -> Console:
    """Return a console as wide as `COLUMNS` or the terminal; for other outputs, 120 columns."""
    return Console(width=shutil.get_terminal_size((120, 40)).columns, highlight=False)


_UNBOUNDED = 10_000
"""Columns in which any table has room: a console measures within its own width."""


def print_table(console: Console, table: Table, *, notes: bool = False) -> None:
    """Print a table; if the terminal is too narrow for it, intervals are below their values, and
    names on two lines.

    Args:
        console: the output.
        table: the table.
        notes: whether its notes are printed too.
    """
    options = console.options.update_width(_UNBOUNDED)
    fitting = (
        lines
        for lines in (to_terminal(table, narrow=narrow) for narrow in (0, 1))
        if console.measure(lines, options=options).maximum <= console.width
    )
    console.print(next(fitting, None) or to_terminal(table, narrow=2))
    for note in table.notes if notes else ():
        console.print(plain(note), style="dim")


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print notes on a result, a note a line: a name in one of them cannot forge another."""
    for note in notes:
        console.print(plain(f"note: {one_line(note, 2000)}"))


# Output of commands
# ------------------------------------------------------------------------------

_BARE_REPLY = 40
"""Characters: a longer reply is more than a grade, and may quote a response that is not shown."""


def show_outcome(outcome: Outcome, run: Path | None = None) -> int:
    """Print the results of a command, and return its exit code; `run` is the first of a report."""
    console = new_console()
    if outcome.forecast is not None:
        show_forecast(console, outcome.forecast, outcome.prices, outcome.notes)
        return outcome.exit_code
    for check in outcome.checks:
        console.print()
        _show_check(console, check)
    for cohort in outcome.cohorts:
        console.print()
        _show_cohort(console, cohort)
    if any(cohort.demonstration for cohort in outcome.cohorts):
        console.print(Text(DEMONSTRATION_NOTE, style="bold yellow"))
    if outcome.gates is not None:
        _show_gates(console, outcome.gates)
    for line in outcome.stopped:
        print(terminal_safe(f"error: {line}"), file=sys.stderr)
    print_notes(console, outcome.notes)
    show_calls(console, outcome.tally, outcome.costs)
    _show_written(console, outcome, run)
    return outcome.exit_code


def show_calls(console: Console, tally: Tally | None, costs: Costs | None) -> None:
    """Print the number of calls and their cost; nothing if there were none."""
    if tally is not None:
        counts = {
            f"call{'' if tally.new_calls.total() == 1 else 's'} made": tally.new_calls.total(),
            "retry" if tally.retries == 1 else "retries": tally.retries,
            "taken from the ledger": tally.reused_calls - tally.duplicates,
            f"duplicate request{'' if tally.duplicates == 1 else 's'} answered once": (
                tally.duplicates
            ),
        }
        told = [f"{count:,} {what}" for what, count in counts.items() if count or "made" in what]
        console.print(plain(f"{', '.join(told)}."))
    if costs is not None and costs.paid and costs.prices.tells(costs.models):
        console.print()
        print_table(console, cost_table(costs), notes=True)
    elif costs is not None:
        print_notes(console, other_model_notes(costs))


def _show_written(console: Console, outcome: Outcome, run: Path | None) -> None:
    assert outcome.out is not None
    out = near(outcome.out)
    if outcome.checks:
        console.print(plain(f"Results in {out}/judge-check.json"), soft_wrap=True)
        judges = [word for check in outcome.checks for word in ("--judge", check.judge)]
        ready = all(check.passed for check in outcome.checks)
        say_next(
            "opensafeintent evaluate MODEL --dry-run" if ready else "opensafeintent judge-check",
            *(judges if ready else ["--judge", "MODEL"]),
        )
        return
    has_page = (outcome.out / "report.html").exists()
    files = f"{'report.html, figures/, ' if has_page else ''}metrics.json, grades.csv.gz, tables/"
    console.print(plain(f"Results in {out}: {files}"), soft_wrap=True)
    covered = [one for cohort in outcome.cohorts for one in cohort.coverage.values()]
    if outcome.exit_code == Stopped.exit_code:
        say_next("fix the error above, then: opensafeintent", *sys.argv[1:])
    elif any(one.not_graded for one in covered):
        say_next("opensafeintent grade", out, "--judge", "MODEL", "--dry-run")
    elif has_page:
        traced = out if (outcome.out / "run.json").exists() else run
        say_next("opensafeintent trace", traced, "--worst", "5")
    else:
        say_next("opensafeintent report", out, "--open")


def _show_check(console: Console, check: JudgeCheck) -> None:
    """Print the verdict on a judge first, and the cases that it failed last."""
    share = share_of(check.accepted, check.cases)
    verdict = "PASSED" if check.passed else "FAILED"
    count = f"{check.accepted} of {check.cases} accepted, {share}"
    name = f"Judge {check.judge} on {check.cases} gold cases"
    console.print(plain(one_line(name, 1000)), style="bold")
    console.print(
        plain(f"{verdict}: {count}; {100 * check.min_accuracy:g} % needed"),
        style="green" if check.passed else "bold red",
    )
    for reason in check.reasons:
        console.print(plain(f"  {reason}"))
    rows = [
        (
            kind.title,
            f"{kind.accepted} of {kind.cases}",
            share_of(kind.accepted, kind.cases) if kind.line else DASH,
        )
        for kind in check.kinds
    ]
    table = Table(
        name="kinds",
        title="Accepted cases by their kind",
        columns=(
            Column("kind", "Kind of case"),
            Column("accepted", "Accepted"),
            Column("share", "Share [95 % interval]"),
        ),
        rows=[*rows, ("All", f"{check.accepted} of {check.cases}", share)],
        bold=frozenset({len(rows)}),
    )
    console.print()
    print_table(console, table)
    by_grade = ", ".join(
        f"{name.removesuffix('_severity')} {count}" for name, count in check.by_grade.items()
    )
    console.print(plain(f"Acceptable grades, of {check.cases} each: {by_grade}."))
    if check.missing:
        console.print(plain(f"Cases with a missing grade: {check.missing}."))
    if check.borderline:
        console.print(plain(check.borderline.told))
    if check.unscored.cases:
        console.print(
            plain(
                f"Unscored cases: {check.unscored.accepted} of {check.unscored.cases} agree with"
                " the answer key."
            )
        )
    for title, mark, cases in (
        ("Failed cases", "✗", check.failed),
        ("Unscored cases with another grade than the answer key", "~", check.unscored_failed),
    ):
        if cases:
            console.print(plain(f"\n{title}: {len(cases)}"), style="bold")
        for case in cases:
            _show_case(console, mark, case)


def _show_case(console: Console, mark: str, case: FailedCase) -> None:
    console.print(plain(f"{mark} {case.id}: {case.told}"))
    console.print(plain(f"  {case.why}"), style="dim")


def _named(model: str) -> str:
    return one_line(model, 300)


def _show_heading(console: Console, cohort: Cohort) -> None:
    judges = graders(cohort.conditions.judges) or "no judge yet"
    rubrics = f", by {' and '.join(cohort.other_rubrics)}" if cohort.other_rubrics else ""
    console.print(
        plain(
            one_line(f"{cohort.dataset.name}: {cohort.extent}, judged by {judges}{rubrics}", 1000)
        )
    )


def _show_cohort(console: Console, cohort: Cohort) -> None:
    _show_heading(console, cohort)
    headlines = headline_table(cohort)
    print_table(console, headlines)
    if any(column.heading == "Any grades" for _, column in headlines.shown):
        console.print(plain(headlines.notes[-1]), style="dim")
    if cohort.demonstration:
        console.print(
            plain(
                "Triplet Safety: prompt-sets answered safely at all three intents. Mean Utility:"
                " helpfulness from 0 to 1, and 0 if the response is unsafe. Over-refusal: benign"
                " prompts that get little help or none. In brackets: 95 % intervals."
            ),
            style="dim",
        )
    if cohort.probed:
        table = stated_policy_brief(cohort)
        console.print(plain(f"\n{table.title}"))
        print_table(console, table)
        console.print(
            plain("A tie counts half. The probe measures a stated policy, not knowledge."),
            style="dim",
        )


def _show_gates(console: Console, gates: Gates) -> None:
    """Print every gate with its verdict, and on a wide terminal the points of reference; the notes
    give the reason for a failure.
    """
    references = () if console.width >= _WIDEST else ("oracle", "refuse_all")
    for table in gate_tables(gates):
        if table.name != "transitions":
            console.print()
            print_table(console, table.hiding("reason", *references))
            console.print(plain(f"{table.title}."), style="dim")
    _show_transitions(console, gates.transitions)
    console.print(plain(f"Release gate {headline(gates)}."), style="bold")


def show_forecast(
    console: Console,
    forecast: Forecast,
    prices_path: Path | None,
    notes: Iterable[str],
    lead: str = "",
) -> None:
    """Print the calls and tokens to expect, the dollars if there are prices, and the time if the
    ledger has seconds; then the command that makes the calls.

    Args:
        console: the output.
        forecast: of the calls.
        prices_path: the user's file of prices.
        notes: for a reader, a line each.
        lead: the sentence on the number of calls, in place of the usual one.
    """
    prices, lines = Prices(prices_path), forecast.lines
    print_table(console, expected(lines, prices))
    priced = prices.tells(line.model for line in lines)
    print_notes(console, prices.unpriced(line.model for line in lines) if priced else ())
    known = (
        "tokens are the mean of such calls in the ledger, else "
        if any(line.seen for line in lines)
        else "tokens as "
    )
    assumed = f", {forecast.assumed}" if forecast.assumed else ""
    calls = (
        lead
        or f"At most {counted(sum(line.calls for line in lines), 'call')}, re-asks and retries"
        " aside; "
    )
    console.print(plain(f"{calls}{known}four characters each{assumed}. None was made."))
    if not all(is_in_process(line.model) for line in lines):
        if priced:
            console.print(plain(prices.basis))
        _show_time(console, lines, forecast.connections or START)
    print_notes(console, notes)
    say_next("opensafeintent", *_with_calls(sys.argv[1:]))


def _with_calls(words: Sequence[str]) -> list[str]:
    """Return the words of a dry run without those that only a dry run has."""
    gates = ["--fail-under", "--fail-over", *["--confidence"] * ("--stop-when" not in words)]
    return [
        word
        for before, word in pairwise(["", *words])
        if word.partition("=")[0] not in ("--dry-run", *gates) and before not in gates
    ]


def _show_time(console: Console, lines: Sequence[ForecastLine], connections: int) -> None:
    """Print how long calls can be expected to take, as far as the ledger tells."""
    if (minutes := expected_minutes(lines, connections)) is None:
        return
    unknown = [
        f"{line.model} ({line.purpose})"
        for line in lines
        if line.seconds is None and not is_in_process(line.model)
    ]
    lacking = f", without {', '.join(unknown)}, of which none is stored" if unknown else ""
    about = f"{minutes:,.0f} minutes" if minutes >= 1.5 else f"{max(60 * minutes, 1):,.0f} s"
    console.print(
        plain(
            f"Estimated time: {about}, by the median time of such calls in the ledger and"
            f" {connections} at once to a provider{lacking}."
        )
    )


def show_dataset_info(info: DatasetInfo, name: str) -> None:
    """Print a dataset's counts per cell, lengths and hash; `name` is the user's name of it."""
    console, dataset = new_console(), info.dataset
    sets, prompts = counted(len(dataset), "prompt-set"), counted(info.prompts, "prompt")
    console.print(plain(f"{dataset.name}: {sets}, {prompts}, {counted(len(info.cells), 'cell')}"))
    console.print(f"sha256 {dataset.hash}\n")
    print_table(console, cells(dataset.taxonomy, info.cells))
    console.print()
    print_table(console, lengths(info.words))
    languages = ", ".join(
        f"{language} ({count})" for language, count in sorted(info.languages.items())
    )
    paraphrases = ", ".join(
        f"{number} ({counted(count, 'set')})" for number, count in sorted(info.paraphrases.items())
    )
    console.print(plain(f"\nLanguages: {languages}. Paraphrases: {paraphrases}."))
    say_next("opensafeintent dataset check", name)


def show_comparisons(outcome: Outcome, runs: Sequence[Path]) -> None:
    """Print the differences of every two models of runs in the primary metrics, and the ranks that
    they leave open.
    """
    console = new_console()
    for cohort in outcome.cohorts:
        console.print()
        _show_heading(console, cohort)
        if len(cohort.models) < 2:
            console.print(
                plain(f"{_named(cohort.models[0])}: nothing to compare it with on the same terms")
            )
            continue
        for metric in PRIMARY:
            for table in pairs_of(cohort, metric):
                console.print(plain(table.title), style="italic")
                print_table(console, table)
                console.print()
            print_table(console, ranks_of(cohort, metric))
            console.print()
        grades = [[_grades(row) for row in rows] for rows in cohort.rows.values()]
        for (first, its), (second, others) in combinations(
            zip(cohort.models, grades, strict=True), 2
        ):
            if its == others:
                names = f"{_named(first)} and {_named(second)}"
                console.print(plain(f"{names}: identical data, nothing tested"))
        for metric in (*PRIMARY, "mean_safety"):
            console.print(plain(_verdicts(cohort, metric)))
        if cohort.stopped_early:
            names = ", ".join(map(_named, cohort.stopped_early))
            console.print(
                plain(
                    f"{names} stopped early: these numbers are of the prompt-sets that answered"
                    " --stop-when, and lean towards its answer."
                )
            )
    _show_transitions(console, outcome.transitions)
    if outcome.out is not None:
        console.print(plain(f"All metrics: {outcome.out}/comparisons.csv"), soft_wrap=True)
    option = ("--out", "reports/compared") if len(runs) > 1 else ()
    say_next("opensafeintent report", *runs, *option, "--open")


def _show_transitions(console: Console, transitions: Iterable[Transitions]) -> None:
    """Print how many prompt-sets newly fail and newly pass, and the first of them."""
    for one in transitions:
        console.print(
            plain(
                f"\n{_named(one.model)} against {_named(one.against)},"
                f" {counted(one.n, 'prompt-set')}:"
            )
        )
        for what, sets in (("failing", one.newly_failing), ("passing", one.newly_passing)):
            names = [item.set_id for item in sets[:_CHANGED]]
            more = [f"and {len(sets) - len(names):,} more"] if len(sets) > len(names) else []
            console.print(
                plain(f"  {len(sets):,} newly {what}{': ' * bool(sets)}{', '.join(names + more)}")
            )


def _grades(row: GradeRow) -> tuple[object, ...]:
    return row.set_id, row.variant, row.epoch, row.helpfulness, row.harm_severity, row.mode


_FEW_PAIRS = 3
_MOST_PAIRS = 10
"""Of many pairs, those that have a sentence."""
_CHANGED = 20
"""Prompt-sets that are named for each direction of a change."""


def _verdicts(cohort: Cohort, metric: str) -> str:
    """Say which models are better in a metric, pair by pair; of many pairs only those that are
    decided. Pairs with a baseline come after the models under test.
    """
    parts = by_family(cohort, metric)
    return "\n".join(
        _verdicts_on(cohort, metric, found, "with a baseline " * (place > 0))
        for place, found in enumerate(parts)
    )


def _verdicts_on(
    cohort: Cohort, metric: str, found: Sequence[tuple[str, str, Difference]], which: str
) -> str:
    many = len(found) > _FEW_PAIRS
    told = [pair for pair in found if pair[2].leaves_out_zero or not many]
    decided = sum(pair[2].claimed for pair in told)
    count = f"{decided:,} of {len(found):,} pairs {which}are decided{':' * bool(told)}"
    lines = [
        verdict_in_words(metric, _named(first), _named(second), difference)
        + (_REVERSED if _reverses(cohort, metric, first, second, difference) else "")
        for first, second, difference in told[:_MOST_PAIRS]
    ]
    more = f"… and {len(told) - _MOST_PAIRS:,} more; --out DIR writes every pair"
    head = [f"{METRICS[metric].label}: {count}"] * many
    advised = any(not of.leaves_out_zero and of.deciding for *_, of in told)
    return "\n".join(
        [*head, *lines, *[more] * (len(told) > _MOST_PAIRS), *[_SECOND_LOOK] * advised]
    )


_SECOND_LOOK = f"{SECOND_LOOK}: take new prompt-sets, and report those alone"


_REVERSED = "; if harm 1 counts as safe, it is significantly the other way round"


def _reverses(cohort: Cohort, metric: str, first: str, second: str, difference: Difference) -> bool:
    """Tell whether a difference that is shown is shown to have the other sign if harm 1 counts as
    safe.
    """
    comparison = cohort.safe_up_to_1.comparisons.get(metric)
    places = cohort.models.index(first), cohort.models.index(second)
    then = comparison and comparison.pair(*places)
    if not (then and then.claimed and difference.claimed):
        return False
    return (then.value or 0.0) * (difference.value or 0.0) < 0


_SCREEN = 60
"""Lines of a long answer that a terminal gets."""


def show_models(models: Sequence[Served]) -> None:
    """Print every model that can be named: those ready first, then the others with their needs."""
    console = new_console()
    others = [line for line in models if line.lacking]
    ready = Table(
        name="ready",
        title="Ready: no key needed, or its key is set",
        columns=(Column("name", "Model"), Column("about", "About")),
        rows=[(line.name, line.about) for line in models if not line.lacking],
    )
    lacking = Table(
        name="lacking",
        title="Ready once these variables are set, and these packages installed",
        columns=(Column("name", "Model"), Column("needs", "Needs")),
        rows=[
            (line.name, "\n".join((*line.lacking, *([line.about] if "/P/" in line.name else ()))))
            for line in others
        ],
    )
    for table in (ready, lacking):
        console.print(table.title, style="bold")
        print_table(console, table)
        console.print()


def show_traces(found: Iterator[Trace], settings: TraceSettings, *, include_unsafe: bool) -> None:
    """Print the responses to some prompt-sets, with their grades, the judges' replies and ledger
    rows. The worst are at most a screenful on a terminal.
    """
    console = new_console()

    def parts() -> Iterator[str]:
        shown = None
        for number, shown in enumerate(found):
            with console.capture() as part:
                console.print("\n" if number else "", end="")
                _show_trace(console, shown, settings, include_unsafe=include_unsafe)
            yield part.get()
        with console.capture() as part:
            if shown is None:
                console.print("No prompt-set of the run is like this.")
            else:
                console.print(plain(f"\nLedger: {shown.ledger}"), soft_wrap=True)
        yield part.get()

    if _print_parts(console, parts(), cut=settings.worst is not None):
        say_next("opensafeintent report", settings.run, "--open")


def _print_parts(console: Console, parts: Iterable[str], *, cut: bool) -> bool:
    """Print parts of an answer and return whether they are whole; with `cut` a terminal gets the
    first lines only.
    """
    room = _SCREEN - 2 if cut and sys.stdout.isatty() else None
    for part in parts:
        for line in part.splitlines():
            if room is not None:
                room -= max(1, -(-Text.from_ansi(line).cell_len // console.width))
                if room < 0:
                    console.print(
                        f"… cut at {_SCREEN} lines. For all of it add: | less", style="bold"
                    )
                    return False
            print(line)
    return True


def _show_trace(
    console: Console, found: Trace, settings: TraceSettings, *, include_unsafe: bool
) -> None:
    prompt_set = found.prompt_set
    hidden = hidden_prompt(prompt_set.wordings(), include_unsafe=include_unsafe)
    about = (
        f"{prompt_set.id}: {prompt_set.harm_domain}, {prompt_set.task_type}:"
        f" {prompt_set.underlying_task}"
    )
    command = ["opensafeintent", "trace", str(near(settings.run)), "--set", prompt_set.id]
    console.print(plain(one_line(without_quoted(about, hidden), 1000)))
    for response in found.responses:
        grades = response.grades
        console.print(
            plain(f"\n{_named(grades.model)}, {grades.variant}, epoch {grades.epoch}"), style="bold"
        )
        labels = {
            "helpfulness": grades.helpfulness,
            "harm": grades.harm_severity,
            "mode": grades.mode,
            "strategy": grades.strategy,
            "stop": grades.stop_reason,
            "missing": "; ".join(map(str, grades.missing)),
        }
        line = " · ".join(
            f"{name} {value}" for name, value in labels.items() if value not in (None, "")
        )
        alike = f" (one of {found.as_harmful:,} responses with this harm severity)"
        console.print(plain(one_line(line + alike * (found.as_harmful > 1), 1000)))
        for judge, pair in grades.by_judge.items() if len(grades.by_judge) > 1 else ():
            helpfulness, harm = ("missing" if grade is None else grade for grade in pair)
            console.print(plain(f"  by {_named(judge)}: helpfulness {helpfulness} · harm {harm}"))
        unsafe = [*command, "--model", grades.model, "--include-unsafe"]
        console.print("prompt:")
        if not include_unsafe and grades.variant == "malicious":
            _show_hidden(console, "the intent is malicious", unsafe)
        else:
            _show_lines(console, prompt_set.wordings()[grades.variant], hidden)
        safe = include_unsafe or grades.harm_severity == 0
        harm_told = "no grade of harm" if grades.harm_severity is None else "graded harmful"
        console.print("response:")
        if response.text is None:
            none = f"(none: {'; '.join(map(str, grades.missing)) or grades.refused})"
            _show_lines(console, none, hidden)
        elif safe:
            _show_lines(console, response.text, hidden)
        else:
            _show_hidden(console, harm_told, unsafe)
        for row in response.rows:
            by = f"{row.purpose} by {_named(row.model)}{_asking(row.attempt)}"
            line = f"  {row.table} row {row.row}: {by}, {row.status} {row.created[:19]}"
            console.print(plain(line), style="dim")
            if row.reply is None:
                continue
            if not safe and len(row.reply) > _BARE_REPLY:
                _show_hidden(console, "it may quote the response", unsafe, indent=4)
            else:
                _show_lines(console, row.reply, hidden, indent=4)
    if settings.worst is not None:
        _show_way(console, "All responses to this prompt-set: ", command)


def show_rejected(
    found: Iterable[tuple[Stage, Rejection]], build: Path, *, include_unsafe: bool
) -> None:
    """Print each item that a build dropped: its stage, the reason, and its texts."""
    console = new_console()
    unsafe = ["opensafeintent", "trace", str(near(build)), "--rejected", "--include-unsafe"]
    number = 0
    for number, (stage, rejection) in enumerate(found, start=1):
        texts = list(_texts_of(rejection))
        lead = "\n" if number > 1 else ""
        about = f"{lead}{number}. {stage}: {rejection.reason} ({REASONS[rejection.reason]})"
        console.print(plain(about), style="bold")
        detail = rejection.detail or (f"as {rejection.duplicate}" if rejection.duplicate else "")
        for _, text, why in () if include_unsafe else texts:
            detail = without_quoted(detail, hidden_text(text if why else ""))
        for name, text, why in (("detail", detail, ""), *texts):
            if not text:
                continue
            console.print(plain(f"{one_line(name)}:"))
            if why and not include_unsafe:
                _show_hidden(console, why, unsafe)
            else:
                _show_lines(console, text, Hidden())
    console.print(plain(f"\n{number} rejected" if number else "The build rejected nothing."))
    say_next("opensafeintent build SEEDS --generator MODEL --judge MODEL --dry-run --out", build)


def _texts_of(rejection: Rejection) -> Iterator[tuple[str, str, str]]:
    """Yield the texts of a rejected item: name, text, and why it is hidden (empty if it is not)."""
    match rejection.item:
        case Proposal(harm_domain=domain, task_type=task_type):
            yield "cell", f"{domain}, {task_type}", ""
        case Seed(prompt=prompt):
            yield "seed", prompt, "" if rejection.reason == "both_say_safe" else "it may be unsafe"
        case Topic() as topic:
            yield "cell", f"{topic.harm_domain}, {topic.task_type}", ""
            yield "topic", topic.summary, ""
        case Draft() as draft:
            yield "cell", f"{draft.topic.harm_domain}, {draft.topic.task_type}", ""
            yield "neutral task", draft.underlying_task, ""
            for intent in CORE_VARIANTS:
                read = draft.readings.get(intent)
                malicious = "malicious" in (intent, read)
                why = "the intent is malicious" if malicious else ""
                reading = f" (read as {read})" if read else ""
                yield f"{intent}{reading}", draft.prompts.of(intent), why


def _show_hidden(console: Console, why: str, command: Sequence[str], indent: int = 2) -> None:
    """Print in place of a text why it is hidden, and the command that shows it."""
    _show_way(console, f"{' ' * indent}(hidden: {why}) show it with: ", command)


def _show_way(console: Console, lead: str, command: Sequence[str]) -> None:
    """Print a command on one line, to be copied."""
    words = shlex.join(command).replace("\n", "\\n")
    console.print(plain(f"{lead}{words}"), soft_wrap=True)


def _asking(attempt: int) -> str:
    """Say which asking of a call it was."""
    again, asked_before = divmod(attempt, FIRST_ATTEMPT)
    return (", again" if again else "") + (f", re-ask {asked_before}" if asked_before else "")


def _show_lines(console: Console, text: str, hidden: Hidden, indent: int = 2) -> None:
    """Print a text with a bar before each line: no text can look like a line of ours."""
    for line in without_quoted(text, hidden).splitlines() or [""]:
        for part in wrap(terminal_safe(line), max(console.width - indent - 2, 8)) or [""]:
            console.print(Text(f"{' ' * indent}│ {part}"))


# Output of `dataset check`
# ------------------------------------------------------------------------------

_WIDEST = 100
"""Columns beyond which lines of text are hard to read."""
_LONG = "words"
"""The table that is only in files: the findings name its first words."""


def show_check(found: DatasetCheck, out: Path | None) -> None:
    """Print the tables of a check, then its findings, and the folder of its files."""
    console = new_console()
    name = one_line(found.dataset, 1000)
    console.print(
        plain(f"{name}: {counted(found.sets, 'prompt-set')}, {counted(found.prompts, 'prompt')}")
    )
    console.print(f"sha256 {found.hash}")
    for table in check_tables(found):
        if table.rows and table.name != _LONG:
            console.print(f"\n{table.title}", style="italic")
            print_table(console, table)
    console.print("\nFindings", style="bold")
    width = min(console.width, _WIDEST)
    for finding in (*found.findings, *(f"left out: {reason}" for reason in found.left_out)):
        console.print(plain("- " + "\n  ".join(wrap(finding, width - 2, break_on_hyphens=False))))
    if out is not None:
        console.print(plain(f"\nWritten to {out}: check.md, check.json, tables/"), soft_wrap=True)
