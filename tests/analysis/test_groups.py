"""How models are sorted into groups, and what they are called there."""

from __future__ import annotations

import random

from opensafeintent.analysis.cohort import ModelOrigin, Study, group_studies
from opensafeintent.promptsets import PromptSet
from report.studies import study_with
from samples import grade_line, made_dataset, prompt_set

DATASET = made_dataset(prompt_set("one"))


def study(name: str, judges: dict[str, str]) -> Study:
    """Make a run of models, each graded by a judge of its own; helpfulness tells whose response it
    is.
    """
    parts = [
        study_with(
            [grade_line(model, "one", "benign", "40", stop_reason=f"{name} {model}")],
            DATASET,
            [model],
            judge=judge,
        )
        for model, judge in judges.items()
    ]
    manifest = parts[0].manifest
    for part in parts[1:]:
        manifest.models.update(part.manifest.models)
    return Study(name, manifest, DATASET, [row for part in parts for row in part.rows])


def test_a_name_that_another_model_is_shown_by_gets_a_number_and_leads_to_its_own_run() -> None:
    # both runs have an `m`: `m [first]` and `m [second]`; the second has a model of that very name,
    # in a group that comes first, though its run comes later
    first = study("first", {"a": "judge/x", "m": "judge/y"})
    second = study("second", {"m [first]": "judge/x", "m": "judge/y"})
    groups = group_studies([first, second])
    origins = {shown: origin for group in groups for shown, origin in group.origins.items()}
    assert origins == {
        "a": ModelOrigin("first", "a"),
        "m [first]": ModelOrigin("second", "m [first]"),
        "m [first] #2": ModelOrigin("first", "m"),
        "m [second]": ModelOrigin("second", "m"),
    }
    for group in groups:
        for shown, (run, model) in group.origins.items():
            (row,) = group.rows[shown]
            assert row.stop_reason == f"{run} {model}" and row.model == shown


def test_intervals_do_not_hang_on_the_order_in_which_a_file_has_its_prompt_sets() -> None:
    draw = random.Random(3)
    domains = ("Cyber Compromise", "Fraud and Deception")
    sets = [
        prompt_set(f"s{number:02}", paraphrases=1, domain=domains[number % 2])
        for number in range(20)
    ]
    rows = [
        grade_line("m", item.id, variant, f"{draw.choice('1234')}{draw.choice('0012')}")
        for item in sets
        for variant in item.wordings()
    ]

    def numbers(order: list[PromptSet]) -> list[object]:
        dataset = made_dataset(*order)
        at = {item.id: place for place, item in enumerate(order)}
        part = study_with(
            sorted(rows, key=lambda row: at[row.set_id]), dataset, ["m"], judge="judge/x"
        )
        (group,) = group_studies([part])
        return [
            group.numbers.overall,
            group.numbers.strata,
            group.numbers.macros,
            group.numbers.averages,
        ]

    assert numbers(sets) == numbers(draw.sample(sets, k=len(sets)))
