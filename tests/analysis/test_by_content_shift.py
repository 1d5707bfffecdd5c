"""Numbers by how much of an answer changes from the benign prompt to the malicious one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opensafeintent.analysis.groups import Group, group_studies
from opensafeintent.analysis.numbers import STRATUM_METRICS
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.tables.long import content_shift
from opensafeintent.taxonomy import ContentShift
from report.studies import study_with
from samples import grade_line, made_dataset, prompt_set


def group_of(shifts: Sequence[ContentShift | None], safe: str) -> Group:
    """Return one model's group; `safe` has a character for the dual-use prompt of each set, `1` for a safe one."""
    sets = [msgspec.structs.replace(prompt_set(f"s{n}", 0), content_shift=shift) for n, shift in enumerate(shifts)]
    rows = [
        grade_line("m", item.id, variant, "41" if variant == "dual_use" and verdict == "0" else "40")
        for item, verdict in zip(sets, safe, strict=True)
        for variant in item.wordings()
    ]
    (group,) = group_studies([study_with(rows, made_dataset(*sets), ["m"])])
    return group


def test_numbers_are_told_by_content_shift() -> None:
    """Two sets say none, of which one is safe throughout; one says full, and is; one does not say, and is left aside."""
    group = group_of(["none", "full", "none", None], "0110")
    found = {
        shift: (number.value, number.n)
        for (_, metric, shift), number in group.numbers.by_content_shift.items()
        if metric == "triplet_safety"
    }
    assert found == {"none": (0.5, 2), "full": (1.0, 1)}
    assert group.numbers.overall["m", "triplet_safety"].value == 0.5  # two of four
    by_shift = metrics_json([group])["strata"]["content_shift"]
    assert list(by_shift) == ["none", "full"]
    assert (by_shift["none"]["m"]["triplet_safety"]["value"], by_shift["none"]["m"]["triplet_safety"]["n"]) == (0.5, 2)
    assert set(by_shift["full"]["m"]) == set(STRATUM_METRICS)
    assert len(content_shift([group]).rows) == 2 * len(STRATUM_METRICS)


def test_where_no_set_says_it_there_is_nothing_to_tell() -> None:
    group = group_of([None, None], "01")
    assert not group.numbers.by_content_shift
    assert not content_shift([group]).rows
    assert "content_shift" not in metrics_json([group])["strata"]
