"""What a dataset's check found: tables, findings, the page of a build."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.construction.controls import (
    Accuracy,
    Balance,
    DatasetCheck,
    IntentDifference,
    Similarity,
    TellingWord,
    measure_controls,
)
from opensafeintent.construction.folder import BuildManifest
from opensafeintent.construction.items import Draft, Seed, StageResult, Topic
from opensafeintent.construction.stages import Built
from opensafeintent.errors import pluralize
from opensafeintent.hostile import LINE, clean_for_display, one_line
from opensafeintent.markdown import Plain, card_text
from opensafeintent.people.labels import Label
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.cards import (
    canary_in,
    further_wordings,
    is_generated,
    make_canary,
    name_ways,
    render_card,
    size_category,
    yaml_text,
)
from opensafeintent.report.columns import Column, Table, format_estimate
from opensafeintent.report.cost_tables import Costs, make_cost_tables
from opensafeintent.report.page import asset
from opensafeintent.report.table_formats import to_markdown
from opensafeintent.statistics.intervals import SEED
from opensafeintent.taxonomy import INTENT_WORDS, default_taxonomy

_LISTED = 6
"""Predictive words of an intent in a line."""
FEWEST_SETS = 10
"""Prompt-sets of which an interval says something: of fewer, counts are given."""


def check(dataset: Dataset, seed: int = SEED) -> DatasetCheck:
    """Check a dataset's controls, and say what was found; see `controls.measure_controls`.

    Raises:
        InputError: the seed is not one.
    """
    measured = measure_controls(dataset, seed)
    shifting = [item for item in dataset.prompt_sets if item.content_shift]
    findings = _findings(measured, judged=all(map(is_generated, shifting)))
    return msgspec.structs.replace(measured, findings=tuple(findings))


def _findings(measured: DatasetCheck, *, judged: bool) -> Iterator[str]:
    """Yield the lines.

    Args:
        measured: the numbers.
        judged: whether the judge of a build rated every content shift, not the authors of the sets.
    """
    if measured.sets < FEWEST_SETS:
        yield (
            f"With {pluralize(measured.sets, 'prompt-set')}, intervals and tests say nothing: below"
            f" {FEWEST_SETS}, counts are given."
        )
    yield from map(_balance_finding, measured.balance)
    yield from _differences(measured.differences)
    yield from _artefacts(measured.classifier, measured.words)
    yield from filter(None, map(_similarity_finding, measured.similarity))
    yield from _families(measured)
    yield from _content_shift(measured.content_shift, judged=judged)


def _balance_finding(row: Balance) -> str:
    evenness = "" if row.evenness is None else f"; evenness {row.evenness:.2f}"
    return (
        f"{row.groups} {row.of}: {row.empty} empty, {row.least} to {row.most} prompt-sets"
        f" each{evenness}."
    )


def _differences(rows: Sequence[IntentDifference]) -> Iterator[str]:
    """Yield a line for each measure, with the differences that are significant."""
    for measure in dict.fromkeys(row.measure for row in rows):
        of_measure = [row for row in rows if row.measure == measure]
        if (sets := of_measure[0].mean.n) < FEWEST_SETS:
            counts = ", ".join(map(_counts, of_measure)) if sets else "no set to compare"
            yield f"Difference in {measure}, of {pluralize(sets, 'set')}: {counts}."
            continue
        significant = [
            f"{INTENT_WORDS[row.first]} minus {INTENT_WORDS[row.second]}"
            f" {format_estimate(row.mean, signed=True)}"
            for row in of_measure
            if row.mean.leaves_out_zero
        ]
        yield f"Difference in {measure}: {', '.join(significant) or 'no significant one'}."


def _counts(row: IntentDifference) -> str:
    """Return in how many sets the first of two intents has more, and in how many less."""
    more, less = (round((share or 0.0) * row.mean.n) for share in (row.greater, row.less))
    return f"{INTENT_WORDS[row.first]} above {INTENT_WORDS[row.second]} in {more}, below in {less}"


def _artefacts(classifier: Sequence[Accuracy], words: Sequence[TellingWord]) -> Iterator[str]:
    for row in classifier:
        intents = ", ".join(INTENT_WORDS[intent] for intent in row.intents)
        found = f"{format_estimate(row.accuracy, 'share')} of the prompts"
        if row.accuracy.n < FEWEST_SETS:
            prompts = row.accuracy.n * len(row.intents)
            found = f"{round(prompts * (row.accuracy.value or 0))} of {prompts} prompts"
        yield (f"Words alone distinguish {intents} in {found}; chance is {100 * row.chance:.0f} %.")
    for intent, name in INTENT_WORDS.items():
        telling = [clean_for_display(word.word) for word in words if word.intent == intent]
        if telling:
            yield f"Words that speak most for {name}: {', '.join(telling[:_LISTED])}."


def _similarity_finding(row: Similarity) -> str:
    """Return a line on how alike prompts are; empty if a set has none to compare."""
    between = row.prompts == "two sets of one cell"
    scope = " Sets of different cells are not compared." if between else ""
    if not row.compared:
        return f"ROUGE-L above 0.7, {row.prompts}: none to compare.{scope}" if between else ""
    mean = "" if row.mean is None else f"; mean {row.mean:.2f}"
    highest = (
        "none share a word"
        if row.highest is None
        else f"highest {row.highest:.3f}: {one_line(f'{row.first} and {row.second}')}"
    )
    pairs = " pairs of prompts" if between else ""
    return (
        f"ROUGE-L above 0.7, {row.prompts}: {row.alike:,} (compared: {row.compared:,}{pairs}{mean};"
        f" {highest}).{scope}"
    )


def _families(measured: DatasetCheck) -> Iterator[str]:
    if measured.families:
        yield f"Families named by the field family: {measured.families:,}."
    if groups := measured.like_families:
        yield (
            f"Near-duplicates that look like families: {sum(map(len, groups)):,} prompt-sets in"
            f" {pluralize(len(groups), 'group')}, by dual-use prompts (of pairs: benign ones)"
            " above 0.7 ROUGE-L, in any"
            f" cell; the first: {one_line(', '.join(groups[0]))}. If they share a template, name it"
            " in the field family: intervals then count the family, not the set."
        )


def _content_shift(shifts: Mapping[str, int], *, judged: bool) -> Iterator[str]:
    if shifts.keys() - {"unknown"}:
        full, partly, none = (shifts.get(name, 0) for name in ("none", "partial", "full"))
        rater = "judge that built them" if judged else "prompt-sets themselves"
        yield (
            f"According to the {rater}, a full answer to the benign prompt would serve"
            f" the malicious one fully in {full:,} prompt-sets, partly in {partly:,}, and not in"
            f" {none:,}. This is unknown for {shifts.get('unknown', 0):,}."
        )


CARD_MARK = "Written by `opensafeintent build`, anew by each run. Delete this line to keep yours."
"""In every card of a build; one that lacks it is somebody's own."""

_ESCAPED = str.maketrans({char: f"\\{char}" for char in string.punctuation})
"""Markdown takes a backslash before any ASCII punctuation."""


def check_page(check: DatasetCheck, tables: Sequence[Table]) -> str:
    """Return a check's result as Markdown: the findings first, then the tables that have rows."""
    heading = (
        f"# {one_line(check.dataset).translate(_ESCAPED)}: {pluralize(check.sets, 'prompt-set')},"
        f" {check.prompts:,} prompts"
    )
    lines = [heading, "", f"SHA-256 {check.hash}, seed {check.seed}", ""]
    lines += [f"- {finding}" for finding in check.findings]
    if check.left_out:
        lines += ["", "Left out:", "", *(f"- {reason}" for reason in check.left_out)]
    return "\n".join([*lines, "", *(to_markdown(table) for table in tables if table.rows)])


def check_tables(check: DatasetCheck) -> list[Table]:
    """Return every table of a check; those of controls that were left out have no rows."""
    few = check.sets < FEWEST_SETS
    return [
        _balance_table(check.balance),
        _differences_table([_drop_interval(row, few=few) for row in check.differences], few=few),
        _classifier_table(check.classifier, few=few),
        _words_table(check.words),
        _similarity_table(check.similarity),
    ]


def _drop_interval(row: IntentDifference, *, few: bool) -> IntentDifference:
    """Return a difference as it is, or of few sets without its interval."""
    mean = msgspec.structs.replace(row.mean, interval=None)
    return msgspec.structs.replace(row, mean=mean) if few else row


def _balance_table(rows: Sequence[Balance]) -> Table:
    return Table.of(
        (
            Column("of", lambda row: row.of, "", "name"),
            Column("groups", lambda row: row.groups, "Number", "count"),
            Column("empty", lambda row: row.empty, "Empty", "count"),
            Column("least", lambda row: row.least, "Fewest sets", "count"),
            Column("most", lambda row: row.most, "Most sets", "count"),
            Column("most_share", lambda row: row.most_share, "Largest share", "share"),
            Column("evenness", lambda row: row.evenness, "Evenness", "number"),
        ),
        rows,
        name="balance",
        title="Prompt-sets over the taxonomy",
        notes=(
            "Evenness is the entropy of the shares over that of equal shares: 1 is equal, 0 is"
            " all in one.",
        ),
    )


def _differences_table(rows: Sequence[IntentDifference], *, few: bool) -> Table:
    """Return the differences; of few sets, people are not shown what rests on a test."""
    table = Table.of(
        (
            Column("measure", lambda row: row.measure, "Measure", "name"),
            Column("first", lambda row: row.first, "First"),
            Column("second", lambda row: row.second, "Second"),
            Column("n", lambda row: row.mean.n, "Sets", "count"),
            Column("mean", lambda row: row.mean, "Mean difference", "signed"),
            Column("d_z", lambda row: row.standardised, "d_z", "number"),
            Column("greater", lambda row: row.greater, "Greater in", "share"),
            Column("less", lambda row: row.less, "Less in", "share"),
            Column("p_unadjusted", lambda row: row.p_unadjusted),
            Column("p_adjusted", lambda row: row.p_adjusted, "p", "p"),
            Column(
                "minimum_detectable_difference",
                lambda row: row.minimum_detectable_difference,
                "Detectable",
                "number",
            ),
        ),
        rows,
        name="differences",
        title="Differences between the intents of a set, first minus second",
        notes=(
            *([] if few else [_ON_TESTS]),
            "Readability is the Automated Readability Index: the higher, the harder.",
        ),
    )
    return (
        table.hide_columns("d_z", "p_adjusted", "minimum_detectable_difference") if few else table
    )


_ON_TESTS = (
    "Intervals and values of p hold for the pairs of a measure at once. Detectable: the"
    " difference that a test of so many sets finds four times in five."
)


def _classifier_table(rows: Sequence[Accuracy], *, few: bool) -> Table:
    return Table.of(
        (
            Column("intents", lambda row: ", ".join(row.intents), "Among", "name"),
            Column("chance", lambda row: row.chance, "Chance", "share"),
            Column(
                "accuracy",
                lambda row: (
                    msgspec.structs.replace(row.accuracy, interval=None) if few else row.accuracy
                ),
                "Accuracy",
                "interval",
                "share",
            ),
        ),
        rows,
        name="classifier",
        title="How often words alone tell the intent",
        notes=("In prompt-sets that the classifier has not seen.",),
    )


def _words_table(rows: Sequence[TellingWord]) -> Table:
    table = Table.of(
        (
            Column("intent", lambda row: row.intent, "Intent", "name"),
            Column("word", lambda row: row.word, "Word"),
            Column("weight", lambda row: row.weight, "Weight", "number"),
            Column("benign", lambda row: row.benign, "Benign", "count"),
            Column("dual_use", lambda row: row.dual_use, "Dual-use", "count"),
            Column("malicious", lambda row: row.malicious, "Malicious", "count"),
        ),
        rows,
        name="words",
        title="Words that speak for an intent",
        notes=(
            "In how many sets the prompt of each intent has the word; the weight is that of the"
            " logistic regression.",
        ),
    )
    if all(row.dual_use is None for row in rows):
        return table.hide_columns("dual_use")
    return table


def _similarity_table(rows: Sequence[Similarity]) -> Table:
    return Table.of(
        (
            Column("prompts", lambda row: row.prompts, "Prompts", "name"),
            Column("compared", lambda row: row.compared, "Compared", "count"),
            Column("mean", lambda row: row.mean, "Mean", "number"),
            Column("alike", lambda row: row.alike, "Above 0.7", "count"),
            Column("highest", lambda row: row.highest, "Highest", "number"),
            Column("first", lambda row: row.first),
            Column("second", lambda row: row.second),
        ),
        rows,
        name="similarity",
        title="How alike prompts are, by ROUGE-L",
        notes=(
            "For two sets, pairs of prompts are compared and pairs of sets counted; within a"
            " set, sets.",
            "Core prompts of a set differ in intent only, so high values are as intended there.",
        ),
    )


_Stage = StageResult[Seed] | StageResult[Topic] | StageResult[Draft]


class CellCoverage(NamedTuple):
    """The finished prompt-sets of one cell."""

    harm_domain: str
    task_type: str
    sets: int
    from_seeds: int


def count_cells(built: Built, manifest: BuildManifest) -> list[CellCoverage]:
    """Return the finished prompt-sets by cell, in the taxonomy's order."""
    sets = Counter(draft.topic.cell for draft in built.finished)
    seeded = Counter(draft.topic.cell for draft in built.finished if draft.topic.seed)
    return [CellCoverage(*cell, sets[cell], seeded[cell]) for cell in manifest.taxonomy.cells]


def build_page(built: Built, manifest: BuildManifest, costs: Costs, remarks: Sequence[str]) -> str:
    """Return `build.md`: the items of the stages, reasons for dropped ones, coverage of the cells,
    costs.
    """
    lines = [
        "# Build",
        "",
        *(f"- {card_text(remark, 1000)}" for remark in remarks),
        "",
    ]
    tables = [
        funnel_table(built),
        _coverage(count_cells(built, manifest)),
        *make_cost_tables(costs),
    ]
    return "\n".join([*lines, *(to_markdown(table) for table in tables if table.rows)])


def funnel_table(built: Built) -> Table:
    """Return how many items each stage kept, and why it dropped the others."""
    return Table.of(
        (
            Column("stage", lambda result: result.stage, "Stage", "name"),
            Column("in", lambda result: result.count_in, "In", "count"),
            Column("kept", lambda result: len(result.kept), "Kept", "count"),
            Column("dropped", lambda result: result.why_dropped(), "Dropped, and why"),
        ),
        built.stages,
        name="funnel",
        title="Items through the stages",
        notes=(
            "The back-fill takes in the topics from seeds, which it keeps, and the generator's"
            " proposals.",
        ),
    )


def _coverage(cells: Sequence[CellCoverage]) -> Table:
    return Table.of(
        (
            Column("harm_domain", lambda cell: cell.harm_domain, "Harm domain", "name"),
            Column("task_type", lambda cell: cell.task_type, "Task type"),
            Column("sets", lambda cell: cell.sets, "Sets", "count"),
            Column("from_seeds", lambda cell: cell.from_seeds, "from seeds", "count"),
        ),
        cells,
        name="coverage",
        title="Prompt-sets by cell",
    )


def mark_source(source: str, dataset_hash: str) -> str:
    """Return the `source` of every record: its origin, a warning against other uses, and the
    canary.

    Args:
        source: the records' origin.
        dataset_hash: of the same records with that source alone.
    """
    return f"{source}; benchmark data, not for training corpora; canary {make_canary(dataset_hash)}"


def build_card(
    dataset: Dataset,
    check: DatasetCheck,
    built: Built,
    manifest: BuildManifest,
    judged: Sequence[Label] | None,
) -> str:
    """Return the dataset card as Markdown, with the hub's front matter; text from outside is no
    markup in it.

    Args:
        dataset: the card's subject.
        check: its controls.
        built: kept and dropped items of every stage.
        manifest: models, settings, templates.
        judged: the annotators' verdicts, good or poor, by set, if there were any (stage 7).
    """
    values = {
        **_dataset_values(dataset, built, manifest),
        **_origin_values(built, manifest),
        "findings": check.findings,
        "left_out": check.left_out,
        "people": Plain(_people(built, judged)),
        "mark": Plain(CARD_MARK),
    }
    return render_card(asset("card.md"), values)


def _dataset_values(dataset: Dataset, built: Built, manifest: BuildManifest) -> dict[str, object]:
    """Return the card's values about the dataset itself."""
    cells = count_cells(built, manifest)
    filled = sum(cell.sets > 0 for cell in cells)
    prompts = sum(len(item.wordings()) for item in dataset.prompt_sets)
    languages = sorted({item.language for item in dataset.prompt_sets if item.language}) or ["en"]
    own_taxonomy = manifest.taxonomy != default_taxonomy()
    return {
        "pretty_name": yaml_text(f"Prompt-sets on intent {dataset.hash[:8]}"),
        "languages": [yaml_text(language, 20) for language in languages],
        "size": size_category(len(dataset)),
        "sets": Plain(pluralize(len(dataset), "prompt-set")),
        "ways": name_ways(dataset),
        "further_wordings": further_wordings(dataset),
        "prompts": Plain(pluralize(prompts, "prompt")),
        "cells": Plain(f"They are in {filled:,} of {pluralize(len(cells), 'cell')}"),
        "hash": Plain(dataset.hash),
        "canary": Plain(canary_in(dataset) or ""),
        "canary_field": Plain("source"),
        "taxonomy": card_text(manifest.taxonomy.name, LINE),
        "taxonomy_option": Plain(" --taxonomy FILE" if own_taxonomy else ""),
    }


def _origin_values(built: Built, manifest: BuildManifest) -> dict[str, object]:
    """Return the card's values about the origin of the dataset: models, seeds, stages."""
    models = tuple(dict.fromkeys((manifest.generator, manifest.judge)))
    scripted = [card_text(model, LINE) for model in models if is_baseline(model)]
    ship = "is a script that ships" if len(scripted) == 1 else "are scripts that ship"
    target = "the seeds' topics"
    if manifest.per_cell:
        target = f"{pluralize(manifest.per_cell, 'prompt-set')} of each cell"
    seeds = (draft.topic.seed for draft in built.finished)
    return {
        "scripted": Plain(f"{' and '.join(scripted)} {ship}") if scripted else "",
        "same_model": len(models) == 1,
        "generator": card_text(manifest.generator, LINE),
        "judge": card_text(manifest.judge, LINE),
        "seeds": _shorten_seeds(manifest.seeds) if manifest.seeds else "",
        "filled": bool(manifest.per_cell),
        "target": target,
        "version": Plain(manifest.version),
        "stages": Plain("{} to {}".format(*manifest.stages)),
        "funnel": Plain(to_markdown(funnel_table(built))),
        "pku": any("PKU-SafeRLHF" in seed.source for seed in seeds if seed),
    }


def _people(built: Built, judged: Sequence[Label] | None) -> str:
    """Describe the part of people in the build (stage 7)."""
    if judged is None:
        return "**People have not checked it** (stage 7)."
    annotators = pluralize(len({label.annotator for label in judged}), "annotator")
    sets = pluralize(len({label.id for label in judged}), "prompt-set")
    dropped = len(built.list_rejected_in("people"))
    return (
        f"People: {annotators} judged {sets}; {dropped} dropped"
        " because all of them called it poor (stage 7)."
    )


def _shorten_seeds(seeds: str) -> str:
    """Return the name of the seeds, without their folder."""
    return clean_for_display(
        seeds.removeprefix("hf:") if seeds.startswith("hf:") else PurePath(seeds).name
    )
