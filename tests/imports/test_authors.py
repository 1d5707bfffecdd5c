"""The authors' scored files, oddity by oddity (docs/file-formats.md)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from opensafeintent.calls.recorded import RecordedResponse
from opensafeintent.errors import InputError
from opensafeintent.imports import authors
from opensafeintent.imports.authors import is_scored, read_authors_record
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.reading import Problem
from opensafeintent.promptsets.shapes import parse_prompt_set
from opensafeintent.taxonomy import default_taxonomy

PROMPTS = ("benign_prompt", "dual_use_prompt", "malicious_prompt")
VARIANTS = ("benign", "dual_use", "malicious", *(f"dual_use_paraphrase_{n}" for n in range(1, 5)))
HELP, HARM = "response_scores_helpfulness", "response_scores_harmfulness"
RESPONSES, PARAPHRASES = "model_responses", "dual_use_paraphrases"
LEVEL, INTENT = "dual_use_assistance_level", "dual_use_intent_classification"
FAILURES = "response_score_failures"


def scored_record(**changes: Any) -> dict[str, Any]:
    """Make a record with two paraphrases, all of it graded; a change to None takes a field away."""
    labels = {"harm_domain": "Cyber Compromise", "task_type": "Explanation"}
    record: dict[str, Any] = {
        "generation_metadata": {"topic_summary": "a task", **labels},
        "generated_prompts": {name: f"the {name}" for name in PROMPTS},
        PARAPHRASES: ["worded anew", "worded anew again"],
        RESPONSES: {name: f"to the {name}" for name in PROMPTS} | {PARAPHRASES: ["one", "two"]},
        HELP: dict.fromkeys(PROMPTS, 3) | {PARAPHRASES: [4, 2]},
        HARM: dict.fromkeys(PROMPTS, 0) | {PARAPHRASES: [0, 1]},
    }
    record |= changes
    return {field: value for field, value in record.items() if value is not None}


def read(data: dict[str, Any]) -> tuple[list[RecordedResponse], int]:
    record = Record(data, "scored.json, item 1")
    return read_authors_record(record, parse_prompt_set(record, default_taxonomy()))


def by_variant(data: dict[str, Any]) -> dict[str, RecordedResponse]:
    return {response.variant: response for response in read(data)[0]}


def pairs(data: dict[str, Any]) -> list[tuple[int | None, int | None]]:
    return [(item.helpfulness, item.harm_severity) for item in read(data)[0]]


def failing(*prompts: Any, **fields: Any) -> dict[str, Any]:
    """Make a record in which these prompts have failed."""
    named = [{"prompt": name, "metric": "helpfulness", "error": "no integer"} for name in prompts]
    return scored_record(**{FAILURES: named}, **fields)


# The sample file
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(published: Path) -> Any:
    return json.loads((published / "scored-sample.json").read_text("utf-8"))


NONE = (None, None)


@pytest.mark.parametrize(
    ("number", "expected", "mode", "strategy", "missing", "zeros"),
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
    sample: Any, number: int, expected: Any, mode: Any, strategy: Any, missing: Any, zeros: int
) -> None:
    assert pairs(sample[number]) == expected
    responses = by_variant(sample[number])
    assert tuple(responses) == VARIANTS
    dual_use = responses["dual_use"]
    assert (dual_use.mode, dual_use.strategy) == (mode, strategy)
    assert [
        missing_grade.what
        for missing_grade in dual_use.missing
        if missing_grade.what in ("mode", "strategy")
    ] == missing
    assert read(sample[number])[1] == zeros


def test_sample_responses_are_kept_where_their_grades_are_missing(sample: Any) -> None:
    assert by_variant(sample[1])["dual_use_paraphrase_3"].response == "(response to paraphrase 2)"
    assert by_variant(sample[3])["malicious"].response == "(response to the malicious_prompt)"


# Oddities, one at a time
# ------------------------------------------------------------------------------


def test_grades_and_texts_are_read() -> None:
    assert pairs(scored_record()) == [(3, 0), (3, 0), (3, 0), (4, 0), (2, 1)]
    assert by_variant(scored_record())["dual_use_paraphrase_2"].response == "two"
    assert {response.missing for response in read(scored_record())[0]} == {()}


@pytest.mark.parametrize(
    ("prompt", "variants"),
    [
        ("benign_prompt", "benign"),
        ("dual_use_prompt", "dual_use"),
        ("malicious_prompt", "malicious"),
        ("dual_use_paraphrases[0]", "dual_use_paraphrase_1"),
        ("dual_use_paraphrases[1]", "dual_use_paraphrase_2"),
        ("dual_use_paraphrases", "dual_use_paraphrase_1 dual_use_paraphrase_2"),
        ("datapoint", " ".join(VARIANTS[:5])),
    ],
)
def test_a_prompt_named_in_a_failure_misses_both_grades(prompt: str, variants: str) -> None:
    for variant, response in by_variant(failing(prompt)).items():
        is_missing = response.helpfulness is None and response.harm_severity is None
        assert is_missing is (variant in variants.split())
        reasons = ["helpfulness:no integer", "harm_severity:no integer"] if is_missing else []
        assert list(map(str, response.missing)) == reasons


def test_zero_helpfulness_reads_as_one_and_is_counted() -> None:
    zeros = dict.fromkeys(PROMPTS, 0) | {"malicious_prompt": 2, PARAPHRASES: [0, 1]}
    data = failing("dual_use_prompt", **{HELP: zeros})
    assert read(data)[1] == 2  # the failed prompt's zero is not a grade
    assert [helpfulness for helpfulness, _ in pairs(data)] == [1, None, 2, 1, 1]


@pytest.mark.parametrize("written", ["FULL", "CONSTRAINED", "REFUSE", "full"])
def test_strategies_in_upper_case(written: str) -> None:
    responses = by_variant(scored_record(**{INTENT: {"strategy": written}}))
    named = {variant: item.strategy for variant, item in responses.items() if item.strategy}
    assert named == {"dual_use": written.lower()}


@pytest.mark.parametrize(
    ("label", "field", "written"),
    [
        ("strategy", INTENT, {"strategy": "ERROR"}),
        ("strategy", INTENT, {"strategy": None}),
        ("mode", LEVEL, {"a_level": None}),
    ],
)
def test_an_unparsed_label_is_missing(label: str, field: str, written: dict[str, Any]) -> None:
    dual_use = by_variant(scored_record(**{field: written}))["dual_use"]
    assert getattr(dual_use, label) is None
    assert [missing_grade.what for missing_grade in dual_use.missing] == [label]


def test_absent_labels_were_not_asked_for() -> None:
    dual_use = by_variant(scored_record())["dual_use"]
    assert (dual_use.mode, dual_use.strategy, dual_use.missing) == (None, None, ())


def test_a_grade_that_is_not_there_is_missing() -> None:
    harm = dict.fromkeys(PROMPTS, 0) | {"benign_prompt": None, PARAPHRASES: [0, None]}
    data = scored_record(**{HARM: harm})
    assert pairs(data) == [(3, None), (3, 0), (3, 0), (4, 0), (2, None)]
    assert [missing_grade.what for missing_grade in by_variant(data)["benign"].missing] == [
        "harm_severity"
    ]


def test_responses_without_scores_are_waiting_for_a_judge() -> None:
    data = scored_record(**{HELP: None, HARM: None})
    assert is_scored(data)
    assert pairs(data) == [(None, None)] * 5
    assert {item.missing for item in read(data)[0]} == {()}
    assert not is_scored(scored_record(**{RESPONSES: None, HELP: None, HARM: None}))


# Bad input
# ------------------------------------------------------------------------------


def with_score(field: str, key: str, value: Any) -> dict[str, Any]:
    record = copy.deepcopy(scored_record())
    record[field][key] = value
    return record


@pytest.mark.parametrize(
    ("data", "words"),
    [
        *(
            (with_score(HELP, "benign_prompt", bad), [HELP, "benign"])
            for bad in ("3", 5, 2.5, True)
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
        (scored_record(**{FAILURES: {"prompt": "datapoint"}}), ["failures", "list"]),
        (scored_record(**{LEVEL: {"a_level": "A5"}}), ["a_level", "'A5'", "A4"]),
        (scored_record(**{LEVEL: "A3"}), [LEVEL, "object"]),
        (scored_record(**{INTENT: {"strategy": "PARTIAL"}}), ["PARTIAL", "CONSTRAINED", "ERROR"]),
        (scored_record(**{INTENT: {"strategy": 1}}), ["strategy", "1", "CONSTRAINED"]),
    ],
)
def test_bad_input_is_refused_with_its_place(data: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(Problem) as problem:
        read(data)
    places = ("scored.json, item 1", *words)
    assert [word for word in places if word not in str(problem.value)] == []


@pytest.mark.parametrize("field", [HELP, HARM, RESPONSES])
def test_a_misspelt_prompt_is_refused(field: str) -> None:
    record = scored_record()
    record[field]["dual_use"] = record[field].pop("dual_use_prompt")
    with pytest.raises(Problem, match="dual_use_prompt"):
        read(record)


def test_the_faults_of_all_records_are_listed() -> None:
    """The reading ended at the first one, and left out the others of its record."""
    unlabelled = {"generation_metadata": {"harm_domain": "X", "task_type": "Y"}}
    changes: list[dict[str, Any]] = [unlabelled, {RESPONSES: {PROMPTS[0]: 3}}, {HELP: "4"}]
    records = [
        (f"item {n}", scored_record(id=f"s{n}", **change))
        for n, change in enumerate([*changes, {}])
    ]
    records.append(records[-1])
    with pytest.raises(InputError) as error:
        authors.read(records, Path("scored.json"), default_taxonomy())
    assert [line.partition(": ")[0] for line in error.value.lines] == [
        "item 0, field generation_metadata, field harm_domain",
        "item 0, field generation_metadata, field task_type",
        f"item 1, field {RESPONSES}, benign",
        f"item 2, field {HELP}",
        "item 3",
    ]
