"""Every prompt-set of every model with its grades, as the page's script reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from opensafeintent.grades import GradeRow
from opensafeintent.grades.table import NOT_GRADED
from opensafeintent.promptsets import Dataset, PromptSet, stratified_sample
from opensafeintent.report.browser.kinds import KINDS, Kind, bits, kinds_of, telling

__all__ = ["CELL", "Browser", "BrowserDataset", "BrowserModel", "Member", "Unit", "browse"]

CELL = 5
"""Characters that hold one response's grades."""
_INDEX_BYTES = 4_000_000
_UNIT_BYTES = 28


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the report: where it comes from, and its responses."""

    shown: str
    """Name in the report."""
    model: str
    """Name in its run."""
    run: str
    dataset: Dataset
    rows: Sequence[GradeRow]
    judges: tuple[str, ...] = ()


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """One prompt-set under one model, once: what the browser lists."""

    at: int
    """Place of the prompt-set in its dataset."""
    epoch: int
    kinds: int
    """Bits, in the order of KINDS."""
    telling: int
    grades: str
    """Five characters for each variant of the dataset: helpfulness, harm severity, mode, strategy, state; see `_cell`."""
    by_judge: str = ""
    """With several judges: helpfulness and harm severity of each, for each variant."""


class BrowserModel(msgspec.Struct, kw_only=True):
    """Everything the browser knows of one model."""

    name: str
    run: str
    dataset: int
    judges: tuple[str, ...]
    units: list[Unit]
    remarks: dict[str, str]
    """By `unit:variant`, both by place: stop reasons other than `stop`, and reasons of missing grades."""
    texts: dict[str, tuple[str, int]]
    """By `unit:variant`: the response, and its row in the ledger."""


class BrowserSet(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A prompt-set; its prompts are there when a response to one of them is."""

    id: str
    domain: int
    type: int
    task: str
    prompts: list[str | None] = []
    use: str | None = None
    risk: str | None = None


class BrowserDataset(msgspec.Struct, kw_only=True):
    """The prompt-sets of one dataset."""

    name: str
    variants: tuple[str, ...]
    domains: tuple[str, ...]
    types: tuple[str, ...]
    sets: list[BrowserSet]
    of: int
    """Sets that the dataset has: more than are listed in a very large report."""


class Browser(msgspec.Struct, kw_only=True):
    """What the page's script reads."""

    kinds: tuple[Kind, ...]
    datasets: list[BrowserDataset]
    models: list[BrowserModel]
    include_unsafe: bool
    with_texts: int = 0
    """(Model, set, epoch) units whose texts are in the page."""
    units: int = 0
    complete: bool = True
    """Whether every text that may be shown is."""


def browse(members: Sequence[Member], *, include_unsafe: bool) -> Browser:
    """Return the browser of these models, without texts yet."""
    datasets: dict[str, Dataset] = {member.dataset.hash: member.dataset for member in members}
    listed: list[BrowserDataset] = []
    models: list[BrowserModel] = []
    for number, (digest, dataset) in enumerate(datasets.items()):
        here = [member for member in members if member.dataset.hash == digest]
        found = [_units(member) for member in here]
        kept = _kept(dataset, sum(len(rows) for rows, _ in found))
        listed.append(_dataset(dataset, kept))
        place = {prompt_set.id: at for at, prompt_set in enumerate(kept)}
        models += [_model(member, number, place, *parts) for member, parts in zip(here, found, strict=True)]
    shown = {member.shown: place for place, member in enumerate(members)}
    models.sort(key=lambda model: shown[model.name])
    units = sum(len(model.units) for model in models)
    return Browser(kinds=KINDS, datasets=listed, models=models, include_unsafe=include_unsafe, units=units)


_Rows = dict[tuple[str, int], dict[str, GradeRow]]
_Judged = dict[tuple[str, int], tuple[int, int]]


def _units(member: Member) -> tuple[_Rows, _Judged]:
    """Return the responses of a model by (set, epoch), and (kinds, telling) of each."""
    rows: _Rows = {}
    for row in member.rows:
        rows.setdefault((row.set_id, row.epoch), {})[row.variant] = row
    judged = {}
    for key, by_variant in rows.items():
        kinds = kinds_of(by_variant)
        judged[key] = (bits(kinds), telling(by_variant, kinds))
    return rows, judged


def _kept(dataset: Dataset, units: int) -> tuple[PromptSet, ...]:
    """Return the sets that the page lists: all of them, up to tens of thousands of (model, set) pairs."""
    bytes_each = _UNIT_BYTES + CELL * len(dataset.variants)
    most = len(dataset) * _INDEX_BYTES // max(1, units * bytes_each)
    return dataset.prompt_sets if most >= len(dataset) else stratified_sample(dataset.prompt_sets, max(most, 1))


def _dataset(dataset: Dataset, kept: Sequence[PromptSet]) -> BrowserDataset:
    domains, types = dataset.taxonomy.domain_names, dataset.taxonomy.type_names
    return BrowserDataset(
        name=dataset.name,
        variants=dataset.variants,
        domains=domains,
        types=types,
        sets=[
            BrowserSet(
                id=item.id,
                domain=domains.index(item.harm_domain),
                type=types.index(item.task_type),
                task=item.underlying_task,
            )
            for item in kept
        ],
        of=len(dataset),
    )


def _model(member: Member, number: int, place: Mapping[str, int], rows: _Rows, judged: _Judged) -> BrowserModel:
    variants = member.dataset.variants
    several = member.judges if len(member.judges) > 1 else ()
    units: list[Unit] = []
    remarks: dict[str, str] = {}
    for key, by_variant in rows.items():
        set_id, epoch = key
        if set_id not in place:
            continue
        for at, variant in enumerate(variants):
            if variant in by_variant and (remark := _remark(by_variant[variant])):
                remarks[f"{len(units)}:{at}"] = remark
        grades = "".join(_cell(by_variant.get(variant)) for variant in variants)
        by_judge = "".join(_by_judge(by_variant.get(variant), several) for variant in variants) if several else ""
        units.append(Unit(place[set_id], epoch, *judged[key], grades, by_judge))
    return BrowserModel(
        name=member.shown, run=member.run, dataset=number, judges=member.judges, units=units, remarks=remarks, texts={}
    )


def _cell(row: GradeRow | None) -> str:
    """Return a response's grades in five characters: `-` is missing, `.` was not asked for, spaces are no response on record.

    The last is its state: `f` filtered, `e` empty, `t` cut by the token limit, `m` missing, `n` not graded, `s` otherwise.
    """
    if row is None:
        return " " * CELL
    asked = {reason.partition(":")[0] for reason in row.missing}
    ungraded = "." if NOT_GRADED in row.missing else "-"
    helpfulness = ungraded if row.helpfulness is None else str(row.helpfulness)
    harm = ungraded if row.harm_severity is None else str(row.harm_severity)
    mode = row.mode[1] if row.mode else "-" if "mode" in asked else "."
    strategy = row.strategy[0] if row.strategy else "-" if "strategy" in asked else "."
    if row.refused:
        state = row.refused[0]
    elif NOT_GRADED in row.missing:
        state = "n"
    elif "response" in asked:
        state = "m"
    else:
        state = "t" if row.truncated else "s"
    return helpfulness + harm + mode + strategy + state


def _by_judge(row: GradeRow | None, judges: Sequence[str]) -> str:
    pairs = [row.by_judge.get(judge, (None, None)) if row else (None, None) for judge in judges]
    return "".join("-" if grade is None else str(grade) for pair in pairs for grade in pair)


def _remark(row: GradeRow) -> str:
    stop = f"stop reason {row.stop_reason}" if row.stop_reason not in ("", "stop") else ""
    return "; ".join(filter(None, (stop, *row.missing)))
