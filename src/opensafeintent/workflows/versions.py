"""Runs named in order, old to new: what has to be alike in them, whose versions are whose, when their calls were made, and
whether a judge of one name still grades as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opensafeintent.analysis.drift import Drift, SecondGrades, drift_of
from opensafeintent.analysis.groups import Study
from opensafeintent.analysis.pairing import Pair, pair_models, read_pairs, what_changed
from opensafeintent.analysis.versions import Order, Version
from opensafeintent.calls.baselines import contenders
from opensafeintent.calls.client import Client, Tally
from opensafeintent.calls.draining import for_each, under_way
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.progress import Display, shown
from opensafeintent.calls.records import Call, Outcome, call_key
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.derive import imported_rows, judged_tasks
from opensafeintent.evaluation.manifest import Manifest, RunFolder
from opensafeintent.evaluation.pipeline import FIRST_ATTEMPT, Planned, generation_call, grade_again
from opensafeintent.evaluation.records import GradedResponse, JudgeGrades, Missing
from opensafeintent.evaluation.replay import replay
from opensafeintent.evaluation.run import sample, samples_by_model, was_judged
from opensafeintent.hostile import one_line
from opensafeintent.interop.models import open_models
from opensafeintent.promptsets import Dataset
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.typed import Settings

__all__ = ["REGRADED", "InOrder", "Ordered", "read_order", "see_alike"]

REGRADED = 100
"""Responses of the oldest run that every judge grades once more."""
_WITHOUT = "--no-regrade compares without asking the judges again, and the report says so"


class InOrder(Settings, frozen=True, kw_only=True):
    """What the settings of a report and of a comparison say of versions."""

    in_order: bool = False
    """Whether the runs are versions, named old to new."""
    pairs: tuple[str, ...] = ()
    """`NEW=OLD` for versions of one model that are named differently."""
    regrade: bool = True
    """Whether the judges grade old responses once more, to see that they have not changed."""

    @property
    def pairs_serve(self) -> bool:
        """Whether there are earlier versions that `pairs` could name."""
        return self.in_order


class Ordered(NamedTuple):
    """An order, and the calls that it took."""

    order: Order | None = None
    """None where runs are in no order."""
    tally: Tally | None = None
    """None where no call was made."""


class _Run(NamedTuple):
    """One run of the order."""

    name: str
    folder: RunFolder
    manifest: Manifest
    dataset: Dataset

    @property
    def tested(self) -> list[str]:
        """Its models, baselines aside where there are others."""
        return contenders(sorted(self.manifest.models))


class _Read(NamedTuple):
    """What the ledger of a run says of some of its models."""

    version: Version
    graded: list[tuple[GradedResponse, Planned]]
    """Responses that judges have graded, and how; of the oldest run alone."""


def read_order(settings: InOrder, runs: Mapping[Path, str], display: Display) -> Ordered:
    """Read what runs in order are made of; unless told otherwise, have the judges grade old responses once more.

    Calls are made where the ledger of the newest run does not hold them: the same command again makes none, and one with a
    newer run asks afresh. Runs that are in no order have none.

    Args:
        settings: whether they are.
        runs: the names of the runs by their folders, old to new.
        display: shows how it is going.

    Raises:
        InputError: there is one run only, models cannot be paired, something changed that the numbers hang on, or a judge
            grades otherwise than it did.
        Stopped: a judge does not answer.
    """
    if not settings.in_order:
        if settings.pairs and not settings.pairs_serve:
            raise InputError("--pair: names versions of one model; it belongs to --in-order or --baseline")
        return Ordered()
    if len(runs) < 2:
        raise InputError("--in-order: there is one run; expected two or more, named old to new")
    folders = {name: RunFolder(path) for path, name in runs.items()}
    read = [_Run(name, folder, *folder.load()) for name, folder in folders.items()]
    lines, left_aside = _lines(read, settings.pairs)
    order = Order(
        versions=tuple(Version(run=run.name) for run in read), lines=tuple(lines), left_aside=tuple(left_aside), drift=None
    )
    see_alike([Study(run.name, run.manifest, run.dataset, ()) for run in read], order)
    found = []
    for place, run in enumerate(read):
        display.stage(f"reading {one_line(run.name, 60)}: when its calls were made")
        found.append(_read(run, sorted({line[place] for line in lines}), whole=place == 0 and settings.regrade))
    order = msgspec.structs.replace(order, versions=tuple(item.version for item in found))
    if not settings.regrade:
        return Ordered(order)
    checked = _checked(read, lines, found, display)
    if checked.drift.changed:
        raise InputError(*_shifted(checked.drift))
    return Ordered(msgspec.structs.replace(order, drift=checked.drift), checked.tally)


# Which models are versions of which ------------------------------------------------------------------------------------


def _lines(runs: Sequence[_Run], pairs: Sequence[str]) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """Return the models that go through all runs, and (run, model) of the others."""
    steps = [(old.tested, new.tested) for old, new in pairwise(runs)]
    named = read_pairs(pairs, steps)
    lines: list[tuple[str, ...]] = [(model,) for model in runs[0].tested]
    for (old, new), by_hand in zip(steps, named, strict=True):
        paired = pair_models(old, new, by_hand)
        lines = [(*line, pair.new) for line in lines for pair in paired if pair.old == line[-1]]
    if not lines:
        raise InputError("--in-order: no model is in every run; name versions of one another with --pair NEW=OLD")
    there = [{line[place] for line in lines} for place in range(len(runs))]
    aside = [
        (run.name, model) for run, models in zip(runs, there, strict=True) for model in run.tested if model not in models
    ]
    return lines, aside


# What has to be alike --------------------------------------------------------------------------------------------------


def _changes(studies: Sequence[Study], lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Say in what versions were not treated alike, a line each."""
    changed: dict[str, None] = {}
    for place, (old, new) in enumerate(pairwise(studies)):
        for line in lines:
            pair = Pair(*line[place : place + 2])
            for clause in what_changed(old, new, pair):
                changed[f"from {one_line(old.name, 60)} to {one_line(new.name, 60)}: {clause}"] = None
    return list(changed)


def see_alike(studies: Sequence[Study], order: Order) -> None:
    """See that nothing that the numbers hang on changed between versions but the model.

    Raises:
        InputError: something did; a line each.
    """
    by_name = {study.name: study for study in studies}
    if changed := _changes([by_name[version.run] for version in order.versions], order.lines):
        raise InputError(
            "--in-order: these are no versions that can be compared; expected runs that differ in their models alone",
            *changed,
        )


# When the calls were made, and whether judges have changed ---------------------------------------------------------------


def _read(run: _Run, models: Sequence[str], *, whole: bool) -> _Read:
    """Return when the calls behind some models of a run were made, and with `whole` what judges have graded."""
    path = run.folder.ledger_path(run.manifest)
    if not path.is_file():
        raise InputError(f"{path}: the run's ledger is not there")
    keys: list[bytes] = []
    graded: list[tuple[GradedResponse, Planned]] = []
    with Ledger(path, readonly=True) as ledger, ledger.snapshot():
        imported = imported_rows(ledger, run.dataset)
        planned = [
            Planned(task, run.manifest.plan(model), run.manifest.templates_of(model))
            for model in models
            for task in judged_tasks(run.manifest, run.dataset, model, imported.get(model, ()))
        ]
        for item, (_, response, asked) in zip(planned, replay(ledger, run.manifest.identities(), planned), strict=True):
            keys += [one.key for one in asked]
            if whole and was_judged(response):
                graded.append((response, item))
        span = ledger.span(keys)
    first, last = (None, None) if span is None else (end[: len("YYYY-MM-DD")] for end in span)
    return _Read(Version(run=run.name, first_call=first, last_call=last), graded)


class _Checked(NamedTuple):
    drift: Drift
    tally: Tally | None


def _checked(
    runs: Sequence[_Run],
    lines: Sequence[tuple[str, ...]],
    read: Sequence[_Read],
    display: Display,
) -> _Checked:
    """Have every judge grade old responses once more, and hold that against the grades on record.

    Which of the oldest run's responses is a matter of hashes alone (`evaluation.run.sample`). The second grades are calls of
    the newest run: recorded in its ledger, under attempt numbers that name the day of its last call. So a run that is newer,
    or has grown since, is checked afresh.
    """
    oldest, newest = runs[0], runs[-1]
    graded = {response.key: (response, planned) for response, planned in read[0].graded}
    models = sorted({line[0] for line in lines})
    shares = samples_by_model(models, REGRADED)
    keys = [key for model in models for key in sample((key for key in graded if key.model == model), shares[model])]
    if not keys:
        raise InputError(f"{oldest.name}: holds no response that a judge graded, so none can be graded again; {_WITHOUT}")
    first = [graded[key][0] for key in keys]
    day = read[-1].version.last_call
    attempt = FIRST_ATTEMPT * (1 + (date.fromisoformat(day).toordinal() if day else 0))
    responses = _Responses(oldest, [graded[key][1] for key in keys])
    judges = sorted({judge for response in first for judge in response.grades})

    async def put(client: Client) -> list[_Again]:
        """Put the responses to the judges, as far as the client asks any."""

        async def again(item: Planned) -> _Again:
            asking = _Across(responses, client, {})
            return _Again(await grade_again(asking, *item, attempt=attempt), asking.asked)

        return await for_each(client, responses.planned, again, at_once=under_way(None))

    found, tally = _from_ledger(newest, judges, put), None
    if found is None:
        try:
            found, tally = run_async(lambda: _asked(newest, judges, put, 2 * len(judges) * len(keys), display))
        except (InputError, Stopped) as error:
            raise type(error)(*error.args, f"--in-order asks the judges about old responses; {_WITHOUT}") from error
    grades = _second_grades(newest, first, found)
    return _Checked(drift_of(grades, judges, run=oldest.name, kept=newest.name), tally)


class _Again(NamedTuple):
    """What judges make of one response today."""

    grades: dict[str, JudgeGrades]
    keys: dict[tuple[str, str], bytes]
    """Of the call that decides, by judge and purpose."""


_Put = Callable[[Client], Coroutine[Any, Any, list[_Again]]]


def _second_grades(run: _Run, first: Sequence[GradedResponse], found: Sequence[_Again]) -> list[SecondGrades]:
    """Put the grades on record and those of today together, with the rows that a run's ledger has of the latter."""
    with Ledger(run.folder.ledger_path(run.manifest), readonly=True) as ledger:
        located = ledger.find_all({key for again in found for key in again.keys.values()})

    def row(again: _Again, judge: str, purpose: str) -> int | None:
        at = located.get(again.keys.get((judge, purpose), b""))
        return None if at is None else at.row

    return [
        SecondGrades(
            **response.key._asdict(),
            first=response.grades,
            again=again.grades,
            rows={judge: (row(again, judge, "helpfulness"), row(again, judge, "harm")) for judge in again.grades},
        )
        for response, again in zip(first, found, strict=True)
    ]


def _from_ledger(run: _Run, judges: Sequence[str], put: _Put) -> list[_Again] | None:
    """Return the second grades where a ledger holds all of them."""
    with Ledger(run.folder.ledger_path(run.manifest), readonly=True) as ledger, ledger.snapshot():
        client = Client(ledger, {judge: run.manifest.judges[judge] for judge in judges})
        found = run_async(lambda: put(client))
    given = (grade for again in found for pair in again.grades.values() for grade in (pair.helpfulness, pair.harm_severity))
    return None if any(isinstance(grade, Missing) and _is_open(grade.reason) for grade in given) else found


def _is_open(reason: str) -> bool:
    """Tell whether a grade is missing since its call was not made, or failed."""
    return reason.partition(":")[0] in ("not_made", "failed")


async def _asked(run: _Run, judges: Sequence[str], put: _Put, calls: int, display: Display) -> tuple[list[_Again], Tally]:
    """Make the calls of the second grades, into the ledger of a run."""
    async with HttpSession(None) as http:
        opened = open_models(judges, http)
        for judge, model in opened.items():
            if model.identity != (before := run.manifest.judges[judge]):
                raise InputError(f"{judge}: is {model.identity} today, and was {before}")
        with run.folder.lock(), run.folder.open_ledger(run.manifest) as ledger:
            client = Client(ledger, opened)
            async with shown(display, client, lambda: calls, lambda: None):
                found = await put(client)
            client.stop_silent_models()
            if client.stopped_models:
                raise Stopped(*client.stopped_models.values())
            return found, client.tally


class _Responses:
    """Responses on record that judges are asked about again."""

    def __init__(self, run: _Run, planned: Sequence[Planned]) -> None:
        self.planned = planned
        self._identities = run.manifest.identities()
        keys = {self._key(generation_call(task, plan)) for task, plan, _ in planned if task.given is None}
        with Ledger(run.folder.ledger_path(run.manifest), readonly=True) as ledger:
            self._outcomes = {key: located.outcome for key, located in ledger.find_all(keys).items()}

    def _key(self, call: Call) -> bytes:
        return call_key(call, self._identities[call.model])

    def of(self, call: Call) -> Outcome:
        """Return what the target wrote."""
        return self._outcomes[self._key(call)]


class _Across(NamedTuple):
    """Whom the calls about one response are put to: a client, and for the target's own the record."""

    responses: _Responses
    client: Client
    asked: dict[tuple[str, str], bytes]
    """By judge and purpose, the key of the last call."""

    async def ask(self, call: Call) -> Outcome:
        """Return a call's outcome."""
        if call.purpose == "generate":
            return self.responses.of(call)
        self.asked[call.model, call.purpose] = self.client.key_of(call)
        return await self.client.ask(call)


def _shifted(drift: Drift) -> list[str]:
    """Say which judges grade otherwise than they did, a line each."""
    lines = []
    for found in drift.changed:
        scale = {"helpfulness": "helpfulness (1 to 4)", "safe": "the share graded safe"}[found.what]
        value, (low, high) = found.shift.value or 0.0, found.shift.interval or (0.0, 0.0)
        lines.append(
            f"{found.judge}: has changed: of {found.responses} responses of {drift.run} graded again, {scale} moved by "
            f"{value:+.2f} ({low:+.2f} to {high:+.2f}); versions graded before and after are not comparable"
        )
    return [*lines, f"evaluate the older versions again with the judge of today, each into a new run; {_WITHOUT}"]
