"""Take in responses and grades that were made elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import ledger_name
from opensafeintent.calls.model_names import check_model_name
from opensafeintent.calls.progress import Display, display_for
from opensafeintent.calls.recorded import (
    RecordedResponse,
    SourceFile,
    check_recorded,
    get_place,
)
from opensafeintent.commands.graded_runs import read_graded_run
from opensafeintent.commands.outcome import RunOutcome, grade_command
from opensafeintent.commands.planning import set_checklist
from opensafeintent.commands.reporting import write_results
from opensafeintent.commands.session import delay_garbage_collection
from opensafeintent.commands.settings import ImportSettings
from opensafeintent.errors import (
    InputError,
    first_exit_code,
    nearest,
    pluralize,
)
from opensafeintent.evaluation.manifest import (
    MOST_JUDGES,
    Manifest,
    ModelEntry,
    RunFolder,
    check_number,
)
from opensafeintent.evaluation.plan import Plan
from opensafeintent.evaluation.replay import (
    IMPORTED_JUDGE,
    list_given_tasks,
    list_places,
    read_imported,
)
from opensafeintent.files import sha256_hex
from opensafeintent.grades import check_cells
from opensafeintent.hostile import clean_for_display
from opensafeintent.imports.content import FileContent, index_prompts, match_prompts, show_progress
from opensafeintent.imports.known_formats import read_files
from opensafeintent.inspect.logs import InspectLog
from opensafeintent.promptsets import Dataset, load_dataset
from opensafeintent.taxonomy import (
    DUAL_USE,
    FOLLOW_UPS,
    METRIC_GRADES,
    SCALES,
    Taxonomy,
    default_taxonomy,
    is_follow_up,
    load_taxonomy,
)
from opensafeintent.templates.template import second_turn

T = TypeVar("T")

_METRIC_GRADES = attrgetter(*METRIC_GRADES)
_NO_GRADES = (None,) * len(METRIC_GRADES)


def import_files(settings: ImportSettings, *, quiet: bool = False) -> RunOutcome:
    """Import files of responses, with or without grades, into a run, and report on it.

    A file is one of our own form, or of another program's (`imports.known_formats`), which its
    content tells. Importing the same file twice changes nothing. Of several logs of Inspect AI,
    unusable ones are named, and the others imported.

    Raises:
        InputError: a file, or a record in it, is not usable; nothing is imported then.
    """
    with closing(display_for(quiet=quiet)) as screen, delay_garbage_collection():
        return _import(settings, screen)


def _import(settings: ImportSettings, screen: Display) -> RunOutcome:
    taxonomy = load_taxonomy(settings.taxonomy) if settings.taxonomy else None
    folder = RunFolder(settings.out, settings.ledger)
    of_run = folder.load()[1] if folder.exists() else None
    labels = taxonomy or (of_run.taxonomy if of_run else default_taxonomy())
    read, failed = read_files(settings.files, labels, settings.max_rows, screen)
    by_model = _group_by_model(settings, read)
    dataset = _find_dataset(settings, labels, of_run, read)
    of_text = index_prompts(dataset)
    for item in read:
        if item.unplaced_records:
            item.responses = match_prompts(item, dataset, of_text, screen)
    prompts = list_places(dataset)
    with folder.lock():
        begins = not folder.exists()
        manifest = (
            Manifest.new(dataset, ledger=ledger_name(settings.ledger))
            if begins
            else folder.load()[0]
        )
        ledger_path = folder.ledger_to_write(manifest, settings.ledger)
        for model in by_model:
            if model in manifest.models and not manifest.models[model].imported:
                raise InputError(
                    f"{settings.out}: {model} was evaluated in this run; import under another"
                    " --model or --out"
                )
        for item in read:
            item.responses = _add_first_replies(item)
            _check_prompts(item, dataset, prompts)
            item.responses = list(check_recorded(item.path, item.responses))
        known = manifest.models.keys()
        manifest = _add_models(manifest, by_model)
        folder.check_size(manifest)
        _check_extent(dataset, manifest, by_model)
        if begins:
            folder.write_prompt_sets(dataset)
        with Ledger(ledger_path) as ledger:
            there = read_imported(ledger, dataset)
            _check_extent(dataset, manifest, by_model, there)
            _refuse_other_judges(manifest, known, by_model, there)
            _check_graded(ledger.path, dataset, manifest, by_model, there)
            rows = list(_yield_rows(by_model))
            stored = show_progress(rows, screen, "storing", "responses")
            ledger.imports.add(dataset.hash, stored)
            for _, response in rows:
                there.setdefault(response.model, []).append(response)
            responses = [*chain.from_iterable(there.values())]
            if len({*map(get_place, responses)}) < len(responses):  # some came in several parts
                there = read_imported(ledger, dataset)
        folder.save(manifest)
    run = read_graded_run(folder, settings.out.name, screen, there)
    screen.stage("estimating")
    outcome = write_results(run, folder, settings.max_missing)
    if failed:
        outcome.exit_code = first_exit_code(outcome.exit_code, 1)
        outcome.stopped += failed
    outcome.notes += _collect_notes(read, there, settings.out)
    return outcome


def _collect_notes(
    read: Sequence[FileContent], there: Mapping[str, Sequence[RecordedResponse]], run: Path
) -> list[str]:
    """Return what the files' readers noted, and what they read otherwise than it was written."""
    parts = Counter(
        model
        for model, rows in there.items()
        for row in rows
        if None in _METRIC_GRADES(row) and row.list_given()
    )
    notes = [note for item in read for note in item.notes]
    notes += [
        f"{model}: {pluralize(number, 'response')} with a grade, but not both"
        f" {' and '.join(METRIC_GRADES)}: it counts for nothing; import both, or have judges give"
        f" them: {grade_command(run)}"
        for model, number in parts.items()
    ]
    if zeros := sum(item.zero_helpfulness for item in read):
        notes.append(f"{zeros} helpfulness grades of 0 were read as 1, as the authors' script does")
    return notes


def _check_extent(
    dataset: Dataset,
    manifest: Manifest,
    by_model: Mapping[str, Sequence[FileContent]],
    there: Mapping[str, Sequence[RecordedResponse]] = MappingProxyType({}),
) -> None:
    """Refuse what a report on the run could not read, together with the responses that are there.

    Raises:
        InputError: there are too many judges, or responses to a prompt, for so many models and
            prompt-sets.
    """
    epochs = {row.epoch for rows in there.values() for row in rows}
    for model, items in by_model.items():
        judges = {*_find_judges(there.get(model, ())), *manifest.plan.judges}
        for item in items:
            brought = _find_judges(item.responses)
            for judge in brought - judges:
                check_model_name(judge, f"{item.path}: judge")
            judges |= brought
            check_number(item.path, judges, "judge", MOST_JUDGES)
            epochs.update(response.epoch for response in item.responses)
            check_cells(item.path, len(manifest.models), dataset, len(epochs))


def _check_graded(
    ledger: Path,
    dataset: Dataset,
    manifest: Manifest,
    by_model: Mapping[str, Sequence[FileContent]],
    there: Mapping[str, Sequence[RecordedResponse]],
) -> None:
    """Refuse grades that would take the place of a judge's.

    Raises:
        InputError: a judge has graded a response, and a file brings grades of it.
    """
    for model, rows in there.items():
        if model not in by_model or not manifest.plan.judges:
            continue
        judged = {task.key for task in list_given_tasks(rows, manifest, dataset)}
        by_place = {get_place(row): row for row in rows}
        brought = (response for item in by_model[model] for response in item.responses)
        for response in brought:
            location = (model, response.set_id, response.variant, response.epoch)
            if location in judged and any(
                response.of(what) is not None and by_place[location].of(what) is None
                for what in SCALES
            ):
                raise InputError(
                    f"{ledger.parent}: a judge has graded {model}, set {response.set_id},"
                    f" {response.variant}; expected responses without judges' grades, or a new"
                    " --out"
                )


def _group_by_model(
    settings: ImportSettings, read: Sequence[FileContent]
) -> dict[str, list[FileContent]]:
    by_model: dict[str, list[FileContent]] = {}
    named: dict[Path, str] = {}
    for item in read:
        model = settings.model or item.model
        check_model_name(model, "--model" if settings.model else f"{item.path}: model")
        if settings.model and item.stated_model != named.setdefault(item.path, item.stated_model):
            raise InputError(f"--model {model}: {item.path} names several models; leave it out")
        by_model.setdefault(model, []).append(item)
    return by_model


def _add_models(manifest: Manifest, by_model: dict[str, list[FileContent]]) -> Manifest:
    models, plan, entry = dict(manifest.models), manifest.plan, manifest.dataset
    for model, files in by_model.items():
        if model not in models:
            models[model] = ModelEntry(identity=f"imported/{model}", imported=True)
        for item in files:
            if item.log is not None and item.log.graded and not plan.judges:
                plan = _add_grading(plan, item.path, item.log)
                if plan.by_questions:
                    entry = msgspec.structs.replace(entry, questions=item.log.questions)
            if not {response.variant for response in item.responses}.isdisjoint(FOLLOW_UPS):
                texts = plan.follow_ups or second_turn()
                plan = msgspec.structs.replace(plan, follow_ups=texts)
    return msgspec.structs.replace(manifest, models=models, plan=plan, dataset=entry)


def _add_grading(plan: Plan, path: Path, log: InspectLog) -> Plan:
    """Return a plan with a log's description of how its responses were graded.

    Raises:
        InputError: the run's others were graded in another way.
    """
    asked = log.judge_by != "rubric"
    templates = set_checklist(log.templates, asked=asked) if log.templates else {}
    pairs = (
        ("other questions to judges", plan.judge_by if plan.templates else "", log.judge_by),
        ("other judge templates", plan.templates, templates),
        ("another judge of modes", plan.mode_judge, log.mode_judge),
        ("another way of reading grades", plan.parse if plan.templates else "", log.grade_parse),
    )
    for what, earlier, here in pairs:
        if earlier and here and earlier != here:
            raise InputError(
                f"{path}: was graded with {what} than the run's other responses; import into a new"
                " --out"
            )
    return msgspec.structs.replace(
        plan,
        templates=plan.templates or templates,
        judge_by=log.judge_by,
        mode_judge=plan.mode_judge or log.mode_judge,
        parse=log.grade_parse,
    )


def _refuse_other_judges(
    manifest: Manifest,
    known: Collection[str],
    by_model: Mapping[str, Sequence[FileContent]],
    there: Mapping[str, Sequence[RecordedResponse]],
) -> None:
    """Refuse grades by which models of one run could not be compared.

    Args:
        manifest: of the run with the models.
        known: the models that the run had before.
        by_model: the files.
        there: the responses of the run.

    Raises:
        InputError: a model's grades are of other judges than those of another model.
    """
    graders: dict[str, set[str]] = {model: _list_graders(rows) for model, rows in there.items()}
    for model, items in by_model.items():
        brought = {judge for item in items for judge in _list_graders(item.responses)}
        if brought and manifest.plan.judges and model not in known:
            raise InputError(
                f"{items[0].path}: has grades, and the run's responses are graded by"
                f" {', '.join(manifest.plan.judges)}; import the file without its grade columns, or"
                " into a new --out"
            )
        graders[model] = graders.get(model, set()) | brought
        others = next((of for of in graders.values() if of and of != graders[model]), set())
        if graders[model] and others:
            raise InputError(
                f"{items[0].path}: was graded by {', '.join(sorted(graders[model]))}, and the run's"
                f" other responses by {', '.join(sorted(others))}; import into a new --out"
            )


def _list_graders(rows: Sequence[RecordedResponse]) -> set[str]:
    """Return who gave the grades that responses came with."""
    has_unnamed = any(
        not (row.by_judge or row.answers_by_judge) and _METRIC_GRADES(row) != _NO_GRADES
        for row in rows
    )
    return _find_judges(rows) | ({IMPORTED_JUDGE} if has_unnamed else set())


def _find_judges(rows: Iterable[RecordedResponse]) -> set[str]:
    """Return the judges whose grades or answers responses came with, as far as they are known."""
    return {judge for row in rows for judge in (*row.by_judge, *row.answers_by_judge)}


def _find_dataset(
    settings: ImportSettings,
    taxonomy: Taxonomy,
    of_run: Dataset | None,
    read: Sequence[FileContent],
) -> Dataset:
    """Find the responses' dataset: `--dataset`, the run's dataset, or the prompt-sets of the
    authors' files.
    """
    named = (
        load_dataset(settings.dataset, taxonomy, settings.max_rows) if settings.dataset else None
    )
    if of_run is not None:
        if named is not None and named.hash != of_run.hash:
            raise InputError(
                f"{settings.out}: the run has dataset {of_run.name} ({of_run.hash[:8]}), this is"
                f" {named.name} ({named.hash[:8]}); import into a new --out"
            )
        return of_run
    if named is not None:
        return named
    logs = [item.log for item in read if item.log]
    if any(
        log.dataset == "starter" for log in logs
    ):  # the one name in a log that cannot lead elsewhere
        return load_dataset("starter", taxonomy)
    bringing = [item for item in read if item.prompt_sets]
    if not bringing:
        what = (
            f"the log's task ({clean_for_display(logs[0].dataset)})" if logs else "these responses"
        )
        raise InputError(f"--dataset: is not given; expected the dataset of {what}")
    datasets = [Dataset(item.path.stem, item.prompt_sets, taxonomy) for item in bringing]
    for item, dataset in zip(bringing, datasets, strict=True):
        if dataset.hash != datasets[0].hash:
            raise InputError(
                f"{item.path}: has other prompt-sets than {bringing[0].path}; name the whole with"
                " --dataset"
            )
    return datasets[0]


def _add_first_replies(item: FileContent) -> list[RecordedResponse]:
    """Return a file's responses; a follow-up without its first reply gets the file's response to
    the dual-use prompt in the same epoch. One with both grades needs none, as no judge reads it.

    Raises:
        InputError: there is no such response.
    """
    if {response.variant for response in item.responses}.isdisjoint(FOLLOW_UPS):
        return item.responses
    first_replies = {
        (response.set_id, response.epoch): response.response
        for response in item.responses
        if response.variant == DUAL_USE
    }

    def complete(response: RecordedResponse) -> RecordedResponse:
        known = response.reply_to is not None or not response.response
        if known or not is_follow_up(response.variant):
            return response
        first = first_replies.get((response.set_id, response.epoch))
        if first is None and all(response.of(what) is not None for what in METRIC_GRADES):
            return response
        if first is None:
            raise InputError(
                f"{item.path}: set {clean_for_display(response.set_id)}, {response.variant}, epoch"
                f" {response.epoch}: the first reply is not in the file; expected it as reply_to,"
                " or a response of the same epoch to dual_use"
            )
        return msgspec.structs.replace(response, reply_to=first)

    return list(map(complete, item.responses))


def _check_prompts(
    item: FileContent, dataset: Dataset, prompts: Collection[tuple[str, str]]
) -> None:
    if item.log is not None and item.log.dataset_hash != dataset.hash:
        raise InputError(
            f"{item.path}: its responses are to {clean_for_display(item.log.dataset)}"
            f" ({item.log.dataset_hash[:8]}), this is {dataset.name} ({dataset.hash[:8]})"
        )
    if item.log and item.log.judge_by != "rubric" and item.log.questions != dataset.questions_hash:
        raise InputError(
            f"{item.path}: judges were asked other questions about its responses than those of"
            f" {dataset.name}; expected the log's own dataset"
        )
    lost = [
        response
        for response in item.responses
        if (response.set_id, response.variant) not in prompts
    ]
    if not lost:
        return
    first, *further = lost
    complaint = (
        f"set {first.set_id} has no {first.variant};"
        f" {nearest(first.variant, _list_variants(dataset, first.set_id))}"
        if first.set_id in dataset.by_id
        else f"{clean_for_display(first.set_id)!r} is not a prompt-set of {dataset.name};"
        f" {nearest(first.set_id, list(dataset.by_id)[:5000], shown=10)}"
    )
    further_text = (
        f" (and {len(further):,} more responses are to no prompt of it)" if further else ""
    )
    raise InputError(f"{item.path}: {complaint}{further_text}")


def _list_variants(dataset: Dataset, set_id: str) -> Collection[str]:
    if (prompt_set := dataset.by_id.get(set_id)) is None:
        return ()
    return (*prompt_set.wordings(), *(() if prompt_set.is_pair else FOLLOW_UPS))


def _yield_rows(
    by_model: Mapping[str, Sequence[FileContent]],
) -> Iterator[tuple[SourceFile, RecordedResponse]]:
    files: dict[Path, SourceFile] = {}  # one file may hold many models
    for model, items in by_model.items():
        for item in items:
            if item.path not in files:
                files[item.path] = SourceFile(item.path, sha256_hex(item.path.read_bytes()))
            for response in item.responses:
                yield files[item.path], msgspec.structs.replace(response, model=model)
