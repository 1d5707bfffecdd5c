"""The directive `gallery`: the figures of a demo run as SVG, each with its caption, made at every
build. As a program it makes the pictures of README and documentation from the same run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import vl_convert
from docutils import nodes
from docutils.statemachine import StringList
from playwright.sync_api import sync_playwright
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from opensafeintent.report.notices import DEMONSTRATION_NOTE

_STATIC = Path(__file__).parents[1] / "_static"
_CHROMIUM = Path("/usr/bin/chromium")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, and the folder of its figures."""
    app.add_directive("gallery", GalleryDirective)
    app.connect("builder-inited", _prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def demo_report(build: Path) -> Path:
    """Return the folder of a demo run with its report, made in a build folder."""
    run = build / "demo"
    for command in (["demo", "--out", str(run)], ["report", str(run)]):
        program = [sys.executable, "-m", "opensafeintent", *command]
        subprocess.run(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return run


def _prepare(app: Sphinx) -> None:
    if not (Path(app.srcdir) / "read-the-report.md").is_file():
        return
    build = Path(app.doctreedir).parent
    figures, shown = demo_report(build) / "figures", build / "static" / "gallery"
    shutil.rmtree(shown, ignore_errors=True)
    shown.mkdir(parents=True)
    for path in figures.glob("*.svg"):
        (shown / path.name).write_bytes(path.read_bytes())  # a run's files are their owner's alone
    app.config.html_static_path.append(str(build / "static"))


class GalleryDirective(SphinxDirective):
    """A section for each figure, in the order of the report."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        self.env.note_reread()
        build = Path(self.env.doctreedir).parent
        captions = (build / "demo" / "figures" / "captions.md").read_text("utf-8")
        pattern = r"^## (\S+)\n\n\*\*(.+?)\.\*\* (.+)$"
        found = re.findall(pattern, captions, re.MULTILINE)
        return [node for figure in found for node in self._figure(*figure)]

    def _figure(self, name: str, title: str, caption: str) -> list[nodes.Node]:
        section = nodes.section("", nodes.title("", title), ids=[nodes.make_id(name)])
        source = f'<img class="gallery" src="_static/gallery/{name}.svg" alt="{title}">'
        section += nodes.raw("", source, format="html")
        text = caption.replace(DEMONSTRATION_NOTE, "").strip()
        self.state.nested_parse(StringList([text]), self.content_offset, section)
        return [section]


def make_pictures(build: Path) -> None:
    """Make the pictures of README and documentation; without a browser the present ones stay."""
    if not _CHROMIUM.exists():
        print("no Chromium: docs/_static keeps its pictures")
        return
    run = demo_report(build)
    frontier = (run / "figures" / "fig_frontier.svg").read_text("utf-8")
    picture = vl_convert.svg_to_png(_on_white(frontier), scale=1.0)
    (_STATIC / "frontier.png").write_bytes(picture)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(
            viewport={"width": 1300, "height": 950}, color_scheme="light", reduced_motion="reduce"
        )
        page.goto((run / "report.html").resolve().as_uri())
        page.locator("[data-name=fig_frontier] svg").wait_for()
        page.screenshot(path=_STATIC / "report-light.png")
        browser.close()


def _on_white(svg: str) -> str:
    return re.sub(
        r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="#fff"/>', svg, count=1
    )


if __name__ == "__main__":
    make_pictures(Path(sys.argv[1]))
