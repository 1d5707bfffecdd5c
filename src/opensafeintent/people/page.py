"""The same task as one page for each annotator: a file that works in a browser from disk, by keyboard."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec

from opensafeintent import __version__
from opensafeintent.hostile import json_for_html, security_policy
from opensafeintent.people.guide import SLOTS
from opensafeintent.people.labels import Showing
from opensafeintent.people.returns import PAGE_FORM, page_words
from opensafeintent.people.study import Packet, Shown

__all__ = ["render_page"]

_SCRIPTS = ("parts.js", "answers.js", "views.js", "page.js")


def render_page(packet: Packet, showings: Sequence[Showing]) -> bytes:
    """Return an annotator's page as one HTML file; the same packet gives the same bytes.

    It loads and sends nothing: a content security policy allows its own script and style and nothing else. Texts are
    embedded as escaped JSON and shown as text.

    Args:
        packet: what the annotator sees.
        showings: the same items in the study's key; only the hashes of their texts go into the page.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    style = _asset("page.css")
    script = '"use strict";\n' + "\n".join(map(_asset, _SCRIPTS))
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    html: str = environment.get_template("template.html").render(
        title=packet.guide.title,
        annotator=packet.annotator,
        version=__version__,
        policy=security_policy(scripts=(script,), styles=(style,)),
        style=style,
        script=script,
        data=json_for_html(_data(packet, showings)).decode(),
    )
    return html.encode()


def _asset(name: str) -> str:
    return resources.files("opensafeintent.people").joinpath(f"page_assets/{name}").read_text("utf-8")


def _data(packet: Packet, showings: Sequence[Showing]) -> dict[str, Any]:
    guide = packet.guide
    words = {showing.code: page_words(showing) for showing in showings}

    def item(shown: Shown) -> dict[str, Any]:
        return {
            "code": shown.code,
            "number": shown.number,
            "texts": shown.texts,
            "words": words[shown.code],
            "practice": None,
        }

    practice = [
        item(shown) | {"practice": {"answers": example.answers, "why": example.why}}
        for shown, example in zip(packet.calibration, guide.calibration, strict=True)
    ]
    return {
        "form": PAGE_FORM,
        "study": packet.study,
        "annotator": packet.annotator,
        "file": packet.file_name,
        "dataset": packet.dataset,
        "title": guide.title,
        "unit": guide.unit,
        "warning": guide.warning,
        "intro": guide.intro,
        "rules": guide.rules,
        "questions": [msgspec.to_builtins(question) for question in guide.questions],
        "examples": [msgspec.to_builtins(example) for example in guide.examples],
        "slots": [
            {"label": slot.label, "asks": [msgspec.to_builtins(ask) for ask in slot.asks]} for slot in SLOTS[packet.kind]
        ],
        "items": [*practice, *map(item, packet.items)],
    }
