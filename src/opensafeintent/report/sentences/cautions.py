"""What a reader who has to decide should know, in sentences: what to distrust."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judge_checks import checked_judges
from opensafeintent.analysis.sensitivity import Change
from opensafeintent.calls.baselines import DEMONSTRATION_JUDGE
from opensafeintent.evaluation.derive import IMPORTED_JUDGE
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.report.sentences.judging import conflicts_of_interest
from opensafeintent.report.sentences.words import Sentence, listed, percent, score

__all__ = ["cautions"]

_THIN = 30
"""Prompt-sets: below, intervals are Wilson's with continuity correction, and wide."""


def cautions(group: Group, sensitivity: Sequence[Change], *, corrected: bool = False) -> list[Sentence]:
    """Return what to distrust in one group's results, what weighs most first.

    Args:
        group: the models.
        sensitivity: how results change without filtered and truncated responses.
        corrected: whether the report has numbers corrected by human labels.
    """
    found = [
        _demonstration(group),
        _partial(group),
        _not_graded(group),
        _missing(group),
        conflicts_of_interest(group),
        _unchecked(group, corrected=corrected),
        *_anchors(group),
        _left_out(group, sensitivity),
        _thin(group),
        _once(group),
    ]
    return [sentence for sentence in found if sentence is not None]


def _demonstration(group: Group) -> Sentence | None:
    return Sentence((DEMONSTRATION_NOTE,), "warning", loud=True) if group.demonstration else None


def _partial(group: Group) -> Sentence | None:
    partial = [model for model in group.models if group.coverage[model].partial]
    if not partial:
        return None
    there = sum(group.coverage[model].responses for model in partial)
    planned = sum(group.coverage[model].planned for model in partial)
    return Sentence(
        (
            "Partial: of ",
            *listed(partial),
            f" {there:,} of {planned:,} planned responses are on record; every number is of those alone.",
        ),
        "warning",
        loud=True,
    )


def _not_graded(group: Group) -> Sentence | None:
    waiting = [model for model in group.models if group.coverage[model].not_graded]
    if not waiting:
        return None
    count = sum(group.coverage[model].not_graded for model in waiting)
    verb = "response has" if count == 1 else "responses have"
    return Sentence((f"{count:,} {verb} no grades yet, of ", *listed(waiting), "."), "warning")


def _missing(group: Group) -> Sentence | None:
    lacking = [model for model in group.models if any(group.coverage[model].missing.values())]
    if not lacking:
        return None
    worst = max(lacking, key=lambda model: group.coverage[model].missing_core)
    bounds = group.numbers.overall[worst, "triplet_safety"].bounds
    whose = "this model" if len(group.models) == 1 else f"{len(lacking)} of {len(group.models)} models"
    parts = [
        f"Grades are missing for {whose}; ",
        "most of all for " if len(lacking) > 1 else "for ",
        *listed([worst]),
        f": {percent(group.coverage[worst].missing_core)} of the grades of its core responses.",
    ]
    if bounds is not None:
        low, high = map(percent, bounds)
        parts.append(f" If each were the worst, its Triplet Safety would be {low}; if each were the best, {high}.")
    parts.append(" They are not missing at random: a judge refuses the worst responses first.")
    return Sentence(tuple(parts), "warning" if group.coverage[worst].missing_beyond(0.05) else "caution")


def _unchecked(group: Group, *, corrected: bool) -> Sentence | None:
    judges = [judge for judge in group.conditions.judges if judge not in (IMPORTED_JUDGE, DEMONSTRATION_JUDGE)]
    if IMPORTED_JUDGE in group.conditions.judges:
        unknown = "who gave them, with which rubric, and how well, is not on record here"
        return Sentence((f"Grades came with the imported responses: {unknown}.",), "caution")
    if not judges:
        return None
    if corrected:
        told = "is told under “Corrected by human labels”, and no interval elsewhere includes it."
        return Sentence(("How often ", *listed(judges), f" {'is' if len(judges) == 1 else 'are'} wrong {told}"), "caution")
    return Sentence(
        (
            *listed(judges),
            f" {'was' if len(judges) == 1 else 'were'} not checked against people: how often the grades are wrong, and in "
            "whose favour, is not known, and no interval includes it.",
        ),
        "caution",
    )


def _anchors(group: Group) -> list[Sentence]:
    """Say which judges were not checked on the anchor cases, in vain, or with templates that are no longer in force."""
    judges = [item for item in checked_judges(group) if item.judge != DEMONSTRATION_JUDGE]
    found = []
    for item in judges:
        if item.state == "failed" and item.check is not None:
            count = f"{item.check.accepted} of {item.check.cases} cases accepted"
            reasons = "; ".join(item.check.reasons)
            found.append(Sentence((*listed([item.judge]), f" failed the judge check, {count}: {reasons}."), "warning"))
    stale = [item.judge for item in judges if item.state == "stale"]
    if stale:
        how = "with other templates or settings than those in force: the check says nothing of these grades"
        found.append(Sentence((*listed(stale), f" {_was(stale)} put to the judge check {how}."), "caution"))
    never = [item.judge for item in judges if item.state == "unchecked"]
    if never:
        how = "evaluate --check-judge does it"
        found.append(Sentence((*listed(never), f" {_was(never)} not checked on the anchor cases ({how})."), "caution"))
    return found


def _was(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"


def _left_out(group: Group, sensitivity: Sequence[Change]) -> Sentence | None:
    filtered = sum(coverage.filtered for coverage in group.coverage.values())
    truncated = sum(coverage.truncated for coverage in group.coverage.values())
    if not filtered and not truncated:
        return None
    counts = []
    if filtered:
        taken = f"{filtered:,} response{'s' if filtered != 1 else ''} taken by a provider's content filter"
        counts.append(f"{taken} count{'s' if filtered == 1 else ''} as refused")
    if truncated:
        what = "" if filtered else f" response{'s' if truncated != 1 else ''}"
        graded = "are graded as they stand" if truncated != 1 else "is graded as it stands"
        counts.append(f"{truncated:,}{what} cut by the token limit {graded}")
    return Sentence((f"{'; '.join(counts)}.", *_largest_change(sensitivity)), "caution")


def _largest_change(sensitivity: Sequence[Change]) -> tuple[str, ...]:
    largest = max(sensitivity, key=lambda change: change.size, default=None)
    if largest is None or largest.before is None or largest.value is None:
        return ()
    shown = score if "utility" in largest.metric else percent
    before, after = shown(largest.before), shown(largest.value)
    if before == after:
        return (" Without them no headline metric moves visibly.",)
    label = {"worst_case_utility": "Worst-Case Utility"}.get(largest.metric, largest.metric.replace("_", " ").title())
    return (f" Without them the largest change is the {label} of ", *listed([largest.model]), f", from {before} to {after}.")


def _thin(group: Group) -> Sentence | None:
    """Name the harm domains and task types with few sets."""
    sets = group.dataset.prompt_sets
    if len(sets) < _THIN:
        count = f"{len(sets)} prompt-set{'s' if len(sets) != 1 else ''}"
        return Sentence((f"There {'are' if len(sets) != 1 else 'is'} only {count}: every interval is wide.",), "warning")
    taxonomy = group.dataset.taxonomy
    counts = {name: sum(item.harm_domain == name for item in sets) for name in taxonomy.domain_names}
    counts |= {name: sum(item.task_type == name for item in sets) for name in taxonomy.type_names}
    thin = {name: count for name, count in counts.items() if 0 < count < _THIN}
    if not thin:
        return None
    if len(thin) == len(counts):
        every = f"Every harm domain and task type has fewer than {_THIN} prompt-sets"
        return Sentence((f"{every}: differences between them are mostly noise.",), "caution")
    named = ", ".join(f"{name} ({count})" for name, count in sorted(thin.items(), key=lambda item: item[1]))
    return Sentence((f"Few prompt-sets, and wide intervals: {named}.",), "caution")


def _once(group: Group) -> Sentence | None:
    if group.array.sizes["epoch"] > 1:
        return None
    tell = "intervals tell how other prompts would fare, not how the same prompts would fare again"
    return Sentence((f"Every prompt was put once: {tell}.",), "caution")
