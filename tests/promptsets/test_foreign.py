"""Files of other benchmarks: their rows become pairs, and are refused if they do not match."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from endtoend import osi
from opensafeintent import OpenSafeIntentError, load_dataset
from opensafeintent.promptsets import Dataset, read_dataset, write_dataset
from opensafeintent.taxonomy import default_taxonomy
from promptsets.fake_hub import COMMITS, REPO, FakeHub, hub_command
from promptsets.samples import (
    BENIGN_ROWS as BENIGN,
    FORTRESS,
    HARMFUL_ROWS as HARMFUL,
    JAILBREAKBENCH,
    XSTEST,
    XSTEST_ROWS,
    lines,
    table,
    without,
)


def load(path: Path, content: bytes) -> Dataset:
    path.write_bytes(content)
    return load_dataset(str(path))


def list_problems(path: Path, content: bytes) -> list[str]:
    """Return what is wrong with a file that cannot be read."""
    path.write_bytes(content)
    dataset, problems = read_dataset(str(path))
    assert dataset is None
    return [problem.replace(f"{path.parent}/", "") for problem in problems]


def prompts_of(dataset: Dataset) -> dict[str, tuple[str, ...]]:
    return {item.id: tuple(item.wordings().values()) for item in dataset.prompt_sets}


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_fortress_has_questions_about_the_malicious_response(tmp_path: Path, suffix: str) -> None:
    other = FORTRESS | {"ID": 8, "benign_prompt": "How do I thicken a soup?"}
    path = tmp_path / f"d.{suffix}"
    if suffix == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([FORTRESS, other]), path)
        dataset = load_dataset(str(path))
    else:
        records = lines(FORTRESS, other) if suffix == "jsonl" else json.dumps([FORTRESS, other])
        dataset = load(path, records if isinstance(records, bytes) else records.encode())
    item, _ = dataset.prompt_sets
    assert (item.id, item.is_pair, item.cell) == ("7", True, ("Kitchen", "Soups"))
    assert item.wordings() == {
        "benign": FORTRESS["benign_prompt"],
        "malicious": FORTRESS["adversarial_prompt"],
    }
    asked = item.questions_about("malicious")
    assert asked is not None and item.questions_about("benign") is None
    assert [question.text for question in asked.must_not] == FORTRESS["rubric"]
    assert [question.id for question in asked.all] == ["must_not_1", "must_not_2"]


@pytest.mark.parametrize(
    ("record", "fact"),
    [
        (without(FORTRESS, "rubric"), "d.jsonl:1, field rubric: missing; expected a list"),
        (FORTRESS | {"rubric": []}, "field rubric: is empty"),
        (FORTRESS | {"rubric": "Does it?"}, "field rubric: expected a list of texts, found a text"),
        (FORTRESS | {"rubric": ["Does it?", ""]}, "field rubric[1]: is empty"),
        (FORTRESS | {"rubric": ["Does it?"] * 31}, "has 31 questions; expected 1 to 30"),
        (FORTRESS | {"benign_prompt": " "}, "field benign_prompt: is empty"),
        (FORTRESS | {"adversarial_prompt": None}, "field adversarial_prompt: is empty"),
        (FORTRESS | {"risk_domain": 3}, "field risk_domain: expected a text, found a number"),
        (FORTRESS | {"ID": [7]}, "field ID: expected a text, found a list"),
        (
            FORTRESS | {"benign_prompt": FORTRESS["adversarial_prompt"]},
            "field benign_prompt: is also the malicious prompt",
        ),
    ],
)
def test_a_faulty_row_of_fortress_is_refused(
    tmp_path: Path, record: dict[str, Any], fact: str
) -> None:
    (problem,) = list_problems(tmp_path / "d.jsonl", lines(record))
    assert fact in problem


def test_every_faulty_row_is_listed(tmp_path: Path) -> None:
    records = [FORTRESS | {"ID": 1, "rubric": []}, FORTRESS | {"ID": 2, "rubric": "no"}, FORTRESS]
    assert len(list_problems(tmp_path / "d.jsonl", lines(*records))) == 2
    twice = list_problems(tmp_path / "d.jsonl", lines(FORTRESS, FORTRESS | {"benign_prompt": "?"}))
    assert twice == ["d.jsonl:2, field ID: duplicate id '7', first at d.jsonl:1; ids are unique"]


def write_jailbreakbench(folder: Path, benign: Sequence[Sequence[object]] = tuple(BENIGN)) -> Path:
    """Write the two files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "harmful-behaviors.csv").write_bytes(table(JAILBREAKBENCH, HARMFUL))
    (folder / "benign-behaviors.csv").write_bytes(table(JAILBREAKBENCH, benign))
    return folder


@pytest.mark.parametrize(
    "named", ["", "data", "data/harmful-behaviors.csv", "data/benign-behaviors.csv"]
)
def test_jailbreakbench_is_a_folder_or_one_of_its_files(tmp_path: Path, named: str) -> None:
    write_jailbreakbench(tmp_path / "jbb" / "data", BENIGN[::-1])
    (tmp_path / "jbb" / "data" / "judge-comparison.csv").write_text("prompt,response\na,b\n")
    dataset = load_dataset(str(tmp_path / "jbb" / named))
    assert prompts_of(dataset) == {
        "0": ("Season a soup.", "Spoil a soup."),
        "1": ("Mend a coat.", "Rip a coat."),
    }
    assert [item.harm_domain for item in dataset.prompt_sets] == ["Kitchen", "Clothes"]
    assert {item.source for item in dataset.prompt_sets} == {"Original"}
    assert dataset.name == ("data" if named else "jbb")


def test_a_dataset_without_task_types_is_counted_in_one_column(tmp_path: Path) -> None:
    checked = osi("dataset", "check", write_jailbreakbench(tmp_path / "jbb"))
    (heading,) = (line for line in checked.out.splitlines() if line.startswith("Harm domain"))
    assert heading.split() == ["Harm", "domain", "none", "stated", "All"]


def test_columns_are_known_in_any_case(tmp_path: Path) -> None:
    """Copies of the published files have them in lower case."""
    for half, rows in (
        ("harmful", HARMFUL),
        ("benign", [BENIGN[0], (1, "", "", "", "Clothes", "")]),
    ):
        lowered = tuple(column.lower() for column in JAILBREAKBENCH)
        (tmp_path / f"{half}-behaviors.csv").write_bytes(table(lowered, rows))
    dataset, (problem,) = read_dataset(str(tmp_path))
    assert dataset is None and "field goal (benign): is empty" in problem
    lowered_rows = lines({field.lower(): value for field, value in FORTRESS.items()})
    assert prompts_of(load(tmp_path / "d.jsonl", lowered_rows)).keys() == {"7"}
    shouted = tuple(column.upper() for column in XSTEST)
    assert len(load(tmp_path / "d.csv", table(shouted, XSTEST_ROWS)).prompt_sets) == 4


@pytest.mark.parametrize("half", ["harmful-behaviors.csv", "benign-behaviors.csv"])
def test_one_file_of_jailbreakbench_is_half_a_dataset(tmp_path: Path, half: str) -> None:
    other = "harmful" if half.startswith("benign") else "benign"
    (problem,) = list_problems(tmp_path / half, table(JAILBREAKBENCH, HARMFUL))
    assert problem == (
        f"{half}: the {other} behaviours of JailbreakBench are not beside it; expected"
        " harmful-behaviors.csv and benign-behaviors.csv in one folder, under these names"
    )


@pytest.mark.parametrize(
    ("benign", "facts"),
    [
        (
            [BENIGN[0], (2, *BENIGN[1][1:])],
            ["field Index: '1' is not in", "field Index: '2' is not in"],
        ),
        ([BENIGN[0], (0, *BENIGN[1][1:])], ["benign-behaviors.csv:3, field Index: '0' is also"]),
        ([BENIGN[0], ("", *BENIGN[1][1:])], ["field Index: is empty; expected a whole number"]),
        ([BENIGN[0], (1, "Mend.", "", "", "Kitchen", "")], ["field Category: is another one at"]),
        ([BENIGN[0], (1, "", "", "", "Clothes", "")], ["field Goal (benign): is empty"]),
    ],
)
def test_halves_that_do_not_match_are_refused(
    tmp_path: Path, benign: list[tuple[object, ...]], facts: list[str]
) -> None:
    dataset, problems = read_dataset(str(write_jailbreakbench(tmp_path / "jbb", benign)))
    assert dataset is None and len(problems) == len(facts)
    for problem, fact in zip(problems, facts, strict=True):
        assert fact in problem


def test_jailbreakbench_is_read_from_the_hub(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    folder = write_jailbreakbench(tmp_path / "data")
    files = {f"data/{path.name}": path.read_bytes() for path in folder.iterdir()}
    files["data/judge-comparison.csv"] = b"prompt,response\na,b\n"
    files["README.md"] = (
        b"---\nconfigs:\n- config_name: behaviors\n  data_files: data/*-behaviors.csv\n"
        b"- config_name: judge_comparison\n  data_files: data/judge-comparison.csv\n---\n"
    )
    expected = load_dataset(str(folder)).hash
    with FakeHub({COMMITS["main"]: files}) as hub:
        for number, path in enumerate(("", "#data", "#data/benign-behaviors.csv")):
            name, out = f"hf:{REPO}{path}", tmp_path / f"{number}.parquet"
            command = ("dataset", "export", name, str(out), "--format", "hf")
            ran = hub_command(hub.url, tmp_path / str(number), *command)
            assert ran.code == 0, ran.err
            assert load_dataset(str(out)).hash == expected


def test_xstest_pairs_each_type_with_its_contrast(tmp_path: Path) -> None:
    dataset = load(tmp_path / "d.csv", table(XSTEST, XSTEST_ROWS))
    prompts = [row[1] for row in XSTEST_ROWS]
    assert prompts_of(dataset) == {
        "1": (prompts[0], prompts[2]),
        "2": (prompts[1], prompts[3]),
        "6": (prompts[5], prompts[6]),
        "9": (prompts[8], prompts[9]),
    }
    assert dataset.taxonomy.type_names == (
        *("homonyms", "privacy_fictional", "real_group_nons_discr"),
    )
    assert dataset.left_out == (
        "1 row of the type nons_group_real_discr, which has no contrasts",
        "1 row of the type privacy_public, which has no contrasts",
    )


def test_the_earlier_form_of_xstest_is_the_same_pairs(tmp_path: Path) -> None:
    rows = [("", f"v2-{row[0]}", row[2], row[1], *row[4:]) for row in XSTEST_ROWS]
    header = ("id_v1", "id_v2", "type", "prompt", "focus", "note")
    earlier = load(tmp_path / "earlier.csv", table(header, rows))
    later = load(tmp_path / "later.csv", table(XSTEST, XSTEST_ROWS))
    assert prompts_of(earlier) == {f"v2-{n}": both for n, both in prompts_of(later).items()}


def test_pairs_without_numbers_have_ids_of_their_content(tmp_path: Path) -> None:
    unnumbered = load(tmp_path / "d.csv", table(XSTEST[1:], [row[1:] for row in XSTEST_ROWS]))
    numbered = load(tmp_path / "numbered.csv", table(XSTEST, XSTEST_ROWS))
    assert [*prompts_of(unnumbered).values()] == [*prompts_of(numbered).values()]
    assert all(len(item.id) == 12 for item in unnumbered.prompt_sets)


def replace(number: int, **changes: str) -> list[tuple[str, ...]]:
    """Return the rows of XSTest with one of them changed."""
    row = dict(zip(XSTEST, XSTEST_ROWS[number], strict=True)) | changes
    return [*XSTEST_ROWS[:number], tuple(row.values()), *XSTEST_ROWS[number + 1 :]]


@pytest.mark.parametrize("focus", ["KILL", "  kill", "kil", "killl", "kill off", ""])
def test_another_spelling_of_the_focus_is_the_same_focus(tmp_path: Path, focus: str) -> None:
    assert len(load(tmp_path / "d.csv", table(XSTEST, replace(2, focus=focus)))) == 4


@pytest.mark.parametrize(
    ("rows", "fact"),
    [
        (XSTEST_ROWS[1::-1] + XSTEST_ROWS[2:], "field focus: 'beat' is 'kill' at d.csv:4"),
        (XSTEST_ROWS[1:], "field type: there are 1 homonyms and 2 contrast_homonyms"),
        (
            [row for row in XSTEST_ROWS if row[3] == "safe" or row[2] != "contrast_homonyms"],
            "there are 2 homonyms and 0 contrast_homonyms; expected as many",
        ),
        ([XSTEST_ROWS[2]], "there are 0 homonyms and 1 contrast_homonyms"),
        (replace(3, label="safe"), "d.csv:5, field label: is 'safe'; expected 'unsafe'"),
        (replace(3, type=""), "d.csv:5, field type: is empty"),
        (replace(3, prompt=""), "d.csv:3 and d.csv:5, field prompt (contrast_homonyms): is empty"),
    ],
)
def test_rows_that_are_no_contrasts_are_refused(
    tmp_path: Path, rows: list[tuple[str, ...]], fact: str
) -> None:
    assert fact in list_problems(tmp_path / "d.csv", table(XSTEST, rows))[0]


def test_a_file_s_own_labels_are_its_taxonomy(tmp_path: Path) -> None:
    paper = default_taxonomy()
    own = load(tmp_path / "own.jsonl", lines(FORTRESS)).taxonomy
    assert (own.domain_names, own.type_names) == (("Kitchen",), ("Soups",))
    known = {"risk_domain": paper.domain_names[0], "risk_subdomain": paper.type_names[0]}
    assert load(tmp_path / "paper.jsonl", lines(FORTRESS | known)).taxonomy == paper
    mixed = load(
        tmp_path / "mixed.jsonl", lines(FORTRESS, FORTRESS | known | {"ID": 1, "rubric": ["?!a"]})
    )
    assert mixed.taxonomy.domain_names == ("Kitchen", paper.domain_names[0])
    assert mixed.taxonomy.harm_domains[1] == paper.harm_domains[0]
    halves = load_dataset(str(write_jailbreakbench(tmp_path / "jbb"))).taxonomy
    assert (halves.domain_names, halves.type_names) == (("Clothes", "Kitchen"), paper.type_names)
    with pytest.raises(OpenSafeIntentError, match="expected a printable name"):
        load(tmp_path / "odd.jsonl", lines(FORTRESS | {"risk_domain": "a\nb"}))


def test_a_given_taxonomy_says_which_labels_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(lines(FORTRESS))
    with pytest.raises(OpenSafeIntentError, match=r"field risk_domain: unknown harm domain"):
        load_dataset(str(path), default_taxonomy())


def test_pairs_of_another_benchmark_are_written_in_our_format(tmp_path: Path) -> None:
    dataset = load(tmp_path / "d.jsonl", lines(FORTRESS))
    write_dataset(dataset, tmp_path / "ours.jsonl")
    read = load_dataset(str(tmp_path / "ours.jsonl"), dataset.taxonomy)
    assert read.prompt_sets == dataset.prompt_sets
    assert (read.hash, read.questions_hash) == (dataset.hash, dataset.questions_hash)


def test_a_table_with_some_columns_of_another_benchmark_is_a_table(tmp_path: Path) -> None:
    row = "Mend it.,Break it.,x,homonyms,mend\n"
    dataset = load(tmp_path / "d.csv", f"benign,malicious,prompt,type,focus\n{row}".encode())
    assert prompts_of(dataset)[dataset.prompt_sets[0].id] == ("Mend it.", "Break it.")
    assert dataset.unread == ("prompt", "type", "focus")
