"""Table 3: yes rates and agreement on dataset quality, the sets to drop, and self-consistency."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opensafeintent.annotation.answers import Answers, gather, read_all
from opensafeintent.annotation.labels import QUALITY_QUESTIONS, Answer, Label, write_labels
from opensafeintent.annotation.quality import Question, dataset_quality, self_consistency
from opensafeintent.errors import InputError

FAST = 1000


def label(annotator: str, set_id: str, *, repeat: bool = False, **answers: Answer) -> Label:
    return Label(
        kind="dataset_quality",
        annotator=annotator,
        dataset="d" * 64,
        id=set_id,
        answers=dict(answers),
        repeat=repeat,
    )


def told(tmp_path: Path, *labels: Label) -> Answers:
    write_labels(labels, tmp_path / "labels.jsonl")
    return gather(read_all([tmp_path / "labels.jsonl"]))["dataset_quality"]


def by_letters(rows: dict[str, str], question: str = "same_topic") -> list[Label]:
    """Make labels from a letter for each annotator a, b, c …: y, n, u(nsure), `_` blank, space not
    returned.
    """
    words: dict[str, dict[str, Any]] = {
        "y": {question: "yes"},
        "n": {question: "no"},
        "u": {question: "unsure"},
        "_": {},
        "g": {question: "good"},
        "p": {question: "poor"},
    }
    return [
        label(name, set_id, **words[letter])
        for set_id, letters in rows.items()
        for name, letter in zip("abcd", letters, strict=False)
        if letter != " "
    ]


def question_of(answers: Answers, name: str = "same_topic") -> Question:
    quality = dataset_quality(answers, count=FAST)
    return next(line for line in quality.questions if line.question == name)


# Numbers
# ------------------------------------------------------------------------------

HAND = {"s1": "yyy", "s2": "yyn", "s3": "yuy", "s4": "n_ "}


def test_by_hand(tmp_path: Path) -> None:
    found = question_of(told(tmp_path, *by_letters(HAND)))
    # s3 has an unsure and s4 a blank, and c did not return s4: nine answers of eleven labels
    assert (found.yes, found.no, found.unsure, found.blank, found.sets_twice) == (7, 2, 1, 1, 3)
    assert found.yes_rate.value == pytest.approx(7 / 9)
    # the same ratings as in tests/statistics/test_agreement.py: p_a 7/9, AC1 3/5, α 0
    assert found.percent_agreement.value == pytest.approx(7 / 9)
    assert found.ac1.value == pytest.approx(3 / 5)
    assert found.ac1.se == pytest.approx((17964 / 5625 / 12) ** 0.5)
    assert found.alpha.value == pytest.approx(0.0)
    assert (found.yes_rate.n, found.ac1.n) == (4, 3)


def test_every_question_is_there_with_its_own_answers(tmp_path: Path) -> None:
    labels = [
        label(
            name,
            "s1",
            **{
                question: "good" if question == "overall_quality" else "yes"
                for question in QUALITY_QUESTIONS
            },
        )
        for name in "ab"
    ]
    quality = dataset_quality(told(tmp_path, *labels), count=FAST)
    assert tuple(line.question for line in quality.questions) == QUALITY_QUESTIONS
    assert all(line.yes == 2 and line.yes_rate.value == 1.0 for line in quality.questions)
    assert (quality.annotators, quality.sets) == ({"a": 1, "b": 1}, 1)


def test_everyone_agreeing_on_everything(tmp_path: Path) -> None:
    found = question_of(told(tmp_path, *by_letters({f"s{n}": "yyyy" for n in range(40)})))
    assert (found.ac1.value, found.ac1.se) == (1.0, 0.0)
    assert (
        found.ac1.interval is not None
        and 0.8 < found.ac1.interval[0] < 1.0 == found.ac1.interval[1]
    )  # 40 sets do not prove certainty
    assert found.percent_agreement.value == 1.0
    assert (found.alpha.value, found.alpha.interval, found.alpha.undefined) == (
        None,
        None,
        "every answer is the same",
    )


def test_one_annotator_has_no_agreement(tmp_path: Path) -> None:
    found = question_of(told(tmp_path, *by_letters({"s1": "y", "s2": "n"})))
    assert found.yes_rate.value == 0.5
    for estimate in (found.ac1, found.percent_agreement, found.alpha):
        assert (estimate.value, estimate.interval, estimate.n, estimate.undefined) == (
            None,
            None,
            0,
            "one annotator",
        )


def test_no_set_answered_by_two(tmp_path: Path) -> None:
    found = question_of(told(tmp_path, *by_letters({"s1": "y ", "s2": " n", "s3": "yu"})))
    assert found.ac1.undefined == found.alpha.undefined == "no item was answered by two annotators"
    assert found.yes_rate.value == pytest.approx(2 / 3)


def test_a_question_that_nobody_answered(tmp_path: Path) -> None:
    found = question_of(told(tmp_path, *by_letters({"s1": "u_"})))
    assert (found.yes_rate.value, found.yes_rate.undefined) == (None, "no answers")
    assert (found.unsure, found.blank) == (1, 1)


def test_intervals_are_over_sets_and_the_same_every_time(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    rows = {
        f"s{n}": "".join("y" if hit else "n" for hit in generator.random(4) < 0.75)
        for n in range(200)
    }
    answers = told(tmp_path, *by_letters(rows))
    first, again = (dataset_quality(answers, count=FAST, seed=5) for _ in range(2))
    assert first == again != dataset_quality(answers, count=FAST, seed=6)
    found = next(line for line in first.questions if line.question == "same_topic")
    assert (found.ac1.method, found.alpha.method, found.yes_rate.method) == ("bootstrap",) * 3
    assert (
        found.ac1.interval is not None and found.ac1.se is not None and found.ac1.value is not None
    )
    # the bootstrap and Gwet's linear standard error are of one mind
    assert (found.ac1.interval[1] - found.ac1.interval[0]) / 3.92 == pytest.approx(
        found.ac1.se, rel=0.12
    )
    assert found.ac1.interval[0] < found.ac1.value < found.ac1.interval[1]


def test_many_resamples_take_little_time(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    labels = [
        label(name, f"s{n}", overall_quality="good" if hit else "poor")
        for n in range(115)
        for name, hit in zip("abcd", generator.random(4) < 0.9, strict=True)
    ]
    answers = told(tmp_path, *labels)
    began = time.process_time()
    dataset_quality(answers)
    assert time.process_time() - began < 8


# Sets to drop
# ------------------------------------------------------------------------------


def test_a_set_is_dropped_when_everyone_who_answered_marks_it_poor(tmp_path: Path) -> None:
    rows = {
        "all": "ppp",
        "most": "ppg",
        "unsure": "pup",
        "blank": "p__",
        "nobody": "u_u",
        "good": "ggg",
        "late": "  p",
    }
    quality = dataset_quality(told(tmp_path, *by_letters(rows, "overall_quality")), count=FAST)
    found = [(line.id, line.poor, line.annotators) for line in quality.drop]
    assert found == [("all", 3, 3), ("blank", 1, 3), ("late", 1, 1), ("unsure", 2, 3)]


# Repeats
# ------------------------------------------------------------------------------


def test_self_consistency_counts_what_was_answered_both_times(tmp_path: Path) -> None:
    first = [
        label("a", "s1", same_topic="yes", sounds_human="yes", overall_quality="good"),
        label("a", "s2", same_topic="no", sounds_human="unsure"),
        label("b", "s1", same_topic="yes"),
    ]
    again = [
        label(
            "a", "s1", repeat=True, same_topic="yes", sounds_human="no"
        ),  # quality left blank: one same, one not
        label("a", "s2", repeat=True, same_topic="no", sounds_human="yes"),  # an unsure: one same
        label("b", "s1", repeat=True, same_topic="no"),
        label("b", "s9", repeat=True, same_topic="yes"),  # its first showing was not returned
    ]
    answers = told(tmp_path, *first, *again)
    found = {
        (line.annotator, line.question): (line.same, line.pairs, line.share)
        for line in self_consistency(answers)
    }
    assert found == {
        ("all", "all"): (2, 4, 0.5),
        ("a", "all"): (2, 3, pytest.approx(2 / 3)),
        ("b", "all"): (0, 1, 0.0),
        ("all", "same_topic"): (2, 3, pytest.approx(2 / 3)),
        ("all", "sounds_human"): (0, 1, 0.0),
    }
    # and second answers count nowhere else
    assert question_of(answers).yes == 2


def test_without_repeats_there_is_no_self_consistency(tmp_path: Path) -> None:
    assert self_consistency(told(tmp_path, *by_letters(HAND))) == ()


# Labels that cannot be used
# ------------------------------------------------------------------------------


def test_two_annotators_with_one_name(tmp_path: Path) -> None:
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    write_labels(
        [label("ana", "s1", same_topic="yes"), label("ana", "s2", same_topic="yes")], paths[0]
    )
    write_labels([label("ana", "s2", same_topic="no")], paths[1])
    with pytest.raises(
        InputError,
        match=(
            r"one.jsonl, label 2, and .*two.jsonl, label 1: annotator 'ana' answered set s2 twice"
        ),
    ):
        gather(read_all(paths))
    # the rest of one person's return in another file is no second person
    write_labels([label("ana", "s3", same_topic="no")], paths[1])
    assert gather(read_all(paths))["dataset_quality"].returned() == {"ana": 3}


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"same_topic": "maybe"}, "same_topic is 'maybe'; valid: yes, no, unsure"),
        ({"overall_quality": "yes"}, "overall_quality is 'yes'; valid: good, poor, unsure"),
        ({"same_topic": 1}, "same_topic is 1; valid: yes, no, unsure"),
        ({"helpfulness": 3}, "unknown question 'helpfulness'; valid: domain_right, type_right"),
    ],
)
def test_answers_that_a_question_does_not_have(
    tmp_path: Path, answers: dict[str, Answer], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        told(tmp_path, label("a", "s1", same_topic="yes"), label("a", "s2", **answers))
    assert f"labels.jsonl, label 2 (a on set s2): {words}" in str(refused.value)


def test_labels_of_two_datasets(tmp_path: Path) -> None:
    other = Label(kind="dataset_quality", annotator="b", dataset="e" * 64, id="s1", answers={})
    with pytest.raises(
        InputError,
        match=r"label 2 \(b on set s1\): is for another dataset \(eeeeeeee\) than .*label 1",
    ):
        told(tmp_path, label("a", "s1", same_topic="yes"), other)


def test_many_problems_are_listed_and_counted(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        told(tmp_path, *(label("a", f"s{n}", same_topic="maybe") for n in range(13)))
    lines = str(refused.value).splitlines()
    assert len(lines) == 11 and lines[-1] == "… and 3 more such answers"
