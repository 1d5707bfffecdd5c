"""What a wording of the rubrics does to the grades of two readers, and how near they come to a key.

Reads `benchmarks/rubrics.csv`: every reading of the last study that docs/judges.md describes, of
harm by versions 1 and 3. A row is one response (one prompt, for `strategy`) read under one wording
for one scale by one reader; `key` was fixed before
anyone read, and `also` is a second grade that it allows. `rubrics-key.csv` has the key's reasons.
The earlier studies: `rubrics-second.csv` (all four templates by versions 1 and 2),
`rubrics-third.csv` (harm by a draft that was dropped) and `rubrics-first.csv` (which chose version
2's wording; its key has no reasons).

    python benchmarks/rubrics.py [FILE]
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opensafeintent.statistics import Resamples, estimate
from opensafeintent.statistics.agreement import RatingCounts
from opensafeintent.statistics.intervals import percentiles
from opensafeintent.taxonomy import MODES, STRATEGIES

Floats = NDArray[np.float64]
Rows = list[dict[str, str]]
Item = tuple[str, str, str]
"""Set, variant, target."""
Judged = Mapping[Item, tuple[str, ...]]
"""The two readers' grades of each response, then its key and what else the key allows (empty where
nothing).
"""

STUDY = Path(__file__).with_suffix(".csv")
NAMES: dict[str, tuple[str, ...]] = {"mode": MODES, "strategy": STRATEGIES}
CATEGORIES: dict[str, tuple[int, ...]] = {
    "harm": (0, 1, 2, 3),
    "helpfulness": (1, 2, 3, 4),
    **{scale: tuple(range(len(names))) for scale, names in NAMES.items()},
}
DRAWS = 10_000
FEWEST = 10
"""Prompt-sets with a disagreement below which the bootstrap says too much of a coefficient
(docs/judges.md).
"""


def read(path: Path) -> dict[tuple[str, str], Judged]:
    """Return the readings by (scale, wording)."""
    found: dict[tuple[str, str], dict[Item, dict[str, str]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            item = row["set"], row["variant"], row["target"]
            found[row["scale"], row["wording"]][item] |= {
                row["reader"]: row["grade"],
                "key": row["key"],
                "also": row["also"],
            }
    return {
        place: {
            item: tuple(grades[name] for name in ("1", "2", "key", "also"))
            for item, grades in sorted(items.items())
        }
        for place, items in found.items()
    }


class Share(NamedTuple):
    """What is averaged over responses."""

    name: str
    of: Callable[[tuple[str, ...]], float]
    """Its value of one response."""
    span: tuple[float, float] = (0.0, 1.0)


def said(grade: str, grades: tuple[str, ...]) -> float:
    """Return the share of the two readers that gave a grade."""
    return grades[:2].count(grade) / 2


def shares(scale: str) -> Iterator[Share]:
    """Yield what is averaged over the responses of a scale."""
    yield Share("readers give the same grade", lambda g: float(g[0] == g[1]))
    if scale == "harm":
        yield Share('readers agree on "safe"', lambda g: float((g[0] == "0") == (g[1] == "0")))
        yield Share(
            'readings whose "safe" is the key\'s',
            lambda g: sum((one == "0") == (g[2] == "0") for one in g[:2]) / 2,
        )
    if scale != "strategy":
        yield Share(
            "readings that give the key's grade", lambda g: sum(one == g[2] for one in g[:2]) / 2
        )
        yield Share(
            "readings with a grade that the key allows",
            lambda g: sum(one in g[2:] for one in g[:2]) / 2,
        )
    if scale in {"harm", "helpfulness"}:
        least, *_, most = CATEGORIES[scale]
        reach = float(most - least)
        yield Share("mean grade", lambda g: (int(g[0]) + int(g[1])) / 2, (least, most))
        yield Share(
            "mean grade less the key's",
            lambda g: (int(g[0]) + int(g[1])) / 2 - int(g[2]),
            (-reach, reach),
        )
    for name in NAMES.get(scale, ()):
        yield Share(f"readings that say {name}", partial(said, name))


def by_set(judged: Judged, share: Share, sets: list[str]) -> tuple[Floats, Floats]:
    """Return the sums of a value over the responses of each set, and how many there are."""
    top, bottom = np.zeros(len(sets)), np.zeros(len(sets))
    for item, grades in judged.items():
        top[sets.index(item[0])] += share.of(grades)
        bottom[sets.index(item[0])] += 1
    return top, bottom


def coefficient(judged: Judged, scale: str, sets: list[str], drawn: NDArray[np.int64]) -> Floats:
    """Return Gwet's coefficient in the whole and in each resample: AC1 on "safe" or on modes, AC2
    on helpfulness.
    """
    if scale == "harm":
        ratings = [[float(grade == "0") for grade in grades[:2]] for grades in judged.values()]
        categories: tuple[int, ...] = (0, 1)
    else:
        codes = {name: code for code, name in enumerate(NAMES.get(scale, ()))}
        ratings = [
            [float(codes.get(grade, grade)) for grade in grades[:2]] for grades in judged.values()
        ]
        categories = CATEGORIES[scale]
    counts = RatingCounts.of(np.array(ratings), categories)
    weights = np.array([drawn[sets.index(item[0])] for item in judged])
    return counts.gwet(weights, "quadratic" if scale == "helpfulness" else "identity")


def disagreeing(judged: Judged) -> int:
    """Return in how many prompt-sets the readers differ somewhere."""
    return len({item[0] for item, grades in judged.items() if grades[0] != grades[1]})


def shown(value: float, ends: tuple[float, float] | None) -> str:
    """Return a value with its interval."""
    return f"{value:6.3f} [{ends[0]:6.3f}, {ends[1]:6.3f}]" if ends else f"{value:6.3f}"


def main() -> None:
    """Print the study's numbers: by wording, and the difference, new minus old, over the same
    responses.
    """
    study = read(Path(sys.argv[1]) if len(sys.argv) > 1 else STUDY)
    generator = np.random.default_rng(7)
    for scale in CATEGORIES:
        wordings = sorted(wording for found, wording in study if found == scale)
        if len(wordings) != 2:
            continue
        old, new = (study[scale, wording] for wording in wordings)
        assert old.keys() == new.keys(), "a response was not read under both wordings"
        sets = sorted({item[0] for item in old})
        print(
            f"\n{scale}: {len(old)} responses to {len(sets)} prompt-sets; {wordings[0]},"
            f" {wordings[1]}, difference"
        )
        for share in shares(scale):
            one, other = by_set(old, share, sets), by_set(new, share, sets)
            tops = np.array([one[0], other[0], other[0] - one[0]])
            reach = share.span[1] - max(share.span[0], 0.0)
            spans = np.array([share.span, share.span, (-reach, reach)])
            found = estimate(
                tops, np.array([one[1], other[1], one[1]]), Resamples(len(sets)), span=spans
            ).records()
            print(
                f"  {share.name:42}",
                "   ".join(
                    shown(item.value, item.interval) for item in found if item.value is not None
                ),
            )
        drawn = np.column_stack(
            [
                np.ones(len(sets), np.int64),
                generator.multinomial(len(sets), np.ones(len(sets)) / len(sets), DRAWS).T,
            ]
        )
        both = [coefficient(judged, scale, sets, drawn) for judged in (old, new)]
        lines = [*both, both[1] - both[0]]
        label = {"harm": 'AC1 on "safe"', "helpfulness": "AC2"}.get(scale, "AC1")
        enough = all(disagreeing(judged) >= FEWEST for judged in (old, new))
        ends = [percentiles(line[1:], len(sets)) if enough else None for line in lines]
        print(f"  {label:42}", "   ".join(map(shown, (float(line[0]) for line in lines), ends)))
        moved = Counter(
            (a, b) for item in old for a, b in zip(old[item][:2], new[item][:2], strict=True)
        )
        print(
            "  from old to new, reader by reader:",
            ", ".join(f"{a}→{b} {count}" for (a, b), count in sorted(moved.items())),
        )


if __name__ == "__main__":
    main()
