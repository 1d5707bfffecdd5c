"""Questions as users write them: what is read, and what is refused with what would be valid."""

from __future__ import annotations

import pytest

from opensafeintent.analysis.questions import Match, matches_of, parse_question, question_text
from opensafeintent.errors import InputError
from opensafeintent.statistics.decisions import Question

MODELS = ["openai/gpt-5.4", "vllm/Qwen/Qwen3-8B", "local/my model", "baseline/refuse-all"]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("triplet_safety >= 0.8", Question(metric="triplet_safety", kind="at_least", threshold=0.8)),
        ("  triplet_safety>=.8 ", Question(metric="triplet_safety", kind="at_least", threshold=0.8)),
        ("safety_flip ≤ 1e-1", Question(metric="safety_flip", kind="at_most", threshold=0.1)),
        ("openai/gpt-5.4 better mean_utility", Question(metric="mean_utility", kind="better", model="openai/gpt-5.4")),
        ("'local/my model' better triplet_safety", Question(metric="triplet_safety", kind="better", model="local/my model")),
        (
            'vllm/Qwen/Qwen3-8B not worse than "local/my model" by .05 mean_safety',
            Question(
                metric="mean_safety", kind="not_worse", model="vllm/Qwen/Qwen3-8B", against="local/my model", margin=0.05
            ),
        ),
    ],
)
def test_a_question_is_read_and_written_back_as_the_same(text: str, question: Question) -> None:
    assert parse_question(text, MODELS) == question
    assert parse_question(question_text(question), MODELS) == question


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected 'METRIC >= X'"),
        ("is it safe?", "MODEL not worse than MODEL by X METRIC"),
        ("triplet_safety > 0.8", "expected 'METRIC >= X'"),
        ("triplet_safety >= 0.8 and mean_safety >= 0.9", "expected 'METRIC >= X'"),
        ("local/my model better triplet_safety", "expected 'METRIC >= X'"),  # quotes are needed
        ("triplet_safty >= 0.8", "did you mean 'triplet_safety'"),
        ("mean_utility >= 0.8", "calibrated_success"),  # a mean has no threshold; the list names those that have
        ("unsafe_rate_A3 <= 0.1", "calibrated_success"),  # counts only the sets in a mode
        ("openai/gpt-5.4 better utility_range", "mean_utility"),
        ("triplet_safety >= 0", "between 0 and 1"),
        ("triplet_safety >= 1", "between 0 and 1"),
        ("triplet_safety >= 80%", "not a number"),
        ("triplet_safety >= nan", "not a number"),
        ("openai/gpt-5 better mean_utility", "did you mean 'openai/gpt-5.4'"),
        ("openai/gpt-5.4 not worse than openai/gpt-5.4 by .1 mean_utility", "two models"),
        ("openai/gpt-5.4 not worse than vllm/Qwen/Qwen3-8B by -.1 mean_utility", "from 0"),
        ("openai/gpt-5.4 not worse than vllm/Qwen/Qwen3-8B by 1 mean_utility", "below 1"),
    ],
)
def test_anything_else_is_refused_with_what_would_be_valid(text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_question(text, MODELS)
    assert str(refused.value).startswith("--decide: ")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_baselines_are_asked_only_where_there_is_no_other_model() -> None:
    safe = parse_question("triplet_safety >= 0.8", MODELS)
    assert matches_of(safe, MODELS) == tuple(Match(model) for model in MODELS[:3])
    assert matches_of(safe, MODELS[3:]) == (Match("baseline/refuse-all"),)
    best = parse_question("openai/gpt-5.4 better mean_utility", MODELS)
    assert matches_of(best, MODELS) == (
        Match("openai/gpt-5.4", "vllm/Qwen/Qwen3-8B"),
        Match("openai/gpt-5.4", "local/my model"),
    )
    assert matches_of(best, ["openai/gpt-5.4", "baseline/refuse-all"]) == (Match("openai/gpt-5.4", "baseline/refuse-all"),)


def test_a_model_alone_is_better_than_nothing() -> None:
    question = parse_question("openai/gpt-5.4 better mean_utility", MODELS[:1])
    with pytest.raises(InputError, match="name another model"):
        matches_of(question, MODELS[:1])
