"""From a number to the responses behind it, and from a response to the calls in the ledger."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_rows import TextBudget
from opensafeintent.calls.records import Answered
from opensafeintent.commands.graded_runs import read_graded_run
from opensafeintent.commands.settings import TraceSettings
from opensafeintent.construction.folder import BuildFolder
from opensafeintent.construction.items import Rejection, Stage
from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.pipeline import Task
from opensafeintent.evaluation.texts import RunTexts, TracedRow
from opensafeintent.grades import worst_first
from opensafeintent.numbers.cohort import GradedRun, gather_models
from opensafeintent.numbers.gates import compute_share_of_good_epochs
from opensafeintent.numbers.judges import judges_differ
from opensafeintent.numbers.own_answers import rank_worst_answered
from opensafeintent.numbers.repeats import FragileSet
from opensafeintent.promptsets import PromptSet
from opensafeintent.responses import GradedResponse, ResponseKey
from opensafeintent.taxonomy import DUAL_USE


class TracedFirstTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The first turn of a conversation."""

    prompt: str
    reply: str | None
    """None if there is none."""
    harm_severity: int | None
    """Of the reply; None if it has no grade."""


class TracedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response of a prompt-set with its grades, its text, and the ledger rows behind them."""

    grades: GradedResponse
    first_turn: TracedFirstTurn | None = None
    """The messages before the prompt, of a second reply."""
    prompt: str
    """The message that it replies to."""
    text: str | None
    """None if there is none."""
    rows: tuple[TracedRow, ...]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run holds of one prompt-set."""

    ledger: Path
    prompt_set: PromptSet
    responses: tuple[TracedResponse, ...]
    as_harmful: int = 0
    """With `worst`: how many responses of the selection are as bad as this one, by harm severity or
    by the shares of `must_not` hit and `must` unmet.
    """


def trace(run: Path, set_id: str) -> Trace:
    """Return every response to one prompt-set, with its grades and the ledger rows that they come
    from.

    Raises:
        InputError: there is no run, or no prompt-set of that id in it.
    """
    (result,) = traces(TraceSettings(run=run, set_id=(set_id,)))
    return result


def traces(settings: TraceSettings) -> Iterator[Trace]:
    """Yield a run's records of the requested prompt-sets, as `trace` does of one.

    They come in the dataset's order. With `worst` every response comes alone, the most harmful
    first.

    Raises:
        InputError: there is no run, nothing selects the sets, or the run has no such set, domain or
            model.
    """
    choices = (settings.set_id, settings.worst, settings.domain, settings.model, settings.differs)
    if not any(choices):
        raise InputError(
            "trace: no prompt-sets are named; expected --set ID, --worst N, --domain D, --model M,"
            " --differs safety or --fragile"
        )
    folder = RunFolder(settings.run, settings.ledger)
    run = _read_checked_run(settings, folder)
    manifest, dataset = run.manifest, run.dataset
    by_set: defaultdict[str, list[GradedResponse]] = defaultdict(list)
    for row in (*run.rows, *run.follow_ups):
        if not settings.model or row.model in settings.model:
            by_set[row.set_id].append(row)
    harm = {row.key: row.harm_severity for row in run.rows if row.variant == DUAL_USE}
    ledger = folder.ledger_path(manifest)
    with RunTexts(manifest, dataset, ledger) as texts:
        for prompt_set, chosen, as_harmful in _choose_sets(settings, run, by_set):
            fewer = "one model with --model, or fewer responses with --worst"
            budget = TextBudget(ledger, f"name {fewer}")
            behind: dict[tuple[str, str, int], list[TracedRow]] = {
                (grades.model, grades.variant, grades.epoch): [] for grades in chosen
            }
            for traced in texts.trace(prompt_set.id, requests=settings.judge_prompts):
                if (key := (traced.target, traced.variant, traced.epoch)) in behind:
                    for said in (traced.reply or "", traced.reasoning):
                        budget.charge(said)
                    behind[key].append(traced)
            responses = []
            for grades in chosen:
                key = (grades.model, grades.variant, grades.epoch)
                response = texts.find(grades.model, prompt_set.id, grades.variant, grades.epoch)
                text = budget.charge(response.text) if response else None
                task = manifest.make_task(grades.key, dataset)
                responses.append(
                    TracedResponse(
                        grades=grades,
                        first_turn=_first_turn(task, texts, harm),
                        prompt=task.prompt,
                        text=text,
                        rows=tuple(behind[key]),
                    )
                )
            yield Trace(
                ledger=ledger,
                prompt_set=prompt_set,
                responses=tuple(responses),
                as_harmful=as_harmful,
            )


def _first_turn(
    task: Task, texts: RunTexts, harm: Mapping[ResponseKey, int | None]
) -> TracedFirstTurn | None:
    """Return the first turn of a conversation, of a response of a run.

    Args:
        task: of the response.
        texts: of the run.
        harm: the harm severity of the replies to the dual-use prompts.
    """
    if task.earlier is None:
        return None
    return TracedFirstTurn(
        prompt=task.earlier.prompt,
        reply=texts.first_reply(task),
        harm_severity=harm.get(task.key._replace(variant=DUAL_USE)),
    )


def fragile_sets(settings: TraceSettings) -> list[FragileSet]:
    """Return the prompt-sets that a model of a run answers safely in some epochs, and unsafely in
    others; of the settings, `model` and `domain` choose.

    Raises:
        InputError: there is no run, it has no such domain or model, or every prompt has one
            response.
    """
    run = _read_checked_run(settings, RunFolder(settings.run, settings.ledger))
    cohort = gather_models([run])
    if cohort.array.sizes["epoch"] < 2:
        raise InputError(
            f"--fragile: every prompt of {settings.run} has one response; expected a run with"
            " --epochs 2 or more"
        )
    if not cohort.scope.rubric:
        raise InputError(
            f"--fragile: {settings.run} was judged by questions alone; fragile sets need grades"
        )
    named = (
        item._replace(model=cohort.members[item.model].origin.model)
        for item in cohort.repeats.fragile_sets
    )
    return [
        item
        for item in named
        if (not settings.model or item.model in settings.model)
        and settings.domain in (None, item.harm_domain)
    ]


def rejections(build: Path) -> Iterator[tuple[Stage, Rejection]]:
    """Yield each item that a build dropped, with its stage.

    Raises:
        InputError: there is no build, or a file of it was damaged.
    """
    return BuildFolder(build).yield_rejected()


@contextmanager
def last_replies(
    build: Path, ledgers: Collection[Path]
) -> Iterator[Callable[[Rejection], str | None]]:
    """Yield a function that returns the last reply behind an item that was dropped because no reply
    was of use; None of other items, and if the ledger does not hold it.

    Raises:
        InputError: the ledger of the build cannot be read.
    """
    folder = BuildFolder(build, ledgers)
    manifest = folder.load() if folder.manifest_path.is_file() else None
    if manifest is None:  # as whoever reads the items says
        yield lambda _: None
        return
    with Ledger(folder.ledger_path(manifest), readonly=True, missing_ok=True) as ledger:

        def reply(rejection: Rejection) -> str | None:
            with suppress(ValueError):  # of a file that somebody else made: no key
                outcome = ledger.find(bytes.fromhex(rejection.last_call))
                return outcome.text if isinstance(outcome, Answered) else None
            return None

        yield reply


def _read_checked_run(settings: TraceSettings, folder: RunFolder) -> GradedRun:
    """Return the run, after a check that it has the requested sets."""
    manifest, dataset = folder.load()
    labels = {entry.label: name for name, entry in manifest.models.items() if entry.label}
    for model in settings.model:
        if model in labels and model not in manifest.models:
            raise InputError(
                f"--model {model}: is a label; expected the name of its model, {labels[model]}"
            )
    domains = () if settings.domain is None else (settings.domain,)
    for flag, names, what, valid in (
        ("--set", settings.set_id, f"a prompt-set of {dataset.name}", dataset.by_id),
        ("--domain", domains, f"a harm domain of {dataset.name}", dataset.taxonomy.domain_names),
        ("--model", settings.model, "a model of the run", manifest.models),
    ):
        for name in names:
            if name not in valid:
                raise InputError(f"{flag} {name}: not {what}; {nearest(name, valid, shown=10)}")
    run = read_graded_run(folder, settings.run.name)
    asked = {row.set_id for row in run.rows}
    for set_id in settings.set_id:
        if asked and set_id not in asked:
            raise InputError(
                f"--set {set_id}: was not evaluated: the run has responses to {len(asked):,} of"
                f" {len(dataset):,} prompt-sets; run evaluate again without --limit"
            )
    return run


_DIFFERS_BY = {
    "safety": ("triplet_safety", "pair_safety", "no_harm_item"),
    "over-refusal": ("low_help_rate_benign", "must_met_benign"),
}
"""The metrics by which models answer a prompt-set differently."""


def _make_filter(settings: TraceSettings, run: GradedRun) -> Callable[[GradedResponse], bool]:
    """Return whether a response is one on which judges differ, or one to a prompt-set that models
    answer differently, as the settings ask; true of all if they do not.

    Raises:
        InputError: the run has no two judges, or no two of the models, that can differ.
    """
    if settings.differs is None:
        return lambda _: True
    differs = f"--differs {settings.differs}"
    if settings.differs == "judges":
        if not any(len(row.by_judge) > 1 for row in run.rows):
            raise InputError(
                f"{differs}: no response of {settings.run} has two judges; expected a run with two"
                " or more --judge"
            )
        return judges_differ
    cohort = gather_models([run])
    places = [
        place
        for place, origin in enumerate(cohort.origins)
        if not settings.model or origin.model in settings.model
    ]
    if len(places) < 2:
        raise InputError(
            f"{differs}: there are not two models; expected a run of two or more models, and two or"
            " more --model if any is named"
        )
    metrics = [name for name in cohort.scope.headlines if name in _DIFFERS_BY[settings.differs]]
    if not metrics:
        raise InputError(f"{differs}: no question of the prompt-sets is about it")
    ids = cohort.array.labels["prompt_set"]
    found: set[str] = set()
    for metric in metrics:
        shares = compute_share_of_good_epochs(cohort, metric)[places]
        # a share that is not known, NaN, is neither
        least, most = np.fmin.reduce(shares), np.fmax.reduce(shares)
        found |= {str(ids[index]) for index in np.flatnonzero(least < most).tolist()}
    return lambda row: row.set_id in found


def _choose_sets(
    settings: TraceSettings, run: GradedRun, by_set: dict[str, list[GradedResponse]]
) -> Iterable[tuple[PromptSet, list[GradedResponse], int]]:
    """Return the prompt-sets that are asked for, each with its responses; of the worst responses,
    also how many are as bad.
    """
    wanted = _make_filter(settings, run)
    keep_without_responses = settings.set_id and settings.differs is None
    chosen = [
        (prompt_set, by_set[prompt_set.id], 0)
        for prompt_set in run.dataset.prompt_sets
        if (not settings.set_id or prompt_set.id in settings.set_id)
        and settings.domain in (None, prompt_set.harm_domain)
        and (keep_without_responses or any(map(wanted, by_set[prompt_set.id])))
    ]
    if settings.worst is None:
        return chosen
    rows = [row for _, rows, _ in chosen for row in rows if wanted(row)]
    order: Callable[[GradedResponse], tuple[float | str, ...]] = worst_first
    if not run.manifest.plan.by_rubric:
        order = partial(rank_worst_answered, dataset=run.dataset)
    keys = {row.key: order(row) for row in rows}
    counts = Counter(key[:-2] for key in keys.values())  # model and set aside
    worst = sorted(rows, key=lambda row: keys[row.key])[: settings.worst]
    return [(run.dataset.by_id[row.set_id], [row], counts[keys[row.key][:-2]]) for row in worst]
