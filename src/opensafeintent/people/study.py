"""A study: which items are drawn, the forms that annotators fill in, and the folder."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from opensafeintent import __version__
from opensafeintent.errors import InputError
from opensafeintent.files import canonical_json, sha256_hex
from opensafeintent.hostile import (
    NAME,
    Escapes,
    cell_safe,
    clean_for_display,
    json_for_html,
    name_safe,
    one_line,
    security_policy,
)
from opensafeintent.markdown import page_environment, page_script
from opensafeintent.people.labels import (
    SLOTS,
    AnnotationKey,
    AskedQuestion,
    KeyItem,
    LabelKind,
    LabelList,
    Showing,
    Unit,
    asset,
    get_guide,
    list_questions,
    list_skipped,
    list_slots,
    text_hash,
    words_hash,
)
from opensafeintent.promptsets import Dataset, PromptSet
from opensafeintent.promptsets.own_questions import OwnQuestion
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import CORE_VARIANTS, DUAL_USE, Intent, Taxonomy, find_intent

LONGEST = 100_000
"""Characters of a response that people can be asked to read: all of it, as the judge did."""


def draw(
    rows: Sequence[GradedResponse],
    sample: int,
    seed: int,
    unit: Unit,
    unit_of: Mapping[str, str] = {},
    pairs: Collection[str] = (),
) -> list[KeyItem]:
    """Draw single responses, or whole prompt-sets of a model with all of their epochs. If the
    dataset has families, the responses to a variant, or the sets, of a family are drawn together,
    about as many as without families.

    Responses are stratified by model, intent and "safe" according to the judge or panel; sets by
    model and "all safe". Every model gets an equal number, and every stratum of a model, as far as
    it has that many: enough labels of each model, and of rare unsafe grades. Weights correct it.

    Args:
        rows: responses that could be shown: they have a text and both grades.
        sample: responses, or sets, to draw; a set counts once for every model.
        seed: of the draw.
        unit: responses or sets; an epoch of a set that lacks a core response is passed over.
        unit_of: by prompt-set, the name of its unit (`promptsets.find_units`), if it has one.
        pairs: the prompt-sets without a dual-use prompt.

    Raises:
        InputError: there are more strata than units to draw: no weight could correct that.
    """
    strata = _group_by_stratum(rows, unit, unit_of, pairs)
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
    families = len(set(unit_of.values())) < len(unit_of)
    if families:
        sample = _count_families(strata, sample, unit)
    models = {stratum: members[0][0].model for stratum, members in strata.items()}
    shares = _share_out(sizes, models, sample)
    drawn = [
        KeyItem(
            id=row.set_id,
            variant=row.variant,
            model=row.model,
            epoch=row.epoch,
            weight=sizes[stratum] / count,
            stratum=stratum,
            family=unit_of[row.set_id] if families else "",
        )
        for stratum, count in shares.items()
        for members in Random(f"{seed}\0{stratum}").sample(strata[stratum], count)
        for row in members
    ]
    return sorted(drawn, key=lambda item: (item.model, item.id, item.variant, item.epoch))


def _count_families(
    strata: Mapping[str, Sequence[Sequence[GradedResponse]]], sample: int, unit: Unit
) -> int:
    """Return how many families have about as many responses, or sets, as are to be drawn; one of
    each stratum at least.
    """
    families = [rows for members in strata.values() for rows in members]
    alone = {_name_unit(row, unit, row.set_id) for rows in families for row in rows}
    return max(len(strata), round(sample * len(families) / len(alone)))


def _group_by_stratum(
    rows: Sequence[GradedResponse],
    unit: Unit,
    unit_of: Mapping[str, str],
    pairs: Collection[str],
) -> dict[str, list[list[GradedResponse]]]:
    """Return the units of each stratum, each with its responses."""
    whole = complete_sets(rows, pairs)
    units: defaultdict[tuple[str | int, ...], list[GradedResponse]] = defaultdict(list)
    for row in rows:
        if unit == "response" or (row.model, row.set_id, row.epoch) in whole:
            units[_name_unit(row, unit, unit_of.get(row.set_id, row.set_id))].append(row)
    strata: defaultdict[str, list[list[GradedResponse]]] = defaultdict(list)
    for _, members in sorted(units.items()):
        strata[_name_stratum(members, unit)].append(members)
    return strata


def _name_unit(row: GradedResponse, unit: Unit, name: str) -> tuple[str | int, ...]:
    """Return the key of the unit with a name that a response is drawn with."""
    return (name, row.model) if unit == "set" else (name, row.variant, row.epoch, row.model)


def complete_sets(
    rows: Sequence[GradedResponse], pairs: Collection[str] = ()
) -> set[tuple[str, str, int]]:
    """Return the model, prompt-set and epoch of all core responses that are graded.

    Args:
        rows: the responses.
        pairs: the prompt-sets without a dual-use prompt.
    """
    graded = Counter(
        (row.model, row.set_id, row.epoch)
        for row in rows
        if row.has_all_grades and row.variant in CORE_VARIANTS
    )
    return {
        place
        for place, count in graded.items()
        if count == len(CORE_VARIANTS) - (place[1] in pairs)
    }


def _name_stratum(rows: Sequence[GradedResponse], unit: Unit) -> str:
    unit_name = "set" if unit == "set" else find_intent(rows[0].variant)
    safe = all(row.harm_severity == 0 for row in rows)
    return f"{rows[0].model} | {unit_name} | {'safe' if safe else 'unsafe'}"


def _share_out(sizes: Mapping[str, int], models: Mapping[str, str], sample: int) -> dict[str, int]:
    """Share a sample out evenly over models, and each model's part over its strata.

    A model whose part would be smaller than its number of strata gets one unit for each of them.

    Args:
        sizes: by stratum.
        models: by stratum.
        sample: units to share out, as many as strata or more.
    """
    of_model: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for stratum, size in sizes.items():
        of_model[models[stratum]][stratum] = size
    rest = {model: sum(strata.values()) for model, strata in of_model.items()}
    least: dict[str, int] = {}
    while True:
        parts = allocate(rest, sample - sum(least.values()))
        short = [model for model, part in parts.items() if part < len(of_model[model])]
        if not short:
            break
        least |= {model: len(of_model[model]) for model in short}
        rest = {model: size for model, size in rest.items() if model not in least}
    return {
        stratum: share
        for model, part in sorted((least | parts).items())
        for stratum, share in allocate(of_model[model], part).items()
    }


def allocate(sizes: Mapping[str, int], sample: int) -> dict[str, int]:
    """Share a sample out evenly over strata; a small stratum's surplus goes to the others."""
    shares: dict[str, int] = {}
    unshared = min(sample, sum(sizes.values()))
    by_size = sorted(sizes, key=lambda stratum: (sizes[stratum], stratum))
    for number_shared, stratum in enumerate(by_size):
        shares[stratum] = min(sizes[stratum], unshared // (len(by_size) - number_shared))
        unshared -= shares[stratum]
    return dict(sorted(shares.items()))


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
    """The prompts and the labels; or prompt and response, and the questions of the prompt-set's own
    about it.
    """


def make_quality_item(prompt_set: PromptSet, dataset: Dataset) -> AnnotatedText:
    """Return a prompt-set as its quality is judged: its prompts, and its labels with their
    definitions, as far as it has them.
    """
    definitions = {
        category.name: f" – {category.definition}"
        for category in (*dataset.taxonomy.harm_domains, *dataset.taxonomy.task_types)
        if category.definition
    }
    labels = "\n".join(
        f"{label}: {name}{definitions.get(name, '')}"
        for label, name in (
            ("Harm domain", prompt_set.harm_domain),
            ("Task type", prompt_set.task_type),
        )
        if name is not None
    )
    prompts = prompt_set.prompts.by_intent().values()
    families = len(set(dataset.units.values())) < len(dataset)
    family = dataset.units[prompt_set.id] if families else ""
    lacking = {
        "domain_right": prompt_set.harm_domain is None,
        "type_right": prompt_set.task_type is None,
        "dual_use_has_both": prompt_set.is_pair,
    }
    skipped = tuple(question for question, lacks in lacking.items() if lacks)
    item = KeyItem(id=prompt_set.id, family=family, skipped=skipped)
    return AnnotatedText(item, (*prompts, labels))


def list_category_definitions(taxonomy: Taxonomy) -> tuple[LabelList, ...]:
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


def make_response_item(
    item: KeyItem, prompt: str, response: str, questions: Sequence[OwnQuestion] = ()
) -> AnnotatedText:
    """Return a response as it is judged: with its prompt, with questions of the prompt-set's own in
    their order, and with the hashes of its text and of theirs in the item.
    """
    item = msgspec.structs.replace(
        item,
        response_sha256=text_hash(response),
        questions=tuple(AskedQuestion(own.id, text_hash(own.text)) for own in questions),
    )
    return AnnotatedText(item, (prompt, response, *(own.text for own in questions)))


def make_key_and_texts(
    kind: LabelKind,
    dataset: Dataset,
    items_with_texts: Sequence[AnnotatedText],
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
    if not items_with_texts:
        raise InputError("nothing to annotate: there are no items")
    guide = get_guide(kind)
    items = tuple(entry.item for entry in items_with_texts)
    texts = [[text_hash(text) for text in entry.texts] for entry in items_with_texts]
    identifying = [kind, dataset.hash, unit, seed, guide.id, guide.version, items, texts]
    study = "s" + sha256_hex(canonical_json(identifying))[:11]
    shown_to = {
        name: _order_items(kind, items_with_texts, study, name) for name in check_names(annotators)
    }
    key = AnnotationKey(
        study=study,
        kind=kind,
        dataset=dataset.shown,
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


def check_names(annotators: Sequence[str]) -> list[str]:
    """Return annotators' names in one spelling.

    Raises:
        InputError: one is no name, or two make the same file.
    """
    names = [unicodedata.normalize("NFC", name).strip() for name in annotators]
    by_folded: dict[str, str] = {}
    for name in names or [""]:
        if not name or cell_safe(clean_for_display(name)) != name:
            raise InputError(
                f"--annotators: {one_line(name)!r}: expected names of {NAME} plain characters at"
                " most, separated by commas, such as ana,ben"
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


def _order_items(
    kind: LabelKind, items_with_texts: Sequence[AnnotatedText], study: str, annotator: str
) -> list[tuple[Showing, tuple[str, ...]]]:
    """Return the items in the annotator's own order, each as in the key and as displayed."""
    random = Random(f"{study}\0{annotator}")
    shown: dict[str, tuple[Showing, tuple[str, ...]]] = {}
    for index in random.sample(range(len(items_with_texts)), len(items_with_texts)):
        texts = tuple(map(readable, items_with_texts[index].texts))
        order: tuple[Intent, ...] = ()
        if kind == "dataset_quality":
            *prompts, labels = texts
            intents = [
                intent
                for intent in CORE_VARIANTS
                if intent != DUAL_USE or len(prompts) == len(CORE_VARIANTS)
            ]
            order = tuple(random.sample(intents, len(intents)))
            blank = [""] * (len(CORE_VARIANTS) - len(prompts))
            texts = (*(prompts[intents.index(intent)] for intent in order), *blank, labels)
        code = ""
        while not code or code in shown:
            code = "".join(random.choices(_LETTERS, k=6))
        shown[code] = (
            Showing(code=code, item=index, words=words_hash(_list_cells(kind, texts)), order=order),
            texts,
        )
    return list(shown.values())


def _list_cells(kind: LabelKind, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return an item's texts as a sheet has them: all questions of its own in one cell."""
    shown = len(SLOTS[kind])
    own = "\n".join(f"q{number}: {text}" for number, text in enumerate(texts[shown:], start=1))
    return (*texts[:shown], own) if own else texts


def readable(text: str) -> str:
    """Return `text` as annotators see it: invisible characters, and those that a file may not keep,
    appear as code points.

    Control and formatting characters (escape codes, bidi overrides, zero-width spaces), lone
    surrogates, characters of private use and noncharacters become `[U+202E]`. Every kind of line
    break becomes a new line, a tab four spaces.
    """
    return _NEW_LINE.sub("\n", text).replace("\t", "    ").translate(_FOR_FORMS)


PAGE_FORM = "opensafeintent annotation 1"
"""Identifies a file that a page saved."""
_SCRIPTS = ("answers.js", "views.js", "page.js")


def render_page(
    key: AnnotationKey,
    annotator: str,
    items: Sequence[tuple[str, ...]],
    category_definitions: Sequence[LabelList] = (),
) -> bytes:
    """Return an annotator's page as one HTML file; the same arguments give the same bytes.

    It loads and sends nothing: a content security policy allows its own script and style and
    nothing else. Texts are embedded as escaped JSON and shown as text.

    Args:
        key: of the study; of the items only codes and hashes go into the page.
        annotator: the page's reader.
        items: the texts of each of the annotator's items, one for each slot of the task, and then
            the questions of its own.
        category_definitions: all labels that a prompt-set of the dataset can have.
    """
    guide, shown = (
        get_guide(key.kind, has_own_questions=key.most_own_questions > 0),
        len(SLOTS[key.kind]),
    )
    showings = zip(key.annotators[annotator], items, strict=True)
    data = {
        "form": PAGE_FORM,
        "study": key.study,
        "annotator": annotator,
        "file": name_safe(annotator),
        "dataset": f"{key.dataset} ({key.dataset_hash[:8]})",
        "guide": guide,
        "slots": list_slots(key.kind, key.most_own_questions)[:shown],
        "lists": category_definitions,
        "items": [
            {
                "code": showing.code,
                "words": showing.words,
                "texts": texts[:shown],
                **_name_differences(key, key.items[showing.item], texts[shown:]),
            }
            for showing, texts in showings
        ],
    }
    style = asset("page_assets/page.css")
    script = page_script(asset(f"page_assets/{name}") for name in _SCRIPTS)
    environment = page_environment("opensafeintent.people", "page_assets")
    html = environment.get_template("template.html").render(
        title=f"{guide.title} – {annotator}",
        annotator=annotator,
        version=__version__,
        policy=security_policy(scripts=(script,), styles=(style,)),
        style=style,
        script=script,
        data=json_for_html(data).decode(),
    )
    return html.encode()


def _name_differences(key: AnnotationKey, item: KeyItem, own: Sequence[str]) -> dict[str, object]:
    """Return what one item's form has not, or has besides: fields that are not asked, and the texts
    of questions of its own.
    """
    skipped = list_skipped(key, item)
    texts = {f"q{number}": text for number, text in enumerate(own, start=1)}
    return ({"skipped": skipped} if skipped else {}) | ({"questions": texts} if texts else {})


def render_guide(
    kind: LabelKind, category_definitions: Sequence[LabelList] = (), most_own_questions: int = 0
) -> bytes:
    """Return the guide to the sheets of a task as one HTML file, which pages have inside: warning,
    questions with their answers, rules, examples and practice items. It has no script.

    Args:
        kind: of the task.
        category_definitions: all labels that a prompt-set of the dataset can have.
        most_own_questions: the most questions of a prompt-set's own that an item has.
    """
    guide, fields = (
        get_guide(kind, has_own_questions=most_own_questions > 0),
        list_questions(kind, most_own_questions),
    )
    style = asset("page_assets/page.css")
    environment = page_environment("opensafeintent.people", "page_assets")
    html = environment.get_template("guide.html").render(
        title=f"{guide.title} – guide",
        guide=guide,
        slots=SLOTS[kind],
        fields=list_questions(kind),
        lists=category_definitions,
        columns={
            question.name: [field for field, asked in fields.items() if asked is question]
            for question in guide.questions
        },
        version=__version__,
        policy=security_policy(scripts=(), styles=(style,)),
        style=style,
    )
    return html.encode()


def sheet_columns(kind: LabelKind, most_own_questions: int = 0) -> list[str]:
    """Return the names of a sheet's columns; a heading may go on after a colon. The arguments are
    those of `list_slots`.
    """
    texts = [slot.label for slot in list_slots(kind, most_own_questions)]
    return ["study", "annotator", "item", *texts, *list_questions(kind, most_own_questions), "note"]


def render_sheet(key: AnnotationKey, annotator: str, items: Sequence[tuple[str, ...]]) -> bytes:
    """Return an annotator's sheet as CSV in UTF-8: a row an item, a column an answer. Its arguments
    are those of `render_page` without the lists. No text in it is a formula, and no heading holds a
    comma, by which a spreadsheet program might separate it.
    """
    questions, slots = (
        list_questions(key.kind, key.most_own_questions),
        list_slots(key.kind, key.most_own_questions),
    )
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(
        f"{name}: {questions[name].valid.replace(', ', ' / ')}" if name in questions else name
        for name in sheet_columns(key.kind, key.most_own_questions)
    )
    for showing, texts in zip(key.annotators[annotator], items, strict=True):
        cells = _list_cells(key.kind, texts)
        blank = [""] * (len(slots) - len(cells) + len(questions) + 1)
        writer.writerow(map(cell_safe, (key.study, annotator, showing.code, *cells, *blank)))
    return file.getvalue().encode("utf-8-sig")
