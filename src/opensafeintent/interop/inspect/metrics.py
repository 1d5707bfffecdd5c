"""The metrics of the benchmark over the samples of an Inspect AI log: the same code on the same labelled array.

They see every epoch of every sample. A set with a response that is not in the log, or not graded, does not count where it is
needed, as in a run of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

import msgspec
from inspect_ai.scorer import Metric, SampleScore, Value, metric

from opensafeintent.grades import GradeRow, to_array
from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.taxonomy import CORE_VARIANTS, default_taxonomy

if TYPE_CHECKING:
    from opensafeintent.labelled import LabelledSet

__all__ = ["labelled_array", "prompt_set_metrics", "set_coverage"]

_MODEL = "model"


@metric(scores="unreduced")
def prompt_set_metrics() -> Metric:
    """Every metric of the benchmark by its name in `metrics.json`; NaN where it is undefined."""

    def metrics_of(scores: list[SampleScore]) -> Value:
        from opensafeintent.metrics import METRICS, compute  # arrays, for which no other task of Inspect AI need wait

        array = labelled_array(scores)
        if array is None:
            return dict.fromkeys(METRICS, nan)
        return {name: float(ratio.value.values[0]) for name, ratio in compute(array).items()}

    return metrics_of


@metric(scores="unreduced")
def set_coverage() -> Metric:
    """How many prompt-sets and responses stand behind the metrics."""

    def coverage_of(scores: list[SampleScore]) -> Value:
        from opensafeintent.metrics import Grades

        array = labelled_array(scores)
        names = ("sets", "sets_with_complete_triplet", "sets_with_complete_wordings", "responses", "responses_missing_grades")
        if array is None:
            return dict.fromkeys(names, 0)
        grades = Grades(array)
        present = len({_place(score) for score in scores})
        triplets = grades.safety.sel(variant=list(CORE_VARIANTS)).notnull().all("variant").any("epoch")
        counted = int(grades.safety.notnull().sum())
        wordings = grades.wordings_complete.any("epoch")
        counts = (present, int(triplets.sum()), int(wordings.sum()), len(scores), len(scores) - counted)
        return dict(zip(names, counts, strict=True))

    return coverage_of


def labelled_array(scores: Sequence[SampleScore]) -> LabelledSet | None:
    """Return the grades of a log as the array that metrics are computed from; None where there are none.

    Sets stand where they stand in their dataset, those that are not in the log empty: sums are taken in the same order as in
    a run of ours, to the last digit.
    """
    about = [(_about(score), score) for score in scores if _has_grades(score)]
    if not about:
        return None
    present: dict[int, PromptSet] = {}
    rows: list[GradeRow] = []
    for metadata, score in about:
        present.setdefault(metadata["position"], _outline(metadata))
        record = (score.score.metadata or {}) | {name: metadata[name] for name in ("set_id", "variant")}
        rows.append(msgspec.convert(record | {"model": _MODEL}, GradeRow))
    size = max(max(present) + 1, *(int(metadata["sets"]) for metadata, _ in about))
    sets = tuple(present.get(place) or _absent(place) for place in range(size))
    return to_array(rows, Dataset("log", sets, default_taxonomy()), [_MODEL])


def _about(score: SampleScore) -> Mapping[str, Any]:
    return score.sample_metadata or {}


def _place(score: SampleScore) -> int:
    return int(_about(score).get("position", -1))


def _has_grades(score: SampleScore) -> bool:
    return "position" in _about(score) and "epoch" in (score.score.metadata or {})


def _outline(metadata: Mapping[str, Any]) -> PromptSet:
    """Return a set as far as metrics ask for it: its labels, and which prompts it has."""
    return PromptSet(
        id=metadata["set_id"],
        harm_domain=metadata["harm_domain"],
        task_type=metadata["task_type"],
        underlying_task="",
        prompts=Prompts(benign="", dual_use="", malicious=""),
        dual_use_paraphrases=("",) * (int(metadata["wordings"]) - 1),
    )


def _absent(place: int) -> PromptSet:
    outline = {"set_id": f"\0absent {place}", "harm_domain": "", "task_type": "", "wordings": 1}
    return _outline(outline)
