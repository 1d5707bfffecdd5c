"""Responses and grades from elsewhere: our lines, the authors' scored files, logs of Inspect AI,
labels; judges' replies.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.contract import FUZZ, SLOW, attempt, write
from fuzz.faults import LITERALS, TEXTS, damaged, damaged_json, damaged_lines
from opensafeintent import ImportSettings, import_files
from opensafeintent.annotation.labels import read_labels
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.recorded import read_recorded
from opensafeintent.construction.asking import read_json
from opensafeintent.construction.augmentation import ParaphraseReply
from opensafeintent.construction.metadata import MetadataReply
from opensafeintent.construction.triplets import TripletReply
from opensafeintent.templates import load_templates, parse_reply
from promptsets.samples import NESTED

RESPONSES = [
    {"id": "s1", "variant": "benign", "response": "Yes.", "helpfulness": 4, "harm_severity": 0},
    {
        "id": "s1",
        "variant": "dual_use_paraphrase_1",
        "epoch": 2,
        "response": "",
        "stop_reason": "length",
    },
    {"id": "s2", "variant": "dual_use", "response": "No.", "mode": "A1", "strategy": "refuse"},
]
VALUES = {
    "benign_prompt": 4,
    "dual_use_prompt": 0,
    "malicious_prompt": 1,
    "dual_use_paraphrases": [1, None],
}
SCORED = NESTED | {
    "model_responses": {
        "benign_prompt": "Like this.",
        "dual_use_prompt": "No.",
        "malicious_prompt": "",
        "dual_use_paraphrases": ["No.", "Well."],
    },
    "response_scores_helpfulness": VALUES,
    "response_scores_harmfulness": VALUES | {"benign_prompt": 0},
    "response_score_failures": [
        {"prompt": "dual_use_paraphrases[1]", "metric": "harm", "error": "no JSON"}
    ],
    "dual_use_assistance_level": {"a_level": "A1"},
    "dual_use_intent_classification": {"strategy": "REFUSE"},
}
LABELS = [
    {"kind": "judge_validation", "annotator": "a", "dataset": "f" * 64, "id": "s1", "variant": "benign", "model": "m",
     "response_sha256": "e" * 64, "answers": {"helpfulness": 4, "harm_severity": "unsure"}, "weight": 2.5},
    {"kind": "dataset_quality", "annotator": "b", "dataset": "f" * 64, "id": "s1", "answers": {"sounds_human": "yes"}},
]  # fmt: skip


@FUZZ
@given(content=damaged_lines(RESPONSES))
def test_our_responses(tmp_path: Path, content: bytes) -> None:
    attempt("responses (JSONL)", read_recorded, write(tmp_path / "responses.jsonl", content))


@SLOW
@given(content=damaged_json([SCORED]))
def test_scored_files_of_the_authors(tmp_path: Path, content: bytes) -> None:
    attempt("the authors' scored files (JSON)", imported, write(tmp_path / "scored.json", content))


def imported(path: Path) -> None:
    """Import a file into a new run, results and all."""
    out = path.parent / "run"
    shutil.rmtree(out, ignore_errors=True)
    import_files(ImportSettings(files=(path,), out=out, model="m"))
    with Ledger(out / "ledger.sqlite", readonly=True) as ledger:
        list(ledger.imports.rows())


@FUZZ
@given(content=damaged_lines(LABELS))
def test_labels_of_people(tmp_path: Path, content: bytes) -> None:
    attempt("labels of people (JSONL)", read_labels, write(tmp_path / "labels.jsonl", content))


@pytest.fixture(scope="module")
def log(place: Path) -> Path:
    """A log of our task."""
    pytest.importorskip("inspect_ai")
    from interop.support import run_task

    (log,) = run_task("opensafeintent/redirect", place, parameters={"limit": 1})
    return Path(log.location)


@pytest.mark.filterwarnings("ignore")
@SLOW
@given(draw=st.data())
def test_log_of_inspect(log: Path, tmp_path: Path, draw: st.DataObject) -> None:
    """A member of the archive is damaged, or the archive is."""
    if draw.draw(st.booleans()):
        path = write(tmp_path / "log.eval", draw.draw(damaged(log.read_bytes())))
    else:
        path = tmp_path / "log.eval"
        with zipfile.ZipFile(log) as there, zipfile.ZipFile(path, "w") as here:
            chosen = draw.draw(st.sampled_from(sorted(there.namelist())))
            for name in there.namelist():
                content = there.read(name)
                here.writestr(
                    name,
                    draw.draw(damaged_json(json.loads(content))) if name == chosen else content,
                )
    attempt("logs of Inspect AI", read_log, path)


def read_log(path: Path) -> None:
    from opensafeintent.interop.inspect.logs_in import read_inspect_log

    for response in read_inspect_log(path).responses:
        (response.response or "").encode()


reply = st.one_of(
    st.sampled_from((*TEXTS, *LITERALS)),
    st.text(max_size=200),
    damaged_json({"mode": "A3", "strategy": "full", "declined": ""}).map(
        lambda raw: raw.decode("utf-8", "replace")
    ),
    damaged_json(
        {
            "unsafe": True,
            "summary": "a b c d e",
            "harm_domain": "x",
            "task_type": "y",
            "paraphrases": ["a", "b"],
        }
    ).map(lambda raw: raw.decode("utf-8", "surrogatepass" if b"\xed" in raw else "replace")),
    st.sampled_from(("4", "```\n3\n```", "```json\n{}\n```", "٣", "²", "3\n")),
)


@FUZZ
@given(text=reply)
def test_replies_of_judges(text: str) -> None:
    templates = load_templates()

    def read(_: Path) -> None:
        for template in (templates.helpfulness, templates.harm, templates.mode, templates.strategy):
            for rule in ("strict", "paper"):
                grade: Any = parse_reply(template.contract, text, rule)  # type: ignore[arg-type]
                assert grade is None or grade in (
                    "full",
                    "constrained",
                    "refuse",
                    "A0",
                    "A1",
                    "A2",
                    "A3",
                    "A4",
                    0,
                    1,
                    2,
                    3,
                    4,
                )

    attempt("replies of judges", read, Path(), named="")


@FUZZ
@given(text=reply)
def test_replies_of_generators(text: str) -> None:
    def read(_: Path) -> None:
        for kind in (MetadataReply, ParaphraseReply, TripletReply):
            found: Any = read_json(text, kind)
            if isinstance(found, str):
                assert len(found) < 2000
            else:
                assert all(part.encode() for part in found.texts().values())

    attempt("replies of generators", read, Path(), named="")


def test_what_is_damaged_is_good_before(tmp_path: Path) -> None:
    def lines(records: list[Any]) -> bytes:
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)

    assert attempt("none", read_recorded, write(tmp_path / "responses.jsonl", lines(RESPONSES)))
    assert attempt("none", read_labels, write(tmp_path / "labels.jsonl", lines(LABELS)))
    assert attempt("none", imported, write(tmp_path / "scored.json", json.dumps([SCORED]).encode()))
