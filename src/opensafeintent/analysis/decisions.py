"""Decisions on their way: what was frozen, the looks that were taken, and where both are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from opensafeintent.analysis.questions import Match, matches_of, parse_question
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import Frozen, Manifest, RunFolder
from opensafeintent.evaluation.records import GradedResponse
from opensafeintent.files import read_json, write_private
from opensafeintent.grades import grade_row, to_array
from opensafeintent.metrics import METRICS, Grades
from opensafeintent.promptsets import Dataset
from opensafeintent.statistics.decisions import Design, Look, Question, Verdict, design_of, take_look

__all__ = ["Course", "KeptLook", "courses_in", "courses_of", "keep_courses", "planned_design", "set_values"]

_FILE = "decisions.json"
_SCHEMA = 1

Floats = NDArray[np.float64]


class KeptLook(Look, frozen=True, kw_only=True):
    """A look as it is kept."""

    too_many_missing: bool = False
    """More sets were missing than `--max-missing` allows, so it decided nothing whatever it showed."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, about one model or one pair, and how far it has come."""

    frozen: Frozen
    match: Match
    design: Design
    looks: tuple[KeptLook, ...] = ()

    @property
    def question(self) -> Question:
        """What is asked."""
        return self.design.question

    @property
    def verdict(self) -> Verdict | None:
        """What was decided; None where nothing was."""
        return self.looks[-1].verdict if self.looks else None

    @property
    def over(self) -> bool:
        """Whether no look is to come."""
        return self.verdict is not None or self.seen == self.design.sets

    @property
    def seen(self) -> int:
        """Prompt-sets that were looked at, those that do not count among them."""
        return self.looks[-1].planned if self.looks else 0

    @property
    def next(self) -> int:
        """Prompt-sets that the next look takes."""
        return self.design.looks[len(self.looks)]

    def looked(self, values: Floats, max_missing: float) -> Course | None:
        """Return the decision after its next look.

        Args:
            values: of the new sets, NaN where one does not count; see `statistics.decisions.take_look`.
            max_missing: share of all sets so far that may be missing; beyond it no look decides, and the last one is not
                taken, so that what is missing can still be asked for: then None.
        """
        look = take_look(self.design, self.looks, values)
        beyond = look.planned - look.n > max_missing * look.planned
        if beyond and look.planned == self.design.sets:
            return None
        kept = KeptLook(**msgspec.structs.asdict(look), too_many_missing=beyond)
        if beyond:
            kept = msgspec.structs.replace(kept, verdict=None)
        return msgspec.structs.replace(self, looks=(*self.looks, kept))


class _Looks(msgspec.Struct, frozen=True, kw_only=True):
    """The looks of one decision about one model or pair."""

    decision: str
    """`Frozen.id`."""
    model: str
    against: str | None = None
    looks: tuple[KeptLook, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = _SCHEMA
    courses: tuple[_Looks, ...] = ()


def courses_of(frozen: Frozen) -> list[Course]:
    """Return the decisions that a frozen question asks for, before any look, by the models' names.

    A manifest that is read again has lost the order in which models were named.

    Raises:
        InputError: it cannot be decided.
    """
    question = parse_question(frozen.question, list(frozen.models))
    epochs = max(entry.epochs for entry in frozen.models.values())
    design = planned_design(question, frozen.sets, confidence=frozen.confidence, families=frozen.families, epochs=epochs)
    return [Course(frozen=frozen, match=match, design=design) for match in matches_of(question, sorted(frozen.models))]


def planned_design(question: Question, sets: int, *, confidence: float, families: int, epochs: int) -> Design:
    """Return the design of a question; see `statistics.decisions.design_of`.

    Raises:
        InputError: it cannot be decided.
    """
    metric = METRICS[question.metric]
    binary = metric.binary and epochs == 1  # averages over epochs are scores
    try:
        return design_of(question, sets, confidence=confidence, families=families, binary=binary, span=metric.span)
    except InputError as error:
        raise InputError(f"--decide: {error}") from error


def courses_in(folder: RunFolder, manifest: Manifest) -> list[Course]:
    """Return the decisions of a run with the looks taken so far.

    Raises:
        InputError: what is kept of them is damaged.
    """
    if not manifest.decisions:
        return []
    path = folder.path / _FILE
    file = read_json(path, _File, "the looks of a run's decisions", schema=_SCHEMA) if path.is_file() else _File()
    looks = {(kept.decision, Match(kept.model, kept.against)): kept.looks for kept in file.courses}
    found = []
    for course in (course for frozen in manifest.decisions for course in courses_of(frozen)):
        taken = looks.get((course.frozen.id, course.match), ())
        if tuple(look.planned for look in taken) != course.design.looks[: len(taken)]:
            raise InputError(f"{path}: holds looks that {folder.manifest_path.name} does not plan; one of them was changed")
        found.append(msgspec.structs.replace(course, looks=taken))
    return found


def keep_courses(folder: RunFolder, courses: Iterable[Course]) -> None:
    """Write the looks of all decisions of a run; they are on the disk when this returns.

    Raises:
        InputError: they cannot be written.
    """
    kept = (
        _Looks(decision=course.frozen.id, model=course.match.model, against=course.match.against, looks=course.looks)
        for course in courses
        if course.looks
    )
    text = msgspec.json.format(msgspec.json.encode(_File(courses=tuple(kept)), order="sorted"), indent=1)
    write_private(folder.path / _FILE, text + b"\n", durable=True)


def set_values(frozen: Frozen, metric: str, graded: Iterable[GradedResponse], dataset: Dataset) -> Mapping[str, Floats]:
    """Return a metric of each prompt-set as the frozen panel has it, by model; NaN where a set does not count.

    Args:
        frozen: what the decision is fixed to: only its judges and its epochs count.
        metric: its name.
        graded: responses with their grades, of further judges too.
        dataset: the prompt-sets, in the order of the values.
    """
    rows = [
        grade_row(_by(response, entry.judges))
        for response in graded
        if (entry := frozen.models.get(response.model)) is not None and response.epoch <= entry.epochs
    ]
    models = list(frozen.models)
    with np.errstate(invalid="ignore"):
        values = METRICS[metric].ratio(Grades(to_array(rows, dataset, models))).by_set.values
    return dict(zip(models, values, strict=True))


def _by(response: GradedResponse, judges: Sequence[str]) -> GradedResponse:
    """Return a response with the grades of some judges."""
    if response.grades.keys() <= set(judges):
        return response
    grades = {judge: grade for judge, grade in response.grades.items() if judge in judges}
    return msgspec.structs.replace(response, grades=grades)
