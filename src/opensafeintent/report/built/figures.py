"""The figures of a build. Drawn here is what was built: the funnel, its reasons, the map of the cells, the costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from opensafeintent.construction.records import REASONS
from opensafeintent.hostile import terminal_safe
from opensafeintent.report.built import controls
from opensafeintent.report.built.record import BuildResults, CellCount, stage_name, stage_of
from opensafeintent.report.built.tables import build_tables, role_of
from opensafeintent.report.figures.kit import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    TOLD,
    Datum,
    Series,
    Spec,
    across,
    data,
    down,
    empty,
    finished,
    labels_of,
    layer,
    mark,
    names_axis,
    nominal,
    pixels,
    quantity,
    types_axis,
    whole,
)
from opensafeintent.report.figures.writing import FORMATS, Figure
from opensafeintent.report.table import Section, Table

__all__ = ["FIGURE_FILES", "build_figures"]

_WIDTH = 470
_NAMES = 150
"""Pixels for the names of stages."""
_KEPT_SEEDS, _KEPT_PROPOSED, _DROPPED = "kept, from seeds", "kept, proposed to fill cells", "dropped"


# The funnel ------------------------------------------------------------------------------------------------------------


def funnel(results: BuildResults) -> Spec:
    """Draw what went into each stage: a bar in three parts, and how many were kept of how many."""
    counts = results.stages
    found = {
        _KEPT_SEEDS: (BLUE, [count.from_seeds for count in counts]),
        _KEPT_PROPOSED: (SKY, [count.proposed for count in counts]),
        _DROPPED: (ORANGE, [count.dropped for count in counts]),
    }
    parts = {name: part for name, part in found.items() if any(part[1])}
    series = Series(tuple(parts), tuple(colour for colour, _ in parts.values()))
    rows: list[Datum] = [
        {"stage": stage_name(count.stage), "part": name, "place": index, "items": number, "tip": tip}
        for index, (name, (_, numbers)) in enumerate(parts.items())
        for count, number in zip(counts, numbers, strict=True)
        if number
        for tip in [f"{stage_name(count.stage)}: {number:,} {name}"]
    ]
    ends: list[Datum] = [
        {
            "stage": stage_name(count.stage),
            "items": count.count_in,
            "text": f"{count.kept:,} of {count.count_in:,}" if count.count_in else "nothing came here",
        }
        for count in counts
    ]
    order = [stage_name(count.stage) for count in counts]
    ticks = min(6, max((count.count_in for count in counts), default=0) or 1)  # no more than whole numbers
    y = nominal("stage", sort=None, scale={"domain": order, "paddingInner": 0.35}, title=None, axis=names_axis(_NAMES))
    x = {"axis": {"title": "items", "tickCount": ticks, "format": ",d"}, "scale": {"zero": True, "nice": False}}
    colour = nominal("part", scale={"domain": list(series.names), "range": list(series.colours)}, title=None)
    bars = {"x": quantity("items", stack="zero", **x), "y": y, "color": colour, "order": quantity("place")}
    kept = {"x": quantity("items", **x), "y": y, "text": nominal("text")}
    marks = [
        mark("bar", bars | TOLD),
        mark("text", kept, rows=ends, align="left", xOffset=7),
    ]
    return layer(marks, rows, width=_WIDTH, height={"step": 30})


def dropped(results: BuildResults) -> Spec:
    """Draw how many items each stage dropped for which reason; the reason stands where its bar ends."""
    stages = [result for result in results.built.stages if result.rejected]
    counts = [Counter(rejection.reason for rejection in result.rejected) for result in stages]
    most = max((max(count.values()) for count in counts), default=0)
    panels = []
    for result, count in zip(stages, counts, strict=True):
        rows: list[Datum] = [
            {"reason": reason, "items": number, "number": f"{number:,}", "text": REASONS[reason], "tip": tip}
            for reason, number in sorted(count.items(), key=lambda item: (-item[1], item[0]))
            for tip in [f"{number:,}: {REASONS[reason]}"]
        ]
        x = quantity("items", scale={"domain": [0, most], "nice": False}, axis=None)
        y = nominal("reason", sort=None, scale={"paddingInner": 0.3}, axis=None)
        at = {"x": x, "y": y}
        marks = [
            mark("bar", at | TOLD, color=ORANGE),
            mark("text", at | {"text": nominal("number")}, align="left", xOffset=6, fontWeight="bold"),
            mark("text", at | {"text": nominal("text")}, align="left", xOffset=16 + 7 * len(f"{most:,}")),
        ]
        panels.append(layer(marks, rows, width=180, height={"step": 22}) | whole(stage_name(result.stage)))
    return down(panels, spacing=16) if panels else empty("nothing was dropped")


# The map of the cells --------------------------------------------------------------------------------------------------

_LARGE, _SMALL = 8, 16
"""Task types up to which a column is wide, and up to which it still holds a number."""


def coverage(results: BuildResults) -> Spec:
    """Draw the number of prompt-sets in each cell, with the sums of domains and types."""
    taxonomy = results.manifest.taxonomy
    domains = labels_of(taxonomy.domain_names)
    types = labels_of(taxonomy.type_names)
    wide = 100 if len(types) <= _LARGE else 44 if len(types) <= _SMALL else 20
    high = 34 if len(domains) <= _SMALL else 22
    most = max((cell.sets for cell in results.cells), default=0)
    tiles = [_tile(cell, domains, types, most, results.manifest.per_cell) for cell in results.cells]
    columns = {"domain": list(types.values()), "paddingInner": 0.04, "paddingOuter": 0}
    lines = {"domain": list(domains.values()), "paddingInner": 0.08, "paddingOuter": 0}
    at = {
        "x": nominal("type", scale=columns, sort=None, title=None, axis=_head(wide)),
        "y": nominal("domain", scale=lines, sort=None, title=None, axis=names_axis(200)),
    }
    scale = {"domain": [0, max(most, 1)], "range": ["#dbe9f4", BLUE]}
    colour = {"color": quantity("sets", scale=scale, legend=None)}
    marks = [
        mark("rect", at | colour | TOLD, where="datum.sets > 0", cornerRadius=2),
        mark("rect", at | TOLD, where="datum.sets == 0", cornerRadius=2, filled=False, stroke=GREY, strokeOpacity=0.5),
    ]
    if wide > 20:
        number = at | {"text": nominal("text")}
        second = at | {"text": nominal("below")}
        looks: dict[str, Spec] = {
            "datum.sets > 0 && !datum.dark": {"color": "#111111"},
            "datum.sets > 0 && datum.dark": {"color": "#fefefe"},
            "datum.sets == 0": {},
        }
        for where, look in looks.items():
            one, two = (f"{where} && datum.below {sign} ''" for sign in ("==", "!="))
            marks += [
                mark("text", number, where=one, fontWeight="bold", **look),
                mark("text", number, where=two, fontWeight="bold", yOffset=-6, **look),
                mark("text", second, where=two, yOffset=7, **look | {"fontSize": 9}),
            ]
    marks += _sums(results.cells, domains, types, wide, high)
    return layer(marks, tiles, width={"step": wide}, height={"step": high})


def _tile(cell: CellCount, domains: dict[str, str], types: dict[str, str], most: int, target: int | None) -> Datum:
    lacking = target is not None and cell.sets < target
    wanted = f", {target:,} wanted" if lacking else ""
    origin = f" ({cell.from_seeds:,} from seeds)" if cell.from_seeds else ""
    name = terminal_safe(f"{cell.harm_domain} / {cell.task_type}")
    return {
        "domain": domains[cell.harm_domain],
        "type": types[cell.task_type],
        "sets": cell.sets,
        "text": f"{cell.sets:,}",
        "below": f"of {target:,}" if lacking else "",
        "dark": cell.sets > 0.55 * most,
        "tip": f"{name}: {cell.sets:,} {'set' if cell.sets == 1 else 'sets'}{origin}{wanted}",
    }


def _head(wide: int) -> Spec:
    """Return the axis of the task types: above, upright where there is no room."""
    if wide >= 100:
        return types_axis(wide)
    upright: Spec = {"labelAngle": -90, "labelLimit": 200, "labelPadding": 18, "labelBaseline": "middle"}
    return {"orient": "top", "labelFontSize": 10, "ticks": False, "grid": False} | upright


def _sums(cells: Sequence[CellCount], domains: dict[str, str], types: dict[str, str], wide: int, high: int) -> list[Spec]:
    """Return the sums of rows and columns, right of the map and below it."""
    by_domain, by_type = Counter[str](), Counter[str]()
    for cell in cells:
        by_domain[domains[cell.harm_domain]] += cell.sets
        by_type[types[cell.task_type]] += cell.sets
    rows = [{"domain": name, "sum": f"{by_domain[name]:,}"} for name in domains.values()]
    along = [{"type": name, "sum": f"{by_type[name]:,}"} for name in types.values()]
    total = [{"sum": f"{sum(by_domain.values()):,}"}]
    right, below = pixels(wide * len(types) + 30), pixels(high * len(domains) + 12)
    look: Spec = {"opacity": 0.75}
    text = {"text": nominal("sum")}
    marks = [mark("text", text | {"y": nominal("domain"), "x": right}, rows=rows, align="right", **look)]
    if wide > 20:
        marks.append(mark("text", text | {"x": nominal("type"), "y": below}, rows=along, **look))
    return [*marks, mark("text", text | {"x": right, "y": below}, rows=total, align="right", fontWeight="bold")]


# Costs -----------------------------------------------------------------------------------------------------------------

_ROLES = {"generator": BLUE, "judge": GREEN, "both": PURPLE}


def costs(results: BuildResults) -> Spec:
    """Draw calls and tokens by stage, the generator's and the judge's apart."""
    spent: Counter[tuple[str, str, str]] = Counter()
    for cost in results.costs:
        stage, role = stage_name(stage_of(cost.purpose)), role_of(cost.purpose, cost.model, results)
        spent[stage, role, "calls"] += cost.calls
        spent[stage, role, "tokens"] += cost.input_tokens + cost.output_tokens
    if not spent:
        return empty("no calls were made")
    stages = [name for count in results.stages for name in [stage_name(count.stage)] if any(key[0] == name for key in spent)]
    roles = [role for role in _ROLES if any(key[1] == role for key in spent)]
    colour = nominal("role", scale={"domain": roles, "range": [_ROLES[role] for role in roles]}, title=None)
    panels = []
    for what, form in (("calls", ",d"), ("tokens", "~s")):
        rows: list[Datum] = [
            {"stage": stage, "role": role, "place": roles.index(role), "value": number, "tip": tip}
            for (stage, role, kind), number in spent.items()
            if kind == what
            for tip in [f"{stage}, {role}: {number:,} {what}"]
        ]
        axis = names_axis(_NAMES) if what == "calls" else None
        y = nominal("stage", sort=None, scale={"domain": stages, "paddingInner": 0.35}, title=None, axis=axis)
        x = quantity("value", stack="zero", axis={"title": what, "tickCount": 5, "format": form})
        bars = mark("bar", {"x": x, "y": y, "color": colour, "order": quantity("place")} | TOLD)
        panels.append(data(rows) | bars | {"width": 250, "height": {"step": 28}})
    return across(panels, spacing=24)


# The list of figures ---------------------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    name: str
    title: str
    section: Section
    caption: str
    draw: Callable[[BuildResults], Spec]
    table: str = ""
    """The table with its numbers, called as the figure where empty; without rows there is no figure."""


_PLANS = (
    _Plan(
        "funnel",
        "Items through the stages",
        "funnel",
        "A bar is what went into a stage: seeds at first, then topics, then prompt-sets on their way. Beside it, how many it "
        "kept of how many. Cells are filled again after later stages have dropped some, so all passes are counted together.",
        funnel,
    ),
    _Plan(
        "dropped",
        "Why items were dropped",
        "funnel",
        "Each item counts once, for the first reason that was found. All of them, with what the models said, are in stages/.",
        dropped,
    ),
    _Plan(
        "coverage",
        "Prompt-sets by cell",
        "coverage",
        "A cell is one harm domain and one task type; beside and below the map are sums. Empty cells are outlined; where a "
        "target was set and not reached, it is named.",
        coverage,
    ),
    _Plan(
        "readings",
        "Intents as the judge read them, before and after repair",
        "intents",
        "The judge sees one prompt at a time, without its label, and says whether an honest use is plausible and whether the "
        "risk of misuse is meaningful; “neither” is no to both. Every set that it read counts, the dropped ones included. "
        "What was kept agrees with the judge by construction: that is no measure of how often it is right.",
        controls.readings,
    ),
    _Plan(
        "lengths",
        "Length and readability by intent",
        "lengths",
        "Left: the median, the middle half (bar) and the middle nine tenths (line) of the prompts of each intent. Right: the "
        "mean difference within sets with its 95 % interval; p is adjusted for the three pairs of a measure, and differences "
        "with p < 0.05 are in colour. Readability is the Automated Readability Index: the higher, the harder.",
        controls.lengths,
        "differences",
    ),
    _Plan(
        "similarity",
        "How similar each set is to the most similar one of its cell",
        "similarity",
        "Stage 5 drops a set when one of its core prompts has a ROUGE-L above 0.7 (dashed) to one of an earlier set. "
        "Paraphrases are written later and are compared here only.",
        controls.similarity,
    ),
    _Plan(
        "words",
        "Words that tell the intent",
        "words",
        "The words that speak most for one intent in a bag-of-words classifier, and the share of the sets whose prompt of "
        "each intent has them. Intent must be said in words; what matters is whether these words say it or only give it "
        "away.",
        controls.words,
    ),
    _Plan(
        "costs",
        "Calls and tokens by stage",
        "costs",
        "Every call that a kept or a dropped item rests on, once, whichever run made it. Tokens are those that went in and "
        "those that came out, together.",
        costs,
    ),
)

FIGURE_FILES = (*(f"{plan.name}.{ending}" for plan in _PLANS for ending in ("csv", *FORMATS)), "captions.md")
"""Every file that figures may have."""


def build_figures(results: BuildResults) -> list[Figure]:
    """Return the figures that have something to show, in the order of the page."""
    tables = {table.name: table for table in build_tables(results)} | results.check_tables
    found = ((plan, tables.get(plan.table or plan.name)) for plan in _PLANS)
    return [_figure(plan, results, table) for plan, table in found if table and table.rows]


def _figure(plan: _Plan, results: BuildResults, table: Table) -> Figure:
    return Figure(
        name=plan.name,
        title=plan.title,
        section=plan.section,
        caption=plan.caption,
        table=table,
        spec=finished(plan.draw(results), plan.title),
    )
