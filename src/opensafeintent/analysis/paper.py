"""The paper's known figures beside those of a run on its dataset (arXiv 2607.02047v1, sections 3.1
and 4.2).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from opensafeintent.analysis.cohort import Cohort
from opensafeintent.analysis.estimates import EVERYWHERE, MetricEstimate
from opensafeintent.metrics import METRICS, Unit
from opensafeintent.promptsets.published import PAPER_DATASET_HASH, RUBRIC_HASHES

PAPER_JUDGE = "anthropic/claude-sonnet-4-6"

_FIGURES: tuple[tuple[str, Literal["best", "average"], float], ...] = (
    ("mean_utility", "best", 0.56),
    ("mean_utility", "average", 0.42),
    ("worst_case_utility", "average", 0.44),
    ("dual_use_utility", "average", 0.48),
    ("benign_to_dual_use_drop", "average", 0.04),
    ("stable_safe", "average", 0.5324),
    ("stable_unsafe", "average", 0.2139),
    ("safety_flip", "average", 0.2537),
)
"""Metric, of which of its twenty models, and its value; the tables of single models are not known
to us as text.
"""


class Beside(NamedTuple):
    """A figure of the paper, and the same of a run."""

    label: str
    unit: Unit
    paper: float
    here: MetricEstimate | None
    """Of the best model, or the average over models; None if there is none."""


def same_as_paper(cohort: Cohort) -> dict[str, bool]:
    """Tell whether a cohort shares each with the paper: the dataset, the rubrics with the reading
    of grades, and the judge.
    """
    conditions = cohort.conditions
    templates = dict(conditions.templates)
    rubrics = all(templates.get(role) == digest for role, digest in RUBRIC_HASHES.items())
    return {
        "dataset": conditions.dataset == PAPER_DATASET_HASH,
        "rubric": rubrics and conditions.parse == "paper",
        "judge": conditions.judges == (PAPER_JUDGE,),
    }


def beside_paper(cohort: Cohort) -> list[Beside]:
    """Return the paper's figures beside a cohort's; none on another dataset, or if all models are
    baselines.
    """
    models = cohort.estimates.averaged
    if not models or not same_as_paper(cohort)["dataset"]:
        return []
    rows = []
    for metric, of, value in _FIGURES:
        if of == "average":
            here = cohort.estimates.averages.get((metric, EVERYWHERE))
        else:
            defined = [cohort.estimates.overall[model, metric] for model in models]
            here = max(
                (number for number in defined if number.value is not None),
                key=lambda number: number.value if number.value is not None else 0.0,
                default=None,
            )
        which = "best model" if of == "best" else "model average"
        rows.append(Beside(f"{METRICS[metric].label}, {which}", METRICS[metric].unit, value, here))
    return rows
