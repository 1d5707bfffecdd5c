"""Pages made of hand-made studies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from opensafeintent.numbers.cohort import GradedRun, gather_models
from opensafeintent.report.figures import draw_all_figures
from opensafeintent.report.notices import Results, collect_notices
from opensafeintent.report.page import PageOptions, render_page
from opensafeintent.report.tables import make_all_tables


class Text(NamedTuple):
    text: str
    row: int


class Texts:
    """Responses made up when they are asked for; it remembers which were."""

    def __init__(self, write: Callable[[str, str, str], str]) -> None:
        self.asked: set[tuple[str, str, str]] = set()
        self._write = write

    def find_of_set(
        self, model: str, set_id: str, variants: Iterable[str], epoch: int
    ) -> list[Text | None]:
        texts: list[Text | None] = []
        for variant in variants:
            self.asked.add((model, set_id, variant))
            texts.append(Text(self._write(model, set_id, variant), len(self.asked)))
        return texts

    def find(self, model: str, set_id: str, variant: str, epoch: int) -> Text | None:
        return self.find_of_set(model, set_id, [variant], epoch)[0]


def page_of(*runs: GradedRun, texts: Texts | None = None, **options: Any) -> bytes:
    cohort = gather_models(runs)
    sources = {run.name: texts for run in runs} if texts else {}
    parts = (cohort, make_all_tables(cohort), draw_all_figures(cohort), sources)
    given = {"include_unsafe": False, "notices": collect_notices(Results(cohort=cohort))}
    return render_page(*parts, PageOptions(**(given | options))).content


def saved(folder: Path, page: bytes) -> Path:
    path = folder / "report.html"
    path.write_bytes(page)
    return path


class Opened:
    """A page that is open, and what it did; errors have to be cleared by who expects them."""

    def __init__(self, chromium: Any, path: Path, fragment: str = "", **context: Any) -> None:
        usual = {"viewport": {"width": 1300, "height": 900}}
        self.context = chromium.new_context(**(usual | context))
        self.path = path
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.open(fragment)

    def open(self, fragment: str = "", *, folded: bool = False) -> None:
        """Open the page, as after a reload, and all of its sections unless they stay folded."""
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda line: line.type == "error" and self.errors.append(line.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.goto(self.path.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]")
        if not folded:
            folds = "document.querySelectorAll('details.fold')"
            self.page.evaluate(f"{folds}.forEach(fold => {{ fold.open = true }})")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self.context.close()
        assert failure or not self.errors

    def visible_text(self, selector: str = "main") -> str:
        return str(self.page.locator(selector).inner_text())

    def download(self, button: Any) -> Path:
        """Press a button, and return the file that it gives, in the page's folder."""
        with self.page.expect_download() as waiting:
            button.click()
        path = self.path.parent / waiting.value.suggested_filename
        waiting.value.save_as(path)
        return path

    def part(self, name: str) -> Any:
        """A part of the prompt-set browser."""
        return self.page.locator(f'#sets [data-part="{name}"]')

    def count(self) -> str:
        return str(self.part("count").inner_text())

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
