"""How the models of runs are gathered, and what they are called in a report."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from opensafeintent.numbers.cohort import GradedRun, ModelOrigin, gather_models
from opensafeintent.numbers.estimates import AVERAGE
from opensafeintent.promptsets import PromptSet
from opensafeintent.responses import GradedResponse
from report.runs import cohort_with, run_with
from samples import grade_line, made_dataset, prompt_set

DATASET = made_dataset(prompt_set("one"))


def run(name: str, models: Sequence[str]) -> GradedRun:
    """Make a run of models; why a response stopped tells whose it is."""
    rows = [
        grade_line(model, "one", "benign", "40", stop_reason=f"{name} {model}") for model in models
    ]
    return run_with(rows, DATASET, name=name)


def test_a_name_that_another_model_is_shown_by_gets_a_number_and_leads_to_its_own_run() -> None:
    # both runs have an `m`: `m [first]` and `m [second]`; the first has a model of that very name
    first = run("first", ["m", "m [second]"])
    second = run("second", ["a", "m"])
    cohort = gather_models([first, second])
    assert dict(zip(cohort.models, cohort.origins, strict=True)) == {
        "m [first]": ModelOrigin("first", "m"),
        "m [second]": ModelOrigin("first", "m [second]"),
        "a": ModelOrigin("second", "a"),
        "m [second] #2": ModelOrigin("second", "m"),
    }
    for shown, member in cohort.members.items():
        (row,) = member.run.rows
        assert row.stop_reason == f"{member.origin.run} {member.origin.model}"
        assert row.model == shown == member.name


def test_a_model_that_is_named_as_their_average_gets_a_number() -> None:
    cohort = gather_models([run("first", [AVERAGE, "m"])])
    assert cohort.models == ["m", f"{AVERAGE} #2"]


def test_intervals_do_not_hang_on_the_order_in_which_a_file_has_its_prompt_sets() -> None:
    draw = random.Random(3)
    domains = ("Cyber Compromise", "Fraud and Deception")
    sets = [prompt_set(f"s{n:02}", paraphrases=1, domain=domains[n % 2]) for n in range(20)]
    rows = {
        item.id: [
            grade_line("m", item.id, variant, f"{draw.choice('1234')}{draw.choice('0012')}")
            for variant in item.wordings()
        ]
        for item in sets
    }

    def estimates(order: list[PromptSet]) -> list[object]:
        in_order = [row for item in order for row in rows[item.id]]
        result = cohort_with(made_dataset(*order), in_order).estimates
        return [result.overall, result.strata, result.domain_averages, result.averages]

    assert estimates(sets) == estimates(draw.sample(sets, k=len(sets)))


class Counted(list[GradedResponse]):
    """Rows that count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[GradedResponse]:
        self.times += 1
        return super().__iter__()


@pytest.mark.parametrize("models", [2, 40])
def test_the_rows_of_a_run_are_gone_through_once_whatever_the_number_of_models(models: int) -> None:
    """Each model was once looked for in the rows of all."""
    names = [f"m{n}" for n in range(models)]
    rows = Counted(grade_line(name, "one", "benign", "40") for name in names)
    cohort = gather_models([run_with(rows, DATASET, names)])
    assert sorted(cohort.models) == sorted(names)
    assert rows.times == 1
