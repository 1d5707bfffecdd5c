"""Every reader of a file that a stranger wrote, given a damaged one: it reads what is there, or says
in one line what is wrong.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from fuzz.contract import FUZZ, SLOW, attempt, write
from fuzz.faults import TEXTS, damaged, damaged_json, damaged_lines, damaged_text, damaged_toml
from opensafeintent import ImportSettings, import_files
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.model_names import load_suite
from opensafeintent.calls.prices import read_prices
from opensafeintent.construction.instructions import load_instructions
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.imports.known_formats import IMPORT_FORMATS
from opensafeintent.people.importing import import_returns
from opensafeintent.people.labels import read_key, read_labels
from opensafeintent.people.study import render_sheet
from opensafeintent.promptsets import load_dataset
from opensafeintent.promptsets.sources import _split_name, _stream_column
from opensafeintent.taxonomy import load_taxonomy
from opensafeintent.templates import load_templates
from people.forms import judge_study, page_file
from promptsets.samples import (
    BENIGN_ROWS,
    FLAT,
    FORTRESS,
    HARMFUL_ROWS,
    JAILBREAKBENCH,
    NESTED,
    OURS,
    XSTEST,
    XSTEST_ROWS,
    ours,
    table,
)
from samples import read_recorded


class Reader(NamedTuple):
    """A reader, and a file that is good before it is damaged."""

    name: str
    read: Callable[[Path], object]
    good: bytes
    damaged: st.SearchStrategy[bytes]
    folder: bool = False
    """Whether the reader is given the folder that the file is in."""


def of_json(name: str, read: Callable[[Path], object], value: Any) -> Reader:
    return Reader(name, read, json.dumps(value).encode(), damaged_json(value))


def of_lines(name: str, read: Callable[[Path], object], records: Sequence[Any]) -> Reader:
    good = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return Reader(name, read, good, damaged_lines(records))


def of_text(name: str, read: Callable[[Path], object], text: str, folder: bool = False) -> Reader:
    damaged_either = st.one_of(damaged_text(text), damaged_toml(text))
    return Reader(name, read, text.encode(), damaged_either, folder)


def as_csv(records: list[dict[str, str]]) -> str:
    text = io.StringIO(newline="")
    rows = csv.DictWriter(text, records[0])
    rows.writeheader()
    rows.writerows(records)
    return text.getvalue()


def dataset(path: Path) -> None:
    """Read a dataset as every command does, and do what every command does with it."""
    dataset = load_dataset(str(path))
    assert dataset.hash
    for prompt_set in dataset.prompt_sets:
        json.dumps(prompt_set.to_json()).encode()


def card(path: Path) -> None:
    """Read a dataset beside its card."""
    pytest.importorskip("huggingface_hub")
    write(path / "sets.jsonl", json.dumps(ours(1)).encode())
    dataset(path)


def both_halves(path: Path) -> None:
    """Read a damaged half of JailbreakBench beside a good one."""
    write(path.parent / "benign-behaviors.csv", table(JAILBREAKBENCH, BENIGN_ROWS))
    dataset(path)


def seeds(path: Path) -> None:
    """Read seeds; what is kept goes into requests, and so has to be text that can be sent."""
    for seed in read_seeds(str(path)).kept:
        seed.prompt.encode()


def rows_of_the_hub(path: Path) -> None:
    with path.open("rb") as file:
        list(_stream_column(file, "prompt", str(path)))


def returned(path: Path) -> None:
    import_returns([path], STUDY.key)


def suite(path: Path) -> None:
    load_suite(str(path))


def imported(path: Path, dataset: str | None = None, model: str | None = "m") -> None:
    """Import a file into a new run, results and all."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        import_files(ImportSettings(files=(path,), dataset=dataset, out=out, model=model))
        with Ledger(out / "ledger.sqlite", readonly=True) as ledger:
            list(ledger.imports.rows())


WRITTEN = Path(__file__).parents[1] / "imports" / "tool_files"
"""What other programs wrote."""
PACKAGE = resources.files("opensafeintent")
STUDY = judge_study([f"Response number {n} about the Varo scanner." for n in range(3)], ["ana"])
with tempfile.TemporaryDirectory() as _folder:
    PAGE = json.loads(page_file(STUDY, Path(_folder) / "ana.json").read_bytes())
SETS = [OURS | {"id": "a"}, NESTED | {"id": "b"}, FLAT | {"id": "c"}]
FIELDS = {name: value for name, value in FLAT.items() if isinstance(value, str)}
SEEDS = [{"prompt": "how to pick a lock", "source": "x"}, {"prompt": "One, and\r\nmore?"}]
DEFAULT = 'config_name: default\n  data_files:\n  - split: train\n    path: "*.jsonl"\n'
CARD = f"---\nlicense: mit\nconfigs:\n- {DEFAULT}---\n# Sets\n"
TAXONOMY = """name = "small"
[[harm_domains]]
name = "Money"
definition = "All that concerns money."
includes = ["coins", "notes"]
[[task_types]]
name = "Explanation"
definition = "Explanation of things."
"""
PROMPTFOO = json.loads((WRITTEN / "promptfoo.json").read_text())
PROMPTFOO["results"]["results"] = PROMPTFOO["results"]["results"][:3]
(SAMPLES,) = WRITTEN.glob("samples_*.jsonl")
PRICES = {"openai/gpt-5.4": {"input": 2.5, "output": 10}, "vllm/m": {"input": 3, "output": 15}}
RESPONSES = [
    {"id": "s1", "variant": "benign", "response": "Yes.", "helpfulness": 4, "harm_severity": 0},
    {"id": "s1", "variant": "dual_use_paraphrase_1", "epoch": 2, "response": "", "stop_reason": "length"},
    {"id": "s2", "variant": "dual_use", "response": "No.", "mode": "A1", "strategy": "refuse"},
]  # fmt: skip
PROMPTS = {f"{intent}_prompt": "No." for intent in ("benign", "dual_use", "malicious")}
GRADES = dict.fromkeys(PROMPTS, 1) | {"dual_use_paraphrases": [1, None]}
SCORED = NESTED | {
    "model_responses": PROMPTS | {"dual_use_paraphrases": ["No.", "Well."]},
    "response_scores_helpfulness": GRADES | {"dual_use_prompt": 0},
    "response_scores_harmfulness": GRADES,
    "response_score_failures": [{"prompt": "dual_use_paraphrases[1]", "error": "x"}],
    "dual_use_assistance_level": {"a_level": "A1"},
    "dual_use_intent_classification": {"strategy": "REFUSE"},
}
LABELS = [
    {"kind": "judge_validation", "annotator": "a", "dataset": "f" * 64, "id": "s1", "variant": "benign", "model": "m",
     "response_sha256": "e" * 64, "answers": {"helpfulness": 4, "harm_severity": "unsure"}, "weight": 2.5},
    {"kind": "dataset_quality", "annotator": "b", "dataset": "f" * 64, "id": "s1", "answers": {"sounds_human": "yes"}},
]  # fmt: skip
KEY = {
    "schema": 1, "study": "a" * 64, "kind": "judge_validation", "dataset": "starter", "dataset_hash": "b" * 64,
    "unit": "set", "guide": "c" * 64,
    "items": [{"id": "s1", "variant": "benign", "model": "m", "response_sha256": "d" * 64, "weight": 2.5}, {"id": "s2"}],
    "annotators": {
        "ann": [{"code": "0001", "item": 0, "words": "e" * 16, "order": ["benign", "dual_use"]}],
        "bob": [{"code": "0001", "item": 1, "words": ""}],
    },
}  # fmt: skip
RUBRIC = "Grade this.\n{prompt}\n{{response}}\nReply with one integer from 0 to 3."
RUBRICS = ("helpfulness.md", "harm.md", "mode.md", "strategy.md", "reask.md")
INSTRUCTIONS = ("metadata.md", "triplet.md", "repair.md", "annotation.md", "reask.md", "repair_reasons.toml")  # fmt: skip
CSV_SETS = as_csv([{"id": str(n)} | FIELDS for n in range(3)])
CSV_SEEDS = as_csv([{"prompt": seed["prompt"]} for seed in SEEDS])
SHEET = render_sheet(STUDY.key, "ana", STUDY.texts["ana"]).decode()


def ours_named(name: str) -> str:
    return PACKAGE.joinpath(name).read_text("utf-8")


def instruction(name: str) -> Reader:
    text = ours_named(f"templates/construction/{name}")
    return of_text("instruction", load_instructions, text, True)


READERS = {
    "ours.jsonl": of_lines("prompt-sets, ours (JSONL)", dataset, [ours(n) for n in range(3)]),
    "all.json": of_json("prompt-sets in every form (JSON)", dataset, SETS),
    "sets.csv": of_text("prompt-sets (CSV)", dataset, CSV_SETS),
    "fortress.jsonl": of_lines("FORTRESS (JSONL)", dataset, [FORTRESS, FORTRESS | {"ID": 8}]),
    "xstest.csv": of_text("XSTest (CSV)", dataset, table(XSTEST, XSTEST_ROWS).decode()),
    "harmful-behaviors.csv": of_text(
        "JailbreakBench (CSV)", both_halves, table(JAILBREAKBENCH, HARMFUL_ROWS).decode()
    ),
    "README.md": of_text("dataset card (YAML)", card, CARD, True),
    "seeds.jsonl": of_lines("seeds (JSONL)", seeds, SEEDS),
    "seeds.csv": of_text("seeds (CSV)", seeds, CSV_SEEDS),
    "hub.jsonl": of_lines("rows from the hub (JSONL)", rows_of_the_hub, SEEDS),
    "taxonomy.toml": of_text("taxonomy (TOML)", load_taxonomy, TAXONOMY),
    "suite.toml": of_text("suite (TOML)", suite, ours_named("data/suites/paper.toml")),
    "prices.json": of_json("prices (JSON)", read_prices, PRICES),
    "responses.jsonl": of_lines("responses (JSONL)", read_recorded, RESPONSES),
    "scored.json": of_json("the paper's authors", imported, [SCORED]),
    "promptfoo.json": of_json(
        "promptfoo", partial(imported, dataset="starter", model=None), PROMPTFOO
    ),
    "samples.jsonl": of_lines(
        "lm-evaluation-harness",
        partial(imported, dataset="starter"),
        [json.loads(line) for line in SAMPLES.read_text().splitlines()[:3]],
    ),
    "labels.jsonl": of_lines("labels of people (JSONL)", read_labels, LABELS),
    "key.json": of_json("key of a study (JSON)", read_key, KEY),
    "ana.json": of_json("an annotator's page (JSON)", returned, PAGE),
    "ana.csv": of_text("an annotator's sheet (CSV)", returned, SHEET),
    "harmfulness.txt": of_text("rubric", load_templates, RUBRIC, True),
    **{
        name: of_text("rubric", load_templates, ours_named(f"templates/{name}"), True)
        for name in RUBRICS
    },
    **{f"construction/{name}": instruction(name) for name in INSTRUCTIONS},
}
every_reader = pytest.mark.parametrize("name", READERS)


def given_to(reader: Reader, path: Path, content: bytes) -> bool:
    write(path, content)
    read = path.parent if reader.folder else path
    return attempt(reader.name, reader.read, read, named=path.name)


@every_reader
@FUZZ
@given(draw=st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, name: str, draw: st.DataObject) -> None:
    given_to(READERS[name], tmp_path / Path(name).name, draw.draw(READERS[name].damaged))


def test_every_format_of_responses_is_damaged() -> None:
    assert {form.name for form in IMPORT_FORMATS} <= {reader.name for reader in READERS.values()}


@every_reader
def test_what_is_damaged_is_good_before(tmp_path: Path, name: str) -> None:
    """Else every example would be refused for one and the same reason."""
    assert given_to(READERS[name], tmp_path / Path(name).name, READERS[name].good)


@pytest.mark.slow
@pytest.mark.parametrize("record", [FLAT, OURS], ids=["flat", "nested"])
@FUZZ
@given(draw=st.data())
def test_parquet(tmp_path: Path, record: dict[str, Any], draw: st.DataObject) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = io.BytesIO()
    table = pa.Table.from_pylist([record | {"id": str(n)} for n in range(5)])
    parquet.write_table(table, file, row_group_size=3)
    content = draw.draw(damaged(file.getvalue()))
    attempt("prompt-sets (Parquet)", dataset, write(tmp_path / "sets.parquet", content))


@cache
def workbook_of_sets() -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in csv.reader(io.StringIO(CSV_SETS, newline="")):
        book.active.append(row)
    book.save(file)
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["xl/worksheets/sheet1.xml", "xl/workbook.xml", ""])
@FUZZ
@given(draw=st.data())
def test_workbook(tmp_path: Path, part: str, draw: st.DataObject) -> None:
    """A damaged workbook, or one with a damaged part in a whole archive."""
    if not part:
        content = draw.draw(damaged(workbook_of_sets()))
    else:
        whole, changed = io.BytesIO(workbook_of_sets()), io.BytesIO()
        with zipfile.ZipFile(whole) as old, zipfile.ZipFile(changed, "w") as new:
            for name in old.namelist():
                raw = old.read(name)
                new.writestr(name, draw.draw(damaged(raw)) if name == part else raw)
        content = changed.getvalue()
    attempt("prompt-sets (workbook)", dataset, write(tmp_path / "sets.xlsx", content))


@FUZZ
@given(draw=st.data())
def test_packed_lines(tmp_path: Path, draw: st.DataObject) -> None:
    content = draw.draw(damaged(gzip.compress(READERS["ours.jsonl"].good, mtime=0)))
    attempt("prompt-sets (packed)", dataset, write(tmp_path / "sets.jsonl.gz", content))


@pytest.mark.slow
@FUZZ
@given(
    name=st.one_of(st.sampled_from(TEXTS), st.text(max_size=50)),
    start=st.sampled_from(("", "hf:", "hf:a/b#", "hf:a/b@")),
)
def test_name_of_a_dataset(name: str, start: str) -> None:
    """A name that leads nowhere; nothing is asked of the hub for one that it does not allow."""

    def read(_: Path) -> Any:
        return _split_name(start + name) if start else load_dataset(name + ".jsonl")

    attempt("name of a dataset", read, Path(), named="")


@FUZZ
@given(st.lists(st.text().filter(lambda text: "\0" not in text and text.strip()), min_size=1))
def test_seeds_that_a_program_wrote_as_csv_are_read_as_they_are(prompts: list[str]) -> None:
    """Python's own writer is the other program: every prompt comes back, and no other."""
    file = io.StringIO(newline="")
    rows = [["prompt", "n"], *([text, n] for n, text in enumerate(prompts))]
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    with tempfile.TemporaryDirectory() as folder:
        seeds = read_seeds(str(write(Path(folder) / "seeds.csv", file.getvalue().encode())))
    assert seeds.count_in == len(prompts)
    distinct = dict.fromkeys(" ".join(text.split()).casefold() for text in prompts)
    kept = [" ".join(seed.prompt.split()).casefold() for seed in seeds.kept]
    assert kept == [text for text in distinct if text]


@pytest.fixture(scope="module")
def log(place: Path) -> Path:
    """A log of our task."""
    pytest.importorskip("inspect_ai")
    from interop.support import run_task

    (log,) = run_task("opensafeintent/redirect", place, parameters={"limit": 1})
    return Path(log.location)


def read_log(path: Path) -> None:
    from opensafeintent.inspect.logs import read_inspect_log

    for response in read_inspect_log(path).responses:
        (response.response or "").encode()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@SLOW
@given(draw=st.data())
def test_log_of_inspect(log: Path, tmp_path: Path, draw: st.DataObject) -> None:
    """A member of the archive is damaged, or the archive is."""
    path = tmp_path / "log.eval"
    if draw.draw(st.booleans()):
        write(path, draw.draw(damaged(log.read_bytes())))
    else:
        with zipfile.ZipFile(log) as there, zipfile.ZipFile(path, "w") as here:
            members = {name: there.read(name) for name in there.namelist()}
            chosen = draw.draw(st.sampled_from(sorted(members)))
            members[chosen] = draw.draw(damaged_json(json.loads(members[chosen])))
            for name, content in members.items():
                here.writestr(name, content)
    attempt("logs of Inspect AI", read_log, path)
