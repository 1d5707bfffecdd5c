"""Seeds from files and from the hub."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from opensafeintent.construction import seeds as seeds_module
from opensafeintent.construction.seeds import read_seeds
from opensafeintent.errors import InputError
from opensafeintent.files import RowLimit
from promptsets.fake_hub import COMMITS, REPO, FakeHub, hub_process
from promptsets.samples import lines


def written(folder: Path, name: str, text: str | bytes) -> str:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / name)


def test_jsonl_keeps_order_and_place(tmp_path: Path) -> None:
    text = '{"prompt": "One?"}\n\n{"prompt": " Two? ", "source": "elsewhere"}\n'
    seeds = read_seeds(written(tmp_path, "s.jsonl", text))
    assert [(seed.prompt, seed.source, seed.place) for seed in seeds.kept] == [
        ("One?", "s.jsonl", "line 1"),
        ("Two?", "s.jsonl", "line 3"),
    ]


def test_what_is_no_seed_is_counted_with_its_reason(tmp_path: Path) -> None:
    rows = ["One?", "", "  ", "one?", "ONE?  ", "Two?", None, "x" * 200_001]
    name = written(tmp_path, "s.jsonl", "".join(json.dumps({"prompt": row}) + "\n" for row in rows))
    seeds = read_seeds(name)
    why = {"empty": 3, "repeated": 2, "too_long": 1}
    assert seeds.funnel_line() == {"stage": "seeds", "in": 8, "kept": 2, "rejected": why}
    repeated = [rejection for rejection in seeds.rejected if rejection.reason == "repeated"]
    assert {rejection.duplicate for rejection in repeated} == {"line 1"}


@pytest.mark.parametrize(
    ("file", "text", "facts"),
    [
        ("s.txt", "One?", ("s.txt", ".jsonl", ".csv", "hf:")),
        ("s.jsonl", "", ("s.jsonl", "holds no seeds", "--per-cell")),
        ("s.jsonl", '{"prompt": "a"}\n["b"]', ("s.jsonl:2:", "a list")),
        ("s.jsonl", '{"text": "a"}', ("s.jsonl:1,", "field prompt", "its fields: text")),
        ("s.jsonl", '\n{"prompt": "\\ud800"}', ("s.jsonl:2,", "surrogate")),
        ("s.jsonl", '{"prompt": "a", "prompt": "b"}', ("s.jsonl:1:", "'prompt'", "twice")),
        ("s.jsonl", '{"prompt": "a"}\r{"prompt": "b"}', ("s.jsonl:1:", "Extra data")),
        ("s.csv", "text,label\na,b\n", ("s.csv:2,", "its fields: text, label")),
        ("s.csv", "x" * 100_000 + "\na\n", ("s.csv:2,", "xxx…")),
        ("s.csv", "prompt\n", ("s.csv", "holds no seeds")),
        ("s.csv", "prompt\nOne?\nWhat, then?\n", ("s.csv:3:", "2 cells")),
        ("s.csv", 'prompt\nOne?\n"Two?\nThree?\nFour?\n', ("s.csv:3:", "end of data")),
        ("s.csv", "prompt\nOne?\n".encode("utf-16"), ("s.csv: is UTF-16", "UTF-8")),
        ("s.csv", "prompt\nOne?\n".encode("utf-16-le"), ("s.csv:1:", "NUL")),
        ("s.csv", "prompt\nWarum übermorgen?\n".encode("latin-1"), ("s.csv:2:", "0xfc")),
    ],
)
def test_bad_files_are_refused_with_their_place(
    tmp_path: Path, file: str, text: str | bytes, facts: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        read_seeds(written(tmp_path, file, text))
    message = str(caught.value)
    assert all(fact in message for fact in facts)
    assert "\n" not in message and len(message) < 600


ODD = "One\u2028two\u2029three\x0bfour\x0cfive\x1csix\x85seven?"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", f"prompt,note\n{ODD},x\nLast?,y\n"),
        ("s.csv", f"\ufeffprompt,note\r\n{ODD},x\r\n\r\nLast?,y"),
        ("s.csv", f"prompt,note\r{ODD},x\rLast?,y\r"),
        ("s.jsonl", json.dumps({"prompt": ODD}, ensure_ascii=False) + '\n{"prompt": "Last?"}'),
    ],
)
def test_only_line_ends_end_a_line(tmp_path: Path, name: str, text: str) -> None:
    seeds = read_seeds(written(tmp_path, name, text))
    assert [seed.prompt for seed in seeds.kept] == [ODD, "Last?"]


def test_more_seeds_than_may_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds_module, "RowLimit", partial(RowLimit, 5))
    name = written(tmp_path, "s.csv", "prompt\n" + "".join(f"Seed {n}?\n" for n in range(6)))
    assert len(read_seeds(name, limit=5).kept) == 5
    with pytest.raises(InputError, match=r"s\.csv: has more than 5 rows; expected fewer"):
        read_seeds(name)


READ = """
from opensafeintent.construction import seeds as seeds_module
from opensafeintent.construction.seeds import read_seeds
import sys
for seed in read_seeds(sys.argv[1], 3).kept:
    print(seed.place, seed.prompt)
"""


@pytest.mark.slow
def test_the_train_split_of_a_hub_dataset_is_streamed(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    row = {"response_0": "unread " * 50}
    train = lines(*({"prompt": f"Seed {n}?", **row} for n in range(20_000)))
    files = {"data/one/train.jsonl": train, "data/one/test.jsonl": lines({"prompt": "Never"})}
    with FakeHub({COMMITS["main"]: files | {"README.md": b"# A card"}}) as hub:
        ran = hub_process(hub.url, tmp_path, "-c", READ, f"hf:{REPO}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["row 1 Seed 0?", "row 2 Seed 1?", "row 3 Seed 2?"]
    assert hub.sent < len(train) / 2
