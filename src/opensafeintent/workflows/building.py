"""Build prompt-sets from unsafe seed prompts, or from none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent import __version__
from opensafeintent.annotation.labels import Label, read_labels
from opensafeintent.calls.client import Client, Tally
from opensafeintent.calls.draining import under_way
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display, progress_line, refreshed
from opensafeintent.calls.spending import ForecastLine, Seen, by_experience, seen_in
from opensafeintent.construction.controls.records import DatasetCheck
from opensafeintent.construction.folder import BuildFolder, BuildManifest, spent_of_build
from opensafeintent.construction.pipeline import (
    Built,
    ExpectedCalls,
    Plan,
    Watcher,
    build_sets,
    forecast_build,
)
from opensafeintent.construction.records import STAGES, Seed, Stage, StageResult
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.forecast import Forecast
from opensafeintent.interop.inspect.models import model_identity, open_models, unset_lines
from opensafeintent.promptsets import Dataset
from opensafeintent.report.cost import Costs
from opensafeintent.taxonomy import default_taxonomy, load_taxonomy
from opensafeintent.templates.instruction import load_instructions
from opensafeintent.workflows.limits import Limits, wait_or_refuse
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.settings import BuildSettings

_FINISHED = 6
"""The stage from which on there is a dataset."""
_ITEM_TOKENS, _REPLY_TOKENS = 300, 200
_ASSUMED = (
    f"what an instruction is about taken as {_ITEM_TOKENS} tokens, the reply as {_REPLY_TOKENS}"
)
"""A guess, stated with every forecast."""


class BuildOutcome(msgspec.Struct, kw_only=True):
    """What a build made, and how it ended."""

    exit_code: int
    """0 done; 1 done, but items were left out because calls failed."""
    out: Path
    built: Built | None = None
    dataset: Dataset | None = None
    check: DatasetCheck | None = None
    """What the dataset controls for."""
    costs: Costs | None = None
    notes: list[str] = []
    """What a reader should know, a line each."""
    forecast: Forecast | None = None
    tally: Tally | None = None


def build(settings: BuildSettings, display: Display | None = None) -> BuildOutcome:
    """Take seeds through the seven stages to a documented dataset, or fill the cells without seeds.

    Running again is resuming: what the ledger holds is not asked for again. A seed that was added,
    or a template that was edited, costs its own calls and those that follow from it.

    Raises:
        InputError: something in the settings is not usable, or the folder holds another build.
        Stopped: a provider or a budget ended the build; what was answered is kept.
    """
    work = _Build(settings)
    if settings.dry_run:
        return run_async(work.forecast)
    work.folder.load()  # before the lock, which makes the folder
    shown = display or Display()
    with work.folder.lock(wait_or_refuse(settings, shown)):
        return run_async(lambda: work.run(shown))


class _Build:
    """One build: what it is made of, and how it is run."""

    def __init__(self, settings: BuildSettings) -> None:
        self.settings = settings
        self.folder = BuildFolder(settings.out)
        self._taxonomy = (
            load_taxonomy(settings.taxonomy) if settings.taxonomy else default_taxonomy()
        )
        self._instructions = load_instructions(settings.templates)
        self._limits = Limits.of(settings)
        self._seeds: StageResult[Seed] = StageResult(stage="seeds", kept=(), rejected=())
        if settings.seeds:
            self._seeds = read_seeds(settings.seeds, settings.limit, settings.max_rows)
        self._plan = Plan(per_cell=settings.per_cell, last_stage=settings.stages[1])

    async def run(self, display: Display) -> BuildOutcome:
        """Make the calls, and write what came of them."""
        from opensafeintent.workflows.build_results import write_build_results

        settings, folder = self.settings, self.folder
        async with HttpSession(self._limits.max_connections) as http:
            opened = open_models(settings.models, http)
            self._limits.check_prices(opened)
            manifest = self._manifest({name: model.identity for name, model in opened.items()})
            renewed = self._check_same(manifest)
            folder.save(manifest)
            with Ledger(
                folder.ledger_path(manifest), waiting=wait_or_refuse(settings, display)
            ) as ledger:
                client = Client(ledger, opened, self._limits.budget)
                progress = _Progress(folder, display, client.tally, self._limits)
                progress.ends(self._seeds)
                context = manifest.context(
                    client,
                    at_once=under_way(self._limits.max_connections),
                    recorded_stages=STAGES[: settings.stages[0] - 1],
                )
                async with refreshed(display, progress.refresh, client):
                    built = await build_sets(
                        context, self._seeds, self._plan, progress, folder.rounds(manifest)
                    )
                client.stop_silent_models()
                if client.stopped_models:
                    raise Stopped("; ".join(client.stopped_models.values()))
                judged = _judged_quality(settings.labels)
                if settings.labels:
                    built = built.reviewed(_poor(judged, built))
                    progress.ends(built.drafts[-1])
        with Ledger(
            folder.ledger_path(manifest), readonly=True
        ) as ledger:  # now that every row is on disk
            costs = Costs({"build": spent_of_build(manifest, built, ledger)}, settings.prices)
        remarks = self._remarks(built)
        dataset, checked = write_build_results(
            folder,
            manifest,
            built,
            costs,
            remarks=remarks,
            judged=judged if settings.labels else None,
        )
        notes = [*renewed, *remarks, *client.notices]
        return BuildOutcome(
            exit_code=1 if built.rejected_for("call_failed") else 0,
            out=folder.path,
            built=built,
            dataset=dataset,
            check=checked,
            costs=costs,
            notes=notes,
            tally=client.tally,
        )

    async def forecast(self) -> BuildOutcome:
        """Say what is still to be called, from the ledger alone."""
        settings = self.settings
        identities = {name: model_identity(name) for name in settings.models}
        manifest = self._manifest(identities)
        with Ledger(self.folder.ledger_path(manifest), readonly=True, missing_ok=True) as ledger:
            context = manifest.context(Client(ledger, identities))
            rounds = self.folder.rounds(manifest, readonly=True)
            built = await build_sets(context, self._seeds, self._plan, Watcher(), rounds)
            expected = forecast_build(built, self._plan, self._taxonomy)
            lines = self._expected(expected, seen_in(ledger))
        forecast = Forecast(lines, _ASSUMED, connections=settings.max_connections)
        return BuildOutcome(
            exit_code=0, out=settings.out, forecast=forecast, notes=unset_lines(settings.models)
        )

    def _expected(
        self, expected: Sequence[ExpectedCalls], seen: Mapping[tuple[str, str], Seen]
    ) -> tuple[ForecastLine, ...]:
        """Return the calls to come with their tokens: those of such calls on record, else a
        guess.
        """
        models = {"generator": self.settings.generator, "judge": self.settings.judge}
        templates: dict[str, int] = {
            template.role: len(template.source) // 4
            for template in self._instructions.by_role.values()
        }
        return tuple(
            by_experience(
                ForecastLine(
                    model=models[line.role],
                    purpose=line.purpose,
                    calls=line.calls,
                    input_tokens=line.calls * (templates[line.purpose] + _ITEM_TOKENS),
                    output_tokens=line.calls * _REPLY_TOKENS,
                ),
                seen,
            )
            for line in expected
        )

    def _manifest(self, identities: dict[str, str]) -> BuildManifest:
        settings = self.settings
        return BuildManifest(
            version=__version__,
            generator=settings.generator,
            judge=settings.judge,
            identities=identities,
            generator_sampling=settings.generator_sampling,
            judge_sampling=settings.judge_sampling,
            structured_output=settings.structured_output,
            taxonomy=self._taxonomy,
            seeds=settings.seeds,
            limit=settings.limit,
            per_cell=settings.per_cell,
            stages=settings.stages,
            ledger=str(settings.ledger.resolve()) if settings.ledger else "ledger.sqlite",
            templates=self._instructions.sources(),
        )

    def _check_same(self, manifest: BuildManifest) -> list[str]:
        """Refuse to build over what other models made, or over what another version of this program
        finished.

        Seeds, targets and the texts that models are given may change.

        Returns:
            Which texts have changed, in a line.
        """
        old = self.folder.load()
        if old is None:
            return []
        differing = []
        for field in ("generator", "judge", "generator_sampling", "judge_sampling", "ledger"):
            before, now = getattr(old, field), getattr(manifest, field)
            if before != now:
                differing.append(
                    f"{field.replace('_', ' ')}: it has {_shown(before)}, this has {_shown(now)}"
                )
        if old.taxonomy.cells != manifest.taxonomy.cells:
            differing.append("taxonomy")
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
            and self.folder.has_dataset
        ):
            raise InputError(
                f"{self.folder.path}: holds a dataset that was built with other texts than these:"
                f" {', '.join(changed)}; choose a new --out, or remove its dataset.jsonl to build"
                " it again with these"
            )
        return [
            f"changed since the last run: {', '.join(changed)}; what they are for, and what follows"
            " from it, is done again"
        ]

    def _remarks(self, built: Built) -> list[str]:
        """Return what a reader of the dataset should know, a line each."""
        settings = self.settings
        notes = []
        if settings.generator == settings.judge:
            notes.append(
                f"generator and judge are the same model ({settings.generator}): that they agree"
                " means little, and its blind spots are the dataset's"
            )
        if failed := built.rejected_for("call_failed"):
            notes.append(
                f"{len(failed)} items were left out because calls failed ({failed[0].detail}); run"
                " again to try them again"
            )
        if waiting := built.rejected_for("not_made"):
            first = settings.stages[0]
            notes.append(
                f"{len(waiting)} items wait for stages before {first}, which --stages leaves out;"
                f" run --stages 1-{first - 1}"
            )
        if settings.per_cell is not None and settings.stages[1] >= _FINISHED:
            there = Counter(draft.topic.cell for draft in built.finished)
            short = [cell for cell in self._taxonomy.cells if there[cell] < settings.per_cell]
            if short:
                notes.append(
                    f"{len(short)} cells have fewer than {settings.per_cell} sets after the last"
                    " pass"
                )
        return notes


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _judged_quality(paths: Sequence[Path]) -> list[Label]:
    """Read the labels that say of a set whether it is good or poor."""
    labels = [one.label for one in read_labels(*paths)]
    return [label for label in labels if label.answers.get("overall_quality") in ("good", "poor")]


def _poor(judged: Sequence[Label], built: Built) -> frozenset[str]:
    """Return the ids of the sets that every annotator who answered calls poor."""
    opinions: dict[str, set[object]] = {}
    for label in judged:
        opinions.setdefault(label.id, set()).add(label.answers["overall_quality"])
    known = {draft.id for draft in built.finished}
    if unknown := sorted(set(opinions) - known):
        raise InputError(
            f"--labels: {len(unknown)} labelled sets are not of this build, such as {unknown[0]};"
            " label this build"
        )
    return frozenset(set_id for set_id, answers in opinions.items() if answers == {"poor"})


class _Progress(Watcher):
    """Shows how each stage goes, and writes it to disk when it has ended."""

    def __init__(self, folder: BuildFolder, display: Display, tally: Tally, limits: Limits) -> None:
        self._folder = folder
        self._display = display
        self._tally = tally
        self._limits = limits
        self._stage: Stage = "seeds"
        self._items = 0
        self._done: Counter[Stage] = Counter()
        self._pass = 1

    def begins(self, stage: Stage, items: int, number: int) -> None:
        if number != self._pass:
            self._done.clear()
        self._stage, self._items, self._pass = stage, items, number

    def finished(self, stage: Stage) -> None:
        self._done[stage] += 1

    def ends(self, result: StageResult[Any]) -> None:
        self._folder.write_stage(result)
        if result.count_in:
            self._display.note(_stage_line(result, self._pass))

    def refresh(self) -> None:
        """Show the state of things."""
        spent = self._limits.spent(self._tally)
        again = f" (pass {self._pass})" if self._pass > 1 else ""
        done = self._done[self._stage]
        line = (
            f"{self._stage}{again}: {done:,} of {self._items:,} ·"
            f" {progress_line(self._tally, None, spent)}"
        )
        self._display.update(done, self._items, line)


def _stage_line(result: StageResult[Any], number: int) -> str:
    """Return what a stage kept and dropped, and why, as one line."""
    again = f" after pass {number}" if number > 1 else ""
    why = f"; dropped: {result.why_dropped()}" if result.rejected else ""
    return f"{result.stage}{again}: {result.count_in:,} in, {len(result.kept):,} kept{why}"
