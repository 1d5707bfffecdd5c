"""Figures of several judges: each model by each of them, and what one says against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

import msgspec

from opensafeintent.analysis.agreement import GRADES, HARM_GRADES, PANEL, Agreement
from opensafeintent.analysis.groups import Group
from opensafeintent.analysis.judges import JUDGE_AVERAGE, Ranking
from opensafeintent.analysis.numbers import Number
from opensafeintent.hostile import terminal_safe
from opensafeintent.metrics import METRICS, PRIMARY
from opensafeintent.report.figures.kit import (
    APART,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SHAPES,
    SKY,
    VERMILION,
    Datum,
    Series,
    Spec,
    across,
    dots,
    down,
    labels_of,
    layer,
    mark,
    nominal,
    quantity,
    row_of,
    whole,
)

__all__ = ["by_judge", "confusion"]

_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
_WHAT = (("helpfulness", "Helpfulness", GRADES), ("harm_severity", "Harm severity", HARM_GRADES))
_TOGETHER = {JUDGE_AVERAGE: "average over judges", PANEL: PANEL}
"""What is not one judge, and how it is called."""
_LIGHT = 0.55
"""Shares from here on are drawn so light that text on them is dark."""
_NAME = 30
_TILE = 34


def by_judge(group: Group) -> Spec:
    """Draw the two primary metrics of each model, a point for each judge, one for their average and one for the panel."""
    graders = group.judges.graders
    judges = labels_of([grader.name for grader in graders if grader.name not in _TOGETHER], _NAME)
    names = tuple(judges.get(grader.name) or _TOGETHER[grader.name] for grader in graders)
    colours = (*islice(cycle(_COLOURS), len(judges)), GREY, GREY)
    shapes = (*islice(cycle(shape for shape in SHAPES if shape not in ("cross", "diamond")), len(judges)), "cross", "diamond")
    labels = labels_of(group.numbers.models)
    charts = [
        dots(
            [
                row_of(_number(grader, metric, model, group.models.index(model)), labels, name)
                for model in group.numbers.models
                for name, grader in zip(names, graders, strict=True)
            ],
            Series(names, colours, shapes),
            width=250,
            step=10 * len(names) + 8,
            names=0 if index else None,
        )
        | whole(METRICS[metric].label)
        for index, metric in enumerate(PRIMARY)
    ]
    return across(charts, spacing=30)


def _number(grader: Ranking, metric: str, model: str, index: int) -> Number:
    return Number(model=model, metric=metric, **msgspec.structs.asdict(grader.estimates[metric][index]))


def confusion(group: Group) -> Spec:
    """Draw what one judge says against what another does, a map for helpfulness and one for harm, two judges a line."""
    found = [item for item in group.judges.agreements if len(item.judges) == 2]
    labels = labels_of(list(dict.fromkeys(judge for item in found for judge in item.judges)), _NAME)
    lines = [across([_map(item, what, title, grades, labels) for what, title, grades in _WHAT], spacing=40) for item in found]
    return (lines[0] if len(lines) == 1 else down(lines, spacing=26)) | APART


def _map(found: Agreement, what: str, title: str, grades: Sequence[int], labels: Mapping[str, str]) -> Spec:
    first, second = (labels[judge] for judge in found.judges)
    counts: Mapping[str, Sequence[Sequence[int]]] = {str(name): table for name, table in found.confusion.items()}
    tiles: list[Datum] = []
    for grade, line in zip(grades, counts[what], strict=True):
        for other, count in zip(grades, line, strict=True):
            share = count / sum(line) if sum(line) else 0.0
            tiles.append(
                {
                    "a": str(grade),
                    "b": str(other),
                    "count": f"{count:,}" if count else "",
                    "share": round(share, 6),
                    "shown": f"{count:,} of {sum(line):,} ({share:.0%})",
                    "judge": terminal_safe(found.judges[0]),
                    "other": terminal_safe(found.judges[1]),
                    "light": share >= _LIGHT,
                }
            )
    values = [str(grade) for grade in grades]
    plain = {"ticks": False, "grid": False, "labelAngle": 0}
    at = {
        "x": nominal("b", scale={"domain": values, "paddingInner": 0.05}, sort=None, title=second, axis=plain),
        "y": nominal("a", scale={"domain": values, "paddingInner": 0.05}, sort=None, title=first, axis=plain),
        "tooltip": [
            *(nominal("judge", title="judge of the line"), nominal("a", title="its grade")),
            *(nominal("other", title="judge of the column"), nominal("b", title="its grade")),
            nominal("shown", title="responses of the line"),
        ],
    }
    colour = quantity("share", scale={"domain": [0, 1], "scheme": "viridis"}, legend=None)
    text = at | {"text": nominal("count")}
    marks = [
        mark("rect", at | {"color": colour}, cornerRadius=2),
        mark("text", text, where="datum.light", color="#111111"),
        mark("text", text, where="!datum.light", color="white"),
    ]
    return layer(marks, tiles, width={"step": _TILE + 14}, height={"step": _TILE}) | whole(title, 8)
