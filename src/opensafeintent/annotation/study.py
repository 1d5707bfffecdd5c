"""Laying out a study: which responses are drawn, and who sees which items, in which order, under
which codes.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Literal, TypeVar

import msgspec

from opensafeintent.annotation.guide import Guide, guide_of
from opensafeintent.annotation.labels import AnnotationKey, KeyItem, LabelKind, Showing
from opensafeintent.annotation.texts import readable, text_hash, words_hash
from opensafeintent.canonical import canonical_json, sha256_hex
from opensafeintent.errors import InputError
from opensafeintent.grades import GradeRow
from opensafeintent.hostile import name_safe, one_line
from opensafeintent.promptsets import PromptSet
from opensafeintent.taxonomy import CORE_VARIANTS, Category, Taxonomy, intent_of

T = TypeVar("T")

_LETTERS = "BCDFGHJKMNPQRTVWXZ"
"""No vowels, so that no code is a word, and nothing that is easily mistaken for something else."""
_CODE_LETTERS = 6


# Drawing responses
# ------------------------------------------------------------------------------


def draw_responses(rows: Sequence[GradeRow], sample: int, seed: int) -> list[KeyItem]:
    """Draw single responses, stratified by model, intent and the judge's "safe" (or that of the
    panel of judges).

    Every stratum gets the same number as far as it has that many, so that rare unsafe grades are
    seen often enough; the weights undo it.

    Args:
        rows: responses that could be shown: they have a text and both grades.
        sample: responses to draw.
        seed: of the draw.

    Raises:
        InputError: there are more strata than responses to draw: some would have no chance, and no
            weight could mend that.
    """
    strata: defaultdict[str, list[Sequence[GradeRow]]] = defaultdict(list)
    for row in rows:
        strata[_stratum(row.model, intent_of(row.variant), [row])].append([row])
    return _draw(strata, sample, seed, "responses")


def draw_sets(rows: Sequence[GradeRow], sample: int, seed: int) -> list[KeyItem]:
    """Draw whole prompt-sets of a model: all three core responses of each, stratified by model and
    "all three safe".

    Args:
        rows: as with `draw_responses`; sets of which a core response is missing are passed over.
        sample: sets to draw, each counted once for every model and epoch.
        seed: of the draw.

    Raises:
        InputError: as with `draw_responses`.
    """
    sets: defaultdict[tuple[str, str, int], dict[str, GradeRow]] = defaultdict(dict)
    for row in rows:
        sets[row.model, row.set_id, row.epoch][row.variant] = row
    strata: defaultdict[str, list[Sequence[GradeRow]]] = defaultdict(list)
    for (model, _, _), by_variant in sets.items():
        if all(variant in by_variant for variant in CORE_VARIANTS):
            triplet = [by_variant[variant] for variant in CORE_VARIANTS]
            strata[_stratum(model, "set", triplet)].append(triplet)
    return _draw(strata, sample, seed, "sets")


def _stratum(model: str, what: str, rows: Sequence[GradeRow]) -> str:
    return (
        f"{model} | {what} | {'safe' if all(row.harm_severity == 0 for row in rows) else 'unsafe'}"
    )


def _draw(
    strata: Mapping[str, Sequence[Sequence[GradeRow]]], sample: int, seed: int, units: str
) -> list[KeyItem]:
    if not strata:
        raise InputError(
            f"nothing to sample: the run has no {units} with texts and grades of a judge"
        )
    if sample < len(strata):
        raise InputError(
            f"--sample {sample}: there are {len(strata)} strata (model × intent × judged safe or"
            f" not), and each needs one; expected {len(strata)} or more, or fewer models with"
            " --model"
        )
    sizes = {stratum: len(members) for stratum, members in strata.items()}
    drawn = []
    for stratum, count in allocate(sizes, sample).items():
        members = sorted(
            strata[stratum], key=lambda unit: (unit[0].set_id, unit[0].variant, unit[0].epoch)
        )
        weight = sizes[stratum] / count
        drawn += [
            KeyItem(
                id=row.set_id,
                variant=row.variant,
                model=row.model,
                epoch=row.epoch,
                weight=weight,
                stratum=stratum,
            )
            for unit in Random(f"{seed}\0{stratum}").sample(members, count)
            for row in unit
        ]
    return sorted(drawn, key=lambda item: (item.model, item.id, item.variant, item.epoch))


def allocate(sizes: Mapping[str, int], sample: int) -> dict[str, int]:
    """Share a sample out evenly over strata; what a small stratum cannot take goes to the
    others.
    """
    shares: dict[str, int] = {}
    left = min(sample, sum(sizes.values()))
    by_size = sorted(sizes, key=lambda stratum: (sizes[stratum], stratum))
    for done, stratum in enumerate(by_size):
        shares[stratum] = min(sizes[stratum], left // (len(by_size) - done))
        left -= shares[stratum]
    return dict(sorted(shares.items()))


# Who sees what
# ------------------------------------------------------------------------------


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Something to annotate, with its texts by name: the three variants and `labels`, or `prompt`
    and `response`.
    """

    item: KeyItem
    texts: dict[str, str]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One item as an annotator sees it."""

    number: int
    code: str
    texts: tuple[str, ...]
    """One for each slot of the task, readable."""


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    """What one annotator gets, in whichever form. Nothing in it gives an answer away."""

    study: str
    kind: LabelKind
    dataset: str
    """Name and first digits of the hash."""
    annotator: str
    calibration: tuple[Shown, ...]
    items: tuple[Shown, ...]

    @property
    def guide(self) -> Guide:
        """What the annotator is told and asked."""
        return guide_of(self.kind)

    @property
    def file_name(self) -> str:
        """The form's name, without a suffix."""
        return name_safe(self.annotator)


class StudyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a study is laid out from."""

    kind: LabelKind
    dataset: str
    dataset_hash: str
    subjects: tuple[Subject, ...]
    seed: int = 0
    repeat: float = 0.08
    """Share of the items that an annotator meets twice."""
    unit: Literal["response", "set"] = "response"

    def __post_init__(self) -> None:
        if not self.subjects:
            raise InputError("nothing to annotate: there are no items")
        if not 0 <= self.repeat <= 0.5:
            raise InputError(
                f"--repeat {self.repeat:g}: expected a share of the items from 0 to 0.5, such as"
                " 0.08"
            )


def quality_subject(prompt_set: PromptSet, taxonomy: Taxonomy, item: KeyItem) -> Subject:
    """Return a prompt-set as its quality is judged: its triplet, and its two labels with their
    definitions.
    """
    labels = "\n".join(
        f"{what}: {name}{_definition(name, categories)}"
        for what, name, categories in (
            ("Harm domain", prompt_set.harm_domain, taxonomy.harm_domains),
            ("Task type", prompt_set.task_type, taxonomy.task_types),
        )
    )
    return Subject(
        item=item,
        texts={variant: prompt_set.prompts.of(variant) for variant in CORE_VARIANTS}
        | {"labels": labels},
    )


def _definition(name: str, categories: Sequence[Category]) -> str:
    return next(
        (f" – {category.definition}" for category in categories if category.name == name), ""
    )


def response_subject(item: KeyItem, prompt: str, response: str) -> Subject:
    """Return a response as it is judged: with its prompt, and the hash of its text in the item."""
    item = msgspec.structs.replace(item, response_sha256=text_hash(response))
    return Subject(item=item, texts={"prompt": prompt, "response": response})


def lay_out(plan: StudyPlan, annotators: Sequence[str]) -> tuple[AnnotationKey, list[Packet]]:
    """Return the key of a study, and what each annotator gets.

    The study's identity, and an annotator's order and codes, do not depend on who else takes part:
    annotators can be added later.

    Raises:
        InputError: two annotators have one name, or a name that makes the same file.
    """
    names = _checked_names(annotators)
    guide = guide_of(plan.kind)
    study = _identity(plan, guide)
    dataset = f"{one_line(plan.dataset, 60)} ({plan.dataset_hash[:8]})"
    showings: dict[str, tuple[Showing, ...]] = {}
    packets = []
    for name in names:
        practice = _practice(plan.kind, guide, study, name)
        items = _items(plan, study, name, {shown.code for _, shown in practice})
        showings[name] = tuple(showing for showing, _ in (*practice, *items))
        packets.append(
            Packet(
                study=study,
                kind=plan.kind,
                dataset=dataset,
                annotator=name,
                calibration=tuple(shown for _, shown in practice),
                items=tuple(shown for _, shown in items),
            )
        )
    key = AnnotationKey(
        study=study,
        kind=plan.kind,
        dataset=plan.dataset,
        dataset_hash=plan.dataset_hash,
        unit=plan.unit,
        seed=plan.seed,
        repeat=plan.repeat,
        guide=f"{guide.id}@{guide.version}",
        items=tuple(subject.item for subject in plan.subjects),
        annotators=showings,
    )
    return key, packets


def _checked_names(annotators: Sequence[str]) -> list[str]:
    names = [unicodedata.normalize("NFC", name).strip() for name in annotators]
    if not names or not all(names):
        raise InputError(
            "--annotators: expected one name or more, separated by commas, such as ana,ben"
        )
    seen: dict[str, str] = {}
    for name in names:
        folded = name_safe(name).casefold()
        if folded in seen:
            raise InputError(
                f"--annotators: {one_line(seen[folded])!r} and {one_line(name)!r} cannot be told"
                " apart; expected names of their own"
            )
        if readable(name) != name or "\n" in name or len(name) > 60:
            raise InputError(
                f"--annotators: {one_line(name)!r}: expected a name of 60 plain characters at most"
            )
        seen[folded] = name
    return names


def _identity(plan: StudyPlan, guide: Guide) -> str:
    texts = [
        {name: text_hash(text) for name, text in subject.texts.items()} for subject in plan.subjects
    ]
    items = [subject.item for subject in plan.subjects]
    made_of = [
        plan.kind,
        plan.dataset_hash,
        plan.unit,
        plan.seed,
        plan.repeat,
        guide.id,
        guide.version,
        items,
        texts,
    ]
    return sha256_hex(canonical_json(made_of))[:12]


def _pair(code: str, number: int, texts: tuple[str, ...], **showing: Any) -> tuple[Showing, Shown]:
    """Return an item as the key has it, and as the annotator sees it."""
    words = tuple(map(words_hash, texts))
    return Showing(code=code, words=words, **showing), Shown(number=number, code=code, texts=texts)


def _practice(
    kind: LabelKind, guide: Guide, study: str, annotator: str
) -> list[tuple[Showing, Shown]]:
    order = CORE_VARIANTS if kind == "dataset_quality" else ()
    return [
        _pair(
            _code(study, annotator, f"practice {index}"),
            index + 1,
            example.texts,
            item=index,
            order=order,
            calibration=True,
        )
        for index, example in enumerate(guide.calibration)
    ]


def _items(
    plan: StudyPlan, study: str, annotator: str, taken: set[str]
) -> list[tuple[Showing, Shown]]:
    """Return the items in the annotator's own order, under codes that are not `taken`."""
    random = Random(f"{study}\0{annotator}")
    codes = set(taken)
    pairs: list[tuple[Showing, Shown]] = []
    order = order_with_repeats(range(len(plan.subjects)), plan.repeat, random)
    for number, (index, repeat) in enumerate(order, start=1):
        attempt = 0
        while (code := _code(study, annotator, f"{number} {attempt}")) in codes:
            attempt += 1
        codes.add(code)
        texts, variants = _texts(plan, plan.subjects[index], random)
        pairs.append(_pair(code, number, texts, item=index, order=variants, repeat=repeat))
    return pairs


def _texts(
    plan: StudyPlan, subject: Subject, random: Random
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return an item's texts by slot; of a prompt-set, the three prompts in an order of their own
    at every showing.
    """
    if plan.kind == "judge_validation":
        return (readable(subject.texts["prompt"]), readable(subject.texts["response"])), ()
    variants = tuple(random.sample(CORE_VARIANTS, len(CORE_VARIANTS)))
    return tuple(readable(subject.texts[name]) for name in (*variants, "labels")), variants


def _code(study: str, annotator: str, what: str) -> str:
    number = int.from_bytes(hashlib.sha256(f"{study}\0{annotator}\0{what}".encode()).digest()[:8])
    letters = []
    for _ in range(_CODE_LETTERS):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def order_with_repeats(items: Sequence[T], repeat: float, random: Random) -> list[tuple[T, bool]]:
    """Return items in random order, a share of them twice: (item, whether this is its second
    showing).

    A second showing comes at least a quarter of the items after the first, so that it is not
    remembered; fewer than four items are never repeated. A share above zero repeats at least one.
    """
    first = list(items)
    random.shuffle(first)
    count = (
        min(max(1, round(repeat * len(first))), len(first) // 2)
        if repeat and len(first) >= 4
        else 0
    )
    gap = max(2, len(first) // 4)
    repeated = sorted(random.sample(range(len(first) - gap), count))
    after: defaultdict[int, list[T]] = defaultdict(list)
    for index in repeated:
        after[random.randint(index + gap, len(first) - 1)].append(first[index])
    order: list[tuple[T, bool]] = []
    for index, item in enumerate(first):
        order.append((item, False))
        order += [(again, True) for again in after[index]]
    return order
