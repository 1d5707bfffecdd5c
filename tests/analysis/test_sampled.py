"""Equally many sets of every cell, weighted back: numbers worked by hand, and those of the whole where cells are uniform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pytest

from opensafeintent.analysis.groups import Group, Study, group_studies
from opensafeintent.analysis.numbers import AVERAGE, EVERYWHERE
from opensafeintent.evaluation.manifest import ModelEntry
from opensafeintent.grades import GradeRow
from opensafeintent.metrics import METRICS
from opensafeintent.promptsets import Dataset, PromptSet, SampleRule, drawn
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.sentences import cautions
from opensafeintent.taxonomy import CORE_VARIANTS
from report.studies import many_sets, study_with
from samples import grade_line, made_dataset, prompt_set

JUDGE = "a/judge"
TWO_CELLS = made_dataset(
    *(prompt_set(f"a{n}") for n in range(4)), *(prompt_set(f"b{n}", domain="Fraud and Deception") for n in range(2))
)
"""A cell of four sets and one of two."""
SAFE, UNSAFE, LACKING = ("40", "40", "40"), ("40", "40", "12"), ("40", "40", "--")
"""Grades of benign, dual-use and malicious."""


def sample_of(dataset: Dataset, limit: int | None, rule: SampleRule) -> list[PromptSet]:
    chosen = {item.id for item in drawn(dataset.prompt_sets, limit, rule)}
    return [item for item in dataset.prompt_sets if item.id in chosen]


def rows_of(model: str, graded: Mapping[str, tuple[str, ...]], epoch: int = 1) -> Iterable[GradeRow]:
    for set_id, grades in graded.items():
        for variant, pair in zip(CORE_VARIANTS, grades, strict=True):
            missing = ("harm_severity:unparsed",) if pair == "--" else ()
            yield grade_line(model, set_id, variant, pair, missing=missing, by_judge={JUDGE: (None, None)}, epoch=epoch)


def group_of(
    models: Mapping[str, tuple[SampleRule, int | None]], rows: Iterable[GradeRow], dataset: Dataset = TWO_CELLS
) -> Group:
    study = study_with(list(rows), dataset, list(models), judge=JUDGE)
    entries = {
        model: ModelEntry(identity=model, judges=(JUDGE,), mode_judge=JUDGE, sample=rule, limit=limit, epochs=2)
        for model, (rule, limit) in models.items()
    }
    manifest = msgspec.structs.replace(study.manifest, models=entries)
    (group,) = group_studies([Study(study.name, manifest, study.dataset, study.rows)])
    return group


def first_of(cell: str) -> str:
    """Return the set that a sample of one takes from a cell."""
    return next(item.id for item in sample_of(TWO_CELLS, 1, "per_cell") if item.id.startswith(cell))


A, B = first_of("a"), first_of("b")


def test_cells_are_weighted_by_what_their_sets_stand_for() -> None:
    group = group_of({"m": ("per_cell", 1)}, rows_of("m", {A: SAFE, B: UNSAFE}))
    found = group.numbers.overall
    assert found["m", "triplet_safety"].value == pytest.approx(4 / 6)  # one set of 4, safe, and one of 2, not: (4·1 + 2·0)/6
    assert found["m", "triplet_safety"].n == 2
    assert found["m", "mean_safety"].value == pytest.approx((4 * 1 + 2 * 2 / 3) / 6)
    average = group.numbers.averages["triplet_safety", EVERYWHERE]
    assert (average.model, average.value) == (AVERAGE, pytest.approx(4 / 6))
    by_domain = group.numbers.strata["m", "triplet_safety", ("Fraud and Deception", None)]
    assert (by_domain.value, by_domain.n) == (0, 1)


def test_bounds_and_the_error_of_a_rerun_are_weighted_too() -> None:
    of_a, of_b = ([item.id for item in TWO_CELLS.prompt_sets if item.id.startswith(cell)] for cell in "ab")
    two = [item.id for item in sample_of(TWO_CELLS, 2, "per_cell") if item.id in of_a]
    grades = {two[0]: SAFE, two[1]: LACKING, of_b[0]: UNSAFE, of_b[1]: SAFE}
    found = group_of({"m": ("per_cell", 2)}, rows_of("m", grades)).numbers.overall["m", "triplet_safety"]
    # weights 2, 2, 1, 1 of the sets drawn: (2 + 0 + 1)/4 without the second, 3/6 and 5/6 if it were unsafe and safe
    assert found.value == pytest.approx(3 / 4)
    assert found.bounds == pytest.approx((3 / 6, 5 / 6))
    rows = [*rows_of("m", {A: SAFE, B: SAFE}), *rows_of("m", {A: UNSAFE, B: SAFE}, epoch=2)]
    found = group_of({"m": ("per_cell", 1)}, rows).numbers.overall["m", "triplet_safety"]
    # values of A are 1 and 0: s²/E = ½/2, of B 0; √(4²·¼ + 2²·0)/6
    assert (found.value, found.rerun_se) == (pytest.approx((4 * 0.5 + 2 * 1) / 6), pytest.approx(2 / 6, abs=1e-6))


@pytest.mark.parametrize("other", [("webster", None), ("webster", 3), ("per_cell", 2), ("rounds", 2)])
def test_unlike_samples_are_compared_on_the_smaller_one(other: tuple[SampleRule, int | None]) -> None:
    sets = sample_of(TWO_CELLS, other[1], other[0])
    theirs = {item.id: UNSAFE for item in sets} | {B: SAFE}
    rows = [*rows_of("m", {A: SAFE, B: UNSAFE}), *rows_of("n", theirs)]
    group = group_of({"m": ("per_cell", 1), "n": other}, rows)
    found = group.numbers.comparisons["triplet_safety"].pair(0, 1)
    assert found is not None
    assert (found.value, found.n) == (pytest.approx((4 * -1 + 2 * 1) / 6, abs=1e-6), 2)  # of A n − m is −1, of B 1
    assert found.p == 1  # two flips of unlike size: each sum is as far from 0 as −2 is, or farther
    (caution,) = [item for item in cautions(group, []) if "not asked about the same sample" in item.text]
    assert "weighted by what these stand for in the smaller sample" in caution.text


def test_models_that_are_not_weighted_are_not_touched_by_one_that_is() -> None:
    sets = {item.id: SAFE if item.id in ("a0", "b0") else UNSAFE for item in TWO_CELLS.prompt_sets}
    others = {item.id: SAFE if item.id == "a1" else UNSAFE for item in TWO_CELLS.prompt_sets}
    rows = [*rows_of("n", sets), *rows_of("o", others)]
    alone = group_of({"n": ("webster", None), "o": ("webster", None)}, rows)
    rows += rows_of("m", {A: SAFE, B: UNSAFE})
    beside = group_of({"m": ("per_cell", 1), "n": ("webster", None), "o": ("webster", None)}, rows)
    for model in "no":
        for metric in METRICS:
            assert beside.numbers.overall[model, metric] == alone.numbers.overall[model, metric]
    one, other = (found.numbers.comparisons["triplet_safety"] for found in (alone, beside))
    assert one.difference[0, 1] == other.difference[1, 2]


def test_where_cells_are_alike_within_a_sample_gives_what_the_dataset_does() -> None:
    dataset = many_sets(120, paraphrases=0)
    places = {cell: n for n, cell in enumerate(sorted({item.cell for item in dataset.prompt_sets}))}
    graded = {
        item.id: tuple(f"{1 + (places[item.cell] + n) % 4}{(places[item.cell] >> n) % 2}" for n in range(3))
        for item in dataset.prompt_sets
    }
    sampled = {item.id: graded[item.id] for item in sample_of(dataset, 2, "per_cell")}
    assert len(sampled) < len(graded)
    found = group_of({"m": ("per_cell", 2)}, rows_of("m", sampled), dataset).numbers.overall
    whole = group_of({"m": ("webster", None)}, rows_of("m", graded), dataset).numbers.overall
    for metric in METRICS:
        value = whole["m", metric].value
        assert found["m", metric].value == (None if value is None else pytest.approx(value))


def test_page_and_metrics_json_say_how_a_sample_was_drawn() -> None:
    group = group_of({"m": ("per_cell", 1)}, rows_of("m", {A: SAFE, B: UNSAFE}))
    assert group.extent == "2 of 6 prompt-sets, 1 of each cell, weighted by what they stand for"
    (caution,) = [item for item in cautions(group, []) if "weighted back" in item.text]
    assert "one set stands for 2 to 4 of the dataset's" in caution.text
    found = metrics_json([group])
    coverage = found["coverage"]["m"]
    assert (coverage.sample, coverage.limit, coverage.sets) == ("per_cell", 1, 2)
    assert found["groups"][0]["weighted"] == ["m"]
    old = group_of({"m": ("rounds", 2)}, rows_of("m", {item.id: SAFE for item in sample_of(TWO_CELLS, 2, "rounds")}))
    assert any("small cells count for more here" in item.text for item in cautions(old, []))
