"""Every command in the README and the docs works, and prints what the page says it prints."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from docs.reading import Step, pages, steps
from docs.stand_ins import Workshop, is_name_only, native
from endtoend import Ran, environment
from loopback import LoopbackServer

PAGES = [page for page in pages() if any(step.kind != "output" for step in steps(page))]


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(record=False) as server:
        yield server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show what is printed where no price list is installed: prices change from day to
    day.
    """
    monkeypatch.setitem(sys.modules, "genai_prices", None)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:The 'initial' parameter is deprecated:DeprecationWarning"
)  # of Inspect AI
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_tells_people_to_type_works(
    page: Path, server: LoopbackServer, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop(tmp_path / "page", store, server)
    monkeypatch.chdir(shop.folder)
    page_steps = steps(page)
    last: Ran | None = None
    for place, step in enumerate(page_steps):
        where = f"{page.name}:{step.line}"
        if step.reason:
            continue
        if step.kind == "output":
            assert last is not None, f"{where}: nothing was run that could have printed this"
            assert _matches(step.text, last.out), f"{where}:\n{step.text}\n{last.out}"
        elif step.kind == "python":
            workshop = Workshop(tmp_path / f"python-{place}", store, server)
            _execute(step, workshop, where, monkeypatch)
            monkeypatch.chdir(shop.folder)
        else:
            compared = any(later.kind == "output" for later in page_steps[place + 1 : place + 2])
            for line in _lines(step):
                last = shop.run(line, compared=compared) or last


def _lines(step: Step) -> list[str]:
    """Return what is to be run: within a sentence a command may be named without what it needs."""
    if step.kind == "shell":
        return step.commands
    program, *words = step.text.split()
    if program in ("pip", "inspect") or "…" in words:
        return []
    return [] if program in ("opensafeintent", "osi") and is_name_only(words) else [step.text]


def _matches(shown: str, printed: str) -> bool:
    """Compare what a page shows with what was printed.

    `…` stands for what is left out or changes from day to day. A page is narrower than a terminal:
    it breaks lines elsewhere.
    """
    pattern, text = (" ".join(whole.split()) for whole in (shown, printed))
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), text, re.DOTALL))


def _execute(step: Step, shop: Workshop, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Python statement by statement; the files that a statement names are there when it comes
    to it.
    """
    monkeypatch.chdir(shop.folder)
    names: dict[str, object] = {"__name__": where}
    with mock.patch.dict(os.environ, environment(**shop.variables), clear=True):
        for statement in ast.parse(native(step.text), where).body:
            shop.prepare(_read_by(statement))
            exec(compile(ast.Module([statement], []), f"<{where}>", "exec"), names)


def _read_by(statement: ast.stmt) -> list[str]:
    """Return the texts of a statement that may name a file that it reads: what `out` names is
    written.
    """
    nodes = list(ast.walk(statement))
    out = [node for node in nodes if isinstance(node, ast.keyword) and node.arg == "out"]
    written = [inner for keyword in out for inner in ast.walk(keyword)]
    texts = [node for node in nodes if isinstance(node, ast.Constant) and node not in written]
    return [node.value for node in texts if isinstance(node.value, str)]


def test_a_block_that_is_not_run_says_why() -> None:
    for page in pages():
        for step in steps(page):
            assert not step.reason or len(step.reason.split()) >= 2, f"{page.name}:{step.line}"


_WRONG = (
    "opensafeintent evaluat MODEL --judge MODEL",
    "opensafeintent models --no-such-option",
    "opensafeintent dataset check NAME [--no-such-option X]",
    "make nothing",
    'pip install ".[nothing]"',
    "python benchmarks/nothing.py",
    "opensafeintent models | head",
    "rm file",
)


def test_a_command_that_does_not_exist_is_found_out(
    server: LoopbackServer, store: Path, tmp_path: Path
) -> None:
    shop = Workshop(tmp_path / "page", store, server)
    for line in _WRONG:
        with pytest.raises(AssertionError):
            shop.run(line)
