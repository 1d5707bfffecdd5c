"""A report's annex for a safety and security report: the headings of the EU code of practice for
general-purpose AI models, measure 7.3, with random samples; in Markdown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.baselines import drop_baselines
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import sha256_hex
from opensafeintent.hostile import terminal_safe
from opensafeintent.markdown import Plain
from opensafeintent.numbers.cohort import Cohort, GradedRun
from opensafeintent.numbers.gates import Gates
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.promptsets.cards import render_card
from opensafeintent.quoting import cut_quotation, hide_prompt
from opensafeintent.report.cohort_columns import cohort_notes
from opensafeintent.report.columns import Table
from opensafeintent.report.conditions import list_conditions, second_opinions, second_turns
from opensafeintent.report.facts import Statement
from opensafeintent.report.gate_tables import make_gate_tables
from opensafeintent.report.page import asset
from opensafeintent.report.table_formats import to_markdown
from opensafeintent.report.tables import coverage
from opensafeintent.report.tables_judges import guard_table
from opensafeintent.report.tables_metrics import headline_table, safe_up_to_1, utility
from opensafeintent.report.tables_second_turn import second_turn
from opensafeintent.responses import GradedResponse

SAMPLES = 5
"""Of each model: the least that the code of practice asks for."""
_LONGEST = 4000
"""Characters of a text."""


class _Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One input and output, as Markdown."""

    title: str
    prompt: Plain
    response: Plain


class _Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one model."""

    model: str
    shown: list[_Sample]
    withheld: list[str]
    """Titles of further ones that were drawn."""


def render_annex(
    cohort: Cohort,
    runs: Sequence[GradedRun],
    tables: Sequence[Table],
    texts: Mapping[str, RunTexts],
    latest: Mapping[str, str],
    *,
    gates: Gates | None,
    include_unsafe: bool,
    notices: Sequence[Statement],
) -> str:
    """Return the annex of a report; the same input gives the same text.

    Args:
        cohort: the models.
        runs: the runs that they come from.
        tables: of the report.
        texts: by the run's name, its responses.
        latest: by the run's name, the time of the last addition to its ledger.
        gates: results of the gates, those for an earlier version included.
        include_unsafe: whether samples may be prompts of malicious intent and responses that are
            not graded safe.
        notices: what limits the results.
    """
    corrected = [table for table in tables if table.name == "corrected"]
    compared = gates is not None and gates.baseline is not None
    samples = [
        _draw(cohort, model, texts, include_unsafe=include_unsafe)
        for model in drop_baselines(cohort.models)
    ]
    return render_card(
        asset("annex.md"),
        {
            "version": __version__,
            "runs": [run.name for run in runs],
            "include_unsafe": include_unsafe,
            "versions": [_table(table) for table in make_gate_tables(gates)] if compared else [],
            **_results(cohort, runs, latest),
            "human": Plain("\n".join(map(_table, corrected))),
            "samples": samples,
            "limitations": [said.text for said in notices],
        },
    )


def _results(
    cohort: Cohort, runs: Sequence[GradedRun], latest: Mapping[str, str]
) -> dict[str, object]:
    """Return the values of the template about the models: data, conditions and results."""
    prompt_sets = cohort.dataset.prompt_sets
    return {
        "facts": list_conditions(cohort, runs),
        "latest": max(latest[origin.run][:10] for origin in cohort.origins),
        "coverage": _table(coverage(cohort), cohort),
        "domains": _counts(item.harm_domain for item in prompt_sets if item.harm_domain),
        "task_types": _counts(item.task_type for item in prompt_sets if item.task_type),
        "scope": cohort.scope,
        "pairs": cohort.dataset.pairs,
        "sets": len(cohort.dataset),
        "paraphrased": sum(bool(item.dual_use_paraphrases) for item in prompt_sets),
        "further": [(one.label, one.ends) for one in cohort.questions if not one.in_metrics],
        "metrics": [(METRICS[name].label, METRICS[name].about) for name in cohort.scope.primary],
        "results": [
            _table(headline_table(cohort)),
            _table(utility(cohort), cohort),
            _table(safe_up_to_1(cohort), cohort),
            *(
                _table(table, cohort)
                for table in (second_turn(cohort), guard_table(cohort))
                if table.rows
            ),
        ],
        "second_turns": second_turns(cohort),
        "second_opinions": second_opinions(cohort),
        "elicited": list(_yield_sampling(cohort)),
    }


def _table(table: Table, of: Cohort | None = None) -> Plain:
    """Return a table, without the notes that all tables have."""
    said = cohort_notes(of) if of else ()
    notes = tuple(note for note in table.notes if note not in said)
    return Plain(to_markdown(msgspec.structs.replace(table, notes=notes)))


def _counts(names: Iterator[str]) -> list[tuple[str, int]]:
    return sorted(Counter(names).items())


def _yield_sampling(cohort: Cohort) -> Iterator[tuple[str, str]]:
    """Yield how each model was sampled."""
    for shown, member in cohort.members.items():
        manifest = member.run.manifest
        sampling = manifest.plan.find_sampling(member.origin.model)
        if member.imported:
            yield shown, "its responses were imported; how they were sampled is not stored"
            continue
        temperature, effort = sampling.temperature, sampling.reasoning_effort
        parts = (
            "provider's temperature" if temperature is None else f"temperature {temperature:g}",
            sampling.max_tokens and f"at most {sampling.max_tokens:,} tokens",
            effort and f"reasoning effort {effort}",
            sampling.extra and f"further settings {sampling.extra}",
            f"responses to each prompt: {manifest.plan.epochs}",
            f"system prompt: {manifest.plan.system}"
            if manifest.plan.system
            else "no system prompt",
        )
        yield shown, "; ".join(part for part in parts if part)


def _draw(
    cohort: Cohort, model: str, texts: Mapping[str, RunTexts], *, include_unsafe: bool
) -> _Drawn:
    """Draw responses in random order, until enough of them can be shown."""
    origin, shown, withheld = cohort.members[model].origin, list[_Sample](), list[str]()

    def place(row: GradedResponse) -> str:
        where = (cohort.dataset.hash, origin.model, row.set_id, row.variant, str(row.epoch))
        return sha256_hex("\0".join(where))

    for row in sorted(cohort.rows[model], key=place):
        if len(shown) == SAMPLES:
            break
        title = f"prompt-set {row.set_id}, {row.variant}, epoch {row.epoch}"
        grades = ", ".join(
            f"{question.label} {'missing' if grade is None else grade}"
            for question in cohort.questions
            for grade in (row.panel(question.grade),)
        )
        safe = row.has_all_grades and row.harm_severity == 0 and row.variant != "malicious"
        if not include_unsafe and not safe:
            withheld.append(f"{title} ({grades})")
            continue
        prompt_set = cohort.dataset.by_id[row.set_id]
        wordings = prompt_set.wordings()
        hidden = hide_prompt(wordings, include_unsafe=include_unsafe)
        response = texts[origin.run].find(origin.model, row.set_id, row.variant, row.epoch)
        text = "" if response is None else response.text
        shown.append(
            _Sample(
                title=f"{title}: {grades}",
                prompt=_quote_block(cut_quotation(wordings[row.variant], hidden)),
                response=_quote_block(cut_quotation(text, hidden)),
            )
        )
    return _Drawn(model=model, shown=shown, withheld=withheld)


def _quote_block(text: str) -> Plain:
    """Return a text as a block of code, in which nothing is markup."""
    if not text:
        return Plain("    (no text)")
    more = f"\n… ({len(text) - _LONGEST:,} more characters)" if len(text) > _LONGEST else ""
    plain = terminal_safe(text[:_LONGEST].replace("\r\n", "\n").expandtabs(4))
    return Plain("\n".join(f"    {line}" for line in f"{plain}{more}".split("\n")))
