"""Have people check a dataset or a judge: write forms, read labels, and report agreement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from opensafeintent.commands.graded_runs import check_results_folder, read_graded_run
from opensafeintent.commands.settings import (
    AgreementSettings,
    AnnotateDatasetSettings,
    AnnotateRunSettings,
    ImportAnnotationsSettings,
)
from opensafeintent.errors import InputError, nearest, pluralize
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.files import os_errors, relative_path_from, to_json, write_private
from opensafeintent.grades import PANEL
from opensafeintent.hostile import clean_for_display, name_safe
from opensafeintent.numbers.metrics import METRICS, MetricScope, find_scope
from opensafeintent.people.agreement import (
    DatasetQuality,
    JudgeStudy,
    gather_grades,
    measure_dataset_quality,
    measure_judge_study,
)
from opensafeintent.people.importing import ImportedLabels, check_replaced, import_returns
from opensafeintent.people.labels import (
    KEY_FILE,
    AnnotatedItem,
    AnnotationKey,
    Answers,
    AskedQuestion,
    KeyItem,
    LabelKind,
    Unit,
    find_run,
    read_key,
    read_labels,
    text_hash,
    write_key,
    write_labels,
)
from opensafeintent.people.study import (
    GUIDE_FILE,
    LONGEST,
    AnnotatedText,
    check_names,
    complete_sets,
    draw,
    list_category_definitions,
    make_key_and_texts,
    make_quality_item,
    make_response_item,
    render_guide,
    render_page,
    render_sheet,
)
from opensafeintent.promptsets import Dataset, load_dataset, sample_sets
from opensafeintent.promptsets.own_questions import shuffle_own_questions
from opensafeintent.promptsets.reading import SPREADSHEET_SUFFIXES, get_suffix
from opensafeintent.ratings import Ratings, RatingsOfItem
from opensafeintent.replacing import write_together
from opensafeintent.report.corrections import FEWEST_LABELS
from opensafeintent.report.printing.console import Printed, print_table
from opensafeintent.report.tables import write_tables
from opensafeintent.report.tables_people import agreement_tables
from opensafeintent.responses import GradedResponse
from opensafeintent.statistics.intervals import SEED
from opensafeintent.taxonomy import CORE_VARIANTS


class ExportedStudy(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a study."""

    key: AnnotationKey
    key_path: Path
    guide: Path
    """To hand out with sheets; pages have it inside."""
    written: list[Path]
    """Forms to hand out."""
    kept: list[Path]
    """Forms that were there already; they may hold answers, and are left as they are."""
    left_out: dict[str, int] = {}
    """Responses that cannot be shown, by the reason."""
    about_sample: tuple[str, ...] = ()
    """Of a run: whether the sample is smaller than was asked for, the metrics that its labels can
    correct, and what others lack, a line each.
    """


class Agreement(Printed, msgspec.Struct, frozen=True, kw_only=True):
    """Results of labels, as `agreement.json` holds them."""

    schema: int = 1
    dataset: str
    """Hash of the dataset that was labelled."""
    quality: DatasetQuality | None
    judges: JudgeStudy | None
    seed: int

    def show(self, console: Console) -> None:
        """Print the tables."""
        for table in agreement_tables(self.quality, self.judges):
            console.print(table.title, style="bold")
            print_table(console, table, notes=True)


def annotate_dataset(settings: AnnotateDatasetSettings) -> ExportedStudy:
    """Write forms for each annotator about the quality of a dataset's prompt-sets, and the key.

    The questions are the paper's seven and overall quality (appendix C). The three about intent are
    blind: the prompts are in random order without their labels, the annotator names the intent of
    each, and the import derives the answers. Run again with other annotators, the same study grows;
    existing forms are not changed.

    Raises:
        InputError: the dataset is not valid, names clash, or the folder holds another study.
    """
    dataset = load_dataset(settings.dataset, settings.taxonomy)
    chosen = sample_sets(dataset.prompt_sets, settings.limit)
    items_with_texts = [make_quality_item(item, dataset) for item in chosen]
    return _write_study(settings, "dataset_quality", dataset, items_with_texts)


def annotate_run(settings: AnnotateRunSettings) -> ExportedStudy:
    """Write forms for each annotator in which a sample of a run's responses is graded, and the key.

    Drawn are responses that have both grades and a text that is not too long to read, stratified by
    model, intent and the judge's "safe"; with `unit="set"` whole prompt-sets of a model. Each
    carries one over its probability as its weight. No form tells a model, a grade or an intent.

    Raises:
        InputError: there is no run, a model is not in it, the sample is smaller than the number of
            strata, names clash, or the folder holds another study.
    """
    folder = RunFolder(settings.run, settings.ledger)
    manifest, dataset = folder.load()
    for model in settings.models:
        if model not in manifest.models:
            raise InputError(
                f"--model {model}: not a model of this run; {nearest(model, manifest.models)}"
            )
    run, models = read_graded_run(folder, settings.run.name), settings.models or manifest.models
    wanted = [
        row
        for row in run.rows
        if row.model in models and (settings.paraphrases or row.variant in CORE_VARIANTS)
    ]
    graded = [row for row in wanted if row.has_all_grades and not row.refusal_reason]
    with RunTexts(manifest, dataset, folder.ledger_path(manifest)) as texts:
        shown = [row for row in graded if not _is_too_long(row, texts)]
        pairs = {item.id for item in dataset.prompt_sets if item.is_pair}
        drawn = draw(shown, settings.sample, settings.seed, settings.unit, dataset.units, pairs)
        items_with_texts = [_make_response_item(item, dataset, texts) for item in drawn]
    study = _write_study(
        settings, "judge_validation", dataset, items_with_texts, settings.unit, settings.run
    )
    left_out = {
        "refused without a text (filtered, or empty)": sum(
            bool(row.refusal_reason) for row in wanted
        ),
        "without both grades": sum(not row.has_all_grades for row in wanted),
        f"longer than {LONGEST:,} characters": len(graded) - len(shown),
        "replies of second turns": sum(row.model in models for row in run.follow_ups),
    }
    scope, counted = find_scope(dataset), complete_sets(run.rows, pairs)
    if scope.has_triplets:  # no metric of theirs is of pairs
        counted = {place for place in counted if place[1] not in pairs}
    about = [
        *_describe_fewer(drawn, settings),
        *_describe_correctable(drawn, counted, settings, scope),
    ]
    return msgspec.structs.replace(study, left_out=left_out, about_sample=tuple(about))


def _describe_fewer(drawn: Sequence[KeyItem], settings: AnnotateRunSettings) -> Iterator[str]:
    """Yield that there are no more responses, or sets, if there are fewer than the sample needs."""
    whole = settings.unit == "set"
    units = {
        (item.model, item.id) if whole else (item.model, item.id, item.variant, item.epoch)
        for item in drawn
    }
    if len(units) < settings.sample and not any(item.family for item in drawn):
        kind = "whole prompt-set" if whole else "response"
        yield (
            f"has all {pluralize(len(units), kind)} that can be drawn, fewer than --sample"
            f" {settings.sample}"
        )


def _describe_correctable(
    drawn: Sequence[KeyItem],
    complete: Collection[tuple[str, str, int]],
    settings: AnnotateRunSettings,
    scope: MetricScope,
) -> Iterator[str]:
    """Yield, for each metric that labels correct, the models with enough labels for it, and what
    the others need.

    Args:
        drawn: the sample.
        complete: the model, prompt-set and epoch of the responses that count in these metrics: all
            core responses are graded.
        settings: of the sample.
        scope: which metrics there are.
    """
    core = [item for item in drawn if item.variant in CORE_VARIANTS]
    used = [item for item in core if (item.model, item.id, item.epoch) in complete]
    unused = Counter(item.model for item in core)
    responses = Counter(item.model for item in used)
    unused.subtract(responses)
    sets = Counter(model for model, _ in {(item.model, item.id) for item in used})
    if not scope.has_triplets:
        responses = Counter(item.model for item in used if item.variant == "benign")
    counts = {scope.utility: (responses, "labelled responses")}
    if settings.unit == "set":
        counts[scope.safety] = (sets, "labelled prompt-sets")
    else:
        safety = METRICS[scope.safety].label
        yield f"cannot correct {safety}: that needs whole sets, --unit set"
    for metric, (labelled, units) in counts.items():
        label = METRICS[metric].label
        for model, further in unused.items():
            count = labelled[model]
            name, enough = clean_for_display(model), count >= FEWEST_LABELS
            can = "corrects" if enough else "cannot correct"
            need = "" if enough else f"; that needs {FEWEST_LABELS}"
            if further and not enough:
                need += f", and {further:,} more are of prompt-sets that lack a grade"
            yield f"{can} {label} of {name}: {count:,} {units}{need}"


def _is_too_long(row: GradedResponse, texts: RunTexts) -> bool:
    text = texts.find(row.model, row.set_id, row.variant, row.epoch)
    return text is not None and len(text.text) > LONGEST


def _make_response_item(item: KeyItem, dataset: Dataset, texts: RunTexts) -> AnnotatedText:
    text = texts.find(item.model, item.id, item.variant, item.epoch)
    if text is None:
        raise InputError(
            f"{item.model}, set {item.id}, {item.variant}: the run's ledger holds grades and no"
            " text; expected the responses themselves (a run of evaluate, or an import of files"
            " that hold them)"
        )
    prompt_set = dataset.by_id[item.id]
    own_questions = shuffle_own_questions(
        prompt_set.questions_about(item.variant), item.id, item.variant
    ).values()
    prompt = prompt_set.wordings()[item.variant]
    return make_response_item(item, prompt, text.text, tuple(own_questions))


def _write_study(
    settings: AnnotateDatasetSettings | AnnotateRunSettings,
    kind: LabelKind,
    dataset: Dataset,
    items_with_texts: Sequence[AnnotatedText],
    unit: Unit = "response",
    run: Path | None = None,
) -> ExportedStudy:
    """Write the key, the guide, and a page and a sheet for each annotator."""
    key_path, guide = settings.out / KEY_FILE, settings.out / GUIDE_FILE
    names = check_names([name for text in settings.annotators for name in text.split(",")])
    written: list[Path] = []
    kept: list[Path] = []
    with write_together(settings.out) as new:
        before = read_key(key_path).annotators if key_path.exists() else {}
        everyone = [*before, *(name for name in names if name not in before)]
        key, texts = make_key_and_texts(
            kind, dataset, items_with_texts, everyone, seed=settings.seed, unit=unit
        )
        if not before.items() <= key.annotators.items():
            raise InputError(
                f"{key_path}: belongs to another study than {key.study}, with another dataset,"
                " sample, seed or program version; expected a folder of its own for each study"
                " (--out DIR)"
            )
        if run is not None:
            key = msgspec.structs.replace(key, run=relative_path_from(settings.out, run))
        write_key(key, new / key_path.name)
        category_definitions = (
            list_category_definitions(dataset.taxonomy) if kind == "dataset_quality" else ()
        )
        write_private(
            new / guide.name, render_guide(kind, category_definitions, key.most_own_questions)
        )
        page = partial(render_page, category_definitions=category_definitions)
        for name in names:
            for suffix, render in ((".html", page), (".csv", render_sheet)):
                path = settings.out / f"{name_safe(name)}{suffix}"
                if path.exists():
                    kept.append(path)
                else:
                    write_private(new / path.name, render(key, name, texts[name]))
                    written.append(path)
    return ExportedStudy(key=key, key_path=key_path, guide=guide, written=written, kept=kept)


def import_annotations(settings: ImportAnnotationsSettings) -> ImportedLabels:
    """Check annotators' returns against the study's key, and write their labels.

    Returns of either form can be mixed, may be partial, and may have their rows in another order; a
    blank is no answer. Of a folder, every `.json`, `.csv` and `.xlsx` in it is a return, but for
    the key.

    Raises:
        InputError: there are invalid answers; each has a line of its own, with its file, item, and
            the valid answers. Or the file of labels holds something that would be lost: another
            study's labels, or those of an annotator without a return. Nothing is written then.
    """
    key = read_key(settings.key)
    imported = import_returns(list(_list_returned(settings)), key)
    if all(label.blank for label in imported.labels):
        raise InputError(
            f"{', '.join(map(str, settings.files))}: nothing is answered; expected one answer or"
            " more"
        )
    check_replaced(settings.out, key, imported.returns)
    write_labels(imported.labels, settings.out)
    return msgspec.structs.replace(imported, run=find_run(key, settings.key))


def _list_returned(settings: ImportAnnotationsSettings) -> Iterator[Path]:
    """Yield the returned files, those of a folder by name.

    Raises:
        InputError: there is none in a folder, or it cannot be read.
    """
    for path in settings.files:
        if not path.is_dir():
            yield path
            continue
        with os_errors(f"{path}: cannot read"):
            files = [
                file
                for file in sorted(path.iterdir())
                if get_suffix(file) in (".json", *SPREADSHEET_SUFFIXES)
                and not file.name.startswith((".", "~$"))  # Excel's mark of an open file
                and file.resolve() != settings.key.resolve()
            ]
        if not files:
            raise InputError(
                f"{path}: no returned file in it; expected .json of pages, .csv or .xlsx of sheets"
            )
        yield from files


def agreement(settings: AgreementSettings) -> Agreement:
    """Return the agreement of annotators on a dataset, and of a run's judges with annotators.

    With `out`, write `agreement.json` and `tables/` there.

    Raises:
        InputError: labels cannot be read, contradict one another or belong to other data; there are
            labels of responses or a run, but not both; `out` holds another run or a build; or the
            results cannot be written.
    """
    if settings.out is not None:
        check_results_folder(settings.out, [settings.run] if settings.run else [])
    sourced = read_labels(*settings.labels)
    first = sourced[0]
    for label in sourced:
        if label.label.dataset != first.label.dataset:
            raise InputError(
                f"{label}: is for another dataset ({label.label.dataset[:8]}) than {first}"
                f" ({first.label.dataset[:8]}); only labels of one dataset can be put together"
            )
    seed = SEED if settings.seed is None else settings.seed
    on_sets, on_responses = (
        Answers("dataset_quality", sourced),
        Answers("judge_validation", sourced),
    )
    if settings.run is None and on_responses.items:
        raise InputError("--run: is not given; expected the run of the labelled responses")
    judged = settings.run and _collect_grades(on_responses, settings.run, settings.ledger)
    result = Agreement(
        dataset=first.label.dataset,
        quality=measure_dataset_quality(on_sets, seed=seed) if on_sets.items else None,
        judges=measure_judge_study(on_responses, *judged, seed=seed) if judged else None,
        seed=seed,
    )
    if settings.out is not None:
        # beyond six decimals the order in which a machine adds decides
        rounded = json.loads(
            msgspec.json.encode(result), parse_float=lambda text: round(float(text), 6) + 0.0
        )
        with write_together(settings.out) as new:
            write_private(new / "agreement.json", to_json(rounded))
            write_tables(agreement_tables(result.quality, result.judges), new / "tables")
    return result


class _Judged(NamedTuple):
    """What judges say of labelled responses, and the panel if there are several judges."""

    grades: Ratings
    own: list[RatingsOfItem]
    """Answers to the questions of the prompt-sets' own."""


def _collect_grades(answers: Answers, run: Path, ledgers: Collection[Path]) -> _Judged:
    """Return what judges say of the labelled responses, in the order of the items.

    Raises:
        InputError: there are no labels of responses; they are for another dataset, for responses
            that the run does not have, or for other texts or questions; or no judge graded these
            responses.
    """
    if not answers.items:
        raise InputError(f"--run {run}: the labels are of dataset quality; none is of a response")
    folder = RunFolder(run, ledgers)
    manifest, dataset = folder.load()
    digest = manifest.dataset.hash
    rows = {
        AnnotatedItem(digest, row.set_id, row.variant, row.model, row.epoch): row
        for row in read_graded_run(folder, run.name).rows
    }
    with RunTexts(manifest, dataset, folder.ledger_path(manifest)) as texts:
        for item in answers.items:
            first, *_ = answers.labels_of(item)
            if item.dataset != digest:
                raise InputError(f"{first}: is for another dataset than --run {run} ({digest[:8]})")
            if item not in rows:
                raise InputError(f"{first}: {run} has no such response")
            text = texts.find(item.model, item.id, item.variant, item.epoch)
            asked = _list_asked(item, dataset)
            for label in answers.labels_of(item):
                if not set(label.label.questions) <= asked:
                    raise InputError(f"{label}: answers other questions than those of {run}")
                if text is None or text_hash(text.text) != label.label.response_sha256:
                    raise InputError(f"{label}: was given for another text than {run} has")
    labelled = [rows[item] for item in answers.items]
    names = sorted({judge for row in labelled for judge in row.by_judge})
    if not names:
        raise InputError(
            f"--run {run}: no judge has graded these responses: opensafeintent grade {run} --judge"
            " MODEL"
        )
    return _Judged(
        gather_grades([row.by_judge for row in labelled], names),
        [_list_own_answers(row) for row in labelled],
    )


def _list_asked(item: AnnotatedItem, dataset: Dataset) -> set[AskedQuestion]:
    own = dataset.by_id[item.id].questions_about(item.variant)
    return {AskedQuestion(one.id, text_hash(one.text)) for one in own.all} if own else set()


def _list_own_answers(row: GradedResponse) -> RatingsOfItem:
    """Return the answers to questions of the prompt-set's own by each judge, and by the panel if
    there are several judges.
    """
    said: dict[str, Mapping[str, str | None]] = {**row.answers_by_judge}
    if len(said) > 1:
        said[PANEL] = row.answers or {}
    return {
        judge: {name: float(answer == "yes") for name, answer in given.items() if answer}
        for judge, given in said.items()
    }
