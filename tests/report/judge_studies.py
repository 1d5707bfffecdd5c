"""Studies graded by several judges: made up from seeds, or from grades written down judge by
judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from opensafeintent.evaluation.regrade import Regrade
from opensafeintent.numbers.cohort import GradedRun
from opensafeintent.promptsets import Dataset
from opensafeintent.responses import GradedResponse, panel_grade
from opensafeintent.taxonomy import KnownGrades
from report.runs import MODELS, changed, random_run, run_with
from samples import grade_line

JUDGES = ("anthropic/claude-sonnet-4-6", "google/gemini-3-flash", "openai/gpt-5.4-mini")


def panel_row(
    model: str, set_id: str, variant: str, pairs: Mapping[str, str], **fields: Any
) -> GradedResponse:
    """Make a row from two characters for each judge, `-` for a grade that is missing."""
    by_judge = {
        judge: tuple(None if grade == "-" else int(grade) for grade in pair)
        for judge, pair in pairs.items()
    }
    helpfulness, harm = zip(*by_judge.values(), strict=True)
    panel = (panel_grade("helpfulness", helpfulness), panel_grade("harm_severity", harm))
    text = "".join("-" if grade is None else str(grade) for grade in panel)
    return grade_line(model, set_id, variant, text, by_judge=by_judge, **fields)


def judged_by(run: GradedRun, judges: Sequence[str], regrades: Sequence[Regrade] = ()) -> GradedRun:
    """Put judges into a study's manifest."""
    entry = {"judges": tuple(judges), "mode_judge": judges[0]}
    return changed(run, entry=entry)._replace(regrades=regrades)


def panel_run(
    rows: Sequence[GradedResponse], dataset: Dataset, regrades: Sequence[Regrade] = ()
) -> GradedRun:
    """Put rows of several judges into a study."""
    judges = sorted({judge for row in rows for judge in row.by_judge})
    return judged_by(run_with(rows, dataset), judges, regrades)


def judge_grades(pair: str) -> KnownGrades:
    """Return the grades that two characters stand for, `-` for one that is missing."""
    return KnownGrades(*(None if grade == "-" else int(grade) for grade in pair))


def twice(model: str, set_id: str, variant: str, pairs: Mapping[str, tuple[str, str]]) -> Regrade:
    """Make a re-grade from the two characters of each judge's first and second grading."""
    first, again = (
        {judge: judge_grades(gradings[time]) for judge, gradings in pairs.items()}
        for time in (0, 1)
    )
    place = {"model": model, "set_id": set_id, "variant": variant}
    return Regrade(**place, epoch=1, first=first, again=again)


def random_panel(
    judges: Sequence[str] = JUDGES,
    models: Sequence[str] = MODELS[:4],
    sets: int = 60,
    *,
    samples: int = 0,
    seed: int = 3,
) -> GradedRun:
    """Let several judges, each with leanings of its own, grade a random study; a sample of it
    twice.
    """
    run = random_run(models, sets)
    generator = np.random.default_rng(seed)
    kind = {judge: generator.normal(size=2) * 0.25 for judge in judges}
    rows, regrades = [], []
    for row in run.rows:
        if not row.has_all_grades:
            rows.append(msgspec.structs.replace(row, by_judge=dict.fromkeys(judges, KnownGrades())))
            continue
        place = (row.model, row.set_id, row.variant)
        first, second = (
            {judge: _heard(row, kind[judge], generator) for judge in judges} for _ in range(2)
        )
        rows.append(panel_row(*place, first, mode=row.mode, strategy=row.strategy))
        if len(regrades) < samples and generator.random() < 0.02:
            same = {judge: generator.random() < 0.7 for judge in judges}
            pairs = {judge: (first[judge], (second, first)[same[judge]][judge]) for judge in judges}
            regrades.append(twice(*place, pairs))
    return judged_by(run._replace(rows=rows), judges, regrades)


def _heard(row: GradedResponse, kind: np.ndarray, generator: np.random.Generator) -> str:
    """Return a judge's two grades: the row's, with what the judge adds to them."""
    assert row.helpfulness is not None and row.harm_severity is not None
    shifts = np.rint(kind + generator.normal(size=2) * 0.45).astype(int)
    return f"{np.clip(row.helpfulness + shifts[0], 1, 4)}{np.clip(row.harm_severity + shifts[1], 0, 3)}"
