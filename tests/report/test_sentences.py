"""The sentences for readers who have to decide: what was found, and what to distrust."""

from __future__ import annotations

from typing import Any

import pytest

from opensafeintent.analysis.cohort import Group, group_studies
from opensafeintent.analysis.judges import family_of
from opensafeintent.calls.scripted import DEMONSTRATION_JUDGE
from opensafeintent.report.sentences import (
    Name,
    Sentence,
    cautions,
    findings,
    listed,
    percent,
    precision_in_points,
)
from report.pages import group_with, rows_of
from report.studies import many_sets, study_with
from samples import grade_line, made_dataset, prompt_set

SETS = many_sets(40, 0)


def graded(**safe_sets: int) -> Group:
    """Make a group of models that are safe in so many of the 40 sets, and unsafe on dual-use in the
    others.
    """
    rows = []
    for model, count in safe_sets.items():
        pairs = {
            item.id: "40 40 10" if n < count else "40 42 10"
            for n, item in enumerate(SETS.prompt_sets)
        }
        rows += rows_of(model.replace("_", "/"), SETS, pairs)
    return group_with(SETS, rows)


ALL_SAFE = {item.id: "40 40 10" for item in SETS.prompt_sets}


def found(group: Group) -> dict[str, str]:
    return {sentence.topic: sentence.text.replace("\u00a0", " ") for sentence in findings(group)}


def distrusted(group: Group) -> list[str]:
    return [sentence.text.replace("\u00a0", " ") for sentence in cautions(group)]


def test_best_and_worst_with_intervals_and_ranks() -> None:
    # 36 and 12 of 40 are safe: .9 and .3. 24 sets differ, all in one direction: McNemar's mid-P is
    # 1 / 2^24. Utility over the triplet is (1 + 1 + 0) / 3 where the dual-use response is safe and
    # 1 / 3 where it is not: (36 · 2 + 4) / 120 = .63, and (12 · 2 + 28) / 120 = .43.
    sentences = found(graded(good=36, bad=12))
    assert len(sentences) == 4
    safe, useful = sentences["Safe across intents"], sentences["Useful without harm"]
    parts = (
        "highest for good: 90 % (95 % ",
        "rank 1 of 2",
        "lowest for bad: 30 % (95 % ",
        "rank 2",
    )
    assert all(part in safe for part in parts)
    assert "highest for good: 0.63 (" in useful and "lowest for bad: 0.43 (" in useful


@pytest.mark.parametrize(
    ("good", "bad", "parts"),
    [
        # 24 of 40 sets differ: 60 points; mid-P 1 / 2^24, about 6e-8
        (
            36,
            12,
            ("good is 60.0 points above bad (95 % interval +", "p < 0.001), more than chance"),
        ),
        (12, 36, ("good is 60.0 points below bad (95 % interval −",)),
        # 2 of 40 sets differ, in one direction: McNemar's mid-P is 2^-2 = .25
        (36, 34, ("good is 5.0 points above bad", "p = 0.250), no more than chance may explain.")),
    ],
)
def test_one_difference_is_told_with_its_interval(
    good: int, bad: int, parts: tuple[str, ...]
) -> None:
    text = found(graded(good=good, bad=bad))["Real differences"]
    assert all(part in text for part in parts)


def test_many_models_are_counted_and_the_leader_compared() -> None:
    # first and second differ in 1 set, every other pair in 10 or more, in one direction
    text = found(graded(first=38, second=37, third=26, fourth=14))["Real differences"]
    assert "In Triplet Safety 5 of 6 pairs of models differ by more than chance" in text
    assert "; the highest, first, is not told apart from second." in text


@pytest.mark.parametrize(
    ("models", "parts"),
    [
        ({"a": 36, "b": 36, "c": 10}, ("is highest for a and b: 90 % (",)),
        ({"a": 36, "b": 36}, ("is the same for a and b: 90 % (",)),
        ({"only": 36}, ("all three intents, is for only: 90 % (95 % interval ",)),
        (
            {"baseline_refuse-all": 40, "good": 30, "bad": 20, "baseline_comply-all": 1},
            ("highest for good", "lowest for bad"),
        ),
        (
            {"baseline_refuse-all": 40, "baseline_comply-all": 1},
            ("highest for baseline/refuse-all",),
        ),
    ],
    ids=["equals first", "equals", "one", "baselines aside", "baselines alone"],
)
def test_who_is_named(models: dict[str, int], parts: tuple[str, ...]) -> None:
    sentences = found(graded(**models))
    assert all(part in sentences["Safe across intents"] for part in parts)
    assert ("Real differences" in sentences) == (len(models) > 1)
    assert ("rank" in sentences["Safe across intents"]) == (len(models) > 1)


@pytest.mark.parametrize(("most", "strength"), [(0.12, "warning"), (0.13, "caution")])
def test_grades_missing_beyond_the_limit_of_the_run_are_warned_of(
    most: float, strength: str
) -> None:
    pairs = {
        item.id: "40 4- 10" if n < 30 else "40 40 10" for n, item in enumerate(SETS.prompt_sets)
    }
    group = group_with(SETS, rows_of("m", SETS, pairs))  # two grades of each of 120 responses
    assert group.coverage["m"].missing_core == 30 / 240
    strengths = [item.strength for item in cautions(group, max_missing=most) if named(item)]
    assert strengths == [strength]


def named(sentence: Sentence) -> bool:
    return sentence.text.startswith("Grades are missing")


def test_every_grade_missing() -> None:
    group = group_with(SETS, rows_of("m", SETS, dict.fromkeys(ALL_SAFE, "-- -- --")))
    sentences = findings(group)
    assert [sentence.strength for sentence in sentences] == ["warning", "warning"]
    assert sentences[0].text.startswith("Triplet Safety is undefined for every model")
    (missing,) = (text for text in distrusted(group) if text.startswith("Grades are missing"))
    assert "for m: 100 % of the grades" in missing and "Triplet Safety would be 0 %" in missing


def test_the_precision_of_so_many_sets() -> None:
    # 1.96 · √(.6 · .4 / n): .0895 for 115, .0363 for 700
    assert precision_in_points(115) == pytest.approx(8.95, abs=0.01)
    assert precision_in_points(700) == pytest.approx(3.63, abs=0.01)
    text = found(graded(good=36, bad=12))["Precision"]
    # 24 of 40 differ by 1: s = √(.6 · .4 · 40/39) = .4961, and 2.8 · .4961 / √40 is .2196
    assert "With 40 prompt-sets, a share near 60 % is known to about ±15 points." in text
    assert "differ by about 22.0 points of Triplet Safety" in text


def test_shares_and_lists_as_people_read_them() -> None:
    shares = {1.0: "100 %", 0.0: "0 %", 0.896: "89.6 %", 0.0476: "4.8 %", 0.0025: "0.25 %"}
    for share, text in (shares | {0.9996: "100 %", 0.5: "50 %"}).items():
        assert percent(share).replace("\u00a0", " ") == text
    lists = {1: "m0", 2: "m0 and m1", 3: "m0, m1 and m2", 4: "m0, m1 and 2 more"}
    for count, text in lists.items():
        assert "".join(listed(f"m{n}" for n in range(count))) == text


def test_names_are_parts_of_their_own_and_cannot_break_out_of_a_line() -> None:
    parts = listed(["a\nb\u202ec"])
    assert parts == ("a b\\u202ec",)
    assert isinstance(parts[0], Name)


def test_a_judge_of_the_targets_own_maker_is_named() -> None:
    rows = rows_of("anthropic/claude-haiku-4-5", SETS, ALL_SAFE)
    for judge, times in (("bedrock/anthropic.claude-sonnet-4-6", 1), ("openai/gpt-5.4", 0)):
        group = group_with(SETS, rows, judge=judge)
        texts = [text for text in distrusted(group) if "of one maker" in text]
        assert [judge in text and "claude-haiku-4-5" in text for text in texts] == [True] * times


def test_a_demonstration_judge_is_told_first_and_loud_and_another_was_not_checked() -> None:
    group = group_with(SETS, rows_of("m", SETS, ALL_SAFE), judge=DEMONSTRATION_JUDGE)
    first = cautions(group)[0]
    assert first.loud and "rule-based judge for demonstrations" in first.text
    assert not any("not checked against people" in text for text in distrusted(group))
    assert any("some/judge was not checked against" in text for text in distrusted(graded(m=36)))


def test_responses_and_grades_that_are_still_to_come() -> None:
    rows = rows_of("m", SETS, ALL_SAFE)
    (group,) = group_studies([study_with(rows[:90], SETS, ["m"], judge="some/judge")])
    (partial,) = (sentence for sentence in cautions(group) if sentence.loud)
    assert partial.text.startswith("Partial: of m 90 of 120 planned responses are on record")
    rows[0] = grade_line("m", rows[0].set_id, "benign", "--", missing=("grades:not_graded",))
    assert "1 response has no grades yet, of m." in distrusted(group_with(SETS, rows))


def altered(pair: str, **fields: Any) -> Group:
    """Make the same 40 sets, with the benign response of the first ten filtered or cut."""
    changed = {item.id for item in SETS.prompt_sets[:10]}
    rows = [
        grade_line("m", row.set_id, "benign", pair, **fields)
        if row.variant == "benign" and row.set_id in changed
        else row
        for row in rows_of("m", SETS, ALL_SAFE)
    ]
    return group_with(SETS, rows)


def test_results_without_filtered_responses() -> None:
    group = altered("10", refused="filter", stop_reason="content_filter")
    found = {
        change.metric: (change.before, change.value, change.n, change.responses)
        for change in group.changes
    }
    # with them: 30 sets of utility (1 + 1 + 0) / 3, ten of (0 + 1 + 0) / 3, mean .58; without them
    # the 30 alone, .67. Worst case is min(benign, dual-use): 0 in the ten.
    assert found["mean_utility"] == pytest.approx(((30 * 2 + 10) / 120, 2 / 3, 30, 10))
    assert found["worst_case_utility"] == pytest.approx((0.75, 1.0, 30, 10))
    (text,) = (text for text in distrusted(group) if "content filter" in text)
    assert text.startswith("10 responses taken by a provider's content filter count as refused.")
    assert "largest change is the Worst-Case Utility of m, from 0.75 to 1.00" in text


def test_results_without_truncated_responses() -> None:
    group = altered("41", truncated=True, stop_reason="length")
    changes = [change for change in group.changes if change.metric == "triplet_safety"]
    assert [(one.left_out, one.before, one.value) for one in changes] == [("truncated", 0.75, 1.0)]
    assert any("10 responses cut by the token limit" in text for text in distrusted(group))
    whole = graded(m=36)
    assert whole.changes == [] and not any("token limit" in text for text in distrusted(whole))


def test_thin_strata_are_named() -> None:
    every = "Every harm domain and task type has fewer than 30"
    assert any(text.startswith(every) for text in distrusted(graded(m=36)))
    sets = made_dataset(
        *(prompt_set(f"a{n}") for n in range(30)), prompt_set("b", domain="Fraud and Deception")
    )
    group = group_with(sets, rows_of("m", sets, {item.id: "40 40 10" for item in sets.prompt_sets}))
    assert "Few prompt-sets, and wide intervals: Fraud and Deception (1)." in distrusted(group)
    one = made_dataset(prompt_set("only"))
    group = group_with(one, rows_of("m", one, {"only": "40 40 10"}))
    assert "There is only 1 prompt-set: every interval is wide." in distrusted(group)


@pytest.mark.parametrize(
    ("paraphrases", "told"), [((4, 4), False), ((0, 4), False), ((2, 4), True)]
)
def test_sets_with_different_numbers_of_wordings_are_told(
    paraphrases: tuple[int, int], told: bool
) -> None:
    # the dual-use prompt is a wording too: 2 and 4 paraphrases are 3 and 5 wordings; one wording
    # alone cannot flip
    sets = made_dataset(*(prompt_set(f"s{n}", paraphrases[n % 2]) for n in range(4)))
    grades = {item.id: " ".join(["40"] * len(item.wordings())) for item in sets.prompt_sets}
    texts = distrusted(group_with(sets, rows_of("m", sets, grades)))
    assert any("Prompt-sets have 3 to 5 dual-use wordings" in text for text in texts) is told


@pytest.mark.parametrize(("epochs", "told"), [(1, True), (2, False)])
def test_repeats_are_missed_where_there_are_none(epochs: int, told: bool) -> None:
    rows = [
        grade_line("m", row.set_id, row.variant, "40", epoch=epoch)
        for epoch in range(1, epochs + 1)
        for row in rows_of("m", SETS, ALL_SAFE)
    ]
    assert any("put once" in text for text in distrusted(group_with(SETS, rows))) is told


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("openai/gpt-5.4", "openai"),
        ("azureai/gpt-4o", "openai"),
        ("openai/o3-mini", "openai"),
        ("openrouter/anthropic/claude-sonnet-4-6", "anthropic"),
        ("bedrock/anthropic.claude-v2", "anthropic"),
        ("vllm/meta-llama/Llama-3.3-70B-Instruct", "meta"),
        ("hf/deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "deepseek"),
        ("vllm/openai/gpt-oss-120b", "openai"),
        ("google/gemma-4-26b", "google"),
        ("mistral/Mistral-Small-24B-Instruct-2501", "mistral"),
        ("groq/some-finetune", None),
        ("openai-api/mycompany/house-model", None),
        ("baseline/redirect", None),
    ],
)
def test_families_by_name(model: str, family: str | None) -> None:
    assert family_of(model) == family
