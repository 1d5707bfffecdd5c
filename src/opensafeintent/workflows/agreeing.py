"""From labels to agreement: the paper's Tables 3 and 7, the prompt-sets to drop, and the cleaned
dataset.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from opensafeintent.analysis.agreement import PANEL
from opensafeintent.annotation.answers import Answers, Item, SourcedLabel, gather, read_all, refuse
from opensafeintent.annotation.judging import JudgeGrades, JudgeStudy, judge_study
from opensafeintent.annotation.quality import (
    Consistency,
    Quality,
    dataset_quality,
    self_consistency,
)
from opensafeintent.annotation.texts import text_hash
from opensafeintent.errors import InputError
from opensafeintent.evaluation.derive import RunTexts
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.grades import GradeRow
from opensafeintent.promptsets import Dataset, load_dataset, write_dataset
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.report.metrics_json import to_json
from opensafeintent.report.tables import write_tables
from opensafeintent.report.tables.agreement import agreement_tables
from opensafeintent.statistics.intervals import RESAMPLES, SEED
from opensafeintent.workflows.reporting import read_study
from opensafeintent.workflows.typed import Settings


class AgreementSettings(Settings, frozen=True, kw_only=True):
    """Which labels to compare, with what, and where the results go."""

    labels: tuple[Path, ...]
    run: Path | None = None
    """The run whose responses were labelled: its judges are held against the labels."""
    dataset: str | None = None
    """The dataset that was labelled: the cleaned one is written from it."""
    taxonomy: Path | None = None
    """Of that dataset, where it is not the paper's."""
    max_rows: int | None = MOST_ROWS
    """Of the dataset; None sets no limit."""
    out: Path | None = None
    """A folder for the results; nothing is written without one."""
    seed: int = SEED
    resamples: int = RESAMPLES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: expected 0 or more")
        if self.resamples < 100:
            raise InputError(f"{self.resamples} resamples: expected 100 or more")


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What labels say, as `agreement.json` holds it."""

    schema: int = 1
    dataset: str
    """Hash of the dataset that was labelled."""
    quality: Quality | None
    judges: JudgeStudy | None
    consistency: tuple[Consistency, ...]
    notes: tuple[str, ...]
    """What a reader should know, a line each."""
    seed: int
    resamples: int
    written: tuple[Path, ...] = ()
    """Files and folders; not in the file itself."""


def agreement(settings: AgreementSettings) -> Agreement:
    """Tell how far people agree on a dataset or on grades, and how far a judge agrees with them.

    Raises:
        InputError: labels cannot be read, contradict one another, or belong to another dataset, run
            or text; or the results cannot be written.
    """
    sourced = read_all(
        list({path.resolve(): path for path in settings.labels}.values())
    )  # a file named twice is read once
    answers = gather(sourced)
    if not answers:
        raise InputError(
            f"{sourced[0].path}: holds second showings only; the first answers are not there"
        )
    digest = sourced[0].label.dataset
    dataset = _labelled_dataset(settings, sourced) if settings.dataset is not None else None
    options = {"count": settings.resamples, "seed": settings.seed}
    on_quality, on_grades = answers.get("dataset_quality"), answers.get("judge_validation")
    if settings.run is not None and on_grades is None:
        raise InputError(
            f"--run {settings.run}: the labels are of dataset quality; none is of a response"
        )
    judges = _judges_of(on_grades, settings.run) if on_grades and settings.run else []
    quality = dataset_quality(on_quality, **options) if on_quality else None
    study = judge_study(on_grades, judges, **options) if on_grades else None
    result = Agreement(
        dataset=digest,
        quality=quality,
        judges=study,
        consistency=tuple(
            line for of_kind in answers.values() for line in self_consistency(of_kind)
        ),
        notes=tuple(_notes(settings, quality, study, dataset)),
        seed=settings.seed,
        resamples=settings.resamples,
    )
    return result if settings.out is None else _write(result, dataset, settings.out)


def _labelled_dataset(settings: AgreementSettings, sourced: Sequence[SourcedLabel]) -> Dataset:
    """Load the dataset that was labelled; another one, or another version of it, is refused."""
    assert settings.dataset is not None
    dataset = load_dataset(settings.dataset, settings.taxonomy, settings.max_rows)
    first = sourced[0]
    if dataset.hash != first.label.dataset:
        raise InputError(
            f"{first}: is for another dataset, or another version of it"
            f" ({first.label.dataset[:8]}); --dataset {settings.dataset} is {dataset.hash[:8]}"
        )
    strange = [one for one in sourced if one.label.id not in dataset.by_id]
    if strange:
        raise InputError(f"{strange[0]}: no such prompt-set in {settings.dataset}")
    return dataset


def _judges_of(answers: Answers, run: Path) -> list[JudgeGrades]:
    """Return each judge's grades of the labelled responses, in the order of the items, and the
    panel's where there is one.

    Raises:
        InputError: the labels are for another dataset, for responses that the run does not have, or
            for other texts.
    """
    folder = RunFolder(run)
    manifest, dataset = folder.load()
    first = answers.sourced[0]
    if manifest.dataset.hash != first.label.dataset:
        raise InputError(
            f"{first}: is for another dataset ({first.label.dataset[:8]}) than --run {run}"
            f" ({manifest.dataset.hash[:8]})"
        )
    study = read_study(folder, run.name)
    rows = {Item(row.set_id, row.variant, row.model, row.epoch): row for row in study.rows}
    with RunTexts(manifest, dataset, folder.ledger_path(manifest)) as texts:
        hashes = {
            item: None if text is None else text_hash(text.text)
            for item in {one.item for one in answers.sourced} & rows.keys()
            for text in [texts.find(item.model, item.id, item.variant, item.epoch)]
        }
    refuse([problem for one in answers.sourced if (problem := _stray(one, hashes, run))], "labels")
    return _grades(answers.items, rows)


def _stray(sourced: SourcedLabel, hashes: dict[Item, str | None], run: Path) -> str:
    if sourced.item not in hashes:
        return f"{sourced}: {run} has no such response"
    if hashes[sourced.item] is None:
        return f"{sourced}: {run} has no text of this response"
    if hashes[sourced.item] != sourced.label.response_sha256:
        return f"{sourced}: was given for another text than the response in {run}"
    return ""


def _grades(items: Sequence[Item], rows: dict[Item, GradeRow]) -> list[JudgeGrades]:
    names = sorted({judge for item in items for judge in rows[item].by_judge})
    judges = [
        _of_judge(judge, [rows[item].by_judge.get(judge, (None, None)) for item in items])
        for judge in names
    ]
    if len(names) > 1:
        judges.append(
            _of_judge(PANEL, [(rows[item].helpfulness, rows[item].harm_severity) for item in items])
        )
    return judges


def _of_judge(judge: str, grades: Sequence[tuple[int | None, int | None]]) -> JudgeGrades:
    return JudgeGrades(
        judge=judge,
        helpfulness=tuple(pair[0] for pair in grades),
        harm_severity=tuple(pair[1] for pair in grades),
    )


def _notes(
    settings: AgreementSettings,
    quality: Quality | None,
    study: JudgeStudy | None,
    dataset: Dataset | None,
) -> list[str]:
    notes = []
    for what, counts in (("dataset quality", quality), ("responses", study)):
        if counts is not None and len(counts.annotators) == 1:
            (name,) = counts.annotators
            notes.append(
                f"Only one annotator ({name}) labelled {what}: agreement between people is"
                " undefined."
            )
    if quality is not None and quality.drop and len(quality.annotators) == 1:
        notes.append("The sets to drop are poor on the word of one annotator.")
    if quality is not None and dataset is not None and quality.sets < len(dataset):
        notes.append(
            f"{len(dataset) - quality.sets:,} of {len(dataset):,} prompt-sets have no labels; they"
            " are not dropped."
        )
    if quality is not None and settings.out is not None and dataset is None:
        notes.append("The cleaned dataset needs the dataset that was labelled: --dataset NAME.")
    if study is not None:
        notes += _study_notes(settings, study)
    return notes


def _study_notes(settings: AgreementSettings, study: JudgeStudy) -> list[str]:
    notes = []
    if settings.run is None:
        notes.append(
            "People are compared with one another only; --run RUN holds the run's judges against"
            " them."
        )
    elif not study.judges:
        notes.append(
            f"No judge has graded these responses: opensafeintent grade {settings.run} --judge"
            " MODEL"
        )
    units = "whole prompt-sets" if study.unit == "set" else "single responses"
    within = f" within {study.strata} strata" if study.strata > 1 else ""
    if study.weighted:
        notes.append(
            "A stratified sample: every number about grades is weighted by one over the"
            f" probability of being drawn; intervals resample {units}{within}. Counts are of the"
            " sample itself."
        )
    elif study.strata > 1 or study.unit == "set":
        notes.append(f"Intervals about grades resample {units}{within}.")
    notes += [
        f"{line.judge}: has no {line.dimension} grade of {line.missing:,} labelled responses; they"
        " are left out."
        for line in study.judges
        if line.missing
    ]
    return notes


def _write(result: Agreement, dataset: Dataset | None, out: Path) -> Agreement:
    """Write the results into a folder; an earlier cleaned dataset does not stay."""
    make_private_folder(out)
    notes = result.notes
    cleaned = out / "cleaned.jsonl"
    written = [out / "agreement.json", out / "tables"]
    try:
        cleaned.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"{cleaned}: cannot remove an earlier one: {error.strerror or error}"
        ) from error
    if dataset is not None and result.quality is not None:
        dropped = {line.id for line in result.quality.drop}
        kept = tuple(
            prompt_set for prompt_set in dataset.prompt_sets if prompt_set.id not in dropped
        )
        if kept:
            write_dataset(Dataset(f"{dataset.name}-cleaned", kept, dataset.taxonomy), cleaned)
            written.append(cleaned)
        else:
            notes = (*notes, "Every prompt-set is to be dropped: there is no cleaned dataset.")
    result = msgspec.structs.replace(result, notes=notes)
    fields = msgspec.to_builtins(result)
    del fields["written"]
    write_private(out / "agreement.json", to_json(_rounded(fields)))
    write_tables(
        agreement_tables(result.quality, result.judges, result.consistency), out / "tables"
    )
    return msgspec.structs.replace(result, written=tuple(written))


def _rounded(value: object) -> object:
    """Return a result with six decimals: beyond them, the order in which a machine adds decides."""
    match value:
        case float():
            return round(value, 6) + 0.0
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_rounded(inner) for inner in value]
        case _:
            return value
