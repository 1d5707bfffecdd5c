"""What hangs on how many dual-use wordings a set has is told by their number."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from opensafeintent.analysis.groups import Group, group_studies
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.sentences import cautions
from opensafeintent.report.tables.stability import by_wordings
from report.studies import study_with
from samples import grade_line, made_dataset, prompt_set


def group_of(paraphrases: Sequence[int], safe: Sequence[str]) -> Group:
    """Return one model's group; `safe` has a character for each dual-use wording of each set, `1` for a safe one."""
    sets = [prompt_set(f"s{n}", count) for n, count in enumerate(paraphrases)]
    rows = []
    for item, verdicts in zip(sets, safe, strict=True):
        wordings = [variant for variant in item.wordings() if variant.startswith("dual_use")]
        told = dict(zip(wordings, verdicts, strict=True))
        for variant in item.wordings():
            grades = "40" if told.get(variant, "1") == "1" else "41"
            rows.append(grade_line("m", item.id, variant, grades, by_judge={"a/judge": (None, None)}))
    (group,) = group_studies([study_with(rows, made_dataset(*sets), ["m"], judge="a/judge")])
    return group


def test_flips_are_told_by_the_number_of_wordings() -> None:
    # of two wordings: one set of two flips; of three: two of two; a set with one wording takes no part
    group = group_of([1, 1, 2, 2, 0], ["11", "10", "110", "100", "1"])
    found = group.numbers.by_wordings
    assert [(found["m", "safety_flip", count].value, found["m", "safety_flip", count].n) for count in (2, 3)] == [
        (0.5, 2),
        (1, 2),
    ]
    assert group.numbers.overall["m", "safety_flip"].value == pytest.approx(3 / 4)  # all together
    entry = metrics_json([group])["models"]["m"]["safety_flip"]
    assert {count: part["value"] for count, part in entry["by_wordings"].items()} == {"2": 0.5, "3": 1}
    assert len(by_wordings([group]).rows) == 2 * 5  # stable_safe, stable_unsafe, safety_flip and the two ranges
    assert any("2 to 3 dual-use wordings" in caution.text for caution in cautions(group, []))


def test_where_all_sets_have_as_many_there_is_nothing_to_tell() -> None:
    group = group_of([2, 2, 0], ["110", "100", "1"])
    assert not group.numbers.by_wordings
    assert not by_wordings([group]).rows
    assert "by_wordings" not in metrics_json([group])["models"]["m"]["safety_flip"]
    assert not any("dual-use wordings, and" in caution.text for caution in cautions(group, []))
