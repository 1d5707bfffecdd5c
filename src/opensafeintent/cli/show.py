"""What commands print."""

from __future__ import annotations

import sys
from collections import Counter
from math import isnan
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opensafeintent.analysis.groups import Group
from opensafeintent.calls.models import Served, cost_of, read_prices, unpriced
from opensafeintent.cli.printing import new_console, plain, print_notes
from opensafeintent.evaluation.forecast import RESPONSE_TOKENS, Forecast
from opensafeintent.evaluation.pipeline import FIRST_ATTEMPT
from opensafeintent.hostile import one_line, terminal_safe
from opensafeintent.metrics import PRIMARY
from opensafeintent.report.browser.texts import without_quoted
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.statistics import SIGNIFICANCE, rank_intervals
from opensafeintent.workflows.datasets import DatasetInfo
from opensafeintent.workflows.reporting import Outcome
from opensafeintent.workflows.tracing import Trace

__all__ = ["show_comparisons", "show_dataset_info", "show_models", "show_outcome", "show_trace"]

_SUMMARY = (
    ("mean_utility", "Mean\nUtility"),
    ("worst_case_utility", "Worst-Case\nUtility"),
    ("triplet_safety", "Triplet\nSafety"),
    ("mean_safety", "Mean\nSafety"),
    ("mean_helpfulness", "Raw help-\nfulness"),
)


def show_outcome(outcome: Outcome, *, prices: Path | None = None, page: bool = False) -> int:
    """Print what a command found, and return its exit code."""
    console = new_console()
    if outcome.forecast is not None:
        _show_forecast(console, outcome.forecast, prices)
        print_notes(console, outcome.notes)
        return outcome.exit_code
    for group in outcome.groups:
        console.print()
        _show_group(console, group)
    if any(group.demonstration for group in outcome.groups):
        console.print(Text(DEMONSTRATION_NOTE, style="bold yellow"))
    for line in outcome.stopped:
        print(terminal_safe(f"error: {line}"), file=sys.stderr)
    print_notes(console, outcome.notes)
    if outcome.tally is not None:
        tally = outcome.tally
        made = tally.made.total()
        console.print(plain(f"{made:,} calls made, {tally.retries:,} retries, {tally.reused_calls:,} taken from the ledger."))
    written = (
        "report.html, figures/, tables/, metrics.json, grades.csv.gz" if page else "metrics.json, grades.csv.gz, tables/"
    )
    console.print(plain(f"Results in {outcome.out}: {written}"), soft_wrap=True)
    if not page:
        console.print(plain(f"The page with figures and responses: opensafeintent report {outcome.out}"), soft_wrap=True)
    return outcome.exit_code


def _named(model: str) -> str:
    return one_line(model, 300)


def _show_heading(console: Console, group: Group) -> None:
    judges = " + ".join(group.conditions.judges) or "no judge yet"
    console.print(plain(one_line(f"{group.dataset.name}: {group.extent}, judged by {judges}", 1000)))


def _show_group(console: Console, group: Group) -> None:
    _show_heading(console, group)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Model, by Mean Utility", overflow="fold")
    for _, heading in _SUMMARY:
        table.add_column(heading, justify="right")
    table.add_column("Sets", justify="right")
    table.add_column("Grades\nmissing", justify="right")
    for place in group.numbers.order:
        model = group.models[place]
        coverage = group.coverage[model]
        cells = []
        for metric, _ in _SUMMARY:
            ratio = group.numbers.ratios[metric]
            cells.append(f"{float(ratio.value.values[place]):.3f}" if ratio.n.values[place] else "–")
        missing = sum(count for reasons in coverage.missing.values() for count in reasons.values())
        table.add_row(
            plain(_named(model)), *cells, str(int(group.numbers.ratios["mean_utility"].n.values[place])), str(missing)
        )
    console.print(table)
    console.print(
        plain(
            "Utility is helpfulness that counts only where the response is safe. Triplet Safety asks that all three intents "
            "of a task are answered safely."
        ),
        style="dim",
    )


def _show_forecast(console: Console, forecast: Forecast, prices_path: Path | None) -> None:
    prices = read_prices(prices_path) if prices_path else {}
    spent: Counter[tuple[str, str]] = Counter()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("Model", "Purpose"):
        table.add_column(heading, overflow="fold")
    for heading in ("Calls", "Tokens in", "Tokens out", *(["Dollars"] if prices else [])):
        table.add_column(heading, justify="right")
    for line in forecast.lines:
        most = "≤ " if line.at_most else ""
        tokens = {(line.model, "input"): line.input_tokens, (line.model, "output"): line.output_tokens}
        spent.update(tokens)
        dollars = "–" if unpriced([line.model], prices) else f"{cost_of(tokens, prices):,.2f}"
        table.add_row(
            plain(line.model),
            line.purpose,
            f"{most}{line.calls:,}",
            f"{line.input_tokens:,}",
            f"{line.output_tokens:,}",
            *([dollars] if prices else []),
        )
    calls = sum(line.calls for line in forecast.lines)
    given, got = sum(line.input_tokens for line in forecast.lines), sum(line.output_tokens for line in forecast.lines)
    total = [f"{cost_of(spent, prices):,.2f}"] if prices else []
    table.add_row("All", "", f"{calls:,}", f"{given:,}", f"{got:,}", *total, style="bold")
    console.print(table)
    if prices and (lacking := unpriced((model for model, _ in spent), prices)):
        print_notes(console, [lacking])
    console.print(
        f"At most {calls:,} calls, re-asks and retries aside; tokens as four characters each, responses taken as "
        f"{RESPONSE_TOKENS} tokens. None was made."
    )


def show_models(models: list[Served]) -> None:
    """Print what can be named as a model."""
    console = new_console()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("Model", "Served", "Needs", "About"):
        table.add_column(heading, overflow="fold")
    for line in models:
        pattern = "P_BASE_URL" in line.needs  # a name for any variables
        marked = [name if pattern else f"{name} {'✗ not set' if name in line.lacking else '✓ set'}" for name in line.needs]
        table.add_row(line.name, line.how, (" " if pattern else "\n").join(marked) or "–", line.about)
    console.print(table)


def show_dataset_info(info: DatasetInfo) -> None:
    """Print a dataset's counts per cell, lengths and hash."""
    console = new_console()
    console.print(plain(f"{info.name}: {info.sets} prompt-sets, {info.prompts:,} prompts, {len(info.cells)} cells"))
    console.print(f"sha256 {info.hash}\n")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Harm domain")
    for name in info.taxonomy.type_names:
        table.add_column(plain(name.replace(" and ", " and\n")), justify="right")
    table.add_column("All", justify="right", style="bold")
    for domain in info.taxonomy.domain_names:
        counts = [info.cells.get((domain, task), 0) for task in info.taxonomy.type_names]
        table.add_row(plain(domain), *(str(count) if count else "·" for count in counts), str(sum(counts)))
    totals = [
        sum(info.cells.get((domain, task), 0) for domain in info.taxonomy.domain_names) for task in info.taxonomy.type_names
    ]
    table.add_row("All", *map(str, totals), str(sum(totals)), style="bold")
    console.print(table)
    lengths = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    lengths.add_column("\nVariant")
    for heading in ("least", "median", "most"):
        lengths.add_column(f"Words,\n{heading}", justify="right")
    for variant, (least, middle, most) in info.words.items():
        lengths.add_row(variant, str(least), f"{middle:g}", str(most))
    console.print()
    console.print(lengths)
    languages = ", ".join(f"{language} ({count})" for language, count in sorted(info.languages.items()))
    paraphrases = ", ".join(f"{number} ({count} sets)" for number, count in sorted(info.paraphrases.items()))
    console.print(plain(f"\nLanguages: {languages}. Paraphrases: {paraphrases}."))


def show_comparisons(outcome: Outcome) -> None:
    """Print the differences of every two models in the primary metrics, and the ranks that they leave open."""
    console = new_console()
    for group in outcome.groups:
        console.print()
        _show_heading(console, group)
        if len(group.models) < 2:
            console.print(plain(f"{_named(group.models[0])}: nothing to compare it with on the same terms"))
            continue
        for metric in PRIMARY:
            _show_pairs(console, group, metric)
    if outcome.out is not None:
        console.print(plain(f"All metrics: {outcome.out}/comparisons.csv"), soft_wrap=True)


def _show_pairs(console: Console, group: Group, metric: str) -> None:
    comparison = group.numbers.comparisons[metric]
    ranks = rank_intervals(comparison)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title_justify="left")
    table.title = plain(f"{metric}: first minus second, 95 % interval, Holm-corrected p")
    for heading in ("First", "Second"):
        table.add_column(heading, overflow="fold")
    for heading in ("Difference", "Interval", "p", "Sets", "Detectable"):
        table.add_column(heading, justify="right")
    order = group.numbers.ranked(metric)
    for place, a in enumerate(order):
        for b in order[place + 1 :]:
            if not comparison.n[a, b]:
                continue
            p = float(comparison.p_holm[a, b])
            table.add_row(
                plain(_named(group.models[a])),
                plain(_named(group.models[b])),
                f"{comparison.difference[a, b]:+.3f}",
                f"[{comparison.low[a, b]:+.3f}, {comparison.high[a, b]:+.3f}]",
                f"{p:.3f}" if p >= 0.001 else "<0.001",
                str(comparison.n[a, b]),
                "–" if isnan(comparison.detectable[a, b]) else f"{comparison.detectable[a, b]:.3f}",
                style="bold" if p < SIGNIFICANCE else "",
            )
    console.print(table)
    spans = (f"{_named(group.models[place])} {_span(*ranks[place])}" for place in order)
    console.print(plain(f"Ranks: {'; '.join(spans)}\n"), style="dim")


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def show_trace(found: Trace, *, include_unsafe: bool) -> None:
    """Print the responses to one prompt-set, with their grades and ledger rows."""
    console = new_console()
    prompt_set = found.prompt_set
    secret = "" if include_unsafe else prompt_set.prompts.malicious
    about = f"{prompt_set.id}: {prompt_set.harm_domain}, {prompt_set.task_type}: {prompt_set.underlying_task}"
    console.print(plain(one_line(without_quoted(about, secret) or "", 1000)))
    for response in found.responses:
        grades = response.grades
        console.print(plain(f"\n{_named(grades.model)}, {grades.variant}, epoch {grades.epoch}"), style="bold")
        hidden = not include_unsafe and grades.variant == "malicious"
        prompt = "(of malicious intent: --include-unsafe shows it)" if hidden else prompt_set.wordings()[grades.variant]
        _show_text(console, "prompt", prompt, secret)
        if response.text is None:
            text = f"(none: {'; '.join(map(str, grades.missing)) or grades.refused})"
        else:
            safe = include_unsafe or grades.harm_severity == 0
            text = response.text if safe else "(not graded safe: --include-unsafe shows it)"
        _show_text(console, "response", text, secret)
        labels = {
            "helpfulness": grades.helpfulness,
            "harm": grades.harm_severity,
            "mode": grades.mode,
            "strategy": grades.strategy,
            "stop": grades.stop_reason,
            "missing": "; ".join(map(str, grades.missing)),
        }
        told = " · ".join(f"{name} {value}" for name, value in labels.items() if value not in (None, ""))
        console.print(plain(one_line(told, 1000)))
        for row in response.rows:
            by = f"{row.purpose} by {_named(row.model)}{_asking(row.attempt)}"
            console.print(plain(f"  {row.table} row {row.row}: {by}, {row.status} {row.created}"), style="dim")
    console.print(plain(f"\nLedger: {found.ledger}"), soft_wrap=True)


def _asking(attempt: int) -> str:
    """Say which asking of a call it was."""
    anew, asked_before = divmod(attempt, FIRST_ATTEMPT)
    return (", anew" if anew else "") + (f", re-ask {asked_before}" if asked_before else "")


def _show_text(console: Console, what: str, text: str, secret: str) -> None:
    """Print a text with a bar before each line: no text can pass for a line of ours."""
    console.print(f"{what}:")
    for line in (without_quoted(text, secret) or "").splitlines() or [""]:
        for part in wrap(terminal_safe(line), console.width - 4) or [""]:
            console.print(Text(f"  │ {part}"))
