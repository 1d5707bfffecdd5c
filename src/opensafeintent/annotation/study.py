"""A study for annotators: each annotator's items, with order and codes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import msgspec

from opensafeintent.annotation.guide import LabelList, guide_of, words_hash
from opensafeintent.annotation.key import AnnotationKey, Showing
from opensafeintent.annotation.labels import KeyItem, LabelKind, Unit, text_hash
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json, sha256_hex
from opensafeintent.hostile import Escapes, cell_safe, name_safe, one_line
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.taxonomy import CORE_VARIANTS, Intent, Taxonomy

_LETTERS = "BCDFGHJKMNPQRTVWXZ"
"""No vowels, so that no code is a word, and nothing that is easily mistaken for something else."""
_UNESCAPED = "\n\u200c\u200d"
"""New lines; and the joiners, without which emoji and several scripts fall apart."""
_FOR_FORMS = Escapes("[U+{:04X}]", _UNESCAPED)
_NEW_LINE = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")


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
        f"{label}: {name}{definitions.get(name, '')}"
        for label, name in (
            ("Harm domain", prompt_set.harm_domain),
            ("Task type", prompt_set.task_type),
        )
    )
    prompts = map(prompt_set.prompts.of, CORE_VARIANTS)
    return AnnotatedText(KeyItem(id=prompt_set.id), (*prompts, labels))


def label_lists(taxonomy: Taxonomy) -> tuple[LabelList, ...]:
    """Return all labels of a dataset with their definitions, as annotators see them: a label is
    right if it fits better than the others.
    """
    return tuple(
        LabelList(
            heading=heading,
            labels=tuple(
                (readable(category.name), readable(category.definition)) for category in categories
            ),
        )
        for heading, categories in (
            ("All harm domains", taxonomy.harm_domains),
            ("All task types", taxonomy.task_types),
        )
    )


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
    identifying = [kind, dataset.hash, unit, seed, guide.id, guide.version, items, texts]
    study = "s" + sha256_hex(canonical_json(identifying))[:11]
    shown_to = {
        name: _items_shown(kind, subjects, study, name) for name in checked_names(annotators)
    }
    key = AnnotationKey(
        study=study,
        kind=kind,
        dataset=one_line(dataset.name, 60),
        dataset_hash=dataset.hash,
        unit=unit,
        guide=f"{guide.id}@{guide.version}",
        items=items,
        annotators={
            name: tuple(showing for showing, _ in shown) for name, shown in shown_to.items()
        },
    )
    return key, {
        name: [shown_texts for _, shown_texts in shown] for name, shown in shown_to.items()
    }


GUIDE_FILE = "guide.html"
"""Name of the guide's file, beside the forms."""


def checked_names(annotators: Sequence[str]) -> list[str]:
    """Return annotators' names in one spelling.

    Raises:
        InputError: one is no name, or two make the same file.
    """
    names = [unicodedata.normalize("NFC", name).strip() for name in annotators]
    by_folded: dict[str, str] = {}
    for name in names or [""]:
        if not name or cell_safe(one_line(name, 60)) != name:
            raise InputError(
                f"--annotators: {one_line(name)!r}: expected names of 60 plain characters at most,"
                " separated by commas, such as ana,ben"
            )
        folded = name_safe(name).casefold()
        if f"{folded}.html" == GUIDE_FILE:
            raise InputError(
                f"--annotators: {name!r}: {GUIDE_FILE} is the guide; expected another name"
            )
        if folded in by_folded:
            raise InputError(
                f"--annotators: {by_folded[folded]!r} and {name!r} look alike; expected different"
                " names"
            )
        by_folded[folded] = name
    return names


def _items_shown(
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
