"""Evaluate no further than a question needs: freeze it, look after every so many prompt-sets, stop where it is decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from opensafeintent.analysis.decisions import Course, courses_in, keep_courses, planned_design, set_values
from opensafeintent.analysis.questions import matches_of, parse_question, question_text
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display
from opensafeintent.calls.records import call_key
from opensafeintent.errors import InputError, first_exit_code
from opensafeintent.evaluation.derive import derive
from opensafeintent.evaluation.forecast import expected_calls
from opensafeintent.evaluation.manifest import Frozen, Manifest, ModelEntry, RunFolder
from opensafeintent.evaluation.pipeline import ModelWork, generation_call
from opensafeintent.evaluation.run import expected_regrades, tasks_of
from opensafeintent.evaluation.swap import expected_swaps
from opensafeintent.metrics import METRICS
from opensafeintent.promptsets import Dataset, PromptSet, sample_order
from opensafeintent.report.decisions import look_line
from opensafeintent.statistics import CONFIDENCE
from opensafeintent.statistics.decisions import Question
from opensafeintent.templates import Templates
from opensafeintent.workflows.running import Calls, Found
from opensafeintent.workflows.settings import EvaluateSettings

__all__ = ["Deciding", "check_question", "most_sets", "take_up"]


# Freezing ---------------------------------------------------------------------------------------------------------------


def check_question(settings: EvaluateSettings, models: Sequence[str], dataset: Dataset) -> Question:
    """Return the question that is to be decided, where this evaluation can decide it.

    Raises:
        InputError: it cannot be read or decided; or too few of the prompt-sets can count for it.
    """
    question = parse_question(settings.decide or "", models)
    families = len(matches_of(question, models))
    metric = METRICS[question.metric]
    if settings.epochs > 1 and not question.paired:
        raise InputError(f"--decide: a threshold is decided at one epoch; --epochs is {settings.epochs}")
    if metric.needs == "benign_mode" and settings.modes != "core":
        raise InputError(f"--decide: {metric.name} needs the modes of benign responses: add --modes core")
    if metric.needs == "wordings":
        _check_wordings(metric.name, sample_order(dataset.prompt_sets)[: settings.limit], settings.max_missing)
    sets, confidence = most_sets(settings, dataset), settings.confidence or CONFIDENCE
    planned_design(question, sets, confidence=confidence, families=families, epochs=settings.epochs)
    return question


def most_sets(settings: EvaluateSettings, dataset: Dataset) -> int:
    """Return how many prompt-sets there are to decide by."""
    return min(settings.limit or len(dataset), len(dataset))


def _check_wordings(metric: str, sets: Sequence[PromptSet], max_missing: float) -> None:
    wordings = [1 + len(prompt_set.dual_use_paraphrases) for prompt_set in sets]
    alone = wordings.count(1)
    if alone > max_missing * len(sets):
        raise InputError(
            f"--decide: {metric} needs two or more dual-use wordings of a prompt-set, which {alone:,} of the {len(sets):,} "
            "sets do not have: more than --max-missing allows"
        )
    if len(several := sorted(set(wordings) - {1})) > 1:
        raise InputError(
            f"--decide: {metric} depends on the number of wordings, and these prompt-sets have {several[0]} to "
            f"{several[-1]}; expected sets with as many each"
        )


def take_up(
    settings: EvaluateSettings, models: Sequence[str], manifest: Manifest, dataset: Dataset, ledger: Ledger
) -> tuple[Manifest, Frozen]:
    """Return the manifest with the question frozen in it: as it was before, where it has been asked before.

    Args:
        settings: of this evaluation.
        models: that are evaluated.
        manifest: of the run with this evaluation in it.
        dataset: its prompt-sets.
        ledger: its ledger.

    Raises:
        InputError: the question cannot be decided here, or what it was frozen with is not what is stated now.
    """
    question = check_question(settings, models, dataset)
    manifest = _without_unanswered(settings.folder, manifest, ledger)
    new = _freeze(settings, question, models, manifest, dataset)
    for old in manifest.decisions:
        if (old.question, old.confidence) != (new.question, new.confidence) or not set(new.models) <= set(old.models):
            continue
        if changed := _changes(old, new, METRICS[question.metric].needs):
            if not _never_asked(old, settings.folder, manifest, ledger):
                raise InputError(f"{settings.folder.path}: the question was frozen with {'; '.join(changed)}")
            new = msgspec.structs.replace(new, exploratory=old.exploratory)
            kept = tuple(new if other is old else other for other in manifest.decisions)
            return msgspec.structs.replace(manifest, decisions=kept), new
        return manifest, old
    new = msgspec.structs.replace(new, exploratory=tuple(_exploratory(new, manifest, dataset, ledger)))
    return msgspec.structs.replace(manifest, decisions=(*manifest.decisions, new)), new


def _without_unanswered(folder: RunFolder, manifest: Manifest, ledger: Ledger) -> Manifest:
    """Leave out questions about a model that was named wrongly: it never answered, and nothing was looked at."""
    if not manifest.decisions:
        return manifest
    answering = ledger.answering_models()
    looked = {course.frozen.id for course in courses_in(folder, manifest) if course.looks}
    kept = (frozen for frozen in manifest.decisions if frozen.id in looked or set(frozen.models) <= answering)
    return msgspec.structs.replace(manifest, decisions=tuple(kept))


def _freeze(
    settings: EvaluateSettings, question: Question, models: Sequence[str], manifest: Manifest, dataset: Dataset
) -> Frozen:
    """Return what the question is fixed to."""
    matches = matches_of(question, models)
    sets = most_sets(settings, dataset)
    names = dict.fromkeys(model for match in matches for model in match.models)
    entries = {name: manifest.models[name] for name in names}
    for name, entry in entries.items():
        if entry.limit is not None and entry.sample != "webster":
            raise InputError(
                f"{settings.folder.path}: the sample of {name} was drawn by another rule, whose parts are no samples of "
                "the whole; choose a new --out to decide"
            )
    if len({frozenset(entry.judges) for entry in entries.values()}) > 1:
        panels = "; ".join(f"{name} by {' + '.join(entry.judges)}" for name, entry in entries.items())
        raise InputError(f"--decide: the models are graded by different judges ({panels}); choose a new --out")
    return Frozen(
        question=question_text(question),
        confidence=settings.confidence or CONFIDENCE,
        families=len(matches),
        sets=sets,
        models={
            name: msgspec.structs.replace(entry, epochs=settings.epochs, limit=sets, judge_samples=0)
            for name, entry in entries.items()
        },
    )


def _changes(old: Frozen, new: Frozen, needs: str) -> list[str]:
    """Say in what the statement of a question differs from how it was frozen; what a run grows by is no difference."""
    found = []
    with_mode = needs in ("mode", "benign_mode")
    for name, entry in new.models.items():
        before = old.models[name]
        roles = [
            role for role in entry.templates if role in ("helpfulness", "harm", "reask") or (role == "mode" and with_mode)
        ]
        if changed := [role for role in roles if entry.templates[role] != before.templates.get(role)]:
            found.append(f"other templates ({', '.join(changed)})")
        if entry.parse != before.parse:
            found.append(f"--grade-parse {before.parse}")
        if not set(before.judges) <= set(entry.judges):
            found.append(f"the judges {' + '.join(before.judges)}")
        if with_mode and entry.mode_judge != before.mode_judge:
            found.append(f"--mode-judge {before.mode_judge}")
        if entry.epochs < before.epochs:
            found.append(f"--epochs {before.epochs}")
    return list(dict.fromkeys(found))


def _never_asked(frozen: Frozen, folder: RunFolder, manifest: Manifest, ledger: Ledger) -> bool:
    """Tell of a question that could not be answered yet, because one of its judges was named wrongly and never answered."""
    if any(course.looks for course in courses_in(folder, manifest) if course.frozen == frozen):
        return False
    panel = {judge for entry in frozen.models.values() for judge in (*entry.judges, entry.mode_judge)}
    return not panel <= ledger.answering_models()


def _exploratory(frozen: Frozen, manifest: Manifest, dataset: Dataset, ledger: Ledger) -> list[str]:
    """Say why the error rate of a new question is no promise."""
    found = []
    if manifest.decisions:
        asked = manifest.decisions[0].question
        found.append(f"it is no longer the run's first question, which was: {asked}")
    if held := _held(frozen, manifest, dataset, ledger):
        found.append(f"the ledger already held {held:,} of the responses when the question was asked")
    return found


def _held(frozen: Frozen, manifest: Manifest, dataset: Dataset, ledger: Ledger) -> int:
    """Return how many of the responses that a question is about are there before it is asked."""
    if ledger.empty:
        return 0
    sets = sample_order(dataset.prompt_sets)[: frozen.sets]
    keys = [
        call_key(generation_call(task, manifest.plan(model)), entry.identity)
        for model, entry in frozen.models.items()
        for task in tasks_of(model, sets, entry.epochs)
    ]
    return len(ledger.find_all(keys))


# Looking ----------------------------------------------------------------------------------------------------------------


class Deciding:
    """A question on its way through a run, look by look.

    Args:
        settings: of the evaluation.
        models: that are evaluated: those that the question is not about go along as far as it takes.
        manifest: of the run, with the question in it.
        frozen: the question.
        dataset: the prompt-sets of the run.
        templates: in force.
        display: is told of each look.
    """

    def __init__(
        self,
        settings: EvaluateSettings,
        models: Sequence[str],
        manifest: Manifest,
        frozen: Frozen,
        dataset: Dataset,
        templates: Templates,
        display: Display,
    ) -> None:
        self._settings = settings
        self._models = models
        self._manifest = manifest
        self._frozen = frozen
        self._dataset = dataset
        self._templates = templates
        self._display = display
        self._order = sample_order(dataset.prompt_sets)
        self._courses = courses_in(settings.folder, manifest)
        self._covered: dict[str, int] = {}
        """By model, how many sets have been gone through."""
        self._short: list[Course] = []
        """Decisions whose last look could not be taken: too much is missing."""

    @property
    def courses(self) -> list[Course]:
        """The decisions of the question, as far as they have come, of the models that are evaluated."""
        return [
            course
            for course in self._courses
            if course.frozen == self._frozen and set(course.match.models) <= set(self._models)
        ]

    @property
    def exit_code(self) -> int:
        """0 where every decision is yes, 4 where one is no, else 5 where one is undecided."""
        codes = {"yes": 0, "no": 4, None: 5}
        return first_exit_code(*(codes[course.verdict] for course in self.courses))

    async def run(self, calls: Calls, old: Mapping[str, ModelEntry]) -> tuple[Manifest, Found]:
        """Make the calls of one look after another until all is decided, then those of re-grades and of the swap audit.

        Args:
            calls: of the run.
            old: what the run's manifest said of its models before: what it grows by is asked for what was looked at as well.

        Returns:
            The manifest as it is then, and what the run holds.

        Raises:
            Stopped: a provider or a budget ended the run; the looks that were taken are kept.
        """
        calls.expect(expected_regrades(self._manifest) + expected_swaps(self._manifest, self._dataset))
        async with calls.shown():
            while due := self._due(calls.client.stopped_models):
                await self._look(calls, due)
            grown = [model for model in self._models if model in old and _grew(old[model], self._manifest.models[model])]
            await self._make(calls, {model: self._manifest.models[model].limit or len(self._order) for model in grown})
            return self._manifest, await calls.found(self._manifest, self._dataset)

    def _due(self, stopped: Collection[str]) -> list[Course]:
        """Return the decisions that have the next look to take."""
        open_ones = [
            course
            for course in self.courses
            if not course.over and course not in self._short and not set(course.match.models) & set(stopped)
        ]
        first = min((course.next for course in open_ones), default=0)
        return [course for course in open_ones if course.next == first]

    async def _look(self, calls: Calls, due: Sequence[Course]) -> None:
        """Have all that a look takes settled, take it, and keep it before anything else begins."""
        planned, seen = due[0].next, due[0].seen
        about = {model for course in due for model in course.match.models}
        along = set(self._models) - set(self._frozen.models)
        await self._make(calls, {model: planned for model in self._models if model in about | along})
        due = [course for course in due if not set(course.match.models) & set(calls.client.stopped_models)]
        if not due:
            return
        await calls.client.ledger.written()
        sets = Dataset(self._dataset.name, self._order[seen:planned], self._dataset.taxonomy)
        entries = {model: msgspec.structs.replace(self._frozen.models[model], limit=None) for model in about}
        graded = derive(msgspec.structs.replace(self._manifest, models=entries), sets, calls.client.ledger, calls.known)
        values = set_values(self._frozen, due[0].question.metric, graded, sets)
        for course in due:
            model, against = course.match
            own = values[model] if against is None else values[model] - values[against]
            looked = course.looked(own, self._settings.max_missing)
            if looked is None:
                self._short.append(course)
            else:
                self._courses[self._courses.index(course)] = looked
            self._display.note(look_line(looked or course))
        keep_courses(self._settings.folder, self._courses)

    async def _make(self, calls: Calls, sets: Mapping[str, int]) -> None:
        """Make the calls of the first so many prompt-sets of some models, as far as they were not gone through."""
        entries = self._manifest.models | {
            model: msgspec.structs.replace(entry, limit=max(entry.limit, count))
            for model, count in sets.items()
            if (entry := self._manifest.models[model]).limit is not None
        }
        if entries != self._manifest.models:
            self._manifest = msgspec.structs.replace(self._manifest, models=entries)
            self._settings.folder.save(self._manifest)
        work = [
            ModelWork(
                model=model,
                plan=self._manifest.plan(model),
                templates=self._templates,
                tasks=tasks_of(model, self._order[self._covered.get(model, 0) : count], self._settings.epochs),
            )
            for model, count in sets.items()
        ]
        self._covered |= {model: max(count, self._covered.get(model, 0)) for model, count in sets.items()}
        calls.expect(expected_calls(work))
        await calls.make(await calls.left_of(work))


def _grew(old: ModelEntry, new: ModelEntry) -> bool:
    """Tell whether more is asked about the same responses, or more of them."""
    return any(
        getattr(old, field) != getattr(new, field)
        for field in ("judges", "mode_judge", "modes", "probe", "parse", "templates", "epochs")
    )
