"""The authors' scored files, oddity by oddity (docs/compare.md)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.grades import is_scored, read_authors_record
from opensafeintent.promptsets.loading import Record, parse_prompt_set
from opensafeintent.promptsets.reading import Problem
from opensafeintent.taxonomy import default_taxonomy

PROMPTS = ("benign_prompt", "dual_use_prompt", "malicious_prompt")
VARIANTS = ("benign", "dual_use", "malicious", *(f"dual_use_paraphrase_{n}" for n in range(1, 5)))


def scored_record(**changes: Any) -> dict[str, Any]:
    """Make a record with two paraphrases, all of it graded; a change to None takes a field away."""
    record: dict[str, Any] = {
        "generation_metadata": {
            "topic_summary": "a task",
            "harm_domain": "Cyber Compromise",
            "task_type": "Explanation",
        },
        "generated_prompts": {name: f"the {name}" for name in PROMPTS},
        "dual_use_paraphrases": ["worded anew", "worded anew again"],
        "model_responses": (
            {name: f"to the {name}" for name in PROMPTS} | {"dual_use_paraphrases": ["one", "two"]}
        ),
        "response_scores_helpfulness": dict.fromkeys(PROMPTS, 3) | {"dual_use_paraphrases": [4, 2]},
        "response_scores_harmfulness": dict.fromkeys(PROMPTS, 0) | {"dual_use_paraphrases": [0, 1]},
    }
    record |= changes
    return {field: value for field, value in record.items() if value is not None}


def read(data: dict[str, Any]) -> tuple[list[RecordedResponse], int]:
    record = Record(data, "scored.json, item 1")
    return read_authors_record(record, parse_prompt_set(record, default_taxonomy()))


def by_variant(data: dict[str, Any]) -> dict[str, RecordedResponse]:
    return {response.variant: response for response in read(data)[0]}


def pairs(data: dict[str, Any]) -> dict[str, tuple[int | None, int | None]]:
    return {
        variant: (item.helpfulness, item.harm_severity)
        for variant, item in by_variant(data).items()
    }


def failure(prompt: Any, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "metric": "helpfulness", "error": "no integer", **more}


# The sample file
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(published: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(
        (published / "scored-sample.json").read_text("utf-8")
    )
    return records


NONE = (None, None)


@pytest.mark.parametrize(
    ("number", "expected", "mode", "strategy", "labels_missing", "zeros"),
    [
        # Benign, dual-use, malicious, paraphrases 0 to 3 as the file has them; a strategy in upper
        # case.
        (0, [(4, 0), (3, 2), (1, 0), (3, 0), (4, 0), (2, 1), (3, 0)], "A4", "constrained", [], 0),
        # Failures name dual_use_prompt and paraphrase 2, counted from zero; a_level is null; no
        # strategy was asked for.
        (1, [(3, 0), NONE, (2, 0), (2, 0), (2, 0), NONE, (3, 0)], None, None, ["mode"], 0),
        # A failure names all paraphrases, whose zeros are not counted; the benign zero is; the
        # strategy is ERROR.
        (2, [(1, 0), (3, 1), (2, 3), NONE, NONE, NONE, NONE], "A2", None, ["strategy"], 1),
        # A failure names the whole datapoint.
        (3, [NONE] * 7, "A3", None, [], 0),
    ],
)
def test_sample_record(
    number: int,
    expected: list[tuple[int | None, int | None]],
    mode: str | None,
    strategy: str | None,
    labels_missing: list[str],
    zeros: int,
    sample: list[dict[str, Any]],
) -> None:
    assert pairs(sample[number]) == dict(zip(VARIANTS, expected, strict=True))
    dual_use = by_variant(sample[number])["dual_use"]
    assert (dual_use.mode, dual_use.strategy) == (mode, strategy)
    whats = [gone.what for gone in dual_use.missing]
    assert [what for what in whats if what in ("mode", "strategy")] == labels_missing
    assert read(sample[number])[1] == zeros


def test_sample_responses_are_kept_where_their_grades_are_missing(
    sample: list[dict[str, Any]],
) -> None:
    assert by_variant(sample[1])["dual_use_paraphrase_3"].response == "(response to paraphrase 2)"
    assert by_variant(sample[3])["malicious"].response == "(response to the malicious_prompt)"


# Oddities, one at a time
# ------------------------------------------------------------------------------


def test_grades_and_texts_are_read() -> None:
    assert pairs(scored_record()) == {
        **dict.fromkeys(("benign", "dual_use", "malicious"), (3, 0)),
        **{"dual_use_paraphrase_1": (4, 0), "dual_use_paraphrase_2": (2, 1)},
    }
    assert by_variant(scored_record())["dual_use_paraphrase_2"].response == "two"
    assert {response.missing for response in read(scored_record())[0]} == {()}


@pytest.mark.parametrize(
    ("prompt", "variants"),
    [
        ("benign_prompt", {"benign"}),
        ("dual_use_prompt", {"dual_use"}),
        ("malicious_prompt", {"malicious"}),
        ("dual_use_paraphrases[0]", {"dual_use_paraphrase_1"}),
        ("dual_use_paraphrases[1]", {"dual_use_paraphrase_2"}),
        ("dual_use_paraphrases", {"dual_use_paraphrase_1", "dual_use_paraphrase_2"}),
        (
            "datapoint",
            {"benign", "dual_use", "malicious", "dual_use_paraphrase_1", "dual_use_paraphrase_2"},
        ),
    ],
)
def test_a_prompt_named_in_a_failure_misses_both_grades(prompt: str, variants: set[str]) -> None:
    found = by_variant(scored_record(response_score_failures=[failure(prompt)]))
    for variant, response in found.items():
        gone = response.helpfulness is None and response.harm_severity is None
        assert gone is (variant in variants)
        assert list(map(str, response.missing)) == (
            ["helpfulness:no integer", "harm_severity:no integer"] if gone else []
        )


def test_zero_helpfulness_reads_as_one_and_is_counted() -> None:
    zeros = dict.fromkeys(PROMPTS, 0) | {"malicious_prompt": 2, "dual_use_paraphrases": [0, 1]}
    failed = [failure("dual_use_prompt")]
    data = scored_record(response_scores_helpfulness=zeros, response_score_failures=failed)
    assert read(data)[1] == 2  # the failed prompt's zero is not a grade
    assert [pair[0] for pair in pairs(data).values()] == [1, None, 2, 1, 1]


@pytest.mark.parametrize("written", ["FULL", "CONSTRAINED", "REFUSE", "full"])
def test_strategies_in_upper_case(written: str) -> None:
    found = by_variant(scored_record(dual_use_intent_classification={"strategy": written}))
    named = {variant: item.strategy for variant, item in found.items() if item.strategy}
    assert named == {"dual_use": written.lower()}


@pytest.mark.parametrize(
    ("label", "field", "written"),
    [
        ("strategy", "dual_use_intent_classification", {"strategy": "ERROR"}),
        ("strategy", "dual_use_intent_classification", {"strategy": None}),
        ("mode", "dual_use_assistance_level", {"a_level": None}),
    ],
)
def test_an_unparsed_label_is_missing(label: str, field: str, written: dict[str, Any]) -> None:
    dual_use = by_variant(scored_record(**{field: written}))["dual_use"]
    assert getattr(dual_use, label) is None
    assert [gone.what for gone in dual_use.missing] == [label]


def test_absent_labels_were_not_asked_for() -> None:
    dual_use = by_variant(scored_record())["dual_use"]
    assert (dual_use.mode, dual_use.strategy, dual_use.missing) == (None, None, ())


def test_a_grade_that_is_not_there_is_missing() -> None:
    harm = dict.fromkeys(PROMPTS, 0) | {"benign_prompt": None, "dual_use_paraphrases": [0, None]}
    found = by_variant(scored_record(response_scores_harmfulness=harm))
    gone = [variant for variant, item in found.items() if item.harm_severity is None]
    assert gone == ["benign", "dual_use_paraphrase_2"]
    assert [gone.what for gone in found["benign"].missing] == ["harm_severity"]
    assert found["benign"].helpfulness == 3


def test_responses_without_scores_are_waiting_for_a_judge() -> None:
    data = scored_record(response_scores_helpfulness=None, response_scores_harmfulness=None)
    assert is_scored(data)
    found = by_variant(data)
    assert found.keys() == {*VARIANTS[:5]}
    assert {(item.helpfulness, item.harm_severity, item.missing) for item in found.values()} == {
        (None, None, ())
    }


def test_a_plain_prompt_set_is_not_scored() -> None:
    fields = ("model_responses", "response_scores_helpfulness", "response_scores_harmfulness")
    assert not is_scored(scored_record(**dict.fromkeys(fields)))


# Bad input
# ------------------------------------------------------------------------------


def with_score(field: str, key: str, value: Any) -> dict[str, Any]:
    record = copy.deepcopy(scored_record())
    record[field][key] = value
    return record


HELP, HARM = "response_scores_helpfulness", "response_scores_harmfulness"


def failing(*prompts: Any) -> dict[str, Any]:
    return scored_record(response_score_failures=[failure(prompt) for prompt in prompts])


RESPONSES, PARAPHRASES = "model_responses", "dual_use_paraphrases"
LEVEL, INTENT = "dual_use_assistance_level", "dual_use_intent_classification"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        *(
            (with_score(HELP, "benign_prompt", bad), [HELP, "benign"])
            for bad in ("3", 5, -1, 2.5, True)
        ),
        (with_score(HARM, "malicious_prompt", "0"), [HARM, "malicious", "'0'", "from 0 to 3"]),
        (with_score(HARM, "malicious_prompt", 4), [HARM, "malicious", "4", "from 0 to 3"]),
        (with_score(HARM, PARAPHRASES, [0, 9]), [HARM, "dual_use_paraphrase_2", "9"]),
        (with_score(HELP, PARAPHRASES, [4]), [HELP, PARAPHRASES, "list of 1", "list of 2"]),
        (with_score(HARM, PARAPHRASES, [0, 0, 0]), [HARM, "list of 3", "list of 2"]),
        (with_score(HARM, PARAPHRASES, 0), [HARM, PARAPHRASES, "list of 2"]),
        (with_score(RESPONSES, PARAPHRASES, ["one"]), [RESPONSES, "list of 2"]),
        (with_score(RESPONSES, "benign_prompt", 7), [RESPONSES, "benign", "7", "text"]),
        (scored_record(**{HELP: [3, 3, 3]}), [HELP, "a list", "object"]),
        (failing("dualuse_prompt"), ["[0]", "dualuse_prompt", "'dual_use_prompt'"]),
        (failing("dual_use_paraphrases[2]"), ["[0]", "dual_use_paraphrases[2]"]),
        (failing("datapoint", None), ["[1]", "prompt"]),
        (scored_record(response_score_failures={"prompt": "datapoint"}), ["failures", "list"]),
        (scored_record(**{LEVEL: {"a_level": "A5"}}), ["a_level", "'A5'", "A4"]),
        (scored_record(**{LEVEL: "A3"}), [LEVEL, "object"]),
        (scored_record(**{INTENT: {"strategy": "PARTIAL"}}), ["PARTIAL", "CONSTRAINED", "ERROR"]),
        (scored_record(**{INTENT: {"strategy": 1}}), ["strategy", "1", "CONSTRAINED"]),
    ],
)
def test_bad_input_is_refused_with_its_place(data: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(Problem) as problem:
        read(data)
    assert [
        word for word in ("scored.json, item 1", *words) if word not in str(problem.value)
    ] == []


@pytest.mark.parametrize("field", [HELP, HARM, "model_responses"])
def test_a_misspelt_prompt_is_refused(field: str) -> None:
    record = scored_record()
    record[field]["dual_use"] = record[field].pop("dual_use_prompt")
    with pytest.raises(Problem, match="dual_use_prompt"):
        read(record)
