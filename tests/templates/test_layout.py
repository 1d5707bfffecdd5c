"""The layout of judges' requests: the wording is the same, the beginning is, and a run keeps its
own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from endtoend import Lab, evaluate, results, some_sets
from loopback import LoopbackServer
from opensafeintent.calls.costs import ForecastLine, expected_cost
from opensafeintent.calls.prices import Prices
from opensafeintent.calls.records import Call, Sampling, call_key
from opensafeintent.templates import Templates, layout as module, load_templates, parse_template
from opensafeintent.templates.layout import SHARING, laid_out, our_hashes
from samples import json_file
from templates.test_rubrics import ALL, folder_of, ours

OLD, NEW = load_templates(), laid_out(load_templates(), 2)

KEYS = {
    "helpfulness": "5a32d6de767c1f1604d7850af3acc27253242b7df581aff1fd4aa821e29469dc",
    "harm": "ffb66ad8e82c5307d4d715830401f1f0e94e57eae28793f31b3a2fc49a8ba040",
    "mode": "87521625233066ec9bbcea33d852e2298a5c7220612b5c0abe7b1d01e8eba061",
}
"""Of calls in ledgers that were written before there was a second layout."""


def paragraphs(text: str) -> list[str]:
    return text.split("\n\n")


@pytest.mark.parametrize("role", SHARING)
def test_every_paragraph_of_a_rubric_is_in_both_layouts(role: str) -> None:
    old, new = (templates.of(role).render("P", "R") for templates in (OLD, NEW))
    codes = {
        content: content.split("<<<REQUEST ")[1][:16] for content in (old.content, new.content)
    }
    texts = [content.replace(code, "CODE") for content, code in codes.items()]
    assert [text for text in paragraphs(texts[0]) if text not in paragraphs(texts[1])] == []
    # what follows the block is the question alone
    assert texts[1].endswith(texts[0][texts[0].index("<<<REQUEST ") :])


def test_all_requests_begin_with_the_same_block() -> None:
    blocks = {
        NEW.of(role).render(prompt, "R").parts[0] for role in SHARING for prompt in ("P", "Q")
    }
    (block,) = blocks
    assert block == NEW.of("harm").beginning and len(block) > 4 * 2048
    asked = {role: NEW.of(role).render("P", "R").content[len(block) :] for role in SHARING}
    assert all(text.startswith(f'{role}".\n\n<<<REQUEST ') for role, text in asked.items())
    assert "\n\n".join(paragraphs(block)).count("===== Instructions for the question") == 3


def test_a_placeholder_in_a_prompt_stays_text() -> None:
    prompt = "{{question}} {{harm}} {{nonce}}"
    assert f">>>\n{prompt}\n<<<END REQUEST" in NEW.of("harm").render(prompt, "").content


def test_the_layout_is_a_part_of_the_template_and_its_hash() -> None:
    for role in SHARING:
        old, new = OLD.of(role), NEW.of(role)
        assert (old.layout, new.layout) == (1, 2) and old.name == new.name
        assert our_hashes(role) == {old.hash, new.hash}
        assert parse_template(role, new.file, new.source) == new
    assert (NEW.strategy, NEW.reask) == (OLD.strategy, OLD.reask)
    assert laid_out(NEW, 2) is NEW and laid_out(NEW, 1) is NEW


def test_templates_with_reasons_and_edited_ones_are_laid_out_and_the_authors_are_not(
    tmp_path: Path,
) -> None:
    reasons = laid_out(load_templates(reasons=True), 2)
    assert '"reason" and "grade"' in reasons.of("harm").render("P", "R").content
    edited = folder_of(tmp_path, {"mode.md": ours("mode.md", ("You say in", "Say in"))})
    assert "Say in which form" in laid_out(load_templates(edited), 2).of("harm").beginning
    (tmp_path / "authors").mkdir()
    authors = load_templates(folder_of(tmp_path / "authors", ALL))
    assert laid_out(authors, 2) is authors


@pytest.mark.parametrize("role", SHARING)
def test_a_ledger_that_was_written_before_has_the_same_keys(role: str) -> None:
    message = OLD.of(role).render("Name three kinds of knots.", "Bowline, reef, figure eight.")
    sampling = Sampling(max_tokens=2048, temperature=0.0)
    call = Call(model="openai/judge", messages=(message,), sampling=sampling, purpose="harm")
    assert call_key(call, "openai/judge").hex() == KEYS[role]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with LoopbackServer() as server:
        yield Lab(server, some_sets(tmp_path, 1), tmp_path / "run")


def layouts_in(run: Path) -> set[int]:
    stored = json.loads((run / "run.json").read_text())["templates"].values()
    return {template["layout"] for template in stored if template["role"] in SHARING}


def keys_in(run: Path) -> set[bytes]:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as connection:
        return {key for (key,) in connection.execute("SELECT key FROM calls")}


@pytest.mark.slow
def test_a_run_keeps_its_layout_and_its_keys(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.LAYOUT == 1  # until independent readings agree
    assert lab.evaluate().code == 0
    assert layouts_in(lab.run) == {1}
    manifest = json.loads((lab.run / "run.json").read_text())
    for template in manifest["templates"].values():
        del template["layout"]  # as an earlier version wrote it
    (lab.run / "run.json").write_text(json.dumps(manifest))
    before, made, numbers = keys_in(lab.run), lab.server.stats()["total"], results(lab.run)

    monkeypatch.setattr(module, "LAYOUT", 2)
    again = lab.evaluate()
    assert again.code == 0 and "changed since the last run" not in again.out + again.err
    assert (keys_in(lab.run), lab.server.stats()["total"]) == (before, made)
    assert results(lab.run) == numbers and layouts_in(lab.run) == {1}
    # a further judge of that run has the layout of the others
    assert lab.evaluate(judges=("openai-api/loop/judge", "openai-api/loop/second")).code == 0
    assert layouts_in(lab.run) == {1}

    new = tmp_path / "new"
    ran = evaluate(lab.server, lab.dataset, new)
    assert ran.code == 0
    assert layouts_in(new) == {2} and keys_in(new) & before
    asked = [record for record in lab.server.requests[-20:] if record.purpose in SHARING]
    starts = {record.messages[0]["content"][: len(NEW.of("harm").beginning)] for record in asked}
    assert starts == {NEW.of("harm").beginning}
    # our rubric in either layout is ours
    assert "osi-harm" not in ran.out and "osi-harm" not in again.out


def test_one_block_is_cached_for_all_questions(tmp_path: Path) -> None:
    """By the documented rules; the tokens are those of 7 responses of 600 tokens to a set."""
    price = {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75}
    prices = Prices(json_file(tmp_path / "p.json", {"anthropic/claude-sonnet-4-6": price}))

    def judging(templates: Templates, *, cached: bool) -> float:
        total = 0.0
        for role, calls in (("helpfulness", 4900), ("harm", 4900), ("mode", 700)):
            template = templates.of(role)
            line = ForecastLine(
                model="anthropic/claude-sonnet-4-6",
                purpose=role,
                calls=calls,
                input_tokens=calls * ((len(template.source) + 400) // 4 + 600),
                output_tokens=calls * 8,
                beginning_tokens=len(template.beginning) // 4,
            )
            total += expected_cost(line, prices, cached=cached) or 0.0
        return total

    alone, shared = judging(OLD, cached=True), judging(NEW, cached=True)
    assert 0.10 < 1 - shared / alone < 0.15
    # without a cache every request holds two rubrics for nothing
    assert judging(NEW, cached=False) > 2 * judging(OLD, cached=False)
