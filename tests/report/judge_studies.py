"""Studies graded by several judges: made up from seeds, or from grades written down judge by
judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from opensafeintent.analysis.cohort import Study
from opensafeintent.evaluation.again import Regrade
from opensafeintent.evaluation.pipeline import JudgeGrades, Missing
from opensafeintent.grades import GradeRow, panel_grade
from opensafeintent.promptsets import Dataset
from report.studies import MODELS, random_study, study_with
from samples import grade_line

JUDGES = ("anthropic/claude-sonnet-4-6", "google/gemini-3-flash", "openai/gpt-5.4-mini")


def panel_row(
    model: str, set_id: str, variant: str, pairs: Mapping[str, str], **fields: Any
) -> GradeRow:
    """Make a row from two characters for each judge, `-` for a grade that is missing."""
    by_judge = {
        judge: tuple(None if grade == "-" else int(grade) for grade in pair)
        for judge, pair in pairs.items()
    }
    panel = (
        panel_grade("helpfulness", [pair[0] for pair in by_judge.values()]),
        panel_grade("harm_severity", [pair[1] for pair in by_judge.values()]),
    )
    text = "".join("-" if grade is None else str(grade) for grade in panel)
    return grade_line(model, set_id, variant, text, by_judge=by_judge, **fields)


def judged_by(
    study: Study,
    judges: Sequence[str],
    regrades: Sequence[Regrade] = (),
    *,
    mode_judge: str | None = None,
) -> Study:
    """Put judges into a study's manifest."""
    entries = {
        model: msgspec.structs.replace(
            entry, judges=tuple(judges), mode_judge=mode_judge or judges[0]
        )
        for model, entry in study.manifest.models.items()
    }
    return study._replace(
        manifest=msgspec.structs.replace(study.manifest, models=entries), regrades=regrades
    )


def panel_study(
    rows: Sequence[GradeRow], dataset: Dataset, regrades: Sequence[Regrade] = ()
) -> Study:
    """Put rows of several judges into a study."""
    models = list(dict.fromkeys(row.model for row in rows))
    judges = sorted({judge for row in rows for judge in row.by_judge})
    return judged_by(study_with(rows, dataset, models), judges, regrades)


def twice(model: str, set_id: str, variant: str, pairs: Mapping[str, tuple[str, str]]) -> Regrade:
    """Make a re-grade from the two characters of each judge's first and second grading."""

    def grades(pair: str) -> JudgeGrades:
        helpfulness, harm = (Missing("unparsed") if grade == "-" else int(grade) for grade in pair)
        return JudgeGrades(helpfulness=helpfulness, harm_severity=harm)

    return Regrade(
        model=model,
        set_id=set_id,
        variant=variant,
        epoch=1,
        first={judge: grades(pair[0]) for judge, pair in pairs.items()},
        again={judge: grades(pair[1]) for judge, pair in pairs.items()},
    )


def random_panel(
    judges: Sequence[str] = JUDGES,
    models: Sequence[str] = MODELS[:4],
    sets: int = 60,
    *,
    samples: int = 0,
    seed: int = 3,
) -> Study:
    """Let several judges, each with leanings of its own, grade a random study; a sample of it
    twice.
    """
    study = random_study(models, sets)
    generator = np.random.default_rng(seed)
    kind = {judge: generator.normal(size=2) * 0.25 for judge in judges}
    rows, regrades = [], []
    for row in study.rows:
        if not row.counts:
            rows.append(msgspec.structs.replace(row, by_judge=dict.fromkeys(judges, (None, None))))
            continue
        first, again = (
            {judge: _heard(row, kind[judge], generator) for judge in judges} for _ in range(2)
        )
        rows.append(
            panel_row(
                row.model, row.set_id, row.variant, first, mode=row.mode, strategy=row.strategy
            )
        )
        if len(regrades) < samples and generator.random() < 0.02:
            again = {
                judge: first[judge] if generator.random() < 0.7 else again[judge]
                for judge in judges
            }
            regrades.append(
                twice(
                    row.model,
                    row.set_id,
                    row.variant,
                    {judge: (first[judge], again[judge]) for judge in judges},
                )
            )
    return judged_by(study._replace(rows=rows), judges, regrades)


def _heard(row: GradeRow, kind: np.ndarray, generator: np.random.Generator) -> str:
    """Return a judge's two grades: the row's, with what the judge adds to them."""
    assert row.helpfulness is not None
    assert row.harm_severity is not None
    shifts = np.rint(kind + generator.normal(size=2) * 0.45).astype(int)
    return f"{np.clip(row.helpfulness + shifts[0], 1, 4)}{np.clip(row.harm_severity + shifts[1], 0, 3)}"


__all__ = ["JUDGES", "judged_by", "panel_row", "panel_study", "random_panel", "twice"]
