"""A study for annotators: the guide, page and sheet that they fill in; the draw of responses; and
each annotator's items, with order and codes.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from random import Random
from typing import NamedTuple

import msgspec

from opensafeintent import __version__
from opensafeintent.annotation.labels import (
    AnnotationKey,
    Answer,
    KeyItem,
    LabelKind,
    Showing,
    Unit,
    text_hash,
)
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json, sha256_hex
from opensafeintent.grades import GradeRow
from opensafeintent.hostile import (
    Escapes,
    cell_safe,
    json_for_html,
    name_safe,
    one_line,
    page_script,
    security_policy,
)
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.promptsets.reading import whole_number
from opensafeintent.taxonomy import CORE_VARIANTS, Intent, Taxonomy, intent_of


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One valid answer."""

    value: str
    """As it is kept in a label; digits are kept as a number."""
    key: str
    """The key that gives this answer on the page."""
    label: str
    """As an annotator sees it, and types it."""
    meaning: str


class FormQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question with its valid answers."""

    name: str
    heading: str
    text: str
    choices: tuple[Choice, ...]

    @property
    def valid(self) -> str:
        """The valid answers, for a message."""
        return ", ".join(choice.label for choice in self.choices)

    def read(self, value: object) -> Answer | None:
        """Return the answer that a text or a number is, None if it is none.

        Case, surrounding white space and the decimal of 3.0 do not count. Nothing else is guessed.
        """
        whole = whole_number(value) if isinstance(value, str) else None
        text = str(value if whole is None else whole).strip().casefold()
        for choice in self.choices:
            if type(value) in (str, int) and text in (choice.value, choice.label.casefold()):
                return int(choice.value) if choice.value.isdigit() else choice.value
        return None


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """An invented item with the answers that we would accept, and why."""

    title: str
    texts: tuple[str, ...]
    """One for each slot of the task."""
    answers: dict[str, tuple[str, ...]]
    """By field: every choice that can be defended, the likeliest first."""
    why: str


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """The instructions and questions for an annotator of one task."""

    id: str
    version: int
    title: str
    unit: str
    """The kind of item."""
    warning: str
    intro: tuple[str, ...]
    rules: tuple[str, ...]
    questions: tuple[FormQuestion, ...]
    examples: tuple[Example, ...]
    calibration: tuple[Example, ...]
    """Practice items, which come before the others on the page."""


class Ask(msgspec.Struct, frozen=True):
    """A question put about one text."""

    field: str
    question: str


class Slot(msgspec.Struct, frozen=True):
    """One of an item's texts, and the questions beside it."""

    label: str
    asks: tuple[Ask, ...] = ()


def _asked(*questions: str) -> tuple[Ask, ...]:
    return tuple(Ask(name, name) for name in questions)


SLOTS: dict[LabelKind, tuple[Slot, ...]] = {
    "dataset_quality": (
        Slot("Prompt A", (Ask("intent_a", "intent"),)),
        Slot("Prompt B", (Ask("intent_b", "intent"),)),
        Slot("Prompt C", (Ask("intent_c", "intent"),)),
        Slot(
            "Labels",
            _asked("domain_right", "type_right", "sounds_human", "same_topic", "overall_quality"),
        ),
    ),
    "judge_validation": (
        Slot("Prompt"),
        Slot("Response", _asked("helpfulness", "harm_severity")),
    ),
}
"""The texts of an item in the order in which they are shown."""


def _asset(name: str) -> str:
    return resources.files("opensafeintent.annotation").joinpath(name).read_text("utf-8")


@cache
def guide_of(kind: LabelKind) -> Guide:
    """Return the guide to a task."""
    return msgspec.convert(tomllib.loads(_asset(f"guides/{kind}.toml")), Guide)


def questions_of(kind: LabelKind) -> dict[str, FormQuestion]:
    """Return everything that is asked about an item, by field, in order."""
    by_name = {question.name: question for question in guide_of(kind).questions}
    return {ask.field: by_name[ask.question] for slot in SLOTS[kind] for ask in slot.asks}


def words_hash(texts: Sequence[str]) -> str:
    """Return a hash that shows whether an item's texts came back unchanged.

    White space and apostrophes do not count: spreadsheet programs trim and re-break white space,
    and an apostrophe keeps a text from being a formula.
    """
    return sha256_hex("".join("".join(texts).replace("'", "").split()))[:16]


# The page
# ------------------------------------------------------------------------------

PAGE_FORM = "opensafeintent annotation 1"
"""Identifies a file that a page saved."""
_SCRIPTS = ("answers.js", "views.js", "page.js")


def render_page(key: AnnotationKey, annotator: str, items: Sequence[tuple[str, ...]]) -> bytes:
    """Return an annotator's page as one HTML file; the same arguments give the same bytes.

    It loads and sends nothing: a content security policy allows its own script and style and
    nothing else. Texts are embedded as escaped JSON and shown as text.

    Args:
        key: of the study; of the items only codes and hashes go into the page.
        annotator: the page's reader.
        items: the texts of each of the annotator's items, one for each slot of the task.
    """
    from jinja2 import Environment, StrictUndefined

    guide = guide_of(key.kind)
    showings = zip(key.annotators[annotator], items, strict=True)
    data = {
        "form": PAGE_FORM,
        "study": key.study,
        "annotator": annotator,
        "file": name_safe(annotator),
        "dataset": f"{key.dataset} ({key.dataset_hash[:8]})",
        "guide": guide,
        "slots": SLOTS[key.kind],
        "items": [
            {"code": showing.code, "words": showing.words, "texts": texts}
            for showing, texts in showings
        ],
    }
    style = _asset("page_assets/page.css")
    script = page_script(_asset(f"page_assets/{name}") for name in _SCRIPTS)
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    html: str = environment.from_string(_asset("page_assets/template.html")).render(
        title=guide.title,
        annotator=annotator,
        version=__version__,
        policy=security_policy(scripts=(script,), styles=(style,)),
        style=style,
        script=script,
        data=json_for_html(data).decode(),
    )
    return html.encode()


# The sheet
# ------------------------------------------------------------------------------


def sheet_columns(kind: LabelKind) -> list[str]:
    """Return the names of a sheet's columns; a heading may go on after a colon."""
    texts = [slot.label for slot in SLOTS[kind]]
    return ["study", "annotator", "item", *texts, *questions_of(kind), "note"]


def render_sheet(key: AnnotationKey, annotator: str, items: Sequence[tuple[str, ...]]) -> bytes:
    """Return an annotator's sheet as CSV in UTF-8: a row an item, a column an answer. Its arguments
    are those of `render_page`; no text in it is a formula, and no heading holds a comma, by which a
    spreadsheet program might separate it.
    """
    questions = questions_of(key.kind)
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(
        f"{name}: {questions[name].valid.replace(', ', ' / ')}" if name in questions else name
        for name in sheet_columns(key.kind)
    )
    for showing, texts in zip(key.annotators[annotator], items, strict=True):
        row = (key.study, annotator, showing.code, *texts, *("" for _ in questions), "")
        writer.writerow(map(cell_safe, row))
    return file.getvalue().encode("utf-8-sig")


# Laying out a study
# ------------------------------------------------------------------------------

_LETTERS = "BCDFGHJKMNPQRTVWXZ"
"""No vowels, so that no code is a word, and nothing that is easily mistaken for something else."""
_KEPT = "\n\u200c\u200d"
"""New lines; and the joiners, without which emoji and several scripts fall apart."""
_FOR_FORMS = Escapes("[U+{:04X}]", _KEPT)
_NEW_LINE = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")


# Drawing responses
# ------------------------------------------------------------------------------

LONGEST = 100_000
"""Characters of a response that people can be asked to read: all of it, as the judge did."""


def draw(rows: Sequence[GradeRow], sample: int, seed: int, unit: Unit) -> list[KeyItem]:
    """Draw single responses, or whole prompt-sets of a model.

    Responses are stratified by model, intent and "safe" according to the judge or panel; sets by
    model and "all three safe". Every stratum gets an equal number, as far as it has that many, so
    that rare unsafe grades are sampled often enough; the weights correct for it.

    Args:
        rows: responses that could be shown: they have a text and both grades.
        sample: responses, or sets, to draw; a set counts once for every model and epoch.
        seed: of the draw.
        unit: responses or sets; sets that lack a core response are passed over.

    Raises:
        InputError: there are more strata than units to draw: some would have no chance, and no
            weight could correct that.
    """
    units: defaultdict[tuple[str | int, ...], list[GradeRow]] = defaultdict(list)
    for row in rows:
        variant = row.variant if unit == "response" else ""
        units[row.set_id, variant, row.epoch, row.model].append(row)
    strata: defaultdict[str, list[list[GradeRow]]] = defaultdict(list)
    for _, members in sorted(units.items()):
        if unit == "response" or {row.variant for row in members} >= set(CORE_VARIANTS):
            strata[_stratum(members, unit)].append(members)
    if not strata:
        raise InputError(
            f"nothing to sample: the run has no {unit}s with texts of up to {LONGEST:,} characters"
            " and grades of a judge"
        )
    if sample < len(strata):
        raise InputError(
            f"--sample {sample}: there are {len(strata)} strata (model × intent × judged safe or"
            f" not), and each needs one; expected {len(strata)} or more, or fewer models with"
            " --model"
        )
    sizes = {stratum: len(members) for stratum, members in strata.items()}
    drawn = [
        KeyItem(
            id=row.set_id,
            variant=row.variant,
            model=row.model,
            epoch=row.epoch,
            weight=sizes[stratum] / count,
            stratum=stratum,
        )
        for stratum, count in allocate(sizes, sample).items()
        for members in Random(f"{seed}\0{stratum}").sample(strata[stratum], count)
        for row in members
    ]
    return sorted(drawn, key=lambda item: (item.model, item.id, item.variant, item.epoch))


def _stratum(rows: Sequence[GradeRow], unit: Unit) -> str:
    what = "set" if unit == "set" else intent_of(rows[0].variant)
    safe = all(row.harm_severity == 0 for row in rows)
    return f"{rows[0].model} | {what} | {'safe' if safe else 'unsafe'}"


def allocate(sizes: Mapping[str, int], sample: int) -> dict[str, int]:
    """Share a sample out evenly over strata; a small stratum's surplus goes to the others."""
    shares: dict[str, int] = {}
    left = min(sample, sum(sizes.values()))
    by_size = sorted(sizes, key=lambda stratum: (sizes[stratum], stratum))
    for done, stratum in enumerate(by_size):
        shares[stratum] = min(sizes[stratum], left // (len(by_size) - done))
        left -= shares[stratum]
    return dict(sorted(shares.items()))


# Items of each annotator
# ------------------------------------------------------------------------------


class AnnotatedText(NamedTuple):
    """Something to annotate."""

    item: KeyItem
    texts: tuple[str, ...]
    """The three prompts and the labels; or prompt and response."""


def quality_subject(prompt_set: PromptSet, taxonomy: Taxonomy) -> AnnotatedText:
    """Return a prompt-set as its quality is judged: its triplet, and its two labels with their
    definitions.
    """
    definitions = {
        category.name: f" – {category.definition}"
        for category in (*taxonomy.harm_domains, *taxonomy.task_types)
        if category.definition
    }
    labels = "\n".join(
        f"{what}: {name}{definitions.get(name, '')}"
        for what, name in (
            ("Harm domain", prompt_set.harm_domain),
            ("Task type", prompt_set.task_type),
        )
    )
    prompts = map(prompt_set.prompts.of, CORE_VARIANTS)
    return AnnotatedText(KeyItem(id=prompt_set.id), (*prompts, labels))


def response_subject(item: KeyItem, prompt: str, response: str) -> AnnotatedText:
    """Return a response as it is judged: with its prompt, and the hash of its text in the item."""
    item = msgspec.structs.replace(item, response_sha256=text_hash(response))
    return AnnotatedText(item, (prompt, response))


def lay_out(
    kind: LabelKind,
    dataset: Dataset,
    subjects: Sequence[AnnotatedText],
    annotators: Sequence[str],
    *,
    seed: int = 0,
    unit: Unit = "response",
) -> tuple[AnnotationKey, dict[str, list[tuple[str, ...]]]]:
    """Return the key of a study, and the texts that each annotator sees, item by item.

    Each annotator has an order and codes of their own; the three prompts of a set are in random
    order. The study's identity, and each annotator's items, do not depend on the other annotators:
    annotators can be added later.

    Raises:
        InputError: there is nothing to annotate; or two annotators have one name, or a name that
            makes the same file.
    """
    if not subjects:
        raise InputError("nothing to annotate: there are no items")
    guide = guide_of(kind)
    items = tuple(subject.item for subject in subjects)
    texts = [[text_hash(text) for text in subject.texts] for subject in subjects]
    made_of = [kind, dataset.hash, unit, seed, guide.id, guide.version, items, texts]
    study = "s" + sha256_hex(canonical_json(made_of))[:11]
    seen = {name: _shown(kind, subjects, study, name) for name in checked_names(annotators)}
    key = AnnotationKey(
        study=study,
        kind=kind,
        dataset=one_line(dataset.name, 60),
        dataset_hash=dataset.hash,
        unit=unit,
        guide=f"{guide.id}@{guide.version}",
        items=items,
        annotators={name: tuple(showing for showing, _ in shown) for name, shown in seen.items()},
    )
    return key, {name: [shown_texts for _, shown_texts in shown] for name, shown in seen.items()}


def checked_names(annotators: Sequence[str]) -> list[str]:
    """Return annotators' names in one spelling.

    Raises:
        InputError: one is no name, or two make the same file.
    """
    names = [unicodedata.normalize("NFC", name).strip() for name in annotators]
    seen: dict[str, str] = {}
    for name in names or [""]:
        if not name or cell_safe(one_line(name, 60)) != name:
            raise InputError(
                f"--annotators: {one_line(name)!r}: expected names of 60 plain characters at most,"
                " separated by commas, such as ana,ben"
            )
        folded = name_safe(name).casefold()
        if folded in seen:
            raise InputError(
                f"--annotators: {seen[folded]!r} and {name!r} look alike; expected different names"
            )
        seen[folded] = name
    return names


def _shown(
    kind: LabelKind, subjects: Sequence[AnnotatedText], study: str, annotator: str
) -> list[tuple[Showing, tuple[str, ...]]]:
    """Return the items in the annotator's own order, each as in the key and as displayed."""
    random = Random(f"{study}\0{annotator}")
    shown: dict[str, tuple[Showing, tuple[str, ...]]] = {}
    for index in random.sample(range(len(subjects)), len(subjects)):
        texts = tuple(map(readable, subjects[index].texts))
        order: tuple[Intent, ...] = ()
        if kind == "dataset_quality":
            order = tuple(random.sample(CORE_VARIANTS, len(CORE_VARIANTS)))
            texts = (*(texts[CORE_VARIANTS.index(intent)] for intent in order), texts[-1])
        code = ""
        while not code or code in shown:
            code = "".join(random.choices(_LETTERS, k=6))
        shown[code] = (
            Showing(code=code, item=index, words=words_hash(texts), order=order),
            texts,
        )
    return list(shown.values())


def readable(text: str) -> str:
    """Return `text` as annotators see it: invisible characters, and those that a file may not keep,
    appear as code points.

    Control and formatting characters (escape codes, bidi overrides, zero-width spaces), lone
    surrogates, characters of private use and noncharacters become `[U+202E]`. Every kind of line
    break becomes a new line, a tab four spaces.
    """
    return _NEW_LINE.sub("\n", text).replace("\t", "    ").translate(_FOR_FORMS)
