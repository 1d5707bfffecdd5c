"""Tables 3 and 7 on cases worked by hand; samples with strata, sets and weights; labels that cannot
be used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from opensafeintent.errors import InputError
from opensafeintent.people.agreement import (
    JudgeStudy,
    OwnQuestionAgreement,
    QuestionAgreement,
    SharedErrors,
    gather_grades,
    measure_dataset_quality,
    measure_judge_study,
)
from opensafeintent.people.labels import (
    QUALITY_QUESTIONS,
    Answer,
    Answers,
    AskedQuestion,
    Label,
    LabelKind,
    OwnAnswer,
    read_labels,
    write_labels,
)
from opensafeintent.ratings import Ratings
from opensafeintent.report.tables_people import agreement_tables
from opensafeintent.statistics.samples import Sample
from opensafeintent.taxonomy import KnownGrades


def on_set(annotator: str, set_id: str, **answers: Answer) -> Label:
    place = {"annotator": annotator, "dataset": "d" * 64, "id": set_id}
    return Label(kind="dataset_quality", **place, answers=answers)


def on_response(
    annotator: str, number: int, harm: Answer | None, helpfulness: Answer | None, **fields: Any
) -> Label:
    answers = {"harm_severity": harm, "helpfulness": helpfulness}
    label_fields: dict[str, Any] = {
        **{"annotator": annotator, "dataset": "d" * 64, "id": f"s{number:03}"},
        **{"variant": "dual_use", "model": "m"},
        "answers": {name: grade for name, grade in answers.items() if grade is not None},
    }
    return Label(kind="judge_validation", **(label_fields | fields))


def answers_of(tmp_path: Path, kind: LabelKind, labels: Sequence[Label]) -> Answers:
    write_labels(labels, tmp_path / "labels.jsonl")
    return Answers(kind, read_labels(tmp_path / "labels.jsonl"))


def width(estimate: Any) -> float:
    assert estimate.interval
    return float(estimate.interval[1] - estimate.interval[0])


# Table 3
# ------------------------------------------------------------------------------


def quality_of(tmp_path: Path, rows: dict[str, str]) -> QuestionAgreement:
    """Return what letters say of one question, one letter for each annotator a, b, c …: y, n,
    u(nsure), `_` blank, space not returned.
    """
    words = {"y": "yes", "n": "no", "u": "unsure"}
    labels = [
        on_set(name, set_id, **({"same_topic": words[letter]} if letter in words else {}))
        for set_id, letters in rows.items()
        for name, letter in zip("abcd", letters, strict=False)
        if letter != " "
    ]
    quality = measure_dataset_quality(answers_of(tmp_path, "dataset_quality", labels))
    assert tuple(line.question for line in quality.questions) == QUALITY_QUESTIONS
    assert quality.sets == len(rows)
    return quality.questions[QUALITY_QUESTIONS.index("same_topic")]


def test_table_3_by_hand(tmp_path: Path) -> None:
    quality = quality_of(tmp_path, {"s1": "yyy", "s2": "yyn", "s3": "yuy", "s4": "n_ "})
    # s3 has an unsure and s4 a blank, and c did not return s4: nine answers of eleven labels
    assert (quality.yes, quality.no, quality.unsure, quality.blank, quality.sets_twice) == (
        7,
        2,
        1,
        1,
        3,
    )
    assert quality.yes_rate.value == pytest.approx(7 / 9)
    # the same ratings as in tests/statistics/test_agreement.py: p_a 7/9, AC1 3/5, α 0
    assert quality.percent_agreement.value == pytest.approx(7 / 9)
    assert quality.ac1.value == pytest.approx(3 / 5)
    assert quality.ac1.se == pytest.approx((17964 / 5625 / 12) ** 0.5)
    assert quality.alpha.value == pytest.approx(0.0)
    assert (quality.yes_rate.n, quality.ac1.n) == (4, 3)


def test_everyone_agrees_on_a_set(tmp_path: Path) -> None:
    quality = quality_of(tmp_path, {f"s{n}": "yyyy" for n in range(40)})
    assert (quality.ac1.value, quality.ac1.se, quality.percent_agreement.value) == (1.0, 0.0, 1.0)
    low, high = quality.ac1.interval or (0.0, 0.0)
    assert 0.8 < low < 1.0 == high  # 40 sets do not prove certainty
    undefined = (None, None, "every answer is the same")
    assert (quality.alpha.value, quality.alpha.interval, quality.alpha.undefined) == undefined


@pytest.mark.parametrize(
    ("rows", "yes_rate", "why"),
    [
        ({"s1": "y", "s2": "n"}, 1 / 2, "one annotator"),
        ({"s1": "y ", "s2": " n", "s3": "yu"}, 2 / 3, "two annotators"),
        ({"s1": "u_"}, None, "two annotators"),
    ],
)
def test_without_two_answers_there_is_no_agreement(
    rows: dict[str, str], yes_rate: float | None, why: str, tmp_path: Path
) -> None:
    quality = quality_of(tmp_path, rows)
    assert quality.yes_rate.value == (None if yes_rate is None else pytest.approx(yes_rate))
    for estimate in (quality.ac1, quality.percent_agreement, quality.alpha):
        assert (estimate.value, estimate.interval, estimate.n) == (None, None, 0)
        assert estimate.undefined and why in estimate.undefined


# Table 7
# ------------------------------------------------------------------------------

PEOPLE = [[0, 0, 1, 3], [2, 2, 2, 2]]
JUDGE = [1, 0]


def study(
    tmp_path: Path,
    harm: Sequence[Sequence[Answer | None]],
    judge: Sequence[int | None],
    fields: Sequence[dict[str, Any]] | None = None,
) -> JudgeStudy:
    """Make a study of harm grades, an item a row and a person a column; helpfulness is the grade
    plus 1.
    """
    labels = [
        on_response(
            name, number, grade, grade + 1 if isinstance(grade, int) else grade, **extra_fields
        )
        for number, (row, extra_fields) in enumerate(
            zip(harm, fields or [{}] * len(harm), strict=True)
        )
        for name, grade in zip("abcd", row, strict=False)
    ]
    grades = [
        {"j": KnownGrades() if grade is None else KnownGrades(grade + 1, grade)} for grade in judge
    ]
    answers = answers_of(tmp_path, "judge_validation", labels)
    return measure_judge_study(answers, gather_grades(grades, ["j"]))


def test_table_7_by_hand(tmp_path: Path) -> None:
    for line in study(tmp_path, PEOPLE, JUDGE).judges:  # helpfulness is harm plus 1 throughout
        # item 1: mean 1, judge 1: error 0. Item 2: mean 2, judge 0: error 2 (bias −2).
        assert line.mae.value == pytest.approx(1.0)
        assert line.bias.value == pytest.approx(-1.0)
        # means of the others on item 1: 4/3, 4/3, 1, 1/3 (left out: 0, 0, 1, 3), people 4/3, 4/3, 0
        # and 8/3 from them: mean 4/3; on item 2 always 2. Over items 2/3.
        assert line.leave_one_out.value == pytest.approx(2 / 3)
        assert (line.items, line.missing, line.mae.n) == (2, 0, 2)


def study_of_own(
    tmp_path: Path,
    said: dict[str, dict[str, str]],
    judges: Sequence[dict[str, dict[str, float]]],
    weights: Sequence[float] = (1.0, 1.0, 1.0),
) -> dict[str, OwnQuestionAgreement]:
    """Return the agreement on questions: by response, the letters of three people about each of its
    questions, as in `quality_of`.
    """
    words: dict[str, OwnAnswer] = {"y": "yes", "n": "no", "u": "unsure"}
    labels = [
        on_response(
            name,
            number,
            0,
            4,
            weight=weight,
            stratum=f"of weight {weight}" if len(set(weights)) > 1 else "",
            questions=tuple(AskedQuestion(one, "0" * 64) for one in questions),
            own_answers={
                one: words[letters[place]]
                for one, letters in questions.items()
                if letters[place] in words
            },
        )
        for number, (questions, weight) in enumerate(zip(said.values(), weights, strict=True))
        for place, name in enumerate("abc")
    ]
    answers = answers_of(tmp_path, "judge_validation", labels)
    grades = gather_grades([{"j": KnownGrades(4, 0)}] * len(said), ["j"])
    return {line.judge: line for line in measure_judge_study(answers, grades, judges).questions}


def test_agreement_on_own_questions_by_hand(tmp_path: Path) -> None:
    said = {"s0": {"a": "yyn", "b": "nnu"}, "s1": {"a": "y__"}, "s2": {}}
    judges: list[dict[str, dict[str, float]]] = [{"j": {"a": 1.0, "b": 1.0}}, {"j": {}}, {"j": {}}]
    own = study_of_own(tmp_path, said, judges)
    assert list(own) == ["", "j"]
    # pairs of people: 1/3 of s0 a, 1 of s0 b. π = (2/3 + 0 + 1)/3 = 5/9 yes, p_e = 40/81
    people, judge = own[""], own["j"]
    assert (people.answered, people.missing) == (2, 0)
    assert people.percent_agreement.value == pytest.approx(2 / 3)
    assert people.ac1.value == pytest.approx((2 / 3 - 40 / 81) / (41 / 81))
    # the judge is equal to 2/3 of the people on s0 a, to none on s0 b; it has no answer on s1 a.
    # π = (1 + (2/3 + 0)/2)/2 = 2/3 yes, p_e = 4/9
    assert (judge.answered, judge.missing) == (2, 1)
    assert judge.percent_agreement.value == pytest.approx(1 / 3)
    assert judge.ac1.value == pytest.approx((1 / 3 - 4 / 9) / (5 / 9))
    assert (judge.percent_agreement.n, judge.ac1.n) == (2, 2)
    assert judge.ac1.interval and judge.percent_agreement.interval


def test_own_questions_weigh_as_their_responses(tmp_path: Path) -> None:
    said = {"s0": {"a": "yyn", "b": "nnu"}, "s1": {"a": "y__"}, "s2": {"a": "___"}}
    judges = [{"j": {"a": 1.0, "b": 1.0}}, {"j": {"a": 0.0}}, {"j": {"a": 1.0}}]
    judge = study_of_own(tmp_path, said, judges, (1.0, 3.0, 1.0))["j"]
    # 2/3 and 0 of weight 1, 0 of weight 3; yes: judge 2/5, people (2/3 + 0 + 3)/5 = 11/15
    agreed, yes = 2 / 15, (2 / 5 + 11 / 15) / 2
    chance = 2 * yes * (1 - yes)
    assert (judge.answered, judge.missing) == (3, 0)  # a blank one is nobody's answer
    assert judge.percent_agreement.value == pytest.approx(agreed)
    assert judge.ac1.value == pytest.approx((agreed - chance) / (1 - chance))


def test_own_questions_that_nobody_or_no_judge_answered(tmp_path: Path) -> None:
    assert study_of_own(tmp_path, {"s0": {"a": "u__"}}, [{"j": {"a": 1.0}}], [1.0]) == {}
    own = study_of_own(tmp_path, {"s0": {"a": "yy_"}}, [{"j": {}}], [1.0])
    assert own[""].percent_agreement.value == 1.0
    judge = own["j"]
    assert (judge.answered, judge.missing, judge.ac1.value) == (0, 1, None)
    assert judge.percent_agreement.value is None and "by the judge" in judge.ac1.undefined
    assert list(study_of_own(tmp_path, {"s0": {"a": "yy_"}}, [{}], [1.0])) == [""]


def test_agreement_of_people_by_hand(tmp_path: Path) -> None:
    people = {line.question: line for line in study(tmp_path, PEOPLE, JUDGE).people}
    assert list(people) == ["safe", "helpfulness", "harm_severity"]
    # safe: item 1 has pairs 0-0 alike, 1-3 alike (both unsafe): 2 of 6; item 2 all 6. p_a 2/3.
    # π = (2/4 + 0)/2 = 1/4 safe; p_e = 2 · 1/4 · 3/4 = 3/8; AC1 = (2/3 − 3/8)/(5/8) = 7/15
    safe = people["safe"]
    assert (safe.coefficient, safe.responses_twice) == ("AC1", 2)
    assert safe.percent_agreement.value == pytest.approx(2 / 3)
    assert safe.gwet.value == pytest.approx(7 / 15)
    assert safe.percent_agreement.interval and safe.gwet.interval
    # harm: item 1 has one equal pair of 6: p_a (1/6 + 1)/2 = 7/12. With quadratic weights the pairs
    # 0-0, 0-1 twice, 0-3 twice and 1-3 are worth 1, 8/9, 0 and 5/9: (1 + 16/9 + 5/9)/6 = 5/9, and
    # p_a is 7/9. T = 4 + 2 · (3 · 8/9 + 2 · 5/9 + 0) = 104/9; π = (1/4, 1/8, 1/2, 1/8), so
    # Σ π(1 − π) = 21/32; p_e = 104/9/12 · 21/32 = 91/144; AC2 = (112/144 − 91/144)/(53/144)
    for scale in ("harm_severity", "helpfulness"):  # helpfulness is harm plus 1 throughout
        line = people[scale]
        assert line.coefficient == "AC2" and line.responses_twice == 2
        assert line.percent_agreement.value == pytest.approx(7 / 12)
        assert line.gwet.value == pytest.approx(21 / 53)


def test_agreement_of_people_needs_two_answers_and_takes_weights(tmp_path: Path) -> None:
    alone = study(tmp_path, [[0], [2]], [0, 2])
    assert [line.gwet.undefined for line in alone.people] == ["one annotator"] * 3
    assert "people_agreement" not in [table.name for table in agreement_tables(None, alone)]
    # unsure and blank are no answers; the agreeing item stands for three, the other for one
    harm: list[list[Answer | None]] = [[0, 0], [0, 2], [1, "unsure"], [None, 3]]
    weights = [{"weight": 3.0}, *[{"weight": 1.0}] * 3]
    result = study(tmp_path, harm, [0, 0, 1, 3], weights)
    assert [line.responses_twice for line in result.people] == [2, 2, 2]
    assert [line.percent_agreement.value for line in result.people] == pytest.approx([0.75] * 3)
    table = next(t for t in agreement_tables(None, result) if t.name == "people_agreement")
    assert "stratified" in table.notes[0] and len(table.rows) == 3


def test_what_is_missing_counts_nowhere(tmp_path: Path) -> None:
    people: list[list[Answer | None]] = [[0, 1, "unsure"], [2], ["unsure"], [3, 3, 3, 3]]
    harm = study(tmp_path, people, [0, 2, 1, None]).judges[1]
    # item 1: mean ½, judge 0; item 2: one person, judge alike; item 3: no grade of people; item 4:
    # none of the judge
    assert (harm.items, harm.missing) == (2, 1)
    assert harm.mae.value == pytest.approx((0.5 + 0) / 2)
    # one person has no others: item 1 alone, |0 − 1| and |1 − 0|
    assert (harm.leave_one_out.value, harm.leave_one_out.n) == (pytest.approx(1.0), 1)


@pytest.mark.parametrize(
    ("grades", "harm"),
    [([0, 3], 3), ([0, 0, 3, 3], 3), ([0, 0, 3], 0), ([0, 3, 3], 3), ([2], 2), ([0, 0, 0, 3], 0)],
)
def test_a_tie_is_not_safe(grades: list[int], harm: int) -> None:
    said = {str(index): {"harm_severity": float(grade)} for index, grade in enumerate(grades)}
    assert Ratings([said]).median("harm_severity").tolist() == [harm]


def test_catches_and_false_alarms_by_hand(tmp_path: Path) -> None:
    # safe for people: items 0–3 (majority); a tie (item 4) and item 5 are not
    people = [[0, 0, 0], [0, 0, 2], [0, 0, 0], [0, 0, 1], [0, 1, None], [3, 3, 3]]
    (agreement,) = study(tmp_path, people, [0, 0, 1, 0, 0, 2]).safe
    assert (agreement.false_alarms.value, agreement.false_alarms.n) == (0.25, 4)
    assert (agreement.catches_unsafe.value, agreement.catches_unsafe.n) == (0.5, 2)


def test_one_annotator_and_everyone_of_one_mind(tmp_path: Path) -> None:
    harm = study(tmp_path, [[0], [2], [3]], [0, 1, 3]).judges[1]
    assert (harm.mae.value, harm.bias.value) == (pytest.approx(1 / 3), pytest.approx(-1 / 3))
    assert (harm.leave_one_out.value, harm.leave_one_out.undefined) == (None, "one annotator")
    result = study(tmp_path, [[0, 0, 0]] * 50, [0] * 50)
    harm = result.judges[1]
    assert (harm.mae.value, harm.bias.value) == (0.0, 0.0)
    assert harm.mae.interval and harm.mae.interval[0] == 0.0 < harm.mae.interval[1] < 0.6
    assert harm.bias.interval and harm.bias.interval[0] < 0 < harm.bias.interval[1]
    assert result.safe[0].catches_unsafe.undefined


def shared(
    tmp_path: Path, people: Sequence[int], annotators: int = 3, **judges: Sequence[int | None]
) -> dict[tuple[str, ...], SharedErrors]:
    """Return the shared errors of judges, from harm grades; `annotators` people give each of them."""
    answers = answers_of(
        tmp_path,
        "judge_validation",
        [
            on_response(name, number, grade, 1)
            for number, grade in enumerate(people)
            for name in "abc"[:annotators]
        ],
    )
    given = [
        {judge: KnownGrades(1, harm) for judge, harm in zip(judges, item, strict=True)}
        for item in zip(*judges.values(), strict=True)
    ]
    grades = gather_grades(given, list(judges))
    return {errors.judges: errors for errors in measure_judge_study(answers, grades).errors}


def test_judges_that_make_the_same_errors_are_one(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    people = generator.integers(0, 2, 200).tolist()
    first = [
        grade if flip > 0.2 else 1 - grade
        for grade, flip in zip(people, generator.random(200), strict=True)
    ]
    other_judge = [
        grade if flip > 0.2 else 1 - grade
        for grade, flip in zip(people, generator.random(200), strict=True)
    ]
    correlations = shared(
        tmp_path, people, one=first, duplicate=first, other=other_judge, panel=first
    )
    assert correlations.keys() == {
        ("one", "duplicate"),
        ("one", "other"),
        ("duplicate", "other"),
        ("one", "duplicate", "other"),
    }
    same_errors = correlations["one", "duplicate"]
    assert same_errors.correlation.value == pytest.approx(1.0)
    assert same_errors.independent.value == pytest.approx(1.0)
    apart = correlations["one", "other"]
    errors = [np.array(judge) - np.array(people) for judge in (first, other_judge)]
    r = np.corrcoef(*errors)[0, 1]
    assert apart.correlation.value == pytest.approx(r)
    assert apart.correlation.interval
    assert apart.correlation.interval[0] < r < apart.correlation.interval[1]
    assert apart.independent.value == pytest.approx(2 / (1 + max(r, 0)), abs=1e-6)
    whole = correlations["one", "duplicate", "other"]
    mean = (1 + 2 * r) / 3
    assert whole.correlation.value == pytest.approx(mean)
    assert whole.independent.value == pytest.approx(3 / (1 + 2 * mean), abs=1e-6)
    assert whole.independent.interval and whole.independent.interval[1] <= 3


def test_shared_errors_of_judges_without_any(tmp_path: Path) -> None:
    (correlation,) = shared(
        tmp_path, [0, 1, 0, 2], one=[0, 1, 0, 2], other=[0, 0, 0, None]
    ).values()
    assert (correlation.correlation.value, correlation.correlation.n) == (None, 3)
    assert correlation.independent.value is None and correlation.independent.undefined
    assert not shared(tmp_path, [0, 1], one=[0, 0])


def test_two_people_cannot_tell_how_many_judges_a_panel_is_worth(tmp_path: Path) -> None:
    grades = {"one": [0, 1, 1, 0, 1], "other": [1, 1, 0, 0, 0]}
    (correlation,) = shared(tmp_path, [0, 1, 0, 1, 1], annotators=2, **grades).values()
    assert correlation.correlation.value is not None
    assert (
        correlation.independent.undefined
        == "fewer than three people, whose errors all judges share"
    )


# How the sample was drawn
# ------------------------------------------------------------------------------


def test_weights_give_what_a_census_gives(tmp_path: Path) -> None:
    # items that stand for two are the same as items that are there twice, for every value
    generator = np.random.default_rng(2)
    people = generator.integers(0, 4, size=(30, 3)).tolist()
    judge = generator.integers(0, 4, size=30).tolist()
    whole = study(tmp_path, [*people, *people[:10]], [*judge, *judge[:10]])
    weights = [{"weight": 2.0 if n < 10 else 1.0} for n in range(30)]
    sampled = study(tmp_path, people, judge, weights)
    for name in ("mae", "leave_one_out", "bias"):
        whole_value, sampled_value = (
            getattr(result.judges[1], name).value for result in (whole, sampled)
        )
        assert whole_value == pytest.approx(sampled_value), name
    caught = (item.safe[0].catches_unsafe.value for item in (whole, sampled))
    assert next(caught) == pytest.approx(next(caught))
    # one item stands for 9, the other for 1: MAE (9·2 + 1·0)/10; safe: the first is judged unsafe
    result = study(tmp_path, [[0], [0]], [2, 0], [{"weight": 9.0}, {"weight": 1.0}])
    assert result.weighted and result.safe[0].false_alarms.value == pytest.approx(0.9)
    assert [line.mae.value for line in result.judges] == pytest.approx([1.8, 1.8])


def test_a_stratified_sample_varies_within_strata_and_its_run_as_a_whole() -> None:
    # 500 items stand for 9,000 and 100 for 1,000: the variance of a stratified mean, Σ W_h² s_h² /
    # n_h · (1 − n_h/N_h), and that of the 10,000, which are a sample themselves
    generator = np.random.default_rng(8)
    values = np.concatenate([generator.normal(1.0, 0.3, 500), generator.normal(2.5, 0.2, 100)])
    common, rare = values[:500], values[500:]
    strata, weights = ["common"] * 500 + ["rare"] * 100, [18.0] * 500 + [10.0] * 100
    estimate = Sample(range(600), strata, weights).mean(values, (0.0, 3.0))
    assert estimate.value == pytest.approx(0.9 * common.mean() + 0.1 * rare.mean())
    within = 0.9**2 * common.var(ddof=1) / 500 * 17 / 18 + 0.1**2 * rare.var(ddof=1) / 100 * 9 / 10
    run = sum(
        share * (part.var() + (part.mean() - estimate.value) ** 2)
        for share, part in ((0.9, common), (0.1, rare))
    )
    spread = np.sqrt(within + run / 10_000)
    assert width(estimate) / (3.92 * spread) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("sizes", [(1, 30), (1, 1, 30), (1, 1, 1), (1,)])
def test_strata_of_one_unit_are_no_obstacle(sizes: tuple[int, ...]) -> None:
    strata = [number for number, size in enumerate(sizes) for _ in range(size)]
    values = np.arange(len(strata)) % 4 * 1.0
    estimate = Sample(range(len(strata)), strata, count=1000).mean(values, (0.0, 3.0))
    assert estimate.value == pytest.approx(values.mean())
    assert (
        estimate.interval is not None
        and estimate.interval[0] <= values.mean() <= estimate.interval[1]
    )


# Labels that cannot be used
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"weight": 2.0}, {"stratum": "other"}, {"unit": "set"}])
def test_labels_of_two_exports(tmp_path: Path, change: dict[str, Any]) -> None:
    labels = [on_response("a", 1, 0, 1), on_response("b", 1, 0, 1, **change)]
    with pytest.raises(InputError, match=r"line 2 \(b on .*\): drawn in another way than .*line 1"):
        answers_of(tmp_path, "judge_validation", labels)


def test_labels_of_responses_and_of_sets(tmp_path: Path) -> None:
    labels = [on_response("a", 1, 0, 1), on_response("b", 2, 0, 1, unit="set")]
    with pytest.raises(InputError, match="some are of a sample of responses, others of whole sets"):
        measure_judge_study(answers_of(tmp_path, "judge_validation", labels), Ratings([]))


OF_SET = {"kind": "dataset_quality", "variant": ""}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answers": {"helpfulness": 5}}, "helpfulness is 5; valid: 1, 2, 3, 4, unsure"),
        ({"answers": {"harm_severity": "2"}}, "harm_severity is '2'; valid: 0, 1, 2, 3, unsure"),
        ({"answers": {"same_topic": "yes"}}, "unknown question 'same_topic'; valid: helpfulness"),
        (OF_SET | {"answers": {"overall_quality": "yes"}}, "overall_quality is 'yes'; valid: good"),
        ({"model": ""}, "expected variant and model"),
        ({"kind": "dataset_quality"}, "expected variant and model"),
        ({"weight": 0}, "$.weight"),
        ({"epoch": 0}, "$.epoch"),
        ({"annotator": " "}, "$.annotator"),
    ],
)
def test_what_is_no_label_is_named_with_its_line(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "labels.jsonl"
    good = msgspec.to_builtins(on_response("a", 1, 0, 1))
    path.write_bytes(msgspec.json.encode(good) + b"\n\n" + msgspec.json.encode(good | change))
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        read_labels(path)
    assert str(refused.value).startswith(f"{path}, line 3: not a label: ")
    path.write_bytes(b"\n")
    with pytest.raises(InputError, match="holds no labels"):
        read_labels(path)


def test_two_annotators_with_one_name(tmp_path: Path) -> None:
    first_path, second_path = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    both = [on_set("ana", name, same_topic="yes") for name in ("s1", "s2")]
    write_labels(both, first_path)
    write_labels([on_set("ana", "s2", same_topic="no")], second_path)
    place = r"two.jsonl, line 1 \(ana on set s2\): .* at .*one.jsonl, line 2"
    with pytest.raises(InputError, match=place):
        Answers("dataset_quality", read_labels(first_path, second_path))
    # the rest of one person's return in another file is no second person
    write_labels([on_set("ana", "s3", same_topic="no")], second_path)
    assert Answers(
        "dataset_quality", read_labels(first_path, second_path, first_path)
    ).count_returned() == {"ana": 3}


def test_a_rate_without_a_miss_is_not_certain_if_heavy_responses_could_be_misses() -> None:
    """Specificity under the design of an export: 60 responses that the judge calls unsafe, all of
    them labelled, and 60 of 640 that it calls safe. The labels hold no miss.
    """
    judged_unsafe = np.array([1.0] * 60 + [0.0] * 60)
    unsafe = np.array([1.0] * 55 + [0.0] * 65)
    strata, weights = ["unsafe"] * 60 + ["safe"] * 60, [1.0] * 60 + [640 / 60] * 60
    estimate = Sample(range(120), strata, weights).ratio(unsafe * judged_unsafe, unsafe)
    assert estimate.value == 1.0
    # with two misses among the 60, about 21 of the run's unsafe responses would be missed
    assert estimate.interval and estimate.interval[0] < 55 / (55 + 2 * 640 / 60)
