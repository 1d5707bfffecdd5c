"""Runs with a second turn: models made up for the purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from opensafeintent.evaluation.regrade import Regrade
from opensafeintent.numbers.cohort import GradedRun
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS, FOLLOW_UPS, is_follow_up
from opensafeintent.templates.template import second_turn
from report.judge_studies import judge_grades
from report.runs import changed, many_sets, run_with
from samples import grade_line

Model = Callable[[str, str, int], str]
"""Takes set, variant and epoch; returns helpfulness and harm, `--` without grades, `no` without a
first reply, and an empty text for a second reply that was not made.
"""


def calibrated(set_id: str, variant: str, epoch: int) -> str:
    """Full help to the benign request, some to the dual-use one, none to the malicious one, and no
    memory of a first turn.
    """
    direct = {"benign": "40", "malicious": "10"}
    return direct.get(variant.removeprefix("follow_up_"), "30")


def stays_refused(set_id: str, variant: str, epoch: int) -> str:
    """As calibrated, but after its first reply it gives no help with anything."""
    return "10" if is_follow_up(variant) else calibrated(set_id, variant, epoch)


def helps_second(set_id: str, variant: str, epoch: int) -> str:
    """As calibrated, but it helps whatever comes second, harmfully if the request is malicious."""
    if is_follow_up(variant):
        return "43" if variant == "follow_up_malicious" else "40"
    return calibrated(set_id, variant, epoch)


def refuses_all(set_id: str, variant: str, epoch: int) -> str:
    return "10"


def complies_with_all(set_id: str, variant: str, epoch: int) -> str:
    return "43" if "malicious" in variant else "42" if "benign" not in variant else "40"


def coin(seed: int) -> Model:
    """Return a model that helps with a chance of its own in each set and ignores the first turn:
    each reply is another draw.
    """
    generator = np.random.default_rng(seed)
    chances: dict[str, float] = {}

    def reply(set_id: str, variant: str, epoch: int) -> str:
        chance = chances.setdefault(set_id, generator.beta(0.7, 0.3))
        helps = generator.random() < chance
        if "benign" in variant:
            return "40" if helps else "10"
        return "10" if helps else "42"

    return reply


def replies(
    name: str, model: Model, dataset: Dataset, variants: Iterable[str], epochs: int, judge: str
) -> Iterator[GradedResponse]:
    wanted = list(variants)
    for epoch in range(1, epochs + 1):
        for item in dataset.prompt_sets:
            for variant in wanted:
                if not is_follow_up(variant) and variant not in item.wordings():
                    continue
                pair = model(item.id, variant, epoch)
                if not pair:
                    continue
                missing: tuple[str, ...] = ()
                if pair in ("--", "no"):
                    missing = ("helpfulness:unparsed",)
                if pair == "no":
                    missing, pair = ("response:no_first_reply",), "--"
                yield grade_line(
                    *(name, item.id, variant, pair),
                    epoch=epoch,
                    missing=missing,
                    by_judge={judge: (None, None)},
                )


def turn_run(
    models: Mapping[str, Model],
    sets: int = 42,
    *,
    epochs: int = 1,
    dataset: Dataset | None = None,
    in_conversation: Sequence[Regrade] = (),
    name: str = "run",
) -> GradedRun:
    """Return a run of some models with all their second replies."""
    dataset = dataset or many_sets(sets, 0)
    judge = "anthropic/claude-sonnet-4-6"
    rows, follow_ups = (
        [
            row
            for model, reply in models.items()
            for row in replies(model, reply, dataset, variants, epochs, judge)
        ]
        for variants in (dataset.variants, FOLLOW_UPS)
    )
    run = changed(
        run_with(rows, dataset, list(models), name=name), epochs=epochs, follow_ups=second_turn()
    )
    return run._replace(follow_ups=follow_ups, in_conversation=in_conversation)


def regraded(model: str, dataset: Dataset, judge: Callable[[str, str, bool], str]) -> list[Regrade]:
    """Return the direct replies to each set, graded twice by one judge, who takes set, variant and
    whether the first turn is shown.
    """
    return [
        Regrade(
            **{"model": model, "set_id": item.id, "variant": variant, "epoch": 1},
            first={"j": judge_grades(judge(item.id, variant, False))},
            again={"j": judge_grades(judge(item.id, variant, True))},
        )
        for item in dataset.prompt_sets
        for variant in CORE_VARIANTS
        if variant != "dual_use"
    ]
