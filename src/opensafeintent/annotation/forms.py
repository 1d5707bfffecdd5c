"""The page and the sheet that an annotator fills in, and the guide to a sheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from opensafeintent import __version__
from opensafeintent.annotation.guide import SLOTS, LabelList, asset, guide_of, questions_of
from opensafeintent.annotation.key import AnnotationKey
from opensafeintent.annotation.labels import LabelKind
from opensafeintent.hostile import cell_safe, json_for_html, name_safe, page_script, security_policy
from opensafeintent.rendering import page_environment

PAGE_FORM = "opensafeintent annotation 1"
"""Identifies a file that a page saved."""
_SCRIPTS = ("answers.js", "views.js", "page.js")


def render_page(
    key: AnnotationKey,
    annotator: str,
    items: Sequence[tuple[str, ...]],
    lists: Sequence[LabelList] = (),
) -> bytes:
    """Return an annotator's page as one HTML file; the same arguments give the same bytes.

    It loads and sends nothing: a content security policy allows its own script and style and
    nothing else. Texts are embedded as escaped JSON and shown as text.

    Args:
        key: of the study; of the items only codes and hashes go into the page.
        annotator: the page's reader.
        items: the texts of each of the annotator's items, one for each slot of the task.
        lists: all labels that a prompt-set of the dataset can have.
    """
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
        "lists": lists,
        "items": [
            {"code": showing.code, "words": showing.words, "texts": texts}
            for showing, texts in showings
        ],
    }
    style = asset("page_assets/page.css")
    script = page_script(asset(f"page_assets/{name}") for name in _SCRIPTS)
    environment = page_environment("opensafeintent.annotation", "page_assets")
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


def render_guide(kind: LabelKind, lists: Sequence[LabelList] = ()) -> bytes:
    """Return the guide to the sheets of a task as one HTML file, which pages have inside: warning,
    questions with their answers, rules, examples and practice items. It has no script.

    Args:
        kind: of the task.
        lists: all labels that a prompt-set of the dataset can have.
    """
    guide, fields = guide_of(kind), questions_of(kind)
    style = asset("page_assets/page.css")
    environment = page_environment("opensafeintent.annotation", "page_assets")
    html = environment.get_template("guide.html").render(
        title=f"{guide.title} – guide",
        guide=guide,
        slots=SLOTS[kind],
        fields=fields,
        lists=lists,
        columns={
            question.name: [field for field, asked in fields.items() if asked is question]
            for question in guide.questions
        },
        version=__version__,
        policy=security_policy(scripts=(), styles=(style,)),
        style=style,
    )
    return html.encode()


def sheet_columns(kind: LabelKind) -> list[str]:
    """Return the names of a sheet's columns; a heading may go on after a colon."""
    texts = [slot.label for slot in SLOTS[kind]]
    return ["study", "annotator", "item", *texts, *questions_of(kind), "note"]


def render_sheet(key: AnnotationKey, annotator: str, items: Sequence[tuple[str, ...]]) -> bytes:
    """Return an annotator's sheet as CSV in UTF-8: a row an item, a column an answer. Its arguments
    are those of `render_page` without the lists. No text in it is a formula, and no heading holds a
    comma, by which a spreadsheet program might separate it.
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
