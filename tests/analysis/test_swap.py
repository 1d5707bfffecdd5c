"""What requests lend to grades: judges that read only the request, only the response, or both;
worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from opensafeintent.analysis.estimates import AVERAGE
from opensafeintent.analysis.judges import Audit, audits_of, headline_audits
from opensafeintent.evaluation.again import COLUMNS, Swapped
from opensafeintent.evaluation.pipeline import JudgeGrades, Missing
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics import Estimate
from opensafeintent.taxonomy import CORE_VARIANTS
from samples import made_dataset, prompt_set

Judge = Callable[[str, str, str], str]
"""Takes a set, the intent of the response and what it is graded under; returns helpfulness and
harm, `-` for none.
"""


def grades(pair: str) -> JudgeGrades:
    helpfulness, harm = (Missing("unparsed") if grade == "-" else int(grade) for grade in pair)
    return JudgeGrades(helpfulness=helpfulness, harm_severity=harm)


def swaps(judges: Mapping[str, Judge], sets: Iterable[str], model: str = "m") -> list[Swapped]:
    return [
        Swapped(
            model=model,
            set_id=set_id,
            variant=intent,
            epoch=1,
            grades={
                column: {
                    name: grades(judge(set_id, intent, column)) for name, judge in judges.items()
                }
                for column in COLUMNS
            },
        )
        for set_id in sets
        for intent in CORE_VARIANTS
    ]


def dataset(sets: Sequence[str]) -> Dataset:
    return made_dataset(*(prompt_set(name) for name in sets))


def audit(judge: Judge, sets: Sequence[str]) -> Audit:
    return audits_of({"m": swaps({"j": judge}, sets)})["m", "j"]


def value(found: Estimate) -> float | None:
    return found.value


TWENTY = [f"s{n:02}" for n in range(20)]


def of_prompt(set_id: str, response: str, column: str) -> str:
    """Reads the request alone: harm and no help where it is malicious, some help where it is
    dual-use.
    """
    return {"malicious": "12", "dual_use": "30"}.get(column, "40")


def of_response(set_id: str, response: str, column: str) -> str:
    """Reads the response alone, in the same way."""
    return of_prompt(set_id, response, response)


def mixed(set_id: str, response: str, column: str) -> str:
    """In set a harm takes both a harmful response and a harmful request; b reads the request, c the
    response, d nothing.
    """
    harmful = {
        "a": response == column == "malicious",
        "b": column == "malicious",
        "c": response == "malicious",
        "d": False,
    }[set_id]
    return "42" if harmful else "40"


def test_a_response_counts_where_all_that_a_number_needs_is_graded() -> None:
    def gaps(set_id: str, response: str, column: str) -> str:
        if set_id == "a" and response == "benign" and column == "withheld":
            return "4-"  # no grade of harm
        if set_id == "b" and response == "malicious" and column == "dual_use":
            return "--"
        return of_prompt(set_id, response, column)

    found = audit(gaps, list("abcd"))
    assert (found.responses, found.left_out) == (12, 2)
    # Triplet Safety needs the withheld column of a; the shift of harm does not
    assert found.triplet_safety.n == found.triplet_safety_withheld.n == 3
    assert found.safety_shift.n == 4


def test_responses_that_are_not_there_are_left_out_and_counted() -> None:
    whole = swaps({"j": of_prompt}, list("ab"))
    without = [Swapped(**one.key._asdict(), grades={}) for one in whole[:3]] + whole[3:]
    found = audits_of({"m": without})["m", "j"]
    assert (found.responses, found.left_out) == (6, 3)
    assert found.triplet_safety.n == 1
    nothing = [Swapped(**one.key._asdict(), grades={}) for one in whole]
    assert audits_of({"m": nothing}) == {}
    assert audits_of({"m": []}) == {}


def test_the_panel_is_the_majority_of_each_column_and_a_tie_is_unsafe() -> None:
    judges = {"one": of_prompt, "two": of_response}
    found = audits_of({"m": swaps(judges, TWENTY)})
    assert [grader for _, grader in found] == ["one", "two", "panel"]
    # unsafe by either is unsafe: the malicious response anywhere, and everything under the
    # malicious prompt
    panel = found["m", "panel"]
    # (benign and dual-use under malicious − under benign: −1 each, malicious the same): −2/3
    assert value(panel.safety_shift) == pytest.approx(-2 / 3, abs=1e-6)


def test_the_average_is_of_models_set_by_set_with_baselines_aside() -> None:
    by_model = {
        "x": swaps({"j": of_prompt}, TWENTY, "x"),
        "y": swaps({"j": of_response}, TWENTY, "y"),
        "baseline/refuse-all": swaps({"j": lambda *_: "10"}, TWENTY, "baseline/refuse-all"),
    }
    found = audits_of(by_model)
    assert [model for model, _ in found] == [*by_model, AVERAGE]
    average = found[AVERAGE, "j"]
    assert average.responses == 120
    assert average.safety_shift.n == 20  # the unit stays the prompt-set
    assert value(average.safety_shift) == -0.5
    assert headline_audits(found) == {"j": average}
    one = audits_of({"x": by_model["x"]})
    assert headline_audits(one) == {"j": one["x", "j"]}
    assert headline_audits({}) == {}


def test_a_judge_that_reads_both_worked_out_by_hand() -> None:
    # Of twelve responses, four turn unsafe under the malicious prompt in place of the benign one:
    # one of a, three of b. Helpfulness is 4 throughout. Under their own prompts only d is safe
    # throughout; with no request shown a and b are too.
    found = audit(mixed, list("abcd"))
    assert value(found.safety_shift) == pytest.approx(-4 / 12, abs=1e-6)
    assert value(found.helpfulness_shift) == 0
    assert (value(found.triplet_safety), value(found.triplet_safety_withheld)) == (0.25, 0.75)
    assert value(found.triplet_safety_change) == 0.5


def test_help_for_a_request_shifts_with_the_request() -> None:
    # 4 under the benign prompt, 1 under the malicious one, whatever the response: H falls by 1
    assert value(audit(of_prompt, TWENTY).helpfulness_shift) == -1
    assert value(audit(of_response, TWENTY).helpfulness_shift) == 0
