"""Table 7: a judge against people, on cases worked by hand; samples with strata, sets and
weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opensafeintent.annotation.answers import Answers, gather, read_all
from opensafeintent.annotation.judging import JudgeGrades, JudgeStudy, consensus, judge_study
from opensafeintent.annotation.labels import Answer, Label, write_labels
from opensafeintent.errors import InputError
from opensafeintent.statistics.samples import Sample

FAST = 1000
Pair = tuple[Answer | None, Answer | None]


def label(annotator: str, place: int, pair: Pair, **fields: Any) -> Label:
    answers = {
        name: grade
        for name, grade in zip(("helpfulness", "harm_severity"), pair, strict=True)
        if grade is not None
    }
    defaults: dict[str, Any] = {
        "id": f"s{place:03}",
        "variant": "dual_use",
        "model": "m",
        "response_sha256": "0" * 64,
    }
    return Label(
        kind="judge_validation",
        annotator=annotator,
        dataset="d" * 64,
        answers=answers,
        **(defaults | fields),
    )


def told(tmp_path: Path, labels: Sequence[Label]) -> Answers:
    write_labels(labels, tmp_path / "labels.jsonl")
    return gather(read_all([tmp_path / "labels.jsonl"]))["judge_validation"]


def study(
    tmp_path: Path,
    harm: Sequence[Sequence[Answer | None]],
    judge: Sequence[int | None],
    **fields: Any,
) -> JudgeStudy:
    """Make a study of harm grades, an item a row and a person a column; helpfulness is the grade
    plus 1.
    """
    labels = [
        label(name, place, (grade + 1 if isinstance(grade, int) else grade, grade), **fields)
        for place, row in enumerate(harm)
        for name, grade in zip("abcd", row, strict=False)
    ]
    grades = JudgeGrades(
        judge="j",
        harm_severity=tuple(judge),
        helpfulness=tuple(None if grade is None else grade + 1 for grade in judge),
    )
    return judge_study(told(tmp_path, labels), [grades], count=FAST)


# By hand
# ------------------------------------------------------------------------------

PEOPLE = [[0, 0, 1, 3], [2, 2, 2, 2]]
JUDGE = [1, 0]


def test_by_hand(tmp_path: Path) -> None:
    found = study(tmp_path, PEOPLE, JUDGE)
    for line in found.judges:  # helpfulness is harm plus 1 throughout: every difference is the same
        # item 1: mean 1, judge 1: error 0. Item 2: mean 2, judge 0: error 2 (bias −2).
        assert line.mae.value == pytest.approx(1.0)
        assert line.bias.value == pytest.approx(-1.0)
        # means of the others on item 1: 4/3, 4/3, 1, 1/3 (left out: 0, 0, 1, 3); on item 2 always
        # 2. people: 4/3, 4/3, 0, 8/3: mean 4/3; item 2: 0. Over items 2/3.
        assert line.leave_one_out.value == pytest.approx(2 / 3)
        # the judge's 1 against the same four: 1/3, 1/3, 0, 2/3: mean 1/3; item 2: 2. Over items
        # 7/6.
        assert line.fair.value == pytest.approx(7 / 6)
        assert line.excess.value == pytest.approx(7 / 6 - 2 / 3)
        assert (line.items, line.missing, line.mae.n) == (2, 0, 2)
    harm = found.judges[1]
    # upper median of 0 0 1 3 is 1: the judge's grade; of 2 2 2 2 it is 2, the judge says 0
    assert harm.confusion == ((0, 0, 1, 0), (0, 1, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0))
    assert harm.exact.value == 0.5
    # lower median of helpfulness 1 1 2 4 is 1, the judge's 2; of 3 3 3 3 it is 3, the judge's 1
    assert found.judges[0].confusion == ((0, 0, 1, 0), (1, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0))


def test_ac2_with_the_human_median_by_hand(tmp_path: Path) -> None:
    # three items, people all alike: harm 0, 0, 3; the judge 0, 1, 3. Quadratic worth of (0, 1): 1 −
    # 1/9 = 8/9
    found = study(tmp_path, [[0, 0], [0, 0], [3, 3]], [0, 1, 3]).judges[1]
    # p_a = (1 + 8/9 + 1)/3 = 26/27. π: 0 → (1 + 1/2)/3 = 1/2, 1 → 1/6, 3 → 1/3.
    # T = 4 + 2·(3·8/9 + 2·5/9 + 0) = 4 + 68/9 = 104/9; p_e = T/12 · (1/4 + 5/36 + 2/9) = 26/27 ·
    # 11/18
    observed, expected = 26 / 27, 26 / 27 * 11 / 18
    assert found.ac2.value == pytest.approx((observed - expected) / (1 - expected))


def test_what_is_missing_counts_nowhere(tmp_path: Path) -> None:
    people: list[list[Answer | None]] = [
        [0, 1, "unsure", None],
        [2, None, None, None],
        ["unsure", None, None, None],
        [3, 3, 3, 3],
    ]
    found = study(tmp_path, people, [0, 2, 1, None])
    harm, humans = found.judges[1], found.humans[1]
    # item 1: mean ½, judge 0; item 2: one person, judge alike; item 3: no grade of people; item 4:
    # none of the judge
    assert (harm.items, harm.missing) == (2, 1)
    assert harm.mae.value == pytest.approx((0.5 + 0) / 2)
    # one person has no others: item 1 alone, |0 − 1| and |1 − 0|; the judge against 1 and against 0
    assert (harm.leave_one_out.value, harm.leave_one_out.n) == (pytest.approx(1.0), 1)
    assert harm.fair.value == pytest.approx(0.5)
    # among people item 4 counts: 1 and 0 over two items
    assert humans.leave_one_out.value == pytest.approx(0.5)
    assert (humans.items, humans.items_twice, humans.unsure, humans.blank) == (3, 2, 2, 7)


def test_each_annotator_against_the_others(tmp_path: Path) -> None:
    humans = study(tmp_path, PEOPLE, JUDGE).humans[1]
    # d: 3 against 1/3, then 2 against 2: MAE 4/3, bias +4/3; a: 0 against 4/3, then 0: 2/3, −2/3
    found = {
        line.annotator: (line.mae.value, line.bias.value, line.items) for line in humans.annotators
    }
    assert found["d"] == (pytest.approx(4 / 3), pytest.approx(4 / 3), 2)
    assert found["a"] == (pytest.approx(2 / 3), pytest.approx(-2 / 3), 2)


@pytest.mark.parametrize(
    ("grades", "helpfulness", "harm"),
    [
        ([0, 3], 0, 3),
        ([0, 0, 3, 3], 0, 3),
        ([0, 0, 3], 0, 0),
        ([0, 3, 3], 3, 3),
        ([2], 2, 2),
        ([0, 0, 0, 3], 0, 0),
    ],
)
def test_a_tie_is_not_helpful_and_not_safe(grades: list[int], helpfulness: int, harm: int) -> None:
    ratings = np.array([[float(grade) for grade in grades] + [np.nan]])
    assert consensus(ratings, "helpfulness")[0] == helpfulness
    assert consensus(ratings, "harm_severity")[0] == harm


def test_sensitivity_and_specificity_by_hand(tmp_path: Path) -> None:
    # safe for people: items 0–3 (majority); a tie (item 4) and item 5 are not
    people = [[0, 0, 0], [0, 0, 2], [0, 0, 0], [0, 0, 1], [0, 1, None], [3, 3, 3]]
    found = study(tmp_path, people, [0, 0, 1, 0, 0, 2]).safe[0]
    assert (found.safe_safe, found.safe_unsafe, found.unsafe_safe, found.unsafe_unsafe) == (
        3,
        1,
        1,
        1,
    )
    assert (found.intent, found.sensitivity.value, found.specificity.value) == ("all", 0.75, 0.5)
    assert (found.sensitivity.n, found.specificity.n) == (4, 2)


def test_safe_by_intent_takes_paraphrases_with_their_prompt(tmp_path: Path) -> None:
    variants = ("benign", "dual_use_paraphrase_2", "dual_use")
    answers = told(
        tmp_path, [label("a", n, (1, 0), variant=variant) for n, variant in enumerate(variants)]
    )
    grades = JudgeGrades(judge="j", helpfulness=(1, 1, 1), harm_severity=(1, 0, 0))
    found = {line.intent: line for line in judge_study(answers, [grades], count=FAST).safe}
    assert (
        found["benign"].safe_unsafe,
        found["dual_use"].safe_safe,
        found["malicious"].safe_safe,
    ) == (1, 2, 0)
    assert found["malicious"].sensitivity.undefined == "no item is safe for people"


# Little, or nothing to go by
# ------------------------------------------------------------------------------


def test_one_annotator(tmp_path: Path) -> None:
    found = study(tmp_path, [[0], [2], [3]], [0, 1, 3])
    harm = found.judges[1]
    assert harm.mae.value == pytest.approx(1 / 3)
    assert harm.bias.value == pytest.approx(-1 / 3)
    for estimate in (
        harm.leave_one_out,
        harm.fair,
        harm.excess,
        found.humans[1].ac2,
        found.humans[1].alpha,
    ):
        assert (estimate.value, estimate.undefined) == (None, "one annotator")


def test_everyone_agreeing_on_everything(tmp_path: Path) -> None:
    found = study(tmp_path, [[0, 0, 0]] * 50, [0] * 50)
    harm, humans = found.judges[1], found.humans[1]
    assert (harm.mae.value, harm.fair.value, harm.bias.value, harm.ac2.value) == (
        0.0,
        0.0,
        0.0,
        1.0,
    )
    assert (
        harm.mae.interval is not None and harm.mae.interval[0] == 0.0 < harm.mae.interval[1] < 0.6
    )  # 50 items do not prove certainty
    assert harm.bias.interval is not None and harm.bias.interval[0] < 0 < harm.bias.interval[1]
    assert (humans.alpha.value, humans.alpha.undefined) == (None, "every answer is the same")
    assert found.safe[0].specificity.undefined == "no item is unsafe for people"


def test_people_alone(tmp_path: Path) -> None:
    found = judge_study(
        told(tmp_path, [label(name, n, (2, n)) for n in range(3) for name in "ab"]), count=FAST
    )
    assert (found.judges, found.safe) == ((), ())
    assert found.humans[1].percent_agreement.value == 1.0


# How the sample was drawn
# ------------------------------------------------------------------------------


def test_weights_make_the_sample_stand_for_all(tmp_path: Path) -> None:
    # one item stands for 9, the other for 1: MAE (9·2 + 1·0)/10, bias the same; safe: the first is
    # judged unsafe
    labels = [label("a", 0, (1, 0), weight=9.0), label("a", 1, (1, 0), weight=1.0)]
    grades = JudgeGrades(judge="j", helpfulness=(3, 1), harm_severity=(2, 0))
    found = judge_study(told(tmp_path, labels), [grades], count=FAST)
    assert found.weighted
    assert [line.mae.value for line in found.judges] == pytest.approx([1.8, 1.8])
    assert found.safe[0].sensitivity.value == pytest.approx(0.1)
    # counts stay what was seen; weighted ones sum to them
    assert found.judges[1].confusion == ((1, 0, 0, 0), (0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0))
    assert found.judges[1].confusion_weighted is not None
    assert [row[0] for row in found.judges[1].confusion_weighted] == pytest.approx(
        [0.2, 0.0, 1.8, 0.0]
    )


def test_weights_give_what_a_census_gives(tmp_path: Path) -> None:
    # items that stand for two are the same as items that are there twice, for every value
    generator = np.random.default_rng(2)
    people = generator.integers(0, 4, size=(30, 3))
    judge = generator.integers(0, 4, size=30)
    whole = study(
        tmp_path, [*people.tolist(), *people[:10].tolist()], [*judge.tolist(), *judge[:10].tolist()]
    )
    labels = [
        label(name, n, (int(people[n, k]) + 1, int(people[n, k])), weight=2.0 if n < 10 else 1.0)
        for n in range(30)
        for k, name in enumerate("abc")
    ]
    grades = JudgeGrades(
        judge="j",
        helpfulness=tuple(int(g) + 1 for g in judge),
        harm_severity=tuple(map(int, judge)),
    )
    sampled = judge_study(told(tmp_path, labels), [grades], count=FAST)
    for name in ("mae", "leave_one_out", "fair", "excess", "bias", "ac2", "exact"):
        values = [getattr(found.judges[1], name).value for found in (whole, sampled)]
        assert values[0] == pytest.approx(values[1]), name
    assert sampled.safe[0].specificity.value == pytest.approx(whole.safe[0].specificity.value)


def test_whole_sets_are_resampled_together(tmp_path: Path) -> None:
    # three responses of a set have the same error: over sets the interval is √3 times as wide as
    # over responses
    generator = np.random.default_rng(4)
    errors = generator.choice([0, 1, 2, 3], size=60)

    def width(unit: str) -> float:
        labels = [
            label("a", n, (1, 0), variant=variant, unit=unit)
            for n in range(60)
            for variant in ("benign", "dual_use", "malicious")
        ]
        harm = tuple(int(error) for error in errors for _ in range(3))
        grades = JudgeGrades(judge="j", helpfulness=(1,) * 180, harm_severity=harm)
        found = judge_study(told(tmp_path, labels), [grades], count=4000)
        assert (found.unit, found.units) == (unit, 60 if unit == "set" else 180)
        low, high = found.judges[1].mae.interval or (0.0, 0.0)
        return high - low

    assert width("set") / width("response") == pytest.approx(3**0.5, rel=0.08)


def test_a_set_of_two_models_is_two_units(tmp_path: Path) -> None:
    labels = [
        label("a", n, (1, 0), model=model, unit="set") for n in range(2) for model in ("m", "n")
    ]
    assert judge_study(told(tmp_path, labels), count=FAST).units == 4


def test_strata_are_resampled_within() -> None:
    # the standard error of a stratified mean: √(Σ W_h² s_h² / n_h), 500 items standing for 9,000
    # and 100 for 1,000
    generator = np.random.default_rng(8)
    values = np.concatenate([generator.normal(1.0, 0.3, 500), generator.normal(2.5, 0.2, 100)])
    strata = ["common"] * 500 + ["rare"] * 100
    weights = [18.0] * 500 + [10.0] * 100
    found = Sample(range(600), strata, weights).mean(values, "score", 3.0)
    spread = np.sqrt(
        0.9**2 * values[:500].var(ddof=1) / 500 + 0.1**2 * values[500:].var(ddof=1) / 100
    )
    assert found.value == pytest.approx(0.9 * values[:500].mean() + 0.1 * values[500:].mean())
    assert found.interval is not None
    assert (found.interval[1] - found.interval[0]) / (2 * 1.96 * spread) == pytest.approx(
        1.0, rel=0.05
    )


def test_small_strata_count_what_they_should() -> None:
    # a hundred strata of two and one of four hundred: one of two is drawn each time, and must stand
    # for both
    generator = np.random.default_rng(9)
    values = np.concatenate([generator.normal(2.5, 0.2, 200), generator.normal(1.0, 0.3, 400)])
    strata = [f"small {n // 2}" for n in range(200)] + ["large"] * 400
    found = Sample(range(600), strata).mean(values, "score", 3.0)
    within = (
        sum(values[n : n + 2].var(ddof=1) * 2 for n in range(0, 200, 2))
        + values[200:].var(ddof=1) * 400
    )
    assert found.value is not None and found.interval is not None
    assert sum(found.interval) / 2 == pytest.approx(found.value, abs=0.01)
    assert (found.interval[1] - found.interval[0]) / (
        2 * 1.96 * np.sqrt(within) / 600
    ) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("sizes", [(1, 30), (1, 1, 30), (1, 1, 1), (1,)])
def test_strata_of_one_unit_are_no_obstacle(sizes: tuple[int, ...]) -> None:
    strata = [number for number, size in enumerate(sizes) for _ in range(size)]
    values = np.arange(len(strata)) % 4 * 1.0
    found = Sample(range(len(strata)), strata, count=FAST).mean(values, "score", 3.0)
    assert found.value == pytest.approx(values.mean())
    assert found.interval is not None and found.interval[0] <= values.mean() <= found.interval[1]


@pytest.mark.parametrize(
    "change",
    [{"weight": 2.0}, {"stratum": "other"}, {"unit": "set"}],
    ids=["weight", "stratum", "unit"],
)
def test_labels_of_two_exports(tmp_path: Path, change: dict[str, Any]) -> None:
    answers = told(tmp_path, [label("a", 1, (1, 0)), label("b", 1, (1, 0), **change)])
    with pytest.raises(
        InputError,
        match=r"set s001, dual_use, m: the labels of a, b disagree on how it was sampled",
    ):
        judge_study(answers, count=FAST)
    mixed = told(tmp_path, [label("a", 1, (1, 0)), label("b", 2, (1, 0), unit="set")])
    with pytest.raises(
        InputError, match="labels: some are of a sample of responses, others of whole sets"
    ):
        judge_study(mixed, count=FAST)


# Labels that cannot be used
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "fields", "words"),
    [
        ((5, 0), {}, "helpfulness is 5; valid: 1, 2, 3, 4, unsure"),
        ((0, 0), {}, "helpfulness is 0; valid: 1, 2, 3, 4, unsure"),
        ((1, "2"), {}, "harm_severity is '2'; valid: 0, 1, 2, 3, unsure"),
        ((1, 0), {"model": ""}, "expected variant and model with judge_validation"),
        ((1, 0), {"weight": 0.0}, "weight 0.0; expected a number above 0"),
        ((1, 0), {"annotator": " "}, "has no annotator"),
    ],
)
def test_labels_that_cannot_be(
    tmp_path: Path, pair: Pair, fields: dict[str, Any], words: str
) -> None:
    import msgspec

    wrong = msgspec.structs.replace(label("a", 1, pair), **fields)
    with pytest.raises(InputError) as refused:
        told(tmp_path, [wrong])
    assert "labels.jsonl, label 1 (" in str(refused.value) and words in str(refused.value)


def test_self_consistency_of_grades(tmp_path: Path) -> None:
    from opensafeintent.annotation.quality import self_consistency

    labels = [label("a", 1, (1, 0)), label("a", 1, (3, 0), repeat=True)]
    whole = self_consistency(told(tmp_path, labels))[0]
    assert (whole.same, whole.pairs, whole.share, whole.difference) == (1, 2, 0.5, 1.0)
