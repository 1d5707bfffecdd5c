"""What a reader is told of a build before any figure: what came of it, and what to distrust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from opensafeintent.calls.baselines import is_baseline
from opensafeintent.construction.records import REASONS
from opensafeintent.hostile import terminal_safe
from opensafeintent.report.built.record import BuildResults, name_of_seeds, stage_name
from opensafeintent.report.prose import Name, Sentence, counted, listed, percent, precision_in_points
from opensafeintent.taxonomy import INTENT_WORDS

__all__ = ["build_cautions", "build_findings"]

_TOPICS = (
    ("Are malicious prompts longer, in words", "Length"),
    ("Are malicious prompts longer, in characters", "Characters"),
    ("Are malicious prompts harder", "Readability"),
    ("From its words", "Telling words"),
    ("Near-duplicates", "Near-duplicates"),
    ("Core prompts of one set", "Within sets"),
    ("Dual-use wordings of one set", "Paraphrases"),
    ("Identical within one set", "Identical"),
)
"""What the findings of a check are about, by how they begin; what begins otherwise is about coverage."""


def build_findings(results: BuildResults) -> list[Sentence]:
    """Return what was found, most important first."""
    found = [_funnel(results), *_intents(results), *_people(results)]
    if results.check:
        found += [Sentence((terminal_safe(text),), topic=_topic(text)) for text in results.check.findings]
    return [*found, *_costs(results)]


def _topic(text: str) -> str:
    return next((topic for start, topic in _TOPICS if text.startswith(start)), "Coverage")


def _funnel(results: BuildResults) -> Sentence:
    told = []
    seeds, described, filled = (results.stage(stage) for stage in ("seeds", "metadata", "backfill"))
    if seeds and seeds.count_in:
        topics = f", which gave {counted(described.kept, 'topic')}" if described else ""
        told.append(f"There were {counted(seeds.count_in, 'seed')}{topics}.")
    if filled and filled.proposed:
        told.append(f"The generator proposed {filled.proposed:,} more that were accepted, to fill cells.")
    begun = results.stage("triplets")
    if begun and results.dataset:
        whole = counted(begun.count_in, "topic")
        told.append(
            f"Of {whole} {len(results.dataset):,} became prompt-sets ({percent(len(results.dataset) / begun.count_in)})."
        )
    elif begun and begun.count_in:
        last = results.stages[-1]
        told.append(f"After {stage_name(last.stage)} there are {counted(last.kept, 'item')} of {begun.count_in:,}.")
    if most := _most_dropped(results):
        told.append(most)
    return Sentence((" ".join(told) or "Nothing was read and nothing was made.",), topic="Funnel")


def _most_dropped(results: BuildResults) -> str:
    """Say why most were dropped, over all stages."""
    reasons = Counter((rejection.reason, result.stage) for result in results.built.stages for rejection in result.rejected)
    if not reasons:
        return "Nothing was dropped."
    (reason, stage), number = min(reasons.items(), key=lambda item: (-item[1], item[0]))
    if number == reasons.total():
        return f"{counted(number, 'rejection')}, all in {stage_name(stage)}: {REASONS[reason]}."
    times = "once" if number == 1 else f"{number:,} times"
    return f"The most frequent of {counted(reasons.total(), 'rejection')}, {times} in {stage_name(stage)}: {REASONS[reason]}."


def _intents(results: BuildResults) -> Iterator[Sentence]:
    prompts = sum(line.prompts for line in results.mended)
    if not prompts:
        return
    right, repaired, wrong, repairs = (
        sum(getattr(line, name) for line in results.mended)
        for name in ("right_at_first", "repaired", "still_wrong", "repairs")
    )
    told = (
        f"As first written, {percent(right / prompts)} of {prompts:,} prompts read as the intent that they were written for."
    )
    if repairs:
        told += f" {counted(repairs, 'repair')} put {repaired:,} of the others right; {wrong:,} stayed wrong."
    worst = min(results.mended, key=lambda line: line.right_at_first / max(line.prompts, 1))
    if worst.right_at_first < worst.prompts:
        name = INTENT_WORDS[worst.intent]
        told += f" Hardest to write were {name} prompts: {percent(worst.right_at_first / worst.prompts)} at first."
    yield Sentence((told,), topic="Intent check")


def _people(results: BuildResults) -> Iterator[Sentence]:
    reviewed, stage = results.reviewed, results.stage("people")
    if reviewed and stage:
        told = (
            f"{counted(reviewed.annotators, 'annotator')} judged {counted(reviewed.sets, 'prompt-set')} of "
            f"{stage.count_in:,}; {counted(stage.dropped, 'set')} that all of them called poor "
            f"{'was' if stage.dropped == 1 else 'were'} dropped."
        )
        yield Sentence((told,), topic="People")


def _costs(results: BuildResults) -> Iterator[Sentence]:
    calls = sum(cost.calls for cost in results.costs)
    tokens = sum(cost.input_tokens + cost.output_tokens for cost in results.costs)
    if calls:
        each = f", {tokens / len(results.dataset):,.0f} tokens for each finished set" if results.dataset else ""
        yield Sentence((f"{counted(calls, 'call')} and {counted(tokens, 'token')}{each}.",), topic="Cost")


def build_cautions(results: BuildResults) -> list[Sentence]:
    """Return what to distrust; the loud ones stand at the top of the page."""
    return [*_loud(results), *_quiet(results)]


def _loud(results: BuildResults) -> Iterator[Sentence]:
    scripted = [model for model in results.models if is_baseline(model)]
    if scripted:
        told = " ships with OpenSafeIntent as a script. " if len(scripted) == 1 else " ship with OpenSafeIntent as scripts. "
        parts = (
            *listed(scripted),
            told,
            "What they make is plainly artificial: it shows the pipeline at work, and no model ",
        )
        yield Sentence((*parts, "should be evaluated with it."), "warning", loud=True)
    if results.dataset is None:
        last = results.manifest.stages[1]
        why = (
            f"The build ends with stage {last}, and prompt-sets are finished by stage 6."
            if last < 6
            else ("No item came through all stages.")
        )
        yield Sentence((f"There is no dataset yet. {why} The page shows how far the build has come.",), "warning", loud=True)


def _quiet(results: BuildResults) -> Iterator[Sentence]:
    manifest = results.manifest
    for remark in results.remarks:
        yield Sentence((f"{terminal_safe(' '.join(remark.split()))}.",), "warning")
    if results.dataset is None:
        return
    if results.reviewed is None:
        yield Sentence(("People have not checked these prompt-sets (stage 7).",), "warning")
    elif results.stage("people") and results.reviewed.sets < len(results.built.drafts[-2].kept):
        yield Sentence(
            ("Only a part of the prompt-sets was seen by people; the others are as the models left them.",), "caution"
        )
    yield Sentence(
        (
            "Every prompt that was kept has the intent that ",
            Name(terminal_safe(manifest.judge)),
            " finds in it. Where this judge errs, the dataset errs too, and no number here shows it.",
        ),
        "caution",
    )
    if len(results.dataset) < 100:
        sets, points = counted(len(results.dataset), "prompt-set"), precision_in_points(len(results.dataset))
        yield Sentence(
            (
                f"{sets} {'gives' if len(results.dataset) == 1 else 'give'} wide intervals: at a share of 0.6 about "
                f"±{points:.0f} points.",
            ),
            "caution",
        )
    if results.likeness is None:
        yield Sentence(("The likeness of different sets was left out: there are too many prompts in one cell.",), "caution")
    for reason in results.check.left_out if results.check else ():
        yield Sentence((f"Not checked: {reason}.",), "caution")
    if seeds := manifest.seeds:
        yield Sentence((f"Topics follow the seeds ({name_of_seeds(seeds)}): what these lack is not here.",), "caution")
