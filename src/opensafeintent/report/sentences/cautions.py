"""What a reader who has to decide should know, in sentences: what to distrust."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from opensafeintent.calls.baselines import DEMONSTRATION_JUDGE, is_baseline
from opensafeintent.evaluation.derive import IMPORTED_JUDGE
from opensafeintent.report.groups import Group
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.report.sensitivity import Change
from opensafeintent.report.sentences.words import Sentence, listed, percent, score

__all__ = ["cautions", "family_of"]

_THIN = 30
"""Prompt-sets: below, intervals are Wilson's with continuity correction, and wide."""

_FAMILIES = {
    "openai": r"gpt|chatgpt|\bo[134](?:-|$)",
    "anthropic": "claude",
    "google": "gemini|gemma",
    "deepseek": "deepseek",
    "qwen": "qwen|qwq",
    "mistral": "mistral|mixtral|ministral|magistral|codestral|devstral",
    "xai": "grok",
    "meta": "llama",
    "microsoft": r"\bphi-",
    "cohere": "command-|c4ai|aya-",
    "amazon": r"\bnova-",
    "moonshot": "kimi|moonshot",
    "zhipu": r"\bglm-|chatglm",
}
_FAMILY = re.compile("|".join(f"(?P<{family}>{words})" for family, words in _FAMILIES.items()), re.IGNORECASE)

_PAPER = {"openai": "GPT-5.4, which wrote the prompts", "anthropic": "Claude Sonnet 4.6, which checked them"}
_AUTHORS = {
    "07115b06c60f3efa78fd23deee956eac5c1bd8bf7799c9cc35f376fbc2441998": _PAPER,
    "9d9545a22135112371fedccda48466a765f185c38a322fd46072a9ab224be9bf": _PAPER,
}
"""Families of the models that made a published dataset, by its hash: the 115 sets of the paper (section 2.1), the 700."""


def family_of(model: str) -> str | None:
    """Return who made a model, as far as its name tells; the last part of the name goes before the provider's."""
    for part in (model.rpartition("/")[2], model):
        if found := _FAMILY.search(part):
            return found.lastgroup
    return None


def cautions(group: Group, sensitivity: Sequence[Change]) -> list[Sentence]:
    """Return what to distrust in one group's results, what weighs most first."""
    found = [
        _demonstration(group),
        _partial(group),
        _not_graded(group),
        _missing(group),
        *_families(group),
        _unchecked(group),
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
    low, high = (float(bound[group.models.index(worst)]) for bound in group.bounds["triplet_safety"])
    whose = "this model" if len(group.models) == 1 else f"{len(lacking)} of {len(group.models)} models"
    parts = [
        f"Grades are missing for {whose}; ",
        "most of all for " if len(lacking) > 1 else "for ",
        *listed([worst]),
        f": {percent(group.coverage[worst].missing_core)} of the grades of its core responses.",
    ]
    if not np.isnan(low):
        parts.append(
            f" If each were the worst, its Triplet Safety would be {percent(low)}; if each were the best, {percent(high)}."
        )
    parts.append(" They are not missing at random: a judge refuses the worst responses first.")
    return Sentence(tuple(parts), "warning" if group.coverage[worst].missing_beyond(0.05) else "caution")


def _families(group: Group) -> list[Sentence]:
    """Name the models that were judged, or asked, by a model of their own maker."""
    targets = [model for model in group.models if not is_baseline(model)]
    found = []
    for judge in dict.fromkeys((*group.conditions.judges, group.conditions.mode_judge)):
        family = family_of(judge)
        kin = [model for model in targets if family and family_of(model) == family]
        if kin:
            found.append(
                Sentence(
                    (
                        "The judge ",
                        *listed([judge]),
                        " is of the same maker as ",
                        *listed(kin),
                        ": judges favour their own kind.",
                    ),
                    "caution",
                )
            )
    for family, who in _AUTHORS.get(group.dataset.hash, {}).items():
        kin = [model for model in targets if family_of(model) == family]
        if kin:
            verb = "is" if len(kin) == 1 else "are"
            found.append(Sentence((*listed(kin), f" {verb} of the same maker as {who}."), "caution"))
    return found


def _unchecked(group: Group) -> Sentence | None:
    judges = [judge for judge in group.conditions.judges if judge not in (IMPORTED_JUDGE, DEMONSTRATION_JUDGE)]
    if IMPORTED_JUDGE in group.conditions.judges:
        unknown = "who gave them, with which rubric, and how well, is not on record here"
        return Sentence((f"Grades came with the imported responses: {unknown}.",), "caution")
    if not judges:
        return None
    return Sentence(
        (
            *listed(judges),
            f" {'was' if len(judges) == 1 else 'were'} not checked against people: how often the grades are wrong, and in "
            "whose favour, is not known, and no interval includes it.",
        ),
        "caution",
    )


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
