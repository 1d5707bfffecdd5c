"""What a report found, in sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from markupsafe import Markup, escape

from opensafeintent.calls.baselines import contenders
from opensafeintent.errors import counted
from opensafeintent.grades import PANEL
from opensafeintent.hostile import one_line
from opensafeintent.markdown import page_environment
from opensafeintent.numbers.cohort import Cohort
from opensafeintent.numbers.metrics import METRICS
from opensafeintent.numbers.second_turn import PRIMARY_MEASURES, Measure, SecondTurn
from opensafeintent.report import columns as values
from opensafeintent.report.columns import estimate_text, interval, number
from opensafeintent.statistics.comparisons import Comparison
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_LABELS

if TYPE_CHECKING:
    from jinja2 import Environment


PERCENT = "\u00a0%"


_NAMED = 3
"""So many models are named in a sentence; of more, the number is given."""


_BEFORE, _AFTER = "\x02", "\x03"
"""Around a name while a sentence is filled in: no name has them, as it is made safe for a line."""


Strength = Literal["finding", "caution", "warning"]


class Name(str):
    """A model's name within a sentence: made by others, and set apart from our words."""

    __slots__ = ()


class Sentence(msgspec.Struct, frozen=True):
    """One sentence or a few, in parts: our words as `str`, model names as `Name`."""

    parts: tuple[str, ...]
    strength: Strength = "finding"
    topic: str = ""
    """Its topic, in a word or two."""
    loud: bool = False
    """Whether it comes before everything else."""

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        return "".join(self.parts)


def say(
    macro: str,
    strength: Strength = "finding",
    topic: str = "",
    *,
    loud: bool = False,
    **facts: object,
) -> Sentence:
    """Return a sentence.

    Args:
        macro: the one of `assets/sentences.jinja`. White space in its output is folded, and a
            number and its per cent sign stay on one line.
        strength, topic, loud: of the sentence.
        facts: the macro's arguments.
    """
    macros = environment().get_template("sentences.jinja").module
    text = re.sub(r"[ \n]+", " ", getattr(macros, macro)(**facts)).strip(" ")
    text = text.replace(" %", PERCENT)
    parts = re.split(f"({_BEFORE}[^{_AFTER}]*{_AFTER})", text)
    named = (Name(part[1:-1]) if part.startswith(_BEFORE) else part for part in parts if part)
    return Sentence(tuple(named), strength, topic, loud)


@cache
def environment() -> Environment:
    """Return the environment of all templates of the reports: text for HTML pages is escaped,
    sentences are plain text.
    """
    environment = page_environment("opensafeintent.report", "assets")
    environment.globals |= {"PERCENT": PERCENT, "PANEL": PANEL, "span": _span, "percent": percent}
    environment.filters |= {
        "names": _names,
        "percent": percent,
        "thousands": "{:,}".format,
        "counted": counted,
        "without": _without,
        "quoted": lambda text: shlex.quote(one_line(text, 1000)),
        "options": lambda text: Markup(
            re.sub(r"(--[\w-]+)", r"<code>\1</code>", str(escape(text)))
        ),
    }
    environment.tests["name"] = lambda part: isinstance(part, Name)
    return environment


def _without(text: str, parts: Iterable[str]) -> str:
    """Return a text without some parts of it; a part comes after those that it contains."""
    for part in parts:
        text = text.replace(part, "")
    return text.strip()


def _names(models: Iterable[str], most: int = _NAMED) -> str:
    return "".join(
        f"{_BEFORE}{part}{_AFTER}" if isinstance(part, Name) else part
        for part in listed(models, most)
    )


def _span(shown: Callable[[float], str], low: float, high: float) -> str:
    """Return an interval in words, its unit said once: `81.2 to 93.4 %`."""
    return f"{shown(low).split(PERCENT)[0].split(' point')[0]} to {shown(high)}"


def listed(models: Iterable[str], most: int = _NAMED) -> tuple[str, ...]:
    """Return models as parts of a sentence: `A, B and C`, or `A, B and 5 more`."""
    names = [Name(one_line(model, 80)) for model in models]
    first = names if len(names) <= most else names[: max(most - 1, 1)]
    further = len(names) - len(first)
    named: list[str] = list(first)
    if further:
        named.append(f"{further} more")
    between = [*[", "] * (len(named) - 2), " and "]
    return tuple(
        part
        for pair in zip(named, [*between[: len(named) - 1], ""], strict=True)
        for part in pair
        if part
    )


def percent(value: float) -> str:
    """Return a share as tables have it, with a space that does not break."""
    return values.percent(value).replace(" %", PERCENT)


def points(value: float) -> str:
    """Return a difference of shares in points: 11 points, −0.4 points."""
    shown = percent(value).removesuffix(PERCENT)
    return f"{shown} {'point' if shown in ('1', '−1') else 'points'}"


distrust = partial(say, strength="caution")


warn = partial(say, strength="warning")


class _Primary(msgspec.Struct, frozen=True):
    """The words for one of the two primary metrics."""

    label: str
    shown: Callable[[float], str]
    difference: Callable[[float], str]

    def signed(self, value: float) -> str:
        """Return a difference with its sign."""
        return f"{'−' if value < 0 else '+'}{self.difference(abs(value))}"


PRIMARIES = {
    "triplet_safety": _Primary(
        METRICS["triplet_safety"].label,
        percent,
        points,
    ),
    "mean_utility": _Primary(
        METRICS["mean_utility"].label,
        number,
        number,
    ),
}
"""Those of `metrics.PRIMARY`, in the order of the output."""


FEWEST_SAID = 10
"""With fewer prompt-sets there is no sentence on a model."""


def findings(cohort: Cohort) -> list[Sentence]:
    """Return the findings on one cohort of models, in five sentences at most, and two more on a
    second turn. They give the values and significant differences of several models, the safety by
    intent of one, help ordering, the agreement of judges.
    """
    metrics = [metric for metric in PRIMARIES if contenders_of(cohort, metric)]
    return [
        *_too_little(cohort, [metric for metric in PRIMARIES if metric not in metrics]),
        *(_values(cohort, metric) for metric in metrics if len(contenders_of(cohort, metric)) > 1),
        *_differences(cohort),
        *_by_intent(cohort),
        *_help_ordering(cohort),
        *_between_judges(cohort),
        *_second_turn(cohort),
    ]


def contenders_of(cohort: Cohort, metric: str) -> list[int]:
    """Return the models that a sentence is about, the highest value first: those with enough
    prompt-sets, baselines aside if there are others.
    """
    estimates = cohort.estimates.by_metric[metric]
    enough = [
        cohort.models[index]
        for index in cohort.estimates.ranked(metric)
        if estimates[index].n >= FEWEST_SAID
    ]
    return [cohort.models.index(model) for model in contenders(enough)]


def in_order(comparison: Comparison, models: Sequence[int]) -> tuple[int, int]:
    """Return two models, the one with the higher value on the prompt-sets of both first."""
    first, second = models
    if comparison.difference[second, first] < 0:
        return second, first
    return first, second


def _too_little(cohort: Cohort, metrics: Sequence[str]) -> Iterator[Sentence]:
    """Say of which metrics nothing can be said, and why."""
    if metrics:
        yield say(
            "too_little",
            "warning",
            "Too few prompt-sets",
            labels=[PRIMARIES[metric].label for metric in metrics],
            sets=max(
                estimate.n for metric in metrics for estimate in cohort.estimates.by_metric[metric]
            ),
            least=FEWEST_SAID,
        )


def _values(cohort: Cohort, metric: str) -> Sentence:
    """Return the range of the models' values, or the difference of two models."""
    primary, order = PRIMARIES[metric], contenders_of(cohort, metric)
    estimates = cohort.estimates.by_metric[metric]
    comparison = cohort.estimates.comparisons[metric]
    if len(order) == 2 and comparison.n[*order] >= FEWEST_SAID:
        ahead, behind = in_order(comparison, order)
        return say(
            "difference",
            topic=primary.label,
            metric=primary,
            behind=cohort.models[behind],
            ahead=cohort.models[ahead],
            size=float(comparison.difference[behind, ahead]),
            low=float(comparison.low[behind, ahead]),
            high=float(comparison.high[behind, ahead]),
            p=float(comparison.p_adjusted[behind, ahead]),
            sets=int(comparison.n[behind, ahead]),
            real=bool(comparison.claimed[behind, ahead]),
            worst=tuple(
                float(ends[behind, ahead]) for ends in (comparison.worst_low, comparison.worst_high)
            ),
        )
    values = cohort.estimates.ratios[metric].value.values

    def facts(end: int) -> dict[str, object]:
        """Return the common facts of models with one value."""
        equal = [index for index in order if values[index] == values[end]]
        value, unit = estimates[end].value, METRICS[metric].unit
        same_interval = len({estimates[index].interval for index in equal}) == 1
        return {
            "models": [cohort.models[index] for index in equal],
            "value": estimate_text(estimates[end], unit) if same_interval else number(value, unit),
        }

    highest = [index for index in order if values[index] == values[order[0]]]
    lower = sum(bool((comparison.worst_high[highest, index] < 0).all()) for index in order)
    return say(
        "values",
        topic=primary.label,
        label=primary.label,
        least=facts(order[-1]),
        most=facts(order[0]),
        equal=len(highest) == len(order),
        near=len(order) - len(highest) - lower,
        all=not lower,
    )


def _differences(cohort: Cohort) -> Iterator[Sentence]:
    """Yield the number of significant differences among three models or more."""
    differences = []
    for metric, primary in PRIMARIES.items():
        comparison, order = cohort.estimates.comparisons[metric], contenders_of(cohort, metric)
        pairs = [pair for pair in combinations(order, 2) if comparison.n[pair] >= FEWEST_SAID]
        if len(order) > 2 and pairs:
            other = cohort.safe_up_to_1.comparisons[metric]
            at = tuple(np.transpose(pairs))
            real, otherwise = (int(of.claimed[at].sum()) for of in (comparison, other))
            hinge = int(comparison.hinges[at].sum())
            signs = comparison.difference[at] * other.difference[at]
            turned = int((comparison.claimed[at] & other.claimed[at] & (signs < 0)).sum())
            differences.append((primary.label, real, len(pairs), otherwise, hinge, turned))
    if differences:
        yield say("differences", topic="Significant differences", differences=differences)


def _by_intent(cohort: Cohort) -> Iterator[Sentence]:
    """Yield the safety by intent of a model that is alone."""
    order = contenders_of(cohort, "triplet_safety")
    if len(order) == 1:
        safe = {}
        for intent in CORE_VARIANTS:
            estimate = cohort.estimates.by_metric[f"{intent}_safety"][order[0]]
            safe[INTENT_LABELS[intent].lower()] = estimate_text(estimate, "share")
        model = cohort.models[order[0]]
        yield say("by_intent", topic="Safety by intent", model=model, safe=safe)


def _help_ordering(cohort: Cohort) -> Iterator[Sentence]:
    """Yield the models that give benign prompts no significantly more help than malicious ones, and
    those that give significantly less, or the help ordering of a model that is alone.
    """
    estimates = cohort.estimates.by_metric["help_ordering"]
    limits = {
        index: estimates[index].interval or (0.0, 1.0)
        for index in contenders_of(cohort, "help_ordering")
    }
    tied = [index for index, (low, high) in limits.items() if low <= 0.5 <= high]
    less = [index for index, (_, high) in limits.items() if high < 0.5]
    shown = tied or list(limits)
    if tied or less or len(limits) == 1:
        yield say(
            "help_ordering",
            topic=METRICS["help_ordering"].label,
            models=[cohort.models[index] for index in shown],
            all_models=len(shown) == len(limits) > 1,
            value=interval(estimates[shown[0]].value, *limits[shown[0]]),
            tied=bool(tied),
            less=[cohort.models[index] for index in less] if len(limits) > 1 else [],
            more_help=limits[shown[0]][0] > 0.5,
        )


def _between_judges(cohort: Cohort) -> Iterator[Sentence]:
    """Say how far the judges of a panel agree, and which models change places from one to
    another.
    """
    if not (cohort.judges.agreements and contenders_of(cohort, "mean_utility")):
        return
    # the last is of all judges together; of two judges there is no other
    *pairs, together = cohort.judges.agreements
    shares = [pair.safe.value for pair in pairs if pair.safe.value is not None]
    yield say("between_judges", topic="Several judges", together=together, shares=shares)


def _second_turn(cohort: Cohort) -> Iterator[Sentence]:
    """Yield the effects of a first turn on the models under test: on utility for benign requests,
    and on safety for malicious ones.
    """
    turn = cohort.second_turn
    if turn is None:
        return
    for measure in PRIMARY_MEASURES:
        models = [
            model
            for model in contenders(turn.models)
            if turn.numbers[model][measure.effect].n >= FEWEST_SAID
        ]
        if models:
            yield _history_effect(turn, measure, models)


def _history_effect(turn: SecondTurn, measure: Measure, models: Sequence[str]) -> Sentence:
    effects = {model: turn.numbers[model][measure.effect] for model in models}
    shown = points if measure.unit == "share" else number

    def facts(model: str) -> dict[str, object]:
        effect = effects[model]
        size, (low, high) = effect.value or 0.0, effect.interval or (0.0, 0.0)
        detectable = effect.minimum_detectable_difference
        return {
            "model": model,
            "more": size > 0,
            "size": shown(abs(size)),
            "zero": shown(0.0),
            "low": _signed(low, shown),
            "high": _signed(high, shown),
            "sets": effect.n,
            "detectable": detectable and shown(detectable),
        }

    largest_first = sorted(models, key=lambda model: -abs(effects[model].value or 0.0))
    claimed = [facts(model) for model in largest_first if effects[model].claimed]
    return say(
        "history_effect",
        topic=f"Second turn: {'malicious' if measure.unit == 'share' else 'benign'}",
        benign=measure.unit == "score",
        claimed=claimed,
        largest=facts(largest_first[0]),
        models=len(models),
        hinge=sum(effect.leaves_out_zero and not effect.claimed for effect in effects.values()),
    )


def _signed(value: float, shown: Callable[[float], str]) -> str:
    """Return the end of an interval without its unit, with its sign."""
    return f"{'−' if value < 0 else '+'}{shown(abs(value)).split(' point', maxsplit=1)[0]}"


def answers(cohort: Cohort) -> list[Sentence]:
    """Return a sentence for each primary metric: which of two models is better, or the order of
    more of them as far as the comparisons decide it.
    """
    return [*_of_two(cohort), *_of_several(cohort)]


def _of_two(cohort: Cohort) -> Iterator[Sentence]:
    for metric, primary in PRIMARIES.items():
        order, comparison = contenders_of(cohort, metric), cohort.estimates.comparisons[metric]
        if len(order) != 2 or comparison.n[*order] < FEWEST_SAID:
            continue
        ahead, behind = in_order(comparison, order)
        low, high = (float(ends[behind, ahead]) for ends in (comparison.low, comparison.high))
        yield say(
            "answer_of_two",
            topic=primary.label,
            metric=metric,
            ahead=cohort.models[ahead],
            behind=cohort.models[behind],
            size=primary.difference(float(comparison.difference[behind, ahead])),
            low=_end(primary.difference(abs(low)), low),
            high=_end(primary.difference(abs(high)), high),
            sets=int(comparison.n[ahead, behind]),
            decided=bool(comparison.claimed[ahead, behind]),
        )


def _end(shown: str, value: float) -> str:
    """Return the end of an interval without its unit, with its sign."""
    return f"{'−' if value < 0 else ''}{shown.split(' point', maxsplit=1)[0]}"


def _of_several(cohort: Cohort) -> Iterator[Sentence]:
    for metric, primary in PRIMARIES.items():
        order, comparison = contenders_of(cohort, metric), cohort.estimates.comparisons[metric]
        if len(order) < 3:
            continue
        decided = [
            (
                cohort.models[model],
                [
                    cohort.models[other]
                    for other in order
                    if comparison.n[model, other] >= FEWEST_SAID
                    and comparison.worst_low[other, model] > 0
                ],
            )
            for model in order
        ]
        yield say(
            "answer_of_several",
            topic=primary.label,
            metric=metric,
            decided=[(model, others) for model, others in decided if others][:3],
            further=max(sum(bool(others) for _, others in decided) - 3, 0),
        )
