"""Have people check a dataset or a judge: forms go out, and labels come back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from opensafeintent.annotation.forms import render_page, render_sheet
from opensafeintent.annotation.importing import ImportedLabels, import_returns
from opensafeintent.annotation.labels import (
    AnnotationKey,
    KeyItem,
    read_key,
    write_key,
    write_labels,
)
from opensafeintent.annotation.study import (
    StudyPlan,
    Subject,
    draw_responses,
    draw_sets,
    lay_out,
    quality_subject,
    response_subject,
)
from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.derive import RunTexts
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.promptsets import Dataset, load_dataset, sampled
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import CORE_VARIANTS
from opensafeintent.workflows.reporting import read_study
from opensafeintent.workflows.typed import Settings

if TYPE_CHECKING:
    from opensafeintent.grades import GradeRow


Form = Literal["sheet", "page"]
_SUFFIX: dict[Form, str] = {"sheet": ".xlsx", "page": ".html"}


class AnnotateDatasetSettings(Settings, frozen=True, kw_only=True):
    """Which dataset people are to judge, and who."""

    dataset: str
    out: Path
    annotators: tuple[str, ...]
    taxonomy: Path | None = None
    max_rows: int | None = MOST_ROWS
    """Of the dataset; None sets no limit."""
    limit: int | None = None
    """Prompt-sets, spread evenly over the cells; None is all of them."""
    seed: int = 0
    repeat: float = 0.08
    """Share of the items that each annotator meets twice."""
    form: Form = "sheet"


class AnnotateRunSettings(Settings, frozen=True, kw_only=True):
    """Which run's responses people are to grade, how many, and who."""

    run: Path
    out: Path
    annotators: tuple[str, ...]
    sample: int = 120
    """Responses, or prompt-sets with `unit="set"`."""
    unit: Literal["response", "set"] = "response"
    models: tuple[str, ...] = ()
    """Whose responses; empty is every model's."""
    paraphrases: bool = False
    """Whether responses to paraphrases are drawn as well, with `unit="response"`."""
    seed: int = 0
    repeat: float = 0.08
    form: Form = "sheet"


class ExportedStudy(msgspec.Struct, frozen=True, kw_only=True):
    """What was written for a study."""

    key: AnnotationKey
    key_path: Path
    written: list[Path]
    """Forms to hand out."""
    kept: list[Path]
    """Forms that were there already; they may hold answers, and are left as they are."""
    notes: list[str]


class ImportAnnotationsSettings(Settings, frozen=True, kw_only=True):
    """What came back, and where the labels go."""

    files: tuple[Path, ...]
    key: Path
    out: Path
    form: Literal["auto", "sheet", "page"] = "auto"


def annotate_dataset(settings: AnnotateDatasetSettings) -> ExportedStudy:
    """Write a form for each annotator in which the quality of a dataset's prompt-sets is judged,
    and the key.

    The questions are the paper's seven and overall quality (appendix C). The three about intent are
    put blind: the prompts stand in random order without their labels, the annotator says the intent
    of each, and the import derives the answers. Run again with other annotators or the other form,
    the same study grows; forms that are there are left alone.

    Raises:
        InputError: the dataset is not valid, names clash, or the folder holds another study.
    """
    dataset = load_dataset(settings.dataset, settings.taxonomy, settings.max_rows)
    chosen = sampled(dataset.prompt_sets, settings.limit)
    cells = {
        cell: sum(item.cell == cell for item in dataset.prompt_sets)
        for cell in {item.cell for item in chosen}
    }
    drawn = {cell: sum(item.cell == cell for item in chosen) for cell in cells}
    plan = StudyPlan(
        kind="dataset_quality",
        dataset=dataset.name,
        dataset_hash=dataset.hash,
        subjects=tuple(
            quality_subject(
                item,
                dataset.taxonomy,
                KeyItem(
                    id=item.id,
                    weight=cells[item.cell] / drawn[item.cell],
                    stratum=" | ".join(item.cell) if len(chosen) < len(dataset) else "",
                ),
            )
            for item in chosen
        ),
        seed=settings.seed,
        repeat=settings.repeat,
    )
    return _export(plan, settings, [])


def annotate_run(settings: AnnotateRunSettings) -> ExportedStudy:
    """Write a form for each annotator in which a sample of a run's responses is graded, and the
    key.

    Drawn are responses that have a text and both grades, stratified by model, intent and the
    judge's "safe"; with `unit="set"` whole prompt-sets of a model. Each carries one over its
    probability as its weight. No form tells a model, a grade or an intent.

    Raises:
        InputError: there is no run, a model is not in it, the sample is smaller than the number of
            strata, names clash, or the folder holds another study.
    """
    if settings.unit == "set" and settings.paraphrases:
        raise InputError(
            "--paraphrases: goes with --unit response; a set is its three core prompts"
        )
    folder = RunFolder(settings.run)
    manifest, dataset = folder.load()
    study = read_study(folder, settings.run.name)
    for model in settings.models:
        if model not in manifest.models:
            raise InputError(
                f"--model {model}: not a model of this run; {nearest(model, manifest.models)}"
            )
    wanted = [
        row
        for row in study.rows
        if row.model in (settings.models or manifest.models)
        and (settings.paraphrases or row.variant in CORE_VARIANTS)
    ]
    draw = draw_sets if settings.unit == "set" else draw_responses
    drawn = draw(
        [row for row in wanted if row.counts and not row.refused], settings.sample, settings.seed
    )
    with RunTexts(manifest, dataset, folder.ledger_path(manifest)) as texts:
        subjects = tuple(_response(item, dataset, texts) for item in drawn)
    plan = StudyPlan(
        kind="judge_validation",
        dataset=dataset.name,
        dataset_hash=dataset.hash,
        subjects=subjects,
        seed=settings.seed,
        repeat=settings.repeat,
        unit=settings.unit,
    )
    return _export(plan, settings, _left_out(wanted))


def _left_out(rows: Sequence[GradeRow]) -> list[str]:
    refused = sum(bool(row.refused) for row in rows)
    ungraded = sum(not row.counts for row in rows)
    counts = (
        (refused, "refused without a text (filtered, or empty)"),
        (ungraded, "without both grades"),
    )
    return [f"not in the sample: {count:,} {what}" for count, what in counts if count]


def _response(item: KeyItem, dataset: Dataset, texts: RunTexts) -> Subject:
    text = texts.find(item.model, item.id, item.variant, item.epoch)
    if text is None:
        raise InputError(
            f"{item.model}, set {item.id}, {item.variant}: the run's ledger holds grades and no"
            " text; expected the responses themselves (a run of evaluate, or an import of files"
            " that hold them)"
        )
    return response_subject(item, dataset.by_id[item.id].wordings()[item.variant], text.text)


def _export(
    plan: StudyPlan, settings: AnnotateDatasetSettings | AnnotateRunSettings, notes: list[str]
) -> ExportedStudy:
    make_private_folder(settings.out)
    key_path = settings.out / "key.json"
    before = read_key(key_path) if key_path.exists() else None
    known = before.annotators if before else {}
    key, packets = lay_out(
        plan, [*known, *(name for name in settings.annotators if name.strip() not in known)]
    )
    if before is not None:
        _same_study(before, key, key_path)
    write_key(key, key_path)
    written, kept = [], []
    asked = {name.strip() for name in settings.annotators}
    for packet in packets:
        if packet.annotator not in asked:
            continue
        path = settings.out / f"{packet.file_name}{_SUFFIX[settings.form]}"
        if path.exists():
            kept.append(path)
        else:
            sheet = settings.form == "sheet"
            write_private(
                path,
                (
                    render_sheet(packet)
                    if sheet
                    else render_page(packet, key.annotators[packet.annotator])
                ),
            )
            written.append(path)
    return ExportedStudy(key=key, key_path=key_path, written=written, kept=kept, notes=notes)


def _same_study(before: AnnotationKey, key: AnnotationKey, path: Path) -> None:
    if before.study != key.study:
        raise InputError(
            f"{path}: belongs to study {before.study}, and this is {key.study}: another dataset,"
            " sample, seed or share of repeated items; expected a folder of its own for each study"
            " (--out DIR)"
        )
    for name, showings in before.annotators.items():
        if key.annotators[name] != showings:
            raise InputError(
                f"{path}: {name}'s form was laid out by another version of this program; begin in"
                " another folder"
            )


def import_annotations(settings: ImportAnnotationsSettings) -> ImportedLabels:
    """Check what annotators sent back against the study's key, and write their labels.

    Returns of either form can be mixed, may be partial, and may have their rows in another order; a
    blank is no answer.

    Raises:
        InputError: something is wrong: every bad cell stands on a line of its own, with its file,
            address, and what would be valid. Nothing is written then.
    """
    imported = import_returns(settings.files, read_key(settings.key), settings.form)
    if not imported.labels:
        raise InputError(
            f"{', '.join(map(str, settings.files))}: nothing is answered; expected one answer or"
            " more"
        )
    write_labels(imported.labels, settings.out)
    return imported
