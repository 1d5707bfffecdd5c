"""Whether what was built is any good: intents as read, lengths, likeness, telling words."""

from __future__ import annotations

import numpy as np

from opensafeintent.construction.controls.measures import has_spaces, readability_index
from opensafeintent.construction.controls.records import Difference, Parity
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import Dataset
from opensafeintent.report.built.record import BINS, READING_WORDS, BuildResults, Nearest, When
from opensafeintent.report.figures.kit import (
    BLUE,
    GREY,
    ORANGE,
    TOLD,
    VERMILION,
    Datum,
    Spec,
    across,
    data,
    down,
    empty,
    layer,
    mark,
    nominal,
    quantity,
    whole,
)
from opensafeintent.report.formats import interval
from opensafeintent.statistics import SIGNIFICANCE
from opensafeintent.taxonomy import CORE_VARIANTS, INTENT_WORDS, Intent
from opensafeintent.templates.instruction import READINGS

__all__ = ["lengths", "readings", "similarity", "words"]

_COLOURS: dict[Intent, str] = {"benign": BLUE, "dual_use": ORANGE, "malicious": VERMILION}


# Intents ---------------------------------------------------------------------------------------------------------------


def readings(results: BuildResults) -> Spec:
    """Draw the intents that prompts were written for against those that the judge read, before and after repair."""
    if not any(line.prompts for line in results.readings):
        return empty("the intent check was not run")
    return across([_confusion(results, "first"), _confusion(results, "last")], spacing=40)


def _confusion(results: BuildResults, when: When) -> Spec:
    lines = [line for line in results.readings if line.when == when]
    tiles: list[Datum] = [
        {
            "expected": INTENT_WORDS[line.expected],
            "found": READING_WORDS[line.found],
            "right": line.expected == line.found,
            "share": line.share or 0.0,
            "text": f"{line.prompts:,}" if line.prompts else "·",
            "tip": f"{line.prompts:,} {INTENT_WORDS[line.expected]} prompts read as {READING_WORDS[line.found]}"
            + (f" ({line.share:.1%})" if line.share is not None else ""),
        }
        for line in lines
    ]
    names = {"domain": [INTENT_WORDS[intent] for intent in CORE_VARIANTS], "paddingInner": 0.06}
    found = {"domain": [READING_WORDS[reading] for reading in READINGS], "paddingInner": 0.04}
    first = when == "first"
    side = {"minExtent": 62, "maxExtent": 62, "title": "written as", "titlePadding": 10} if first else None
    head = {"orient": "top", "labelAngle": 0, "ticks": False, "grid": False, "title": "read as", "titlePadding": 8}
    at = {
        "x": nominal("found", scale=found, sort=None, axis=head),
        "y": nominal("expected", scale=names, sort=None, axis=side),
    }
    shade = {"opacity": quantity("share", scale={"domain": [0, 1], "range": [0.06, 1]}, legend=None)}
    look: Spec = {"cornerRadius": 2}
    marks = [
        mark("rect", at | shade | TOLD, where="datum.right", color=BLUE, **look),
        mark("rect", at | shade | TOLD, where="!datum.right", color=VERMILION, **look),
        mark(
            "text", at | {"text": nominal("text")}, where="datum.share > 0.5", color="#fefefe", fontWeight="bold", fontSize=12
        ),
        mark("text", at | {"text": nominal("text")}, where="datum.share <= 0.5", fontSize=12),
    ]
    right = sum(line.prompts for line in lines if line.expected == line.found)
    of = sum(line.prompts for line in lines)
    title = f"{'As first written' if first else 'After repair'}: {right:,} of {of:,} as intended"
    return layer(marks, tiles, width={"step": 68}, height={"step": 42}) | whole(title, 8)


# Lengths ---------------------------------------------------------------------------------------------------------------

_MEASURES = {"words": "Words", "characters": "Characters", "readability": "Readability index"}
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def lengths(results: BuildResults) -> Spec:
    """Draw how long the prompts of each intent are, and the differences within sets with their intervals."""
    check, dataset = results.check, results.dataset
    if check is None or dataset is None:
        return empty("there is no dataset")
    rows = [
        across([_spread(dataset, part), _differences(part)], spacing=190) | {"bounds": "flush"}
        for part in check.parity
        if part.pairs[0].n
    ]
    return down(rows, spacing=26) if rows else empty()


def _values(dataset: Dataset, part: Parity, intent: Intent) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return one measure of the prompts of one intent; shape (prompt_set,)."""
    texts = [item.prompts.of(intent) for item in dataset.prompt_sets if part.measure == "characters" or has_spaces(item)]
    match part.measure:
        case "words":
            return np.array([len(text.split()) for text in texts], dtype=np.float64)
        case "characters":
            return np.array([len(text) for text in texts], dtype=np.float64)
        case "readability":
            return np.array([readability_index(text) for text in texts], dtype=np.float64)


def _spread(dataset: Dataset, part: Parity) -> Spec:
    """Return a line for each intent: its middle nine tenths, its middle half, its median."""
    rows: list[Datum] = []
    for intent in CORE_VARIANTS:
        low, lower, median, upper, high = (float(x) for x in np.quantile(_values(dataset, part, intent), _QUANTILES).round(2))
        name = INTENT_WORDS[intent]
        said = f"{name}: median {median:g}, half of them {lower:g} to {upper:g}, nine tenths {low:g} to {high:g}"
        rows.append({"intent": name, "tip": said, "low": low, "lower": lower, "median": median, "upper": upper, "high": high})
    order = [INTENT_WORDS[intent] for intent in CORE_VARIANTS]
    colour = {"color": nominal("intent", scale={"domain": order, "range": list(_COLOURS.values())}, legend=None)}
    y = nominal("intent", sort=None, title=None, scale={"domain": order}, axis={"minExtent": 70, "maxExtent": 70})
    scale = {"zero": part.measure != "readability", "nice": True}

    def x(field: str) -> Spec:
        return quantity(field, scale=scale, title=None, axis={"tickCount": 5})

    marks = [
        mark("rule", {"x": x("low"), "x2": {"field": "high"}, "y": y} | colour, strokeWidth=1.6),
        mark("bar", {"x": x("lower"), "x2": {"field": "upper"}, "y": y} | colour | TOLD, height=11, cornerRadius=2),
        mark("tick", {"x": x("median"), "y": y}, color="#fefefe", thickness=2, height=11),
    ]
    return layer(marks, rows, width=300, height={"step": 24}) | whole(_MEASURES[part.measure])


def _differences(part: Parity) -> Spec:
    """Return a point with its interval for each two intents, and what the test says."""
    rows = [_difference(pair) for pair in part.pairs]
    order = [row["pair"] for row in rows]
    y = nominal("pair", sort=None, title=None, scale={"domain": order}, axis={"minExtent": 130, "maxExtent": 130})
    reach = max((abs(row[key]) for row in rows for key in ("mean", "low", "high") if row[key] is not None), default=0.0)
    span = [-1.1 * reach or -1.0, 1.1 * reach or 1.0]

    def x(field: str) -> Spec:
        return quantity(field, scale={"domain": span, "nice": True}, title=None, axis={"tickCount": 5})

    colour = {"color": {"condition": {"test": "datum.sure", "value": VERMILION}, "value": GREY}}
    marks = [
        mark("rule", {"x": {"datum": 0}}, rows=[{}], color=GREY, strokeDash=[3, 3]),
        mark("rule", {"x": x("low"), "x2": {"field": "high"}, "y": y} | colour, where="isValid(datum.low)", strokeWidth=2),
        mark("point", {"x": x("mean"), "y": y} | colour | TOLD, where="isValid(datum.mean)", filled=True, size=60, opacity=1),
        mark("text", {"x": {"value": 290}, "y": y, "text": nominal("p")}, align="left", opacity=0.8),
    ]
    return layer(marks, rows, width=280, height={"step": 24}) | whole("Difference within sets")


def _difference(pair: Difference) -> Datum:
    name = f"{INTENT_WORDS[pair.first]} − {INTENT_WORDS[pair.second]}"
    p = pair.p_adjusted
    told = "" if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return {
        "pair": name,
        "mean": pair.mean,
        "low": pair.low,
        "high": pair.high,
        "sure": p is not None and p < SIGNIFICANCE,
        "p": told,
        "tip": f"{name}: {interval(pair.mean, pair.low, pair.high, signed=True)} {told}",
    }


# Likeness of different sets --------------------------------------------------------------------------------------------


def similarity(results: BuildResults) -> Spec:
    """Draw how similar each set is to the most similar one of its cell."""
    found = results.likeness
    if found is None or not found.wordings:
        return empty("no two prompt-sets of one cell could be compared")
    panels = [
        _histogram(found.core, found.histogram(found.core), "Core prompts", names=True),
        _histogram(found.wordings, found.histogram(found.wordings), "All wordings", names=False),
    ]
    return across(panels, spacing=28) | {"resolve": {"scale": {"y": "shared"}}}


def _histogram(nearest: tuple[Nearest, ...], bins: tuple[int, ...], title: str, *, names: bool) -> Spec:
    rows: list[Datum] = [
        {"low": index / BINS, "high": (index + 1) / BINS, "sets": number, "tip": tip}
        for index, number in enumerate(bins)
        if number
        for tip in [f"{number:,} {'set' if number == 1 else 'sets'} from {index / BINS:.2f} to {(index + 1) / BINS:.2f}"]
    ]
    axis = {"values": [0, 0.2, 0.4, 0.6, 0.7, 0.8, 1], "format": ".1f", "grid": False}
    x = {"scale": {"domain": [0, 1], "nice": False}, "axis": axis, "title": "highest ROUGE-L to another set"}
    y = {
        "axis": {"grid": True, "tickCount": min(5, max(bins) or 1), "format": ",d"},
        "title": "prompt-sets" if names else None,
    }
    bars = {"x": quantity("low", bin="binned", **x), "x2": {"field": "high"}, "y": quantity("sets", **y)}
    line = {"x": quantity("at", **x)}
    marks = [
        mark("bar", bars | TOLD, where="datum.low < 0.7 - 1e-9", color=BLUE),
        mark("bar", bars | TOLD, where="datum.low >= 0.7 - 1e-9", color=VERMILION),
        mark("rule", line, rows=[{"at": 0.7}], color=VERMILION, strokeDash=[4, 3], strokeWidth=1.4),
    ]
    highest = f"; the highest is {nearest[0].score:.3f}" if nearest else ""
    return layer(marks, rows, width=300, height=170) | whole(f"{title}{highest}", 8)


# Telling words ---------------------------------------------------------------------------------------------------------


def words(results: BuildResults) -> Spec:
    """Draw in which share of the sets each telling word occurs, by intent: a panel for each intent that it speaks for."""
    found = results.check.artefacts if results.check else None
    if found is None or results.check is None:
        return empty("the words were not checked")
    sets = results.check.sets
    panels = []
    order = [INTENT_WORDS[intent] for intent in CORE_VARIANTS]
    colour = nominal("intent", scale={"domain": order, "range": list(_COLOURS.values())}, title=None)
    shape = nominal("intent", scale={"domain": order, "range": ["circle", "square", "triangle-up"]}, title=None)
    for intent in CORE_VARIANTS:
        rows: list[Datum] = [
            {"word": word, "intent": INTENT_WORDS[other], "share": number / sets, "tip": tip}
            for item in found.words
            if item.intent == intent
            for word in [one_line(item.word, 18)]
            for other, number in zip(CORE_VARIANTS, (item.benign, item.dual_use, item.malicious), strict=True)
            for tip in [f"“{word}” is in {number:,} of {sets:,} {INTENT_WORDS[other]} prompts"]
        ]
        if not rows:
            continue
        y = nominal("word", sort=None, title=None, axis={"minExtent": 78, "maxExtent": 78, "grid": True})
        x = quantity("share", title="share of sets", scale={"domain": [0, 1]}, axis={"format": "%", "tickCount": 4})
        point = {"x": x, "y": y, "color": colour, "shape": shape} | TOLD
        chart = data(rows) | mark("point", point, filled=True, size=46, opacity=0.9)
        panels.append(chart | {"width": 160, "height": {"step": 20}} | whole(f"Speak for {INTENT_WORDS[intent]}", 8))
    return across(panels, spacing=26) if panels else empty("no word tells intents apart")
