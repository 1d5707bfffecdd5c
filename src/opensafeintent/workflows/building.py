"""Build prompt-sets from unsafe seed prompts, or from none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.client import Budget, Client, Tally
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger, open_for_run
from opensafeintent.calls.models import Price, read_prices
from opensafeintent.calls.progress import Display, Quiet, refreshed
from opensafeintent.calls.records import Sampling
from opensafeintent.construction.asking import Asker, Workshop
from opensafeintent.construction.folder import BuildFolder, BuildManifest, Cost, costs_of
from opensafeintent.construction.pipeline import BuildForecast, Built, Plan, Watcher, build_sets, forecast_build
from opensafeintent.construction.records import PURPOSES, STAGES, Draft, Seed, StageResult
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.errors import InputError, Stopped
from opensafeintent.files import write_private
from opensafeintent.interop.models import model_identity, open_models
from opensafeintent.people.labels import read_labels
from opensafeintent.promptsets import Dataset
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import Taxonomy, default_taxonomy, load_taxonomy
from opensafeintent.templates.instruction import Instructions, load_instructions
from opensafeintent.workflows.build_progress import BuildProgress
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.spreading.options import Spreading, check_options, left_shards, take_up_build

if TYPE_CHECKING:
    from opensafeintent.workflows.spreading.building import BuildSpreader

__all__ = ["BuildOutcome", "BuildSettings", "build"]

_COUNTS = ("limit", "per_cell", "max_connections", "max_tokens", "judge_max_tokens", "budget_calls", "budget_tokens")
_AT_ONCE = 512
"""Items under way at the same time while connections adapt."""
_FINISHED = 6
"""The stage from which on there is a dataset."""


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to build, with which models, and where it is kept."""

    generator: str
    judge: str
    out: Path
    seeds: str | None = None
    """JSONL or CSV with a `prompt` column, or `hf:owner/name`; None builds by back-filling alone."""
    per_cell: int | None = None
    """Prompt-sets wanted of each cell at least; None takes what the seeds give."""
    stages: tuple[int, int] = (1, _FINISHED)
    """First and last stage, from 1 to 7. What stages before the first one gave is taken from the ledger."""
    limit: int | None = None
    """Seeds read at most."""
    taxonomy: Path | None = None
    max_rows: int | None = MOST_ROWS
    """Of the seeds; None sets no limit."""
    templates: Path | None = None
    """A folder with templates in place of ours."""
    labels: tuple[Path, ...] = ()
    """What annotators said of the finished sets, for stage 7."""
    max_connections: int | None = None
    temperature: float | None = None
    """Of the generator; its provider's default."""
    max_tokens: int = 4096
    judge_max_tokens: int = 2048
    structured_output: bool = True
    """Whether providers are asked to hold replies to the JSON schema, where they can."""
    ledger: Path | None = None
    budget_calls: int | None = None
    budget_tokens: int | None = None
    prices: Path | None = None
    ray: str | None = None
    """Spread the calls of each stage over a Ray cluster: HOST:PORT of its head, `auto`, or `local`."""
    shards: int | None = None
    """Parts that a stage's items are spread in."""
    dry_run: bool = False

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name.replace('_', '-')} is {value}; expected at least 1")
        if self.seeds is None and self.per_cell is None:
            raise InputError(
                "nothing to build from: name a file of SEEDS, or give --per-cell N to fill the cells without any"
            )
        first, last = self.stages
        if not 1 <= first <= last <= len(STAGES):
            raise InputError(f"--stages {first}-{last}: expected FIRST-LAST, each from 1 to {len(STAGES)}")
        check_options(self.ray, self.shards)
        if self.labels and last < len(STAGES):
            raise InputError(f"--labels is for stage 7, and --stages ends with {last}")

    @property
    def budget(self) -> Budget:
        """The most that may be asked for."""
        return Budget(calls=self.budget_calls, tokens=self.budget_tokens)

    @property
    def spreading(self) -> Spreading | None:
        """Where the calls are spread to, if they are."""
        if self.ray is None:
            return None
        return Spreading(address=self.ray, shards=self.shards, max_connections=self.max_connections, budget=self.budget)

    @property
    def generator_sampling(self) -> Sampling:
        """How the generator is sampled."""
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature)

    @property
    def judge_sampling(self) -> Sampling:
        """How the judge is sampled."""
        return Sampling(max_tokens=self.judge_max_tokens, temperature=0.0)


class BuildOutcome(msgspec.Struct, kw_only=True):
    """What a build made, and how it ended."""

    exit_code: int
    """0 done; 1 done, but items were left out because calls failed."""
    out: Path
    built: Built | None = None
    dataset: Dataset | None = None
    costs: list[Cost] = []
    notes: list[str] = []
    """What a reader should know, a line each."""
    forecast: BuildForecast | None = None
    tally: Tally | None = None


def build(settings: BuildSettings, display: Display | None = None) -> BuildOutcome:
    """Take seeds through the seven stages to a documented dataset, or fill the cells without seeds.

    Running again is resuming: what the ledger holds is not asked for again. A seed that was added, or a template that was
    edited, costs its own calls and those that follow from it.

    Raises:
        InputError: something in the settings is not usable, or the folder holds another build.
        Stopped: a provider or a budget ended the build; what was answered is kept.
    """
    taxonomy = load_taxonomy(settings.taxonomy) if settings.taxonomy else default_taxonomy()
    instructions = load_instructions(settings.templates)
    prices = read_prices(settings.prices) if settings.prices else {}
    empty: StageResult[Seed] = StageResult(stage="seeds", kept=(), rejected=())
    seeds = read_seeds(settings.seeds, settings.limit, settings.max_rows) if settings.seeds else empty
    plan = Plan(taxonomy=taxonomy, per_cell=settings.per_cell, last_stage=settings.stages[1])
    if settings.dry_run:
        return run_async(lambda: _dry_run(settings, plan, seeds, instructions))
    folder = BuildFolder(settings.out)
    folder.load()  # before the lock, which makes the folder
    with folder.lock():
        notes = take_up_build(folder)
        outcome = run_async(lambda: _build(settings, folder, plan, seeds, instructions, prices, display or Quiet()))
    outcome.notes[:0] = notes
    return outcome


async def _build(
    settings: BuildSettings,
    folder: BuildFolder,
    plan: Plan,
    seeds: StageResult[Seed],
    instructions: Instructions,
    prices: Mapping[str, Price],
    display: Display,
) -> BuildOutcome:
    async with HttpSession(settings.max_connections) as http:
        opened = open_models(_models(settings), http)
        manifest = _manifest(settings, plan, instructions, {name: model.identity for name, model in opened.items()})
        _check_same(folder, manifest)
        folder.save(manifest)
        with open_for_run(folder.ledger_path(manifest), own=manifest.owns_ledger) as ledger:
            client = Client(ledger, opened, settings.budget)
            progress = BuildProgress(folder, display, client.tally, prices)
            workshop = _workshop(settings, client, manifest.identities, instructions, progress)
            progress.ends(seeds)
            async with AsyncExitStack() as stack, refreshed(display, progress.refresh, client):
                progress.spreader = _spreader(settings, folder, manifest, client, stack)
                built = await build_sets(workshop, seeds, plan, progress, progress.spreader)
            client.stop_silent_models()
            if client.stopped_models:
                raise Stopped("; ".join(client.stopped_models.values()))
            if settings.labels:
                built = built.reviewed(_poor(settings, built))
                progress.ends(built.drafts[-1])
    with Ledger(folder.ledger_path(manifest), readonly=True) as ledger:  # now that every row is on disk
        costs = costs_of(built, ledger)
    outcome = BuildOutcome(exit_code=0, out=folder.path, built=built, costs=costs, tally=client.tally)
    outcome.notes += [*_remarks(settings, built, plan.taxonomy), *client.notices]
    outcome.notes += progress.spreader.notes if progress.spreader else []
    outcome.exit_code = 1 if built.rejected_for("call_failed") else 0
    _write(settings, folder, manifest, outcome, plan, prices)
    return outcome


def _spreader(
    settings: BuildSettings, folder: BuildFolder, manifest: BuildManifest, client: Client, stack: AsyncExitStack
) -> BuildSpreader | None:
    """Return what makes the calls of each stage on a cluster, where one is named."""
    if (spreading := settings.spreading) is None:
        return None
    from opensafeintent.workflows.spreading.building import BuildSpreader

    return BuildSpreader(spreading, folder, manifest, client, stack)


def _models(settings: BuildSettings) -> list[str]:
    return list(dict.fromkeys((settings.generator, settings.judge)))


def _workshop(
    settings: BuildSettings,
    client: Client,
    identities: Mapping[str, str],
    instructions: Instructions,
    progress: BuildProgress | None,
) -> Workshop:
    return Workshop(
        client=client,
        generator=Asker(role="generator", model=settings.generator, sampling=settings.generator_sampling),
        judge=Asker(role="judge", model=settings.judge, sampling=settings.judge_sampling),
        instructions=instructions,
        structured=settings.structured_output,
        at_once=2 * settings.max_connections if settings.max_connections else _AT_ONCE,
        finished=progress.finished if progress else lambda: None,
        archive=Client(client.ledger, identities),
        archived=frozenset(purpose for stage in STAGES[: settings.stages[0] - 1] for purpose in PURPOSES[stage]),
    )


def _manifest(settings: BuildSettings, plan: Plan, instructions: Instructions, identities: dict[str, str]) -> BuildManifest:
    return BuildManifest(
        version=__version__,
        generator=settings.generator,
        judge=settings.judge,
        identities=identities,
        generator_sampling=settings.generator_sampling,
        judge_sampling=settings.judge_sampling,
        structured_output=settings.structured_output,
        taxonomy=plan.taxonomy,
        seeds=settings.seeds,
        limit=settings.limit,
        per_cell=settings.per_cell,
        stages=settings.stages,
        ledger=str(settings.ledger.resolve()) if settings.ledger else "ledger.sqlite",
        templates=instructions.sources(),
    )


def _check_same(folder: BuildFolder, manifest: BuildManifest) -> None:
    """Refuse to build over what other models made; seeds, targets and templates may change."""
    old = folder.load()
    if old is None:
        return
    found = []
    for field in ("generator", "judge", "generator_sampling", "judge_sampling", "taxonomy", "ledger"):
        before, now = getattr(old, field), getattr(manifest, field)
        if before != now:
            values = "" if field == "taxonomy" else f": it has {_shown(before)}, this has {_shown(now)}"
            found.append(field.replace("_", " ") + values)
    if found:
        raise InputError(f"{folder.path}: holds another build. {'; '.join(found)}. Choose a new --out")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _poor(settings: BuildSettings, built: Built) -> frozenset[str]:
    """Return the ids of the sets that every annotator who answered calls poor."""
    opinions: dict[str, list[str]] = {}
    for path in settings.labels:
        for label in read_labels(path):
            answer = label.answers.get("overall_quality")
            if label.kind == "dataset_quality" and not label.repeat and answer in ("good", "poor"):
                opinions.setdefault(label.id, []).append(str(answer))
    known = {draft.id for draft in built.finished}
    if unknown := sorted(set(opinions) - known):
        raise InputError(f"--labels: {len(unknown)} labelled sets are not of this build, such as {unknown[0]}; label it anew")
    return frozenset(set_id for set_id, answers in opinions.items() if set(answers) == {"poor"})


def _remarks(settings: BuildSettings, built: Built, taxonomy: Taxonomy) -> list[str]:
    notes = []
    if settings.generator == settings.judge:
        notes.append(
            f"generator and judge are the same model ({settings.generator}): that they agree means little, and its blind "
            "spots are the dataset's"
        )
    if failed := built.rejected_for("call_failed"):
        notes.append(
            f"{len(failed)} items were left out because calls failed ({failed[0].detail}); run again to try them again"
        )
    if waiting := built.rejected_for("not_made"):
        first = settings.stages[0]
        notes.append(
            f"{len(waiting)} items wait for stages before {first}, which --stages leaves out; run --stages 1-{first - 1}"
        )
    if settings.per_cell is not None and settings.stages[1] >= _FINISHED:
        there = Counter(draft.topic.cell for draft in built.finished)
        short = [cell for cell in taxonomy.cells if there[cell] < settings.per_cell]
        if short:
            notes.append(f"{len(short)} cells have fewer than {settings.per_cell} sets after the last pass")
    return notes


def _write(
    settings: BuildSettings,
    folder: BuildFolder,
    manifest: BuildManifest,
    outcome: BuildOutcome,
    plan: Plan,
    prices: Mapping[str, Price],
) -> None:
    """Write what the build made; a build that ends before stage 6 has no dataset."""
    from opensafeintent.workflows.build_results import reviewed_by, write_build_results

    built = outcome.built
    assert built is not None
    folder.remove_later_stages(settings.stages[1])
    funnel = [result.funnel_line() for result in built.stages]
    write_private(folder.path / "funnel.json", msgspec.json.format(msgspec.json.encode(funnel), indent=2) + b"\n")
    costs = msgspec.json.format(msgspec.json.encode(outcome.costs), indent=2) + b"\n"
    write_private(folder.path / "costs.json", costs)
    finished = built.finished if settings.stages[1] >= _FINISHED else ()
    dataset = _dataset(f"generated by {settings.generator}", folder, finished, plan.taxonomy)
    write_build_results(
        folder,
        manifest,
        built,
        outcome.costs,
        remarks=_remarks(settings, built, plan.taxonomy),
        dataset=dataset,
        reviewed=reviewed_by([label for path in settings.labels for label in read_labels(path)]) if settings.labels else None,
        prices=dict(prices),
    )
    if dataset is None:
        folder.remove_results()
        folder.save(msgspec.structs.replace(manifest, complete=True))
        return
    folder.write_dataset(dataset, built.finished)
    folder.save(msgspec.structs.replace(manifest, complete=True, dataset_hash=dataset.hash))
    outcome.dataset = dataset


def _dataset(source: str, folder: BuildFolder, drafts: Sequence[Draft], taxonomy: Taxonomy) -> Dataset | None:
    """Return the finished prompt-sets, each with the canary that is made from all of them; None where there are none."""
    from opensafeintent.report.built import marked_source

    if not drafts:
        return None
    plain = Dataset(folder.path.name, tuple(draft.prompt_set(source) for draft in drafts), taxonomy)
    marked = marked_source(source, plain.hash)
    return Dataset(plain.name, tuple(draft.prompt_set(marked) for draft in drafts), taxonomy)


async def _dry_run(settings: BuildSettings, plan: Plan, seeds: StageResult[Seed], instructions: Instructions) -> BuildOutcome:
    identities = {name: model_identity(name) for name in _models(settings)}
    manifest = _manifest(settings, plan, instructions, identities)
    folder = BuildFolder(settings.out)
    path = folder.ledger_path(manifest)
    with Ledger(path, readonly=True, missing_ok=True) as ledger:
        workshop = _workshop(settings, Client(ledger, identities), identities, instructions, None)
        built = await build_sets(workshop, seeds, plan, Watcher())
    notes = left_shards(folder.path)
    return BuildOutcome(exit_code=0, out=settings.out, forecast=forecast_build(built, plan), notes=notes)
