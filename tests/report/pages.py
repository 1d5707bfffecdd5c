"""Pages made of hand-made studies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opensafeintent.analysis.cohort import Group, Study, group_studies
from opensafeintent.grades import GradeRow
from opensafeintent.promptsets import Dataset
from opensafeintent.report.figures import all_figures
from opensafeintent.report.page import render_page
from opensafeintent.report.tables import all_tables
from report.studies import study_with
from samples import grade_line


class Text(NamedTuple):
    text: str
    row: int


class Texts:
    """Responses made up when they are asked for; it remembers which were."""

    def __init__(self, write: Callable[[str, str, str], str]) -> None:
        self.asked: set[tuple[str, str, str]] = set()
        self._write = write

    def find(self, model: str, set_id: str, variant: str, epoch: int = 1) -> Text | None:
        self.asked.add((model, set_id, variant))
        return Text(self._write(model, set_id, variant), len(self.asked))


def rows_of(model: str, dataset: Dataset, grades: dict[str, str]) -> list[GradeRow]:
    """Make a row for each pair (helpfulness, harm severity) that a set's variants have in order;
    `--` is missing.
    """
    return [
        grade_line(
            model, item.id, variant, pair, missing=("helpfulness:unparsed",) if "-" in pair else ()
        )
        for item in dataset.prompt_sets
        for variant, pair in zip(item.wordings(), grades[item.id].split(), strict=True)
    ]


def group_with(dataset: Dataset, rows: Sequence[GradeRow], *, judge: str = "some/judge") -> Group:
    """Put rows of one run into the one group that they make."""
    models = list(dict.fromkeys(row.model for row in rows))
    (group,) = group_studies([study_with(rows, dataset, models, judge=judge)])
    return group


def page_of(*studies: Study, texts: Texts | None = None, include_unsafe: bool = False) -> bytes:
    groups = group_studies(studies)
    sources = {study.name: texts for study in studies} if texts else {}
    return render_page(
        groups,
        studies,
        all_tables(groups),
        all_figures(groups),
        sources,
        include_unsafe=include_unsafe,
    )


class Opened:
    """A page that is open, and what it did."""

    def __init__(self, chromium: Any, path: Path, fragment: str = "", **context: Any) -> None:
        usual = {"viewport": {"width": 1300, "height": 900}}
        self.context = chromium.new_context(**(usual | context))
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "console", lambda message: message.type == "error" and self.errors.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def part(self, name: str) -> Any:
        """A part of the prompt-set browser."""
        return self.page.locator(f'#sets [data-part="{name}"]')

    def show(self, set_id: str) -> Any:
        """Choose a prompt-set, and return its view."""
        self.page.evaluate("hash => { location.hash = hash }", f"#set={set_id}&model=&repeat=")
        self.page.locator("#sets .view code", has_text=set_id).first.wait_for()
        return self.part("view")

    def listed(self) -> list[str]:
        """The prompt-sets that are listed."""
        links = self.part("list").locator("a.entry")
        addresses = links.evaluate_all("links => links.map(link => link.hash)")
        return [re.findall(r"set=(set-\d)", link)[0] for link in addresses]

    def column(self, table: str, number: int) -> list[str]:
        return self.page.locator(f"#{table} tbody tr > :nth-child({number})").all_inner_texts()
