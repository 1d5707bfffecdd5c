"""How long does a report take, and do its intervals agree with scipy's?

Simulates 20 models on 700 prompt-sets and times each step of a report with 10,000 resamples; then runs
scipy.stats.bootstrap on the same metric of one model and prints both intervals.

    python benchmarks/report.py [--models 20] [--sets 700]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from coverage import VARIANTS, WORLDS, simulate
from opensafeintent.evaluation.manifest import DatasetEntry, Manifest, ModelEntry
from opensafeintent.grades import GradeRow
from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.report.figures import all_figures, write_figures
from opensafeintent.report.groups import Group, Study, group_studies
from opensafeintent.report.metrics_json import metrics_json, to_json
from opensafeintent.report.page import render_page
from opensafeintent.report.tables import all_tables, write_tables
from opensafeintent.taxonomy import MODES, STRATEGIES, default_taxonomy

T = TypeVar("T")


def simulated_study(models: int, sets: int) -> Study:
    """A run of simulated models, no two alike, with two percent of the grades missing."""
    taxonomy = default_taxonomy()
    prompt_sets = tuple(
        PromptSet(
            id=f"set-{n:04d}",
            harm_domain=taxonomy.cells[n % 42][0],
            task_type=taxonomy.cells[n % 42][1],
            underlying_task=f"task {n}",
            prompts=Prompts(benign=f"benign {n}", dual_use=f"dual use {n}", malicious=f"malicious {n}"),
            dual_use_paraphrases=tuple(f"paraphrase {k} of {n}" for k in range(1, 5)),
        )
        for n in range(sets)
    )
    dataset = Dataset("simulated", prompt_sets, taxonomy)
    generator = np.random.default_rng(1)
    rows = []
    names = [f"simulated/model-{n:02d}" for n in range(models)]
    for number, model in enumerate(names):
        array = simulate(WORLDS[number % len(WORLDS)], 1, sets, seed=number)
        values = {name: array[name].values[0, ..., 0] for name in ("helpfulness", "harm_severity", "mode", "strategy")}
        gone = generator.random((sets, len(VARIANTS))) < 0.02
        for place, prompt_set in enumerate(prompt_sets):
            for at, variant in enumerate(VARIANTS):
                missing = bool(gone[place, at])
                mode, strategy = values["mode"][place, at], values["strategy"][place, at]
                rows.append(
                    GradeRow(
                        model=model,
                        set_id=prompt_set.id,
                        variant=variant,
                        epoch=1,
                        helpfulness=None if missing else int(values["helpfulness"][place, at]),
                        harm_severity=None if missing else int(values["harm_severity"][place, at]),
                        mode=MODES[int(mode)] if variant == "dual_use" else None,
                        strategy=None if np.isnan(strategy) else STRATEGIES[int(strategy)],
                        stop_reason="stop",
                        truncated=False,
                        refused="",
                        missing=("helpfulness:unparsed", "harm_severity:unparsed") if missing else (),
                        by_judge={"simulated/judge": (None, None)},
                    )
                )
    entry = DatasetEntry(name="simulated", hash=dataset.hash, sets=sets, taxonomy=taxonomy)
    listed = {name: ModelEntry(identity=name, judges=("simulated/judge",), mode_judge="simulated/judge") for name in names}
    return Study("simulated", Manifest(version="0", dataset=entry, models=listed), dataset, rows)


def timed(what: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    result = work()
    print(f"{what:<34}{time.perf_counter() - started:>7.2f} s", flush=True)
    return result


def beside_scipy(group: Group, metric: str, place: int) -> None:
    from scipy.stats import bootstrap

    ratio = group.ratios[metric]
    top, bottom = ratio.numerator.values[place], ratio.denominator.values[place]

    def statistic(tops: np.ndarray, bottoms: np.ndarray, axis: int = -1) -> np.ndarray:
        return tops.sum(axis=axis) / bottoms.sum(axis=axis)

    started = time.perf_counter()
    theirs = bootstrap(
        (top, bottom),
        statistic,
        paired=True,
        n_resamples=10_000,
        method="percentile",
        batch=500,
        rng=np.random.default_rng(3),
    )
    seconds = time.perf_counter() - started
    low, high = theirs.confidence_interval
    found = group.estimates[metric]
    half = (high - low) / 2
    print(
        f"{metric:<22} ours [{found.low[place]:.4f}, {found.high[place]:.4f}] {found.method[place]}   "
        f"scipy [{low:.4f}, {high:.4f}] in {seconds:.2f} s   "
        f"ends differ by {max(abs(found.low[place] - low), abs(found.high[place] - high)) / half:.1%} of the half-width"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--sets", type=int, default=700)
    options = parser.parse_args()
    study = simulated_study(options.models, options.sets)
    print(f"{options.models} models × {options.sets} prompt-sets × 10,000 resamples\n")
    started = time.perf_counter()
    [group] = timed("grades to metrics", lambda: group_studies([study]))
    timed("estimates of all metrics", lambda: group.estimates)
    timed("bounds for missing grades", lambda: group.bounds)
    timed("comparisons of all pairs", lambda: group.comparisons)
    timed("metrics.json, strata included", lambda: to_json(metrics_json([group])))
    with tempfile.TemporaryDirectory() as folder:
        tables = timed("tables", lambda: all_tables([group]))
        timed("tables written", lambda: write_tables(tables, Path(folder) / "tables"))
        figures = timed("figures", lambda: all_figures([group]))
        timed("figures written, in three formats", lambda: write_figures(figures, Path(folder) / "figures"))
        page = timed("page", lambda: render_page([group], [study], tables, figures, {}, include_unsafe=False))
        print(f"{'size of the page':<34}{len(page) / 1e6:>7.1f} MB")
    print(f"{'everything':<34}{time.perf_counter() - started:>7.2f} s")
    print(f"{'peak memory':<34}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:>7.0f} MB\n")
    for metric in ("triplet_safety", "mean_utility", "unsafe_rate_A4", "utility_range_safe_only"):
        beside_scipy(group, metric, 0)


if __name__ == "__main__":
    main()
