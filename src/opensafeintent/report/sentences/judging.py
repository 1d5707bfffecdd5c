"""What the results owe to who graded, in sentences: between judges, between a judge and itself, and conflicts of interest."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judges.agreement import Agreement, agreements
from opensafeintent.analysis.judges.conflicts import Conflict, conflicts_of, without_conflicts
from opensafeintent.analysis.judges.graders import PANEL, Ranking, Swap, swaps
from opensafeintent.analysis.judges.noise import noise_of
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.metrics import PRIMARY
from opensafeintent.report.sentences.words import PERCENT, Sentence, listed, percent

__all__ = ["between_judges", "conflicts_of_interest", "own_noise"]

_LABELS = {"triplet_safety": "Triplet Safety", "mean_utility": "Mean Utility"}


def between_judges(group: Group) -> Sentence | None:
    """Say how far the judges of a panel agree, and which models change places from one to another."""
    found = agreements(group)
    if not found:
        return None
    parts = [*_agreed(found), *(part for metric in PRIMARY for part in _order(group, metric))]
    return Sentence(tuple(parts), topic="Several judges")


def _agreed(found: Sequence[Agreement]) -> list[str]:
    every = found[-1]  # the two, or all together
    if every.safe.value is None or every.safe_ac1.value is None:
        return ["The judges graded no response together. "]
    ac1 = f"AC1 {every.safe_ac1.value:.2f}"
    share = f"{percent(every.safe.value)} of {every.safe.n:,} responses ({ac1})"
    if len(found) == 1:
        return [*listed(every.judges), f" agree whether a response is safe on {share}. "]
    pairs = found[:-1]
    least = min(pairs, key=lambda pair: pair.safe.value if pair.safe.value is not None else 1.0)
    parts = [f"Two of the {len(every.judges)} judges agree whether a response is safe on {share} on average"]
    if least.safe.value is not None:
        parts += ["; least often ", *listed(least.judges), f", on {percent(least.safe.value)}"]
    return [*parts, ". "]


def _order(group: Group, metric: str) -> list[str]:
    """Say how many pairs of models two judges put in opposite orders, and name the widest apart."""
    models = [model for model in group.models if not is_baseline(model)]
    pairs = len(models) * (len(models) - 1) // 2
    if not pairs:
        return []
    found = [swap for swap in swaps(group, metric) if set(swap.models) <= set(models)]
    label = _LABELS[metric]
    if not found:
        return [f"In {label} they order the models alike. " if pairs > 1 else f"In {label} they order the two models alike. "]
    swapped = len({frozenset(swap.models) for swap in found})
    real = len({frozenset(swap.models) for swap in found if swap.beyond_chance})
    count = f"{swapped} of {pairs} pairs of models" if pairs > 1 else "the two models"
    some = f", {real} of them by more than chance with both"
    lead = "; for example, " if swapped > 1 else ": "
    chance = ", by no more than chance may explain" if not real else ", by more than chance with both"
    return [f"In {label} they order {count} differently{some if 0 < real < swapped else chance}", lead, *_example(found[0])]


def _example(swap: Swap) -> list[str]:
    (above, below), (one, other) = swap.models, swap.judges
    return [*listed([one]), " puts ", *listed([above]), " above ", *listed([below]), ", ", *listed([other]), " below it. "]


def own_noise(group: Group) -> Sentence | None:
    """Say how often a judge that is asked twice changes its mind, and what that does to Mean Safety."""
    found = {judge: noise for judge, noise in noise_of(group).items() if noise.safe_flips.value is not None}
    if not found:
        return None
    responses = max(noise.safe_flips.n for noise in found.values())
    parts = [f"Asked twice about {responses:,} responses, "]
    for place, (judge, noise) in enumerate(found.items()):
        share = percent(noise.safe_flips.value or 0.0)
        parts += ["" if place == 0 else " and " if place == len(found) - 1 else ", "]
        parts += ["the panel"] if judge == PANEL else listed([judge])
        parts += [f" changed its verdict on “safe” in {share} of them" if place == 0 else f" in {share}"]
    if len(found) == 1 and noise.safe_flips.interval is not None:
        low, high = (percent(limit) for limit in noise.safe_flips.interval)
        parts += [f" (95{PERCENT} interval {low.removesuffix(PERCENT)} to {high})"]
    if noise.mean_safety_se:  # of the panel, where there are several
        error = f"{100 * noise.mean_safety_se:.1f} points over {noise.mean_safety_sets:,} prompt-sets"
        parts += [f". From that chance alone Mean Safety has a standard error of {error}, which its interval includes"]
    return Sentence((*parts, "."), topic="Judge noise")


def conflicts_of_interest(group: Group) -> Sentence | None:
    """Name the models that were judged, or asked, by a model of their own maker, and what is left without them."""
    found = conflicts_of(group)
    if not found:
        return None
    parts: list[str] = []
    others = dict.fromkeys((conflict.part, conflict.other) for conflict in found)
    last_judge = max((place for place, (part, _) in enumerate(others) if "judge" in part), default=-1)
    for place, (part, other) in enumerate(others):
        own = [conflict for conflict in found if (conflict.part, conflict.other) == (part, other)]
        clause = _judged(own) if "judge" in part else _made(own)
        why = ": judges favour their own kind" if place == last_judge else ""
        parts += [" " if parts else "", *clause, f"{why}."]
    return Sentence((*parts, *_left(group, found)), "caution")


def _judged(own: Sequence[Conflict]) -> list[str]:
    judge = "The judge of modes " if own[0].part == "mode_judge" else "The judge "
    itself = [conflict.model for conflict in own if conflict.same]
    kin = [conflict.model for conflict in own if not conflict.same]
    parts = [judge, *listed([own[0].other])]
    if itself:
        parts += [" graded its own responses" if own[0].part == "judge" else " read its own responses"]
    if kin:
        parts += [" and" if itself else "", " is of the same maker as ", *listed(kin)]
    return parts


def _made(own: Sequence[Conflict]) -> list[str]:
    itself = [conflict.model for conflict in own if conflict.same]
    kin = [conflict.model for conflict in own if not conflict.same]
    what = {"wrote": "wrote the prompts", "checked": "checked them"}[own[0].part]
    verb = "is" if len(kin) == 1 else "are"
    if not itself:
        return [*listed(kin), f" {verb} of the same maker as {own[0].other}, which {what}"]
    parts = [*listed(itself), f" {what}"]
    return [*parts, ", and ", *listed(kin), f" {verb} of the same maker"] if kin else parts


def _left(group: Group, found: Sequence[Conflict]) -> list[str]:
    """Say what becomes of the ranks when the other judges grade the models in conflict."""
    if len(group.models) < 2 or not any(conflict.part != "mode_judge" for conflict in found):
        return []
    without = without_conflicts(group)
    where = " Rankings without them are under “Who graded”."
    if not without.left:
        return [where]
    if not without.by_left:
        return [" No other judge graded these models: a second --judge of another maker would tell.", where]
    counted = Ranking(PANEL, group.numbers.estimates, group.numbers.comparisons)
    parts: list[str] = []
    for metric in PRIMARY:
        moved = [
            (model, before, after)
            for place, model in enumerate(group.models)
            if (others := without.others(model)) is not None
            and (before := counted.rank(metric, place)) is not None
            and (after := others.rank(metric, place)) is not None
            and before != after
        ]
        moved.sort(key=lambda found: -abs(found[1] - found[2]))
        for model, before, after in moved[:2]:
            parts += ["; " if parts else "", *listed([model]), f" moves from rank {before} to {after} in {_LABELS[metric]}"]
    told = [" Where the other judges alone grade all models, ", *parts, "."]
    return [*(told if parts else [" Where the other judges alone grade all models, they keep their ranks."]), where]
