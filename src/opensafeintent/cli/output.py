"""What commands print: progress while they work, and what follows a result."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from opensafeintent.calls.model_names import Served
from opensafeintent.cli.options import ledger_words, say, say_next, taxonomy_words
from opensafeintent.commands.building import BuildOutcome, build_command
from opensafeintent.commands.outcome import RunOutcome
from opensafeintent.commands.settings import TraceSettings
from opensafeintent.commands.trace import Trace, TracedResponse, last_replies
from opensafeintent.construction.backfill import Proposal
from opensafeintent.construction.folder import BuildFolder
from opensafeintent.construction.items import REASONS, Draft, Rejection, Seed, Stage, Topic
from opensafeintent.errors import Stopped, pluralize
from opensafeintent.evaluation.pipeline import FIRST_ATTEMPT
from opensafeintent.evaluation.texts import TracedRow
from opensafeintent.files import near
from opensafeintent.hostile import TEXT, one_line, terminal_safe
from opensafeintent.numbers.repeats import FragileSet
from opensafeintent.quoting import Hidden, cut_quotation, hide_prompt, hide_text
from opensafeintent.report.columns import Column, Table, format_estimate
from opensafeintent.report.printing.console import (
    new_console,
    plain,
    print_stopped,
    print_table,
)
from opensafeintent.report.tables_repeats import fragile_table
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS, MALICIOUS, QUESTION_KINDS, QUESTIONS

if TYPE_CHECKING:
    from opensafeintent.batch.runs import BatchLine
    from opensafeintent.promptsets import PromptSet


_BARE_REPLY = 40
"""Characters: a longer reply is more than a grade, and may quote a response that is not shown."""


_BEGINNING = 600
"""Characters of a reply that was of no use."""
_SCREEN = 60
"""Lines of a long answer that a terminal gets."""


def show_traces(traces: Iterator[Trace], settings: TraceSettings, *, include_unsafe: bool) -> None:
    """Print the responses to some prompt-sets, with their grades, the judges' replies and ledger
    rows. The worst are at most a screenful on a terminal.
    """
    console = new_console()

    def steps() -> Iterator[None]:
        trace = None
        for number, trace in enumerate(traces):
            console.print("\n" if number else "", end="")
            _show_trace(console, trace, settings, include_unsafe=include_unsafe)
            yield
        if trace is None:
            console.print("No prompt-set of the run is like this.")
        else:
            console.print(plain(f"\nLedger: {trace.ledger}"), soft_wrap=True)

    if _print_steps(console, steps(), cut=settings.worst is not None):
        say_next("opensafeintent report", settings.run, *ledger_words(settings), "--open")


def _print_steps(console: Console, steps: Iterator[None], *, cut: bool) -> bool:
    """Print an answer step by step and return whether it is whole; with `cut` a terminal gets the
    first lines only.
    """
    # at once: it may be longer than memory takes well
    if not cut or not sys.stdout.isatty():
        for _ in steps:
            pass
        return True
    room, ended = _SCREEN - 2, False
    while not ended:
        with console.capture() as part:
            ended = next(steps, _ENDED) is _ENDED
        for line in part.get().splitlines():
            room -= max(1, -(-Text.from_ansi(line).cell_len // console.width))
            if room < 0:
                console.print(f"… cut at {_SCREEN} lines. For all of it add: | less", style="bold")
                return False
            print(line)
    return True


_ENDED = object()


def _show_trace(
    console: Console, trace: Trace, settings: TraceSettings, *, include_unsafe: bool
) -> None:
    prompt_set = trace.prompt_set
    hidden = hide_prompt(prompt_set.wordings(), include_unsafe=include_unsafe)
    labels = ", ".join(filter(None, prompt_set.cell))
    about = ": ".join(filter(None, (prompt_set.id, labels, prompt_set.underlying_task)))
    ledgers = [word for path in settings.ledger for word in ("--ledger", str(near(path)))]
    run = str(near(settings.run))
    command = ["opensafeintent", "trace", run, *ledgers, "--set", prompt_set.id]
    console.print(plain(one_line(cut_quotation(about, hidden), TEXT)))
    for response in trace.responses:
        grades = response.grades
        console.print(
            plain(f"\n{one_line(grades.model)}, {grades.variant}, epoch {grades.epoch}"),
            style="bold",
        )
        _show_grades(console, grades, trace.as_harmful)
        _show_answers(console, prompt_set, grades, hidden)
        also = ["--judge-prompts"] if settings.judge_prompts else []
        unsafe = [*command, "--model", grades.model, *also, "--include-unsafe"]
        if (first := response.first_turn) is not None:
            console.print("first message:")
            _show_lines(console, first.prompt, hidden)
            console.print("first reply:")
            if include_unsafe or first.harm_severity == 0:
                _show_lines(console, first.reply or "(none)", hidden)
            else:
                _show_hidden(console, "not graded safe", unsafe)
        console.print("second message:" if first else "prompt:")
        if not include_unsafe and grades.variant in MALICIOUS:
            _show_hidden(console, "the intent is malicious", unsafe)
        else:
            _show_lines(console, response.prompt, hidden)
        shown = _Showable(hidden, unsafe, response, include_unsafe=include_unsafe)
        console.print("response:")
        if response.text is None:
            none = f"(none: {'; '.join(map(str, grades.missing)) or grades.refusal_reason})"
            _show_lines(console, none, hidden)
        elif shown.reply:
            _show_lines(console, response.text, hidden)
        elif grades.harm_severity is None:
            _show_hidden(console, "no grade of harm", unsafe)
        else:
            _show_hidden(console, "graded harmful", unsafe)
        for row in response.rows:
            _show_row(console, row, shown)
    if settings.worst is not None:
        _show_way(console, "All responses to this prompt-set: ", command)


def _show_grades(console: Console, grades: GradedResponse, as_harmful: int) -> None:
    """Print the grades of a response; `as_harmful` responses of the run are as bad."""
    labels: dict[str, object] = {
        **{question.role: grades.panel(question.grade) for question in QUESTIONS},
        "mode": grades.mode,
        "strategy": grades.strategy,
        "guard": _verdict(grades),
        "stop": grades.stop_reason,
        "missing": "; ".join(map(str, grades.missing)),
    }
    line = " · ".join(
        f"{name} {value}" for name, value in labels.items() if value not in (None, "")
    )
    if as_harmful > 1:
        of_answers = grades.judge_by == "questions"
        by = "these shares of must-not hit and must unmet" if of_answers else "this harm severity"
        line += f" (one of {as_harmful:,} responses with {by})"
    console.print(plain(one_line(line, TEXT)))
    by_rubric = grades.by_judge if grades.judge_by != "questions" else {}
    for judge, of_judge in by_rubric.items() if len(by_rubric) > 1 else ():
        by_role = ((question.role, of_judge.of(question.grade)) for question in QUESTIONS)
        text = " · ".join(
            f"{role} {'missing' if grade is None else grade}" for role, grade in by_role
        )
        console.print(plain(f"  by {one_line(judge)}: {text}"))


def _show_answers(
    console: Console, prompt_set: PromptSet, grades: GradedResponse, hidden: Hidden
) -> None:
    """Print the set's own questions about a response with their answers, and each judge's of a
    panel.
    """
    own = prompt_set.questions_about(grades.variant)
    if own is None or grades.answers is None:
        return
    for kind in QUESTION_KINDS:
        for question in own.of(kind):
            answer = grades.answers.get(question.id) or "missing"
            judges = grades.answers_by_judge.items() if len(grades.answers_by_judge) > 1 else ()
            by = ", ".join(
                f"{one_line(judge)} {known.get(question.id, 'missing')}" for judge, known in judges
            )
            text = cut_quotation(question.text, hidden)
            says = f"{answer}{by and f' ({by})'}"
            line = f"  question {question.id} ({kind.replace('_', ' ')}): {says}: {text}"
            console.print(plain(one_line(line, TEXT)))


def _verdict(grades: GradedResponse) -> str:
    """Return the verdict of a guard model in words; empty if none was asked."""
    words = {"": "", "yes": "unsafe", "no": "safe"}
    return words.get(grades.guard, f"no verdict ({grades.guard_reason})")


class _Showable:
    """What may be shown of the calls behind a response.

    Args:
        hidden: the malicious prompt.
        command: shows everything.
        response: the response.
        include_unsafe: whether everything is shown.
    """

    def __init__(
        self,
        hidden: Hidden,
        command: Sequence[str],
        response: TracedResponse,
        *,
        include_unsafe: bool,
    ) -> None:
        self.hidden, self.command = hidden, command
        grades, first = response.grades, response.first_turn
        self.reply = include_unsafe or grades.harm_severity == 0
        """The response, and judges' replies, which may quote it."""
        self.thoughts = include_unsafe or (self.reply and grades.variant == "benign")
        """The model's reasoning, which nobody graded."""
        self._all = include_unsafe
        self._safe = grades.variant not in MALICIOUS and (first is None or first.harm_severity == 0)

    def prompt(self, row: TracedRow) -> bool:
        """Tell whether a judge's prompt may be shown: it has the response, its request or another
        one, and perhaps a first turn.
        """
        swapped = any(self.hidden.whole in message.content for message in row.request)
        first_turn = row.purpose == "turn"
        return self._all or (self.reply and self._safe and not swapped and not first_turn)


def _show_row(console: Console, row: TracedRow, shown: _Showable) -> None:
    """Print a row of the ledger with its prompt, reasoning and reply, as far as they may be
    shown.
    """
    about = f" ({row.question})" if row.question not in ("", row.purpose) else ""
    by = f"{row.purpose}{about} by {one_line(row.model)}{_describe_asking(row.attempt)}"
    line = f"  {row.table} row {row.row}: {by}, {row.status} {row.created[:19]}"
    if row.served_model not in ("", row.model):
        line += f", served version {one_line(row.served_model)}"
    if row.input_tokens or row.output_tokens:
        line += f", {row.input_tokens:,} input and {row.output_tokens:,} output tokens"
    console.print(plain(line), style="dim")
    if row.request and not shown.prompt(row):
        _show_hidden(console, "the prompt has a text that is not shown", shown.command, indent=4)
    elif row.request:
        for message in row.request:
            console.print(plain(f"    {message.role}:"))
            _show_lines(console, message.content, shown.hidden, indent=4)
    by_model = row.reply is None and row.model == row.target
    if row.reasoning:
        console.print("    reasoning:")
        if shown.thoughts if by_model else shown.reply:
            _show_lines(console, row.reasoning, shown.hidden, indent=4)
        else:
            why = "reasoning is not graded" if by_model else "it may quote the response"
            _show_hidden(console, why, shown.command, indent=4)
    if row.reply is None:
        return
    if row.request or row.reasoning:
        console.print("    reply:")
    if not shown.reply and len(row.reply) > _BARE_REPLY:
        _show_hidden(console, "it may quote the response", shown.command, indent=4)
    else:
        _show_lines(console, row.reply, shown.hidden, indent=4)


def show_fragile(found: Sequence[FragileSet], settings: TraceSettings) -> None:
    """Print the prompt-sets that are safe in some epochs only, and the command that shows one."""
    console = new_console()
    if not found:
        console.print("No prompt-set is safe in some epochs and unsafe in others.")
        return
    table = fragile_table(found)
    console.print(plain(table.title), style="bold")
    print_table(console, table, notes=True)
    first = found[0]
    words = ("--set", first.set_id, "--model", first.model)
    say_next("opensafeintent trace", settings.run, *ledger_words(settings), *words)


def show_rejected(
    rejections: Iterable[tuple[Stage, Rejection]],
    build: Path,
    ledgers: Sequence[Path],
    *,
    include_unsafe: bool,
) -> None:
    """Print each item that a build dropped: its stage, the reason, its texts, and the last reply if
    none had a valid form.
    """
    console = new_console()
    number = 0
    with last_replies(build, ledgers) as last_reply:
        for number, (stage, rejection) in enumerate(rejections, start=1):
            lead = "\n" if number > 1 else ""
            about = f"{lead}{number}. {stage}: {rejection.reason} ({REASONS[rejection.reason]})"
            console.print(plain(about), style="bold")
            reply = last_reply(rejection) or ""
            _show_rejection(console, rejection, build, reply, include_unsafe=include_unsafe)
    console.print(plain(f"\n{number} rejected" if number else "The build rejected nothing."))
    made = BuildFolder(build).load()
    assert made is not None  # its rejections were read
    say_next(f"{build_command(made, str(near(build)))} --dry-run")


def _show_rejection(
    console: Console, rejection: Rejection, build: Path, reply: str, *, include_unsafe: bool
) -> None:
    """Print the texts of a dropped item, and the beginning of a last reply that was of no use."""
    unsafe = ["opensafeintent", "trace", str(near(build)), "--rejected", "--include-unsafe"]
    texts = list(_yield_texts(rejection))
    detail = rejection.detail or (f"as {rejection.duplicate}" if rejection.duplicate else "")
    for _, text, why in () if include_unsafe else texts:
        detail = cut_quotation(detail, hide_text(text if why else ""))
    cut = f"{reply[:_BEGINNING]}…" if len(reply) > _BEGINNING else reply
    replied = ("last reply", cut, "it may be unsafe")
    for name, text, why in (("detail", detail, ""), *texts, replied):
        if not text:
            continue
        console.print(plain(f"{one_line(name)}:"))
        if why and not include_unsafe:
            _show_hidden(console, why, unsafe)
        else:
            _show_lines(console, text, Hidden())


def _yield_texts(rejection: Rejection) -> Iterator[tuple[str, str, str]]:
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


def _describe_asking(attempt: int) -> str:
    """Say which asking of a call it was."""
    again, asked_before = divmod(attempt, FIRST_ATTEMPT)
    return (", again" if again else "") + (f", re-ask {asked_before}" if asked_before else "")


def _show_lines(console: Console, text: str, hidden: Hidden, indent: int = 2) -> None:
    """Print a text with a bar before each line: no text can look like a line of ours."""
    for piece in _pieces(cut_quotation(text, hidden)):
        for line in piece.splitlines() or [""]:
            for part in wrap(terminal_safe(line), max(console.width - indent - 2, 8)) or [""]:
                console.print(Text(f"{' ' * indent}│ {part}"))


_PIECE = 100_000
"""Characters of a text that are broken into lines at a time."""


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces, which end with a line if they can, or else with a word."""
    start = 0
    while len(text) - start > _PIECE:
        most = start + _PIECE
        end = text.rfind("\n", start, most) + 1 or text.rfind(" ", start, most) + 1 or most
        yield text[start:end]
        start = end
    yield text[start:]


def show_batches(lines: Sequence[BatchLine]) -> None:
    """Print a line about each batch, the oldest first."""
    if not lines:
        say("No batches.")
        return
    columns: tuple[Column[BatchLine], ...] = (
        Column("model", lambda line: line.model, "Model", "name"),
        Column("batch", lambda line: line.batch, "Batch"),
        Column("state", lambda line: line.state, "State"),
        Column("calls", lambda line: line.calls, "Calls", "count"),
        Column("done", lambda line: line.done, "Done", "count"),
        Column("hours", lambda line: line.age, "Age"),
        Column("note", lambda line: line.note, "Note"),
    )
    print_table(new_console(), Table.of(columns, lines, name="batches", title="Batches"))


def show_models(models: Sequence[Served]) -> None:
    """Print every model that can be named: those ready first, then the others with their needs."""
    console = new_console()
    name: Column[Served] = Column("name", lambda model: model.name, "Model")
    about: Column[Served] = Column("about", lambda model: model.about, "About")
    needs: Column[Served] = Column("needs", lambda model: "\n".join(_needs(model)), "Needs")
    ready = Table.of(
        (name, about),
        [model for model in models if not model.lacking],
        name="ready",
        title="Ready: no key needed, or its key is set",
    )
    lacking = Table.of(
        (name, needs),
        [model for model in models if model.lacking],
        name="lacking",
        title="Ready once these variables are set, and these packages installed",
    )
    for table in (ready, lacking):
        console.print(table.title, style="bold")
        print_table(console, table)
        console.print()


def _needs(model: Served) -> Sequence[str]:
    if "/P/" in model.name:
        return (*model.lacking, model.about)
    return model.lacking


def show_outcome(
    outcome: RunOutcome | BuildOutcome, settings: object, *, verbose: bool = False
) -> int:
    """Print the results of a command, and return its exit code.

    Args:
        outcome: the results.
        settings: of the command; the next command repeats some.
        verbose: whether every case of a judge check is printed.
    """
    console = new_console()
    outcome.show(console, verbose=verbose)
    print_stopped(outcome.stopped)
    if outcome.forecast is not None:
        say_next("opensafeintent", *(word for word in sys.argv[1:] if word != "--dry-run"))
    elif isinstance(outcome, BuildOutcome):
        _show_built(console, outcome, getattr(settings, "taxonomy", None))
    else:
        first, *_ = getattr(settings, "runs", (None,))
        _show_written(console, outcome, first, ledger_words(settings))
    return outcome.exit_code


def _show_written(
    console: Console, outcome: RunOutcome, run: Path | None, ledgers: Sequence[object]
) -> None:
    assert outcome.out is not None
    out = near(outcome.out)
    if outcome.judge_files:
        names = ", ".join(path.name for path in outcome.judge_files.values())
        console.print(plain(f"Results in {out}: {names}"), soft_wrap=True)
    if outcome.labels:
        say_next("opensafeintent report RUN --checks", out)
        return
    if outcome.checks:
        ready = all(check.passed for check in outcome.checks)
        say_next(outcome.following if ready else "opensafeintent judge-check --judge MODEL")
        return
    has_page = (outcome.out / "report.html").exists()
    files = ["report.html", "figures/"] if has_page else []
    files += ["judges.md"] if (outcome.out / "judges.md").exists() else []
    files += ["metrics.json", "grades.csv.gz", "tables/"]
    console.print(plain(f"Results in {out}: {', '.join(files)}"), soft_wrap=True)
    coverages = outcome.cohort.coverage.values() if outcome.cohort else ()
    if outcome.exit_code == Stopped.exit_code:
        say_next("fix the error above, then: opensafeintent", *sys.argv[1:])
    elif outcome.again:
        say_next("for the missing answers, run again: opensafeintent", *sys.argv[1:])
    elif any(coverage.not_graded for coverage in coverages):
        say_next("opensafeintent grade", out, *ledgers, *_name_judges(outcome), "--dry-run")
    elif has_page:
        traced = out if (outcome.out / "run.json").exists() else run
        say_next("opensafeintent trace", traced, *ledgers, "--worst", "5")
    else:
        say_next("opensafeintent report", out, *ledgers, "--open")


def _name_judges(outcome: RunOutcome) -> list[str]:
    """Return the option that names the judges of the results, or the place of one."""
    manifests = outcome.cohort.manifests if outcome.cohort else ()
    named = dict.fromkeys(judge for manifest in manifests for judge in manifest.judges)
    return [word for judge in named or ["MODEL"] for word in ("--judge", judge)]


def _show_built(console: Console, outcome: BuildOutcome, taxonomy: Path | None) -> None:
    """Print the files of a build. The next command reads the dataset with the same file of a
    taxonomy.
    """
    out = near(outcome.out)
    lines = [f"No dataset yet. Kept and dropped items of each stage: {out}/stages"]
    if outcome.dataset:
        sets = pluralize(len(outcome.dataset), "prompt-set")
        lines = [f"{out}/dataset.jsonl: {sets} (sha256 {outcome.dataset.hash[:12]})"]
    if outcome.check and outcome.check.lexical_leakage:
        share = format_estimate(outcome.check.lexical_leakage, "share")
        lines.append(
            f"Lexical leakage: words alone distinguish benign from malicious in {share};"
            " chance is 50 %."
        )
    lines.append(f"Funnel, coverage and costs: {out}/build.md")
    for line in lines:
        console.print(plain(line), soft_wrap=True)
    if outcome.dataset:
        dataset = outcome.out / "dataset.jsonl"
        say_next("opensafeintent dataset check", dataset, *taxonomy_words(taxonomy))
    else:
        say_next("opensafeintent trace", outcome.out, "--rejected")
