"""What a reader who has to decide should know, in sentences: what was found, and what to distrust.

Here are the facts; the words are in `assets/sentences.jinja`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from opensafeintent.analysis.coverage import MAX_MISSING, Change
from opensafeintent.analysis.groups import Group, checked_judges
from opensafeintent.analysis.judges import same_maker
from opensafeintent.analysis.swap import headline_audits
from opensafeintent.calls.baselines import DEMONSTRATION_JUDGE, is_baseline
from opensafeintent.evaluation.derive import IMPORTED_JUDGE
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.report.prose import Sentence, percent, points, precision_in_points, say, score
from opensafeintent.statistics import FEWEST_SETS, SIGNIFICANCE, rank_intervals

_say = partial(say, "sentences.jinja")


class _Primary(msgspec.Struct, frozen=True):
    """How one of the two primary metrics is told."""

    label: str
    topic: str
    about: str
    shown: Callable[[float], str]
    difference: Callable[[float], str]

    def signed(self, value: float) -> str:
        """Return a difference with its sign."""
        return f"{'−' if value < 0 else '+'}{self.difference(abs(value))}"


_PRIMARIES = {
    "triplet_safety": _Primary(
        METRICS["triplet_safety"].label,
        "Safe across intents",
        "the share of tasks answered safely under all three intents",
        percent,
        points,
    ),
    "mean_utility": _Primary(
        METRICS["mean_utility"].label,
        "Useful without harm",
        "helpfulness from 0 to 1 that counts only where the response is safe",
        score,
        score,
    ),
}
"""Those of `metrics.PRIMARY`, in the order in which they are told."""


# What was found
# ------------------------------------------------------------------------------


def findings(group: Group) -> list[Sentence]:
    """Return what was found of one group of models, in five sentences at most: best and worst,
    which differences are real, how precise it is, how far judges agree.
    """
    sentences = [
        *(_extremes(group, metric) for metric in _PRIMARIES),
        _differences(group),
        _precision(group),
        _between_judges(group),
    ]
    return [sentence for sentence in sentences if sentence is not None]


def _contenders(group: Group, metric: str) -> list[int]:
    """Return the models that a sentence is about, best first: those with a value, baselines aside
    where there are others.
    """
    values = group.numbers.ratios[metric].value.values
    there = [index for index in range(len(group.models)) if not np.isnan(values[index])]
    models = [index for index in there if not is_baseline(group.models[index])]
    return sorted(models or there, key=lambda index: (-values[index], index))


def _extremes(group: Group, metric: str) -> Sentence:
    """Say who is highest and who is lowest, each with its interval and its rank."""
    told = _PRIMARIES[metric]
    order = _contenders(group, metric)
    if not order:
        return _say("undefined", "warning", told.topic, metric=told)
    values = group.numbers.ratios[metric].value.values
    best, worst = (
        [index for index in order if values[index] == values[end]] for end in (order[0], order[-1])
    )
    several = len(group.models) > 1
    ranks = rank_intervals(group.numbers.comparisons[metric]) if several else []

    def facts(indices: Sequence[int]) -> dict[str, Any]:
        found = group.numbers.estimates[metric][indices[0]]
        models = [group.models[index] for index in indices]
        own = (several and ranks[indices[0]]) or ()
        return {
            "models": models,
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "ranks": own,
        }

    return _say(
        "extremes",
        topic=told.topic,
        metric=told,
        best=facts(best),
        worst=facts(worst),
        all=len(best) == len(order),
        of=len(group.models),
    )


def _differences(group: Group) -> Sentence | None:
    """Say how many pairs differ by more than chance, and from whom the leader cannot be told
    apart.
    """
    found = [facts for metric in _PRIMARIES if (facts := _difference(group, metric))]
    return _say("differences", topic="Real differences", found=found) if found else None


def _difference(group: Group, metric: str) -> dict[str, Any] | None:
    comparison = group.numbers.comparisons[metric]
    p = comparison.p_adjusted
    models = range(len(group.models))
    pairs = [(a, b) for a in models for b in models if a < b and not np.isnan(p[a, b])]
    if not pairs:
        return None
    facts = {
        "metric": _PRIMARIES[metric],
        "pairs": len(pairs),
        "real": sum(bool(p[pair] < SIGNIFICANCE) for pair in pairs),
    }
    if len(pairs) == 1:
        a, b = pairs[0]
        size, low, high = (
            float(part[a, b]) for part in (comparison.difference, comparison.low, comparison.high)
        )
        names = {"earlier": group.models[a], "later": group.models[b]}
        return facts | names | {"size": size, "low": low, "high": high, "p": float(p[a, b])}
    leader = _contenders(group, metric)[0]
    others = [index for index in models if index != leader and not np.isnan(p[leader, index])]
    unclear = [group.models[index] for index in others if p[leader, index] >= SIGNIFICANCE]
    return facts | {"above": group.models[leader], "others": len(others), "unclear": unclear}


def _precision(group: Group) -> Sentence | None:
    """Say how precise so many sets are, and which difference they can be expected to find."""
    counted = int(np.median([found.n for found in group.numbers.estimates["triplet_safety"]]))
    if not counted:
        return None
    detectable = []
    for metric, told in _PRIMARIES.items():
        of_pairs = group.numbers.comparisons[metric].detectable
        of_pairs = of_pairs[~np.isnan(of_pairs)]
        if len(of_pairs):
            detectable.append(f"{told.difference(float(np.median(of_pairs)))} of {told.label}")
    half_width = f"{precision_in_points(counted):.2g}"
    return _say(
        "precision", topic="Precision", sets=counted, points=half_width, detectable=detectable
    )


# Who graded
# ------------------------------------------------------------------------------


def _between_judges(group: Group) -> Sentence | None:
    """Say how far the judges of a panel agree, and which models change places from one to
    another.
    """
    found = group.judges.agreements
    if not found:
        return None
    *pairs, every = found  # the two, or all together
    least = min(
        pairs,
        key=lambda pair: pair.safe.value if pair.safe.value is not None else 1.0,
        default=None,
    )
    orders = [order for metric in PRIMARY if (order := _order(group, metric))]
    return _say("between_judges", topic="Several judges", every=every, least=least, orders=orders)


def _order(group: Group, metric: str) -> dict[str, Any] | None:
    """Return how many pairs of models two judges put in opposite orders, and the widest apart."""
    models = [model for model in group.models if not is_baseline(model)]
    pairs = len(models) * (len(models) - 1) // 2
    if not pairs:
        return None
    found = [swap for swap in group.judges.swaps(metric) if set(swap.models) <= set(models)]
    return {
        "label": METRICS[metric].label,
        "pairs": pairs,
        "swapped": len({frozenset(swap.models) for swap in found}),
        "real": len({frozenset(swap.models) for swap in found if swap.beyond_chance}),
        "first": found[0] if found else None,
    }


def _strict_panel(group: Group) -> Sentence | None:
    """Say how much lower numbers are because a panel of two reads a tie as unsafe, against the
    average over the two.
    """
    judges = group.judges
    if (
        len(judges.panel) != 2
        or not judges.agreements
        or not (agreed := judges.agreements[0].safe).n
    ):
        return None
    *_, average, panel = judges.graders
    moved = []
    for metric, told in _PRIMARIES.items():
        gaps = {
            group.models[index]: both - one
            for index in _contenders(group, metric)
            if (one := panel.estimates[metric][index].value) is not None
            and (both := average.estimates[metric][index].value) is not None
        }
        if gaps and (most := max(gaps, key=gaps.__getitem__)) and gaps[most] > 0:
            moved.append(
                {
                    "label": told.label,
                    "by": told.difference(gaps[most]),
                    "model": most,
                    "of": len(gaps),
                }
            )
    if not moved:
        return None
    return _say("strict_panel", "caution", ties=1 - (agreed.value or 0.0), n=agreed.n, moved=moved)


# What to distrust
# ------------------------------------------------------------------------------


def cautions(
    group: Group,
    sensitivity: Sequence[Change],
    *,
    corrected: bool = False,
    max_missing: float = MAX_MISSING,
) -> list[Sentence]:
    """Return what to distrust in one group's results, what weighs most first.

    Args:
        group: the models.
        sensitivity: how results change without filtered and truncated responses.
        corrected: whether the report has numbers corrected by human labels.
        max_missing: share of missing grades or responses beyond which they are more than a caution.
    """
    found = [
        Sentence((DEMONSTRATION_NOTE,), "warning", loud=True) if group.demonstration else None,
        _partial(group),
        _not_graded(group),
        _missing(group, max_missing),
        _stopped_early(group),
        _samples(group),
        _strict_panel(group),
        *_of_one_maker(group),
        _unchecked(group, corrected=corrected),
        *_anchors(group),
        _swap_error(group),
        _left_out(group, sensitivity),
        _thin(group),
        _uneven_wordings(group),
        _once(group),
    ]
    return [sentence for sentence in found if sentence is not None]


def _partial(group: Group) -> Sentence | None:
    partial = {model: coverage for model, coverage in group.coverage.items() if coverage.partial}
    if not partial:
        return None
    there, planned = (
        sum(getattr(coverage, what) for coverage in partial.values())
        for what in ("responses", "planned")
    )
    return _say("partial", "warning", loud=True, models=partial, there=there, planned=planned)


def _stopped_early(group: Group) -> Sentence | None:
    """Say which models have the prompt-sets that answered a question, and no more."""
    return (
        _say("stopped_early", "warning", models=group.stopped_early)
        if group.stopped_early
        else None
    )


def _not_graded(group: Group) -> Sentence | None:
    waiting = {
        model: coverage.not_graded
        for model, coverage in group.coverage.items()
        if coverage.not_graded
    }
    return (
        _say("not_graded", "warning", models=waiting, count=sum(waiting.values()))
        if waiting
        else None
    )


def _missing(group: Group, max_missing: float) -> Sentence | None:
    lacking = [model for model in group.models if any(group.coverage[model].missing.values())]
    if not lacking:
        return None
    worst = max(lacking, key=lambda model: group.coverage[model].missing_core)
    coverage = group.coverage[worst]
    return _say(
        "missing",
        "warning" if coverage.missing_beyond(max_missing) else "caution",
        worst=worst,
        lacking=len(lacking),
        of=len(group.models),
        share=coverage.missing_core,
        bounds=group.numbers.overall[worst, "triplet_safety"].bounds,
    )


def _samples(group: Group) -> Sentence | None:
    """Say that the models were not asked about the same sample."""
    return (
        _say("unlike_samples", "caution")
        if len({found.limit for found in group.coverage.values()}) > 1
        else None
    )


def _of_one_maker(group: Group) -> Iterator[Sentence]:
    """Name the judges that graded models of their own maker."""
    for judge in dict.fromkeys((*group.conditions.judges, group.conditions.mode_judge)):
        if models := [model for model in group.models if same_maker(judge, model)]:
            yield _say("same_maker", "caution", judge=judge, models=models)


def _swap_error(group: Group) -> Sentence | None:
    """Say which judges grade the request along with the response beyond chance."""
    shifts = [
        (grader, audit.safety_shift) for grader, audit in headline_audits(group.audits).items()
    ]
    found = [(grader, shift) for grader, shift in shifts if shift.leaves_out_zero]
    return _say("swap_error", "caution", found=found, points=points) if found else None


def _uneven_wordings(group: Group) -> Sentence | None:
    """Say that sets have different numbers of dual-use wordings."""
    counts = {
        1 + len(item.dual_use_paraphrases)
        for item in group.dataset.prompt_sets
        if item.dual_use_paraphrases
    }
    return (
        _say("uneven_wordings", "caution", least=min(counts), most=max(counts))
        if len(counts) > 1
        else None
    )


def _unchecked(group: Group, *, corrected: bool) -> Sentence | None:
    judges = [judge for judge in group.conditions.judges if judge != DEMONSTRATION_JUDGE]
    if IMPORTED_JUDGE in judges:
        return _say("imported", "caution")
    which = "corrected" if corrected else "unchecked"
    return _say(which, "caution", judges=judges, by_our_line=group.by_our_line) if judges else None


def _anchors(group: Group) -> Iterator[Sentence]:
    """Yield which judges failed the check on the anchor cases, were put to it with other templates,
    or never were.
    """
    checked = [item for item in checked_judges(group) if item.judge != DEMONSTRATION_JUDGE]
    for item in checked:
        if item.state == "failed":
            yield _say("check_failed", "warning", judge=item.judge, check=item.check)
    for state, macro in (("stale", "check_stale"), ("unchecked", "check_never")):
        if judges := [item.judge for item in checked if item.state == state]:
            yield _say(macro, "caution", judges=judges)


def _left_out(group: Group, sensitivity: Sequence[Change]) -> Sentence | None:
    filtered = sum(coverage.filtered for coverage in group.coverage.values())
    truncated = sum(coverage.truncated for coverage in group.coverage.values())
    if not filtered and not truncated:
        return None
    change = None
    largest = max(sensitivity, key=lambda change: change.size, default=None)
    if largest is not None and largest.before is not None and largest.value is not None:
        shown = score if "utility" in largest.metric else percent
        label = METRICS[largest.metric].label
        before, after = shown(largest.before), shown(largest.value)
        change = {"model": largest.model, "label": label, "before": before, "after": after}
    return _say("left_out", "caution", filtered=filtered, truncated=truncated, change=change)


def _once(group: Group) -> Sentence | None:
    """Say what cannot be known where every prompt was put once."""
    if group.array.sizes["epoch"] > 1:
        return None
    return _say("once", "caution")


def _thin(group: Group) -> Sentence | None:
    """Name the harm domains and task types with few sets."""
    sets = group.dataset.prompt_sets
    if len(sets) < FEWEST_SETS:
        return _say("few_sets", "warning", sets=len(sets))
    taxonomy = group.dataset.taxonomy
    counts = {
        name: sum(item.harm_domain == name for item in sets) for name in taxonomy.domain_names
    }
    counts |= {name: sum(item.task_type == name for item in sets) for name in taxonomy.type_names}
    thin = sorted(
        ((name, count) for name, count in counts.items() if 0 < count < FEWEST_SETS),
        key=lambda item: item[1],
    )
    return (
        _say("thin", "caution", strata=thin, every=len(thin) == len(counts), least=FEWEST_SETS)
        if thin
        else None
    )
