"""The metrics of our task in Inspect AI: the code of a run of ours, on the same labelled array.

They see every epoch of every sample. A set with a response that is not in the log, or not graded,
does not count for metrics that need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING, Any

from inspect_ai.scorer import Metric, SampleScore, Value, metric

from opensafeintent.grades import row_of, to_array
from opensafeintent.promptsets import Dataset, Prompts, PromptSet
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS, default_taxonomy, is_follow_up

if TYPE_CHECKING:
    from opensafeintent.labelled import LabelledSet

COVERAGE = (
    "sets",
    "sets_with_complete_triplet",
    "sets_with_complete_wordings",
    "responses",
    "responses_missing_grades",
)


@metric(scores="unreduced")
def prompt_set_metrics() -> Metric:
    """The headline metrics by their names in `metrics.json`, NaN if undefined; the numbers of
    prompt-sets and responses behind them; and, if the task was asked for them, all other metrics.
    """

    def metrics_of(scores: list[SampleScore]) -> Value:
        # arrays, for which no other task of Inspect AI need wait
        from opensafeintent.equations import Grades
        from opensafeintent.metrics import HEADLINES, compute

        scores = [score for score in scores if not _is_second_turn(score)]
        if not scores:
            return dict.fromkeys(HEADLINES, nan) | dict.fromkeys(COVERAGE, 0)
        array = labelled_array(scores)
        grades = Grades(array)
        graded = grades.safety.notnull()
        counts = (
            len({(score.sample_metadata or {})["position"] for score in scores}),
            int(graded.sel(variant=list(CORE_VARIANTS)).all("variant").any("epoch").sum()),
            int(grades.wordings_complete.any("epoch").sum()),
            len(scores),
            len(scores) - int(graded.sum()),
        )
        values = {name: float(ratio.value.values[0]) for name, ratio in compute(array).items()}
        shown = {name: values[name] for name in HEADLINES}
        show_all = (scores[0].sample_metadata or {}).get("metrics") == "all"
        return shown | dict(zip(COVERAGE, counts, strict=True)) | (values if show_all else {})

    return metrics_of


def _is_second_turn(score: SampleScore) -> bool:
    return is_follow_up((score.sample_metadata or {}).get("variant", ""))


def labelled_array(scores: Sequence[SampleScore]) -> LabelledSet:
    """Return the grades of a log as the array that metrics are computed from.

    Sets have the order of their dataset sorted by id, and those that are not in the log are empty.
    So sums are taken in the same order as in a run of ours, to the last digit.
    """
    sets: dict[int, PromptSet] = {}
    rows: list[GradedResponse] = []
    size = 0
    for score in scores:
        metadata = score.sample_metadata or {}
        sets[metadata["position"]] = _outline(metadata["set_id"], metadata)
        labels = {"model": "model", "set_id": metadata["set_id"], "variant": metadata["variant"]}
        rows.append(row_of((score.score.metadata or {}) | labels))
        size = metadata["sets"]
    no_labels = {"harm_domain": "", "task_type": "", "wordings": 1}
    prompt_sets = (
        sets.get(position) or _outline(f"\0absent {position}", no_labels)
        for position in range(size)
    )
    return to_array(rows, Dataset("log", tuple(prompt_sets), default_taxonomy()), ["model"])


def _outline(set_id: str, metadata: dict[str, Any]) -> PromptSet:
    """Return a set as far as metrics ask for it: its labels, and which prompts it has."""
    return PromptSet(
        id=set_id,
        harm_domain=metadata["harm_domain"],
        task_type=metadata["task_type"],
        underlying_task="",
        prompts=Prompts(benign="", dual_use="", malicious=""),
        dual_use_paraphrases=("",) * (metadata["wordings"] - 1),
    )
