"""Build prompt-sets."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from opensafeintent import __version__
from opensafeintent.any_model import describe_unset_variables, model_identity
from opensafeintent.batch.rounds import Batching
from opensafeintent.calls.client import Client, choose_concurrency
from opensafeintent.calls.costs import (
    Experience,
    ForecastLine,
    apply_experience,
    experience_in,
)
from opensafeintent.calls.headers import headers_by_model, unlike_requests
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import ledger_name
from opensafeintent.calls.progress import Display, display_for, progress_line, refresh_display
from opensafeintent.calls.python_models import hash_functions
from opensafeintent.commands.batching import open_gathering
from opensafeintent.commands.dataset_tools import write_check
from opensafeintent.commands.outcome import Outcome
from opensafeintent.commands.reproduce import command_line, headers_stated
from opensafeintent.commands.session import (
    Session,
    check_calls,
    choose_ways,
    note_beyond_budget,
    open_session,
    run_async,
    takes_batches,
    wait_or_refuse,
)
from opensafeintent.commands.settings import BuildSettings
from opensafeintent.commands.settings.by_command import state_sampling
from opensafeintent.commands.settings.calling import judge_arguments
from opensafeintent.construction.controls import DatasetCheck
from opensafeintent.construction.folder import (
    RESULTS,
    BuildFolder,
    BuildManifest,
    sum_spent_on_build,
)
from opensafeintent.construction.instructions import load_instructions
from opensafeintent.construction.items import STAGES, Seed, Stage, StageResult
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.construction.stages import (
    Asked,
    BuildPlan,
    Built,
    Watcher,
    build_sets,
    forecast_build,
)
from opensafeintent.errors import InputError, NothingMade, Stopped, pluralize
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.files import read_text, to_json, write_private
from opensafeintent.people.labels import Label, read_labels
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.cards import name_generated_source
from opensafeintent.promptsets.sources import CARD
from opensafeintent.replacing import replace_together
from opensafeintent.report.cost_tables import Costs, encode_costs
from opensafeintent.report.datasets import (
    CARD_MARK,
    build_card,
    build_page,
    check,
    count_cells,
    funnel_table,
    mark_source,
)
from opensafeintent.report.printing.console import print_notes, print_table
from opensafeintent.report.printing.results import show_calls, show_forecast
from opensafeintent.taxonomy import default_taxonomy, load_taxonomy

NAME = "dataset.jsonl"

FINISHED = 6
"""The stage from which on there is a dataset."""


def write_build_results(
    folder: BuildFolder,
    manifest: BuildManifest,
    built: Built,
    costs: Costs,
    *,
    remarks: Sequence[str],
    judged: Sequence[Label] | None,
) -> tuple[Dataset | None, DatasetCheck | None, list[str]]:
    """Write the results of a build: funnel, coverage, costs; the finished dataset, its check and
    card.

    The same build gives the same bytes, in a folder of any name. Files of earlier results that are
    not among these are removed. A card without our mark stays.

    Args:
        folder: the build's.
        manifest: models, settings, templates; saved as complete in the end.
        built: kept and dropped items of every stage.
        costs: of its calls.
        remarks: on the build, a line each.
        judged: the annotators' verdicts, good or poor, by set, if there were any.

    Returns:
        `dataset.jsonl` and its check, None if the build ends before stage 6 or nothing was kept;
        notes for a reader, a line each.

    Raises:
        InputError: a file cannot be written.
    """
    folder.remove_later_stages(manifest.stages[1])
    dataset, checked = _make_dataset(manifest, built), None
    card = folder.path / CARD
    others = card.exists() and CARD_MARK not in read_text(card)
    obsolete = [path for path in _list_dataset_files(folder.path) if not (others and path == card)]
    with replace_together(folder.path, lambda: obsolete) as new:
        write_private(
            new / "funnel.json", _encode_json([stage.funnel_line() for stage in built.stages])
        )
        write_private(
            new / "coverage.json",
            _encode_json([cell._asdict() for cell in count_cells(built, manifest)]),
        )
        write_private(new / "cost.json", encode_costs(costs))
        write_private(new / "build.md", build_page(built, manifest, costs, remarks).encode())
        if dataset:
            checked = check(dataset)
            write_check(checked, new / "check")
            if not others:
                write_private(new / CARD, build_card(dataset, checked, built, manifest, judged))
            BuildFolder(new).write_dataset(dataset, built.finished)
    folder.save(
        msgspec.structs.replace(
            manifest, complete=True, dataset_hash=dataset.hash if dataset else None
        )
    )
    notes = [f"{card}: lacks the line of our cards, so it stays as it is"] if others else []
    return dataset, checked, notes


def _list_dataset_files(folder: Path) -> list[Path]:
    """Return our files about the dataset of an earlier build."""
    names = (*RESULTS, CARD, "check/check.json", "check/check.md")
    return [*(folder / name for name in names), *(folder / "check" / "tables").glob("*.csv")]


def _encode_json(content: object) -> bytes:
    return to_json(content, indent=2, sort_keys=False)


def _make_dataset(manifest: BuildManifest, built: Built) -> Dataset | None:
    """Return the finished prompt-sets, each with the canary that is made from all of them; None if
    there are none.
    """
    if not built.finished or manifest.stages[1] < FINISHED:
        return None
    source = name_generated_source(manifest.generator)
    unmarked = built.list_sets(source)
    marked = mark_source(source, Dataset(NAME, unmarked, manifest.taxonomy).hash)
    return Dataset(NAME, built.list_sets(marked), manifest.taxonomy)


_ITEM_TOKENS, _REPLY_TOKENS = 300, 200
_ASSUMED = (
    f"the subject of an instruction assumed to have {_ITEM_TOKENS} tokens, a reply {_REPLY_TOKENS}"
)
"""A guess, stated with every forecast."""


class BuildOutcome(Outcome, kw_only=True):
    """The results of a build, and how it ended. The exit code is 1 if items were left out because
    calls failed, or if nothing was made, also if that ended the build early.
    """

    out: Path
    built: Built | None = None
    dataset: Dataset | None = None
    check: DatasetCheck | None = None
    """The dataset's controls."""

    def show(self, console: Console, *, verbose: bool = False) -> None:
        """Print the funnel with the calls and their cost, or the forecast."""
        if self.forecast is not None:
            total = sum(line.calls for line in self.forecast.lines)
            lead = (
                f"{pluralize(total, 'call')} to make, if every unknown item passes every stage"
                " without repairs; "
            )
            show_forecast(console, self.forecast, self.prices, self.notes, lead)
            return
        assert self.built is not None
        print_table(console, funnel_table(self.built))
        print_notes(console, self.notes)
        show_calls(console, self.tally, self.costs)


def build(settings: BuildSettings, *, quiet: bool = False) -> BuildOutcome:
    """Take seeds through the seven stages to a documented dataset, or fill the cells without seeds.

    Running again is resuming: calls in the ledger are not made again. An added seed, or an edited
    template, costs its own calls and those that follow from it.

    Raises:
        InputError: a setting is not usable, or the folder holds another build.
        Stopped: a provider or a budget ended the build; answers so far are kept.
    """
    work = _BuildRun(settings)
    if settings.dry_run:
        return run_async(work.forecast)
    work.folder.load()  # before the lock, which makes the folder
    shown = display_for(quiet=quiet)
    with work.folder.lock(wait_or_refuse(settings, shown)):
        return run_async(lambda: work.run(shown))


class _BuildRun:
    """One build: its parts, and how it is run."""

    def __init__(self, settings: BuildSettings) -> None:
        self.settings = settings
        self.folder = BuildFolder(settings.out, settings.ledger)
        self._taxonomy = (
            load_taxonomy(settings.taxonomy) if settings.taxonomy else default_taxonomy()
        )
        self._instructions = load_instructions(settings.templates)
        check_calls(settings, settings.models)
        self._headers = headers_by_model(
            settings.header, settings.under_test, (settings.judge,), settings.models
        )
        self._seeds: StageResult[Seed] = (
            read_seeds(settings.seeds, settings.limit)
            if settings.seeds
            else StageResult(stage="seeds", kept=(), rejected=())
        )
        self._judged = _read_verdicts(settings.labels)
        self._plan = BuildPlan(per_cell=settings.per_cell, last_stage=settings.stages[1])

    async def run(self, display: Display) -> BuildOutcome:
        """Make the calls, and write the results."""
        manifest, built, client, renewed = await self._make_calls(display)
        settings, folder = self.settings, self.folder
        # now that every row is on disk
        with Ledger(folder.ledger_path(manifest), readonly=True) as ledger:
            costs = Costs({"build": sum_spent_on_build(manifest, built, ledger)}, settings.prices)
        stopped = [built.nothing_made] if built.nothing_made else []
        remarks = list(self._list_remarks(built))
        dataset, checked, notes = write_build_results(
            folder,
            manifest,
            built,
            costs,
            remarks=[*stopped, *remarks],
            judged=self._judged if settings.labels else None,
        )
        return BuildOutcome(
            exit_code=int(
                bool(stopped or built.list_rejected_for("call_failed")) or not built.stages[-1].kept
            ),
            out=folder.path,
            built=built,
            dataset=dataset,
            check=checked,
            costs=costs,
            stopped=stopped,
            notes=[*renewed, *remarks, *notes, *client.request_notes],
            tally=client.tally,
        )

    async def _make_calls(self, display: Display) -> tuple[BuildManifest, Built, Client, list[str]]:
        """Make the calls of every stage; return what came of them, and remarks on renewed parts."""
        settings, folder = self.settings, self.folder
        earlier = folder.load()
        manifest = self._make_manifest()
        renewed = self._check_same(manifest)
        async with open_session(
            settings,
            settings.models,
            folder.ledger_to_write(manifest, settings.ledger),
            display,
            headers=self._headers,
            left_out=earlier.left_out if earlier else {},
        ) as calling:
            folder.save(manifest)
            client = calling.client
            in_batches = open_gathering(calling)
            progress = _Progress(folder, calling, in_batches)
            progress.stage_ended(self._seeds)
            context = manifest.context(
                client,
                at_once=in_batches.at_once
                if in_batches
                else choose_concurrency(settings.max_connections),
                recorded_stages=STAGES[: settings.stages[0] - 1],
            )
            try:
                async with (
                    refresh_display(display, progress.refresh, client),
                    in_batches.gather() if in_batches else contextlib.nullcontext(),
                ):
                    built = await build_sets(
                        context, self._seeds, self._plan, progress, folder.rounds(manifest)
                    )
            finally:
                manifest = manifest.add_left_out(client.left_out)
                folder.save(manifest)
            client.stop_silent_models()
            if client.stopped_models:
                raise Stopped("; ".join(client.stopped_models.values()))
            if settings.labels and not built.nothing_made:
                built = built.drop_poor(_find_poor(self._judged, built))
                progress.stage_ended(built.drafts[-1])
        return manifest, built, client, renewed

    async def forecast(self) -> BuildOutcome:
        """Return the remaining calls, from the ledger alone.

        Raises:
            InputError: the folder holds another build.
            NothingMade: the ledger has replies that end the build early.
        """
        settings = self.settings
        manifest = self._make_manifest()
        renewed = self._check_same(manifest)
        with Ledger(self.folder.ledger_path(manifest), readonly=True, missing_ok=True) as ledger:
            context = manifest.context(Client(ledger, manifest.identities))
            rounds = self.folder.rounds(manifest, readonly=True)
            built = await build_sets(context, self._seeds, self._plan, Watcher(), rounds)
            if built.nothing_made:
                raise NothingMade(built.nothing_made)
            lines = self._list_lines(
                forecast_build(built, self._plan, self._taxonomy), experience_in(ledger)
            )
        expected = Forecast(
            lines,
            _ASSUMED,
            connections=settings.max_connections,
            chosen=choose_ways(settings, settings.models),
            batches=takes_batches(settings, settings.models),
        )
        notes = [
            *renewed,
            *describe_unset_variables(settings.models, self._headers),
            *note_beyond_budget(expected, settings),
        ]
        return BuildOutcome(
            exit_code=0,
            out=settings.out,
            forecast=expected,
            prices=settings.prices,
            notes=notes,
        )

    def _list_lines(
        self, expected: Mapping[Asked, int], experience: Mapping[tuple[str, str], Experience]
    ) -> tuple[ForecastLine, ...]:
        """Return the calls to come with their tokens: those of such calls in the ledger, else a
        guess.
        """
        models = {"generator": self.settings.generator, "judge": self.settings.judge}
        templates = self._instructions.by_role
        return tuple(
            apply_experience(
                ForecastLine(
                    model=models[role],
                    purpose=purpose,
                    calls=calls,
                    input_tokens=calls * (len(templates[purpose].source) // 4 + _ITEM_TOKENS),
                    output_tokens=calls * _REPLY_TOKENS,
                    beginning_tokens=len(templates[purpose].beginning) // 4,
                ),
                experience,
            )
            for (role, purpose), calls in expected.items()
        )

    def _make_manifest(self) -> BuildManifest:
        settings = self.settings
        return BuildManifest(
            version=__version__,
            generator=settings.generator,
            judge=settings.judge,
            identities={name: model_identity(name, settings.functions) for name in settings.models},
            generator_sampling=state_sampling(settings),
            judge_sampling=settings.choose_judge_sampling(settings.judge),
            structured_output=settings.structured_output,
            taxonomy=self._taxonomy,
            seeds=settings.seeds,
            limit=settings.limit,
            per_cell=settings.per_cell,
            stages=settings.stages,
            labels=tuple(map(str, settings.labels)),
            ledger=ledger_name(settings.ledger),
            headers=self._headers,
            code=hash_functions(settings.models, settings.functions),
            templates=self._instructions.sources(),
        )

    def _check_same(self, manifest: BuildManifest) -> list[str]:
        """Refuse to continue a build of other models, or a finished one of another version of this
        program.

        Seeds, targets and the models' instructions may change.

        Returns:
            The texts that have changed, in a line.
        """
        old = self.folder.load()
        if old is None:
            return []
        differing = [
            f"{field.replace('_', ' ')}: it has {_show_value(getattr(old, field))}, this has"
            f" {_show_value(getattr(manifest, field))}"
            for field in ("generator", "judge", "generator_sampling", "judge_sampling", "ledger")
            if getattr(old, field) != getattr(manifest, field)
        ]
        if old.taxonomy.cells != manifest.taxonomy.cells:
            differing.append("taxonomy")
        both = {old.generator, old.judge} & {manifest.generator, manifest.judge}
        if unlike := unlike_requests(both, old, manifest):
            with Ledger(self.folder.ledger_path(old), readonly=True, missing_ok=True) as ledger:
                answering = ledger.find_answering_models()
            lines = [line for model, line in unlike.items() if model in answering]
            if lines:
                raise InputError(
                    f"{self.folder.path}: has replies that cannot be mixed with those of this"
                    f" build: {'; '.join(lines)}, or choose a new --out"
                )
        if differing:
            raise InputError(
                f"{self.folder.path}: holds another build: {'; '.join(differing)}; choose a new"
                " --out"
            )
        changed = [
            name for name, text in manifest.templates.items() if old.templates.get(name) != text
        ]
        changed += ["the taxonomy's definitions"] if old.taxonomy != manifest.taxonomy else []
        if not changed:
            return []
        if (
            self.settings.templates is None
            and self.settings.taxonomy is None
            and (self.folder.path / NAME).is_file()
        ):
            raise InputError(
                f"{self.folder.path}: holds a dataset that was built with other texts than these:"
                f" {', '.join(changed)}; choose a new --out, or remove its dataset.jsonl to build"
                " it again with these"
            )
        return [
            f"changed since the last run: {', '.join(changed)}; their calls, and those that follow"
            " from them, are made again"
        ]

    def _list_remarks(self, built: Built) -> list[str]:
        """Return remarks for a reader of the dataset, a line each."""
        settings = self.settings
        notes = []
        if settings.generator == settings.judge:
            notes.append(
                f"generator and judge are the same model ({settings.generator}): that they agree"
                " means little, and its blind spots are the dataset's"
            )
        if failed := built.list_rejected_for("call_failed"):
            notes.append(
                f"{pluralize(len(failed), 'item')} left out because calls failed"
                f" ({failed[0].detail}); run again to try again"
            )
        if waiting := built.list_rejected_for("not_made"):
            first = settings.stages[0]
            notes.append(
                f"not yet through the stages before {first}, which --stages leaves out:"
                f" {pluralize(len(waiting), 'item')}; run --stages 1-{first - 1}"
            )
        sets = Counter(draft.topic.cell for draft in built.finished)
        short = self._plan.count_lacking(self._taxonomy, sets)
        if short and settings.stages[1] >= FINISHED and not built.nothing_made:
            notes.append(
                f"{len(short)} cells have fewer than {settings.per_cell} sets after the last pass"
            )
        return notes


def _show_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read_verdicts(files: Sequence[Path]) -> list[Label]:
    """Return the labels of files that call a set good or poor."""
    return [
        read.label
        for read in read_labels(*files)
        if read.label.answers.get("overall_quality") in ("good", "poor")
    ]


def _find_poor(judged: Sequence[Label], built: Built) -> frozenset[str]:
    """Return the ids of the sets that every annotator who answered calls poor."""
    opinions: dict[str, set[object]] = {}
    for label in judged:
        opinions.setdefault(label.id, set()).add(label.answers["overall_quality"])
    if unknown := sorted(opinions.keys() - {draft.id for draft in built.finished}):
        raise InputError(
            f"--labels: {len(unknown)} labelled sets are not of this build, such as {unknown[0]};"
            " label this build"
        )
    return frozenset(set_id for set_id, answers in opinions.items() if answers == {"poor"})


class _Progress(Watcher):
    """Shows each stage's progress, and writes it to disk when it has ended."""

    def __init__(self, folder: BuildFolder, calling: Session, batching: Batching | None) -> None:
        self._folder = folder
        self._calling = calling
        self._batching = batching
        self._stage: Stage = "seeds"
        self._items = 0
        self._done: Counter[Stage] = Counter()
        self._pass = 1

    def stage_begins(self, stage: Stage, items: int, number: int) -> None:
        if number != self._pass:
            self._done.clear()
        self._stage, self._items, self._pass = stage, items, number

    def item_finished(self, stage: Stage) -> None:
        self._done[stage] += 1

    def stage_ended(self, result: StageResult[Any]) -> None:
        self._folder.write_stage(result)
        if result.count_in:
            again = f" after pass {self._pass}" if self._pass > 1 else ""
            why = f"; dropped: {result.why_dropped()}" if result.rejected else ""
            self._calling.display.note(
                f"{result.stage}{again}: {result.count_in:,} in, {len(result.kept):,} kept{why}"
            )

    def refresh(self) -> None:
        """Show the state of things."""
        again = f" (pass {self._pass})" if self._pass > 1 else ""
        done = self._done[self._stage]
        calls = progress_line(self._calling.client.tally, None, self._calling.dollars)
        batches = f" · {self._batching.line}" if self._batching else ""
        line = f"{self._stage}{again}: {done:,} of {self._items:,} · {calls}{batches}"
        self._calling.display.update(done, self._items, line)


def build_command(manifest: BuildManifest, build: str) -> str:
    """Return the command that continues a build in its folder.

    Args:
        manifest: of the build.
        build: the path of its folder, as the command is to name it.
    """
    return command_line("build", BuildSettings, restate_build(manifest, build))


def restate_build(manifest: BuildManifest, build: str) -> dict[str, Any]:
    """Return the settings that continue a build, by name; see `build_command`."""
    generator, judge = manifest.generator_sampling, manifest.judge_sampling
    ours = load_instructions().sources()
    return {
        "seeds": manifest.seeds,
        "generator": manifest.generator,
        "judge": manifest.judge,
        "out": build,
        "per_cell": manifest.per_cell,
        "stages": manifest.stages,
        "labels": manifest.labels,
        "limit": manifest.limit,
        "taxonomy": build if manifest.taxonomy != default_taxonomy() else None,
        "templates": build if manifest.templates != ours else None,
        "temperature": generator.temperature,
        "max_tokens": generator.max_tokens,
        "reasoning_effort": generator.reasoning_effort,
        "extra": generator.extra,
        "judge_args": judge_arguments(judge),
        "structured_output": manifest.structured_output,
        "header": headers_stated(manifest.headers, manifest.headers),
        "ledger": manifest.ledger if Path(manifest.ledger).is_absolute() else None,
    }
