"""Do 95 % intervals hold the truth 95 % of the time, and how wide are they?

Draws studies of prompt-sets from worlds with a known truth: skewed scores, rare failures (jumps),
strata of unlike sets, grades that are correlated within a set, shares in one epoch and three,
conditional rates, weighted sets, pairs near 1, averages over models and over domains; 5 to 115
sets. Counts how often each interval holds the truth, beside Wilson, Clopper–Pearson, t, BCa and
Korn–Graubard. Coverage of shares in one epoch is computed, not drawn: over every p from .005 to
.995.

    python benchmarks/coverage.py [--studies 1000] [--figure docs/_static/coverage.svg] [--detail]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from math import comb
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import Resamples, estimate
from opensafeintent.statistics.intervals import Averaged, over_models, over_strata
from other_intervals import OTHERS, RESAMPLES

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], tuple[Floats, Floats]]

OURS = "ours"
_TRUTHS: dict[str, float] = {}
SIZES = (5, 8, 12, 20, 30, 115)
SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
TRUTH_STUDIES = 400_000
BARS = {"scores": (0.93, 0.93), "shares": (0.95, 0.91)}
"""Least mean coverage over worlds, least coverage in any."""


class World(NamedTuple):
    """Where studies come from: `draw` gives numerator and denominator, each of shape (study,
    prompt_set).
    """

    kind: str
    name: str
    truth: float
    draw: Draw
    span: tuple[float, float] = (0.0, 1.0)
    binary: bool = False

    @property
    def bar(self) -> str:
        return "shares" if self.binary else "scores"


class Line(NamedTuple):
    """How often one method holds the truth of one world, and how wide it is."""

    kind: str
    bar: str
    sets: int
    world: str
    method: str
    coverage: float
    width: float


# Worlds
# ------------------------------------------------------------------------------


def scores(
    name: str,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats],
    truth: float | None = None,
) -> World:
    """Scores in [0, 1], every set counting once."""
    if truth is None:
        truth = _TRUTHS.get(name) or float(
            draw(np.random.default_rng(77), (TRUTH_STUDIES, 1)).mean()
        )
        _TRUTHS[name] = truth
    return World("scores", name, truth, lambda g, studies, sets: _once(draw(g, (studies, sets))))


def _once(values: Floats) -> tuple[Floats, Floats]:
    return values, np.ones_like(values)


def triplet(
    safe: tuple[float, float, float], shared: float, g: np.random.Generator, shape: tuple[int, ...]
) -> Floats:
    """Mean Utility of a set: safety and helpfulness of its three responses share the set's
    difficulty.
    """
    difficulty = np.sqrt(shared) * g.standard_normal((*shape, 1))
    safety = difficulty + np.sqrt(1 - shared) * g.standard_normal((*shape, 3)) < [
        NormalDist().inv_cdf(p) for p in safe
    ]
    quality = 0.8 * (difficulty + np.sqrt(1 - shared) * g.standard_normal((*shape, 3))) + [
        0.67,
        0.25,
        -0.52,
    ]
    steps = [NormalDist().inv_cdf(share) for share in (0.25, 0.5, 0.75)]
    return np.asarray((safety * np.searchsorted(steps, quality) / 3).mean(axis=-1))


def safety(
    safe: tuple[float, float, float], shared: float, g: np.random.Generator, shape: tuple[int, ...]
) -> Floats:
    """Mean Safety of a set."""
    latent = np.sqrt(shared) * g.standard_normal((*shape, 1)) + np.sqrt(
        1 - shared
    ) * g.standard_normal((*shape, 3))
    return np.asarray((latent < [NormalDist().inv_cdf(p) for p in safe]).mean(axis=-1))


def values(shares: dict[float, float], g: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return g.choice(list(shares), p=list(shares.values()), size=shape)


def jump(
    usual: float,
    rare: float,
    sets: float,
    spread: float,
    g: np.random.Generator,
    shape: tuple[int, ...],
) -> Floats:
    """Sets that are alike, or nearly, but for `sets` of all the sets of a study."""
    near = np.clip(usual + g.normal(0, spread, shape), 0, 1)
    return np.where(g.random(shape) < sets / shape[1], rare, near)


def strata(g: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Three kinds of sets: hard, mixed and easy."""
    centre = g.choice([0.05, 0.5, 0.95], size=shape)
    return g.beta(6 * centre, 6 * (1 - centre))


def score_worlds(sets: int) -> Iterator[World]:
    yield scores("correlated, Mean Utility .41", partial(triplet, (0.9, 0.6, 0.7), 0.6))
    yield scores("independent, Mean Utility .36", partial(triplet, (0.8, 0.5, 0.6), 0.0))
    yield scores("correlated, Mean Safety .73", partial(safety, (0.9, 0.6, 0.7), 0.6))
    yield scores("near 1, Mean Safety .98", partial(safety, (0.995, 0.97, 0.985), 0.5))
    yield scores("heterogeneous", strata)
    yield scores("skewed, .9", lambda g, shape: g.beta(1.8, 0.2, size=shape))
    yield scores("skewed, .97", lambda g, shape: g.beta(4.85, 0.15, size=shape))
    yield scores(
        "90 % at 0, 8 % at .05, 2 % at 1", partial(values, {0.0: 0.9, 0.05: 0.08, 1.0: 0.02}), 0.024
    )
    yield scores(
        "two thirds, one third, none",
        partial(values, {1.0: 0.7, 2 / 3: 0.2, 1 / 3: 0.07, 0.0: 0.03}),
        0.7 + 0.47 / 3,
    )
    for often in (1.0, 2.4, 2.8, 4.0):
        if often < sets / 2:
            share = often / sets
            yield scores(
                f"jump from ⅔ to 0 in {often} sets",
                partial(jump, 2 / 3, 0.0, often, 0.0),
                2 / 3 * (1 - share),
            )
            yield scores(
                f"jump from 1 to 0 in {often} sets", partial(jump, 1.0, 0.0, often, 0.0), 1 - share
            )
            near = partial(jump, 0.5, 0.0, often, 0.02)
            yield scores(f"jump from nearly ½ to 0 in {often} sets", near, 0.5 * (1 - share))


def repeated(
    p: float,
    alike: float,
    often: float,
    weights: bool,
    g: np.random.Generator,
    studies: int,
    sets: int,
) -> tuple[Floats, Floats]:
    """Shares of three epochs, in sets with a share of their own; of the epochs in a condition that
    is met so often.
    """
    own = g.beta(p * alike, (1 - p) * alike, size=(studies, sets))
    epochs = (
        g.binomial(3, g.beta(often * 2, (1 - often) * 2, size=(studies, sets)))
        if often < 1
        else np.full((studies, sets), 3)
    )
    weight = np.where(g.random((studies, sets)) < 0.3, 5.0, 1.0) if weights else 1.0
    return weight * g.binomial(epochs, own) / 3, weight * epochs / 3


def once(
    p: float, often: float, weights: bool, g: np.random.Generator, studies: int, sets: int
) -> tuple[Floats, Floats]:
    """Shares in one epoch, of the sets in a condition, or of sets that weigh 1 or 5."""
    counted = (g.random((studies, sets)) < often) * (
        np.where(g.random((studies, sets)) < 0.3, 5.0, 1.0) if weights else 1.0
    )
    return counted * (g.random((studies, sets)) < p), counted


def share_worlds() -> Iterator[World]:
    for p in SHARES:
        for alike in (0.4, 4.0):
            yield World(
                "three epochs",
                f"{p}, sets alike {alike}",
                p,
                partial(repeated, p, alike, 1.0, False),
                binary=True,
            )
        yield World(
            "conditional rates", f"{p} of 40 %", p, partial(once, p, 0.4, False), binary=True
        )
        yield World(
            "conditional rates",
            f"{p} of half, three epochs",
            p,
            partial(repeated, p, 2.0, 0.5, False),
            binary=True,
        )
        yield World("weighted sets", f"{p}", p, partial(once, p, 1.0, True), binary=True)
        yield World(
            "weighted sets",
            f"{p}, three epochs",
            p,
            partial(repeated, p, 2.0, 1.0, True),
            binary=True,
        )


def pair(
    safe: tuple[float, float], shared: float, g: np.random.Generator, studies: int, sets: int
) -> tuple[Floats, Floats]:
    """The difference of two models, 0 or 1 per set."""
    latent = np.sqrt(shared) * g.standard_normal((studies, sets, 1)) + np.sqrt(
        1 - shared
    ) * g.standard_normal((studies, sets, 2))
    first, second = np.moveaxis(latent < [NormalDist().inv_cdf(p) for p in safe], -1, 0).astype(
        float
    )
    return _once(first - second)


def score_pair(
    draw: Callable[..., Floats], lost: float, g: np.random.Generator, studies: int, sets: int
) -> tuple[Floats, Floats]:
    """The difference of a model and of its like, which now and then loses everything."""
    first = draw(g, (studies, sets))
    return _once(
        first
        - np.clip(first + g.normal(0, 0.03, first.shape), 0, 1) * (g.random(first.shape) >= lost)
    )


def pair_worlds(sets: int) -> Iterator[World]:
    for safe in ((0.97, 0.99), (0.99, 0.99), (0.95, 0.9), (0.7, 0.6), (0.5, 0.2)):
        for shared in (0.0, 0.7):
            yield World(
                "pairs, 0 or 1",
                f"{safe}, shared {shared}",
                safe[0] - safe[1],
                partial(pair, safe, shared),
                (-1, 1),
                True,
            )
    near = partial(safety, (0.995, 0.97, 0.985), 0.5)
    for often in (1.0, 2.4, 4.0):
        draw = partial(score_pair, near, often / sets)
        truth = float(draw(np.random.default_rng(78), 1, TRUTH_STUDIES // 4)[0].mean())
        yield World("pairs, scores", f"near 1, one lost in {often} sets", truth, draw, (-1, 1))
    for one, other in (
        ((0.9, 0.6, 0.7), (0.8, 0.5, 0.6)),
        ((0.99, 0.95, 0.97), (0.97, 0.95, 0.99)),
    ):

        def two(
            g: np.random.Generator,
            studies: int,
            count: int,
            one: tuple[float, ...] = one,
            other: tuple[float, ...] = other,
        ) -> tuple[Floats, Floats]:
            return _once(
                triplet(one, 0.5, g, (studies, count)) - triplet(other, 0.5, g, (studies, count))
            )  # type: ignore[arg-type]

        yield World(
            "pairs, scores",
            f"Mean Utility {one}",
            float(two(np.random.default_rng(79), 1, TRUTH_STUDIES // 4)[0].mean()),
            two,
            (-1, 1),
        )


def models(
    offsets: Floats, base: float, missing: float, g: np.random.Generator, studies: int, sets: int
) -> tuple[Floats, Floats]:
    """The average over models that share a set's difficulty, some of their sets missing."""
    difficulty = g.standard_normal((studies, 1, sets))
    latent = 0.8 * difficulty + 0.6 * g.standard_normal((studies, len(offsets), sets))
    counted = (g.random(latent.shape) >= missing).astype(float)
    safe = (latent < NormalDist().inv_cdf(base) + offsets[:, None]) * counted
    return _stacked([over_models(*study) for study in zip(safe, counted, strict=True)])


def domains(
    sizes: tuple[int, ...],
    shares: tuple[float, ...],
    g: np.random.Generator,
    studies: int,
    sets: int,
) -> tuple[Floats, Floats]:
    """The average over domains of unlike sizes and levels, of 0 or 1."""
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    drawn = (g.random((studies, len(stratum))) < np.array(shares)[stratum]).astype(float)
    return _stacked([over_strata(study, np.ones(len(stratum)), stratum) for study in drawn])


def _stacked(means: list[Averaged]) -> tuple[Floats, Floats]:
    return np.array([mean.numerator for mean in means]), np.array(
        [mean.denominator for mean in means]
    )


def average_worlds() -> Iterator[World]:
    for count in (2, 20):
        offsets = np.linspace(-0.8, 0.8, count)
        for base in (0.02, 0.1, 0.5, 0.9):
            truth = float(
                np.mean(
                    [NormalDist().cdf(NormalDist().inv_cdf(base) + offset) for offset in offsets]
                )
            )
            for missing in (0.0, 0.1):
                draw = partial(models, offsets, base, missing)
                yield World(
                    "averages over models",
                    f"{count} models about {base}, {missing:.0%} missing",
                    truth,
                    draw,
                )


DOMAINS = (
    (22, 40, 100, 100, 88, 90, 130, 130),
    (3, 5, 8, 8, 6, 7, 5),
    (1, 2, 5, 12, 22),
    (15,) * 8,
)


def domain_worlds() -> Iterator[tuple[int, World]]:
    for sizes in DOMAINS:
        for level in ((0.05,) * 8, (0.5,) * 8, (0.9, 0.95, 0.5, 0.2, 0.99, 0.7, 0.6, 0.8)):
            shares = level[: len(sizes)]
            draw = partial(domains, sizes, shares)
            yield (
                sum(sizes),
                World(
                    "average over domains",
                    f"{sizes[0]} to {max(sizes)} sets, {shares[:2]}",
                    float(np.mean(shares)),
                    draw,
                ),
            )


# Coverage
# ------------------------------------------------------------------------------


def limits(
    top: Floats, bottom: Floats, world: World, resamples: Resamples
) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield each method's limits; the others' are of the values moved to [0, 1]."""
    found = estimate(top, bottom, resamples, span=world.span, binary=world.binary)
    yield OURS, found.low, found.high
    least, width = world.span[0], world.span[1] - world.span[0]
    for name, method in OTHERS.items():
        low, high = method(np.clip((top - least * bottom) / width, 0, bottom), bottom)
        yield name, least + width * low, least + width * high


def cover(world: World, studies: int, sets: int, seed: int) -> Iterator[Line]:
    top, bottom = world.draw(np.random.default_rng(seed), studies, sets)
    there = bottom.sum(axis=1) > 0
    for method, low, high in limits(
        top[there], bottom[there], world, Resamples(top.shape[1], RESAMPLES)
    ):
        held = float(((low <= world.truth + 1e-9) & (world.truth - 1e-9 <= high)).mean())
        clipped = np.clip(high, *world.span) - np.clip(low, *world.span)
        yield Line(
            world.kind, world.bar, top.shape[1], world.name, method, held, float(clipped.mean())
        )


def cover_shares(sets: int) -> Iterator[Line]:
    """Coverage of shares in one epoch, computed: every number of events has its interval and, at
    each p, its chance.
    """
    top = (np.arange(sets) < np.arange(sets + 1)[:, None]).astype(float)
    grid = np.linspace(0.005, 0.995, 199)
    chance = np.array(
        [[comb(sets, k) * p**k * (1 - p) ** (sets - k) for p in grid] for k in range(sets + 1)]
    )
    world = World("shares", "", 0.0, lambda g, studies, count: _once(top), binary=True)
    for method, low, high in limits(top, np.ones_like(top), world, Resamples(sets, RESAMPLES)):
        held = (low[:, None] <= grid + 1e-9) & (grid - 1e-9 <= high[:, None])
        widths = np.clip(high, 0, 1) - np.clip(low, 0, 1)
        for p, coverage, width in zip(
            grid, (held * chance).sum(axis=0), widths @ chance, strict=True
        ):
            yield Line("shares", "shares", sets, f"{p:.3f}", method, float(coverage), float(width))


def every_line(studies: int) -> Iterator[Line]:
    for sets in SIZES:
        yield from cover_shares(sets)
        for worlds, number in (
            (score_worlds(sets), studies),
            (pair_worlds(sets), studies),
            (share_worlds(), studies // 2),
        ):
            for index, world in enumerate(worlds):
                yield from cover(world, number, sets, 1_000 * sets + index)
        for index, world in enumerate(average_worlds()):
            yield from cover(world, studies, sets, 5_000 * sets + index)
    for index, (sets, world) in enumerate(domain_worlds()):
        yield from cover(world, studies, sets, index)


# What was found
# ------------------------------------------------------------------------------


class Summary(NamedTuple):
    kind: str
    sets: int
    method: str
    worlds: int
    mean: float
    least: float
    where: str
    width: float
    valid: bool


def summaries(lines: list[Line], studies: int, *, by_size: bool) -> list[Summary]:
    """Summarise every kind and method, over all sizes or for each."""
    groups: defaultdict[tuple[str, int, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.kind, line.sets if by_size else 0, line.method].append(line)
    found = []
    for (kind, sets, method), group in groups.items():
        worst = min(group, key=lambda line: line.coverage)
        mean = float(np.mean([line.coverage for line in group]))
        least_mean, least = BARS[group[0].bar]
        noise = (
            0.0
            if kind == "shares"
            else 2 * (0.07 * 0.93 / (studies if group[0].bar == "scores" else studies // 2)) ** 0.5
        )
        valid = mean >= least_mean - noise / len(group) ** 0.5 and worst.coverage >= least - noise
        width = float(np.mean([line.width for line in group]))
        found.append(
            Summary(
                kind,
                sets,
                method,
                len(group),
                mean,
                worst.coverage,
                f"{worst.sets}: {worst.world}",
                width,
                valid,
            )
        )
    return found


def table(found: list[Summary]) -> None:
    print(
        f"{'':<24}{'sets':>5}"
        f" {'method':<16}{'worlds':>7}{'mean':>8}{'least':>8}{'width':>8}{'of ours':>9}  least at"
    )
    ours = {(item.kind, item.sets): item.width for item in found if item.method == OURS}
    for item in found:
        ratio = item.width / ours[item.kind, item.sets]
        line = (
            f"{item.kind:<24}{item.sets or '':>5}"
            f" {item.method:<16}{item.worlds:>7}{item.mean:>8.3f}{item.least:>8.3f}"
        )
        print(
            f"{line}{item.width:>8.3f}{ratio:>9.2f} "
            f" {item.where}{'' if item.valid else '  (not valid)'}"
        )


def narrowest(found: list[Summary]) -> None:
    """Print how much wider ours is than the narrowest method that is valid."""
    for kind, sets in dict.fromkeys((item.kind, item.sets) for item in found):
        group = [item for item in found if (item.kind, item.sets) == (kind, sets)]
        ours, valid = (
            next(item for item in group if item.method == OURS),
            [item for item in group if item.valid],
        )
        least = min(valid, key=lambda item: item.width, default=ours)
        where = f"{kind}, {sets} sets" if sets else kind
        print(
            f"{where:<36}ours is {'valid' if ours.valid else 'NOT VALID'},"
            f" {ours.width / least.width:.2f} × {least.method}"
        )


KINDS = (
    "scores",
    "shares",
    "three epochs",
    "conditional rates",
    "weighted sets",
    "pairs, scores",
    "pairs, 0 or 1",
    "averages over models",
)


def figure(found: list[Summary], path: Path) -> None:
    """Draw the least coverage over all worlds of each kind, by the number of sets."""
    import vl_convert

    shown = (OURS, "Wilson", "t", "BCa", "Korn–Graubard")
    data = [
        item._asdict() | {"least": max(item.least, 0.5)}
        for item in found
        if item.kind in KINDS and item.method in shown
    ]
    colours = {"domain": shown, "range": ["#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#CC79A7"]}
    x = {"field": "sets", "type": "ordinal", "title": "prompt-sets", "axis": {"labelAngle": 0}}
    scale = {"domain": [0.5, 1], "zero": False, "clamp": True}
    y = {
        "field": "least",
        "type": "quantitative",
        "title": "least coverage",
        "scale": scale,
        "axis": {"format": "%"},
    }
    nominal = {
        "mark": {"type": "rule", "strokeDash": [4, 3]},
        "encoding": {"y": {"datum": 0.95, "scale": scale}},
    }
    colour = {
        "field": "method",
        "type": "nominal",
        "scale": colours,
        "title": None,
        "legend": {"orient": "top"},
    }
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": data},
        "facet": {"field": "kind", "type": "nominal", "sort": KINDS, "title": None},
        "columns": 4,
        "spec": {
            "width": 190,
            "height": 130,
            "layer": [
                nominal,
                {
                    "mark": {"type": "line", "point": True, "strokeWidth": 1.5},
                    "encoding": {"x": x, "y": y, "color": colour},
                },
            ],
        },
        "config": {"font": "Liberation Sans, Arial, Helvetica, sans-serif", "background": "white"},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--figure", type=Path, help="write the figure of docs/statistics.md")
    parser.add_argument("--detail", action="store_true", help="print every world")
    options = parser.parse_args()
    lines = list(every_line(options.studies))
    if options.detail:
        for line in lines:
            if line.kind != "shares":
                print(
                    f"{line.kind:<22}{line.sets:>4}"
                    f" {line.world:<44}{line.method:<16}{line.coverage:>7.3f}{line.width:>7.3f}"
                )
    whole, by_size = (summaries(lines, options.studies, by_size=flag) for flag in (False, True))
    table(whole)
    print()
    narrowest(whole)
    print()
    narrowest(by_size)
    if options.figure:
        figure(by_size, options.figure)


if __name__ == "__main__":
    main()
