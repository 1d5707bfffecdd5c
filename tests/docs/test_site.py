"""The documentation builds without a warning, holds every public name and every option, and can be
read on a phone.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import opensafeintent
from docs.stand_ins import parameters_of
from endtoend import REPO
from opensafeintent.cli.commands import cli

DOCS = REPO / "docs"
pytestmark = pytest.mark.slow


def make_docs(build: Path, source: Path = DOCS) -> subprocess.CompletedProcess[str]:
    """Build as `make docs` does, with this Python and into a folder of its own."""
    variables = (f"BIN={Path(sys.executable).parent}", f"DOCS={source}", f"BUILD={build}")
    command = ["make", "--old-file", ".venv/.dev", "docs", *variables]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("build")
    built = make_docs(build)
    assert built.returncode == 0, built.stderr
    return build / "docs"


_BROKEN = {
    "[a page](nothing.md)": "nothing.md",
    "[a heading](#no-such-heading)": "no-such-heading",
    "[its heading](target.md#nowhere)": "nowhere",
    "![a picture](nothing.png)": "nothing.png",
    "{py:func}`opensafeintent.no_such_function`": "no_such_function",
    "$\\nosuchcommand$": "nosuchcommand",
}


def test_every_broken_link_is_told_and_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    for name in ("_extensions", "_static"):
        shutil.copytree(DOCS / name, source / name)
    shutil.copy(DOCS / "conf.py", source)
    (source / "target.md").write_text("# Target\n")
    page = "# Page\n\n[a heading](target.md#target)\n\n```{toctree}\ntarget\n```\n"
    (source / "index.md").write_text(page + "\n\n".join(_BROKEN))
    built = make_docs(tmp_path / "build", source)
    assert built.returncode != 0
    assert [warning for warning in _BROKEN.values() if warning not in built.stderr] == []


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "python-api.html").read_text()
    missing = {name for name in opensafeintent.__all__ if f'id="opensafeintent.{name}"' not in text}
    assert missing <= {"__version__"}


def _commands(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    yield path.strip() or "opensafeintent", command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{path} {name}")


def test_every_command_and_option_is_on_the_page(site: Path) -> None:
    form = re.compile(r'<section id="([\w-]+)">(.*?)(?=<section id=|</article>)', re.DOTALL)
    sections = dict(form.findall((site / "command-line.html").read_text()))
    for path, command in _commands(cli):
        section = re.sub(r"<[^>]+>", "", sections[path.replace(" ", "-")])
        text = " ".join(html.unescape(section).split())
        texts = [command.help or ""]
        for option in parameters_of(command):
            if isinstance(option, click.Option) and "--help" not in option.opts:
                texts += [option.help or "", *option.opts, *option.secondary_opts]
        for help_text in texts:
            assert " ".join(help_text.replace("`", "").split()) in text, path


def test_every_page_has_its_markdown(site: Path) -> None:
    pages = {path.stem: path.read_text() for path in site.glob("*.md")}
    built = {path.stem for path in site.glob("*.html")} - {"genindex", "search", "py-modindex"}
    assert pages.keys() == built
    for name, text in pages.items():
        assert text.startswith("# "), name
        assert not re.search(r"^```\{|\{py:|<!--", text, re.MULTILINE), name
        for page, anchor in re.findall(r"\]\(([\w-]+)\.md(?:#([\w-]+))?\)", text):
            assert page in pages, (name, page)
            assert not anchor or f'id="{anchor}"' in (site / f"{page}.html").read_text()


def test_the_list_for_programs_has_every_page_and_a_way_to_an_answer(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    listed = re.findall(r"^- \[.+\]\(([\w-]+)\.md\)", text, re.MULTILINE)
    assert len(set(listed)) == len(listed)
    unlisted = {path.stem for path in site.glob("*.md")} - {*listed}
    assert unlisted == {"index", "evidence"}
    assert text.startswith("# OpenSafeIntent\n\n> ")
    assert "opensafeintent compare runs/ab" in text
    assert "../" not in text and "](#" not in text


def test_every_option_is_in_the_markdown(site: Path) -> None:
    text = (site / "command-line.md").read_text()
    sections = dict(re.findall(r"^### (.+)\n((?:(?!### ).*\n?)*)", text, re.MULTILINE))
    for path, command in _commands(cli):
        section = sections[path if path == "opensafeintent" else f"opensafeintent {path}"]
        for option in parameters_of(command):
            if isinstance(option, click.Option) and "--help" not in option.opts:
                assert all(name in section for name in option.opts), (path, option.opts)


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(https?:[^"]+)"')
    for page in site.glob("*.html"):
        assert not loading.findall(page.read_text()), page.name


def test_no_page_is_wider_than_the_screen(chromium: Any, site: Path) -> None:
    page = chromium.new_page()
    for path in sorted(site.glob("*.html")):
        page.goto(path.as_uri())
        for width in (390, 1400):
            page.set_viewport_size({"width": width, "height": 844})
            over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, f"{path.name} is {over} pixels too wide for {width}"


def test_the_gallery_shows_the_figures_of_a_run(chromium: Any, site: Path) -> None:
    page = chromium.new_page()
    page.goto((site / "read-the-report.html").as_uri())
    pictures = page.locator("img.gallery")
    assert pictures.count() >= 7
    assert pictures.evaluate_all("all => all.every(one => one.complete && one.naturalWidth > 300)")


def test_committed_pictures_are_small() -> None:
    pictures = {path.name: path.stat().st_size for path in (DOCS / "_static").glob("*.png")}
    assert pictures.keys() == {"frontier.png", "report-light.png"}
    assert max(pictures.values()) <= 150_000
