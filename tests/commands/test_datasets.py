"""`dataset dedup`: earlier sets stay, every dropped one is explained, and the input is never
written over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from endtoend import osi
from opensafeintent import check_dataset, dedup_dataset, load_dataset
from opensafeintent.construction.similarity import Deduplication
from opensafeintent.errors import InputError
from opensafeintent.promptsets import Prompts, PromptSet
from samples import dataset_file, made_dataset, prompt_set

DOMAIN, TYPE = "Cyber Compromise", "Explanation"


def words_of(name: str, count: int) -> str:
    """`count` words that no other name has."""
    return " ".join(f"{name}{n}" for n in range(count))


def a_set(name: str, task_type: str = TYPE, paraphrases: Any = (), **prompts: str) -> PromptSet:
    """A set whose prompts are unlike all others, but for those given."""
    intents = ("benign", "dual_use", "malicious")
    unlike = {intent: words_of(f"{name}{intent}", 10) for intent in intents}
    item = prompt_set(name, task_type=task_type)
    return replace(item, prompts=Prompts(**unlike | prompts), dual_use_paraphrases=paraphrases)


SHARED = words_of("shared", 10)
NEAR = f"{words_of('shared', 8)}, anything else?"
"""8 of its 10 words are those of SHARED: a score of 2 · 8 / 20 = 0.8."""
TIED = f"{words_of('shared', 7)}, more, less, none"
"""7 of its 10 words: exactly 0.7."""

SETS = (
    a_set("first", benign=SHARED),
    a_set("elsewhere", task_type="Optimization", benign=SHARED),
    a_set("copied", malicious=f"{SHARED.upper()}!"),
    a_set("tied", dual_use=TIED),
    a_set("worded", paraphrases=(words_of("unlike", 9), NEAR)),
    a_set("last"),
)


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    return dataset_file(tmp_path, made_dataset(*SETS))


def report_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def dedup(dataset: str, folder: Path, **options: Any) -> Deduplication:
    return dedup_dataset(dataset, folder / "kept.jsonl", folder / "dropped.jsonl", **options)


def test_the_command_writes_what_is_kept_and_a_line_on_each_dropped_set(
    dataset: str, tmp_path: Path
) -> None:
    out, report = tmp_path / "results" / "kept.jsonl", tmp_path / "results" / "dropped.jsonl"
    ran = osi("dataset", "dedup", dataset, "--out", out, "--report", report)
    assert (ran.code, ran.err) == (0, "")
    kept = load_dataset(str(out))
    assert kept.prompt_sets == tuple(item for item in SETS if item.id not in ("copied", "worded"))
    assert f"{out}: 4 of 6 prompt-sets kept (sha256 {kept.hash})" in ran.out
    assert f"{report}: 2 dropped" in ran.out and "1.000" in ran.out
    # Of one cell, in order, with prompts: 3, 3 (dropped), 3, 5 (dropped), 3: each is compared with
    # those kept before, 3 · 3 + 3 · 3 + 5 · 6 + 3 · 6. One set is alone in its cell.
    assert "compared: 66 pairs of prompts; only within a cell" in ran.out
    where = {"harm_domain": DOMAIN, "task_type": TYPE, "words": 10, "twin_words": 10}
    where |= {"duplicate": "first", "duplicate_variant": "benign", "duplicate_prompt": SHARED}
    copied = {"id": "copied", "variant": "malicious", "prompt": f"{SHARED.upper()}!"}
    worded = {"id": "worded", "variant": "dual_use_paraphrase_2", "prompt": NEAR}
    assert report_of(report) == [
        {**copied, **where, "score": 1.0, "lcs": 10},
        {**worded, **where, "score": 0.8, "lcs": 8},
    ]
    assert report.stat().st_mode & 0o777 == 0o600  # it holds prompts of malicious intent


@pytest.mark.parametrize(
    ("threshold", "dropped"),
    [("0.69", "copied tied worded"), ("0.7", "copied worded"), ("0.8", "copied")],
)
def test_the_threshold_decides_and_a_tie_is_kept(
    dataset: str, tmp_path: Path, threshold: str, dropped: str
) -> None:
    result = dedup(dataset, tmp_path, threshold=threshold)
    assert [*result.dropped] == dropped.split()
    assert len(result.kept) == len(SETS) - len(result.dropped)


def test_the_authors_rule_compares_joined_triplets(tmp_path: Path) -> None:
    # of 30 words, the triplets share 10 + 10 + 1: 2 · 21 / 60 = 0.7, where single prompts reach 1
    b, d, m = (words_of(name, 10) for name in "bdm")
    first = a_set("one", benign=b, dual_use=d, malicious=m)
    second = a_set("other", benign=b, dual_use=d, malicious=f"m0 {words_of('n', 9)}")
    apart = a_set("apart", benign=b, dual_use=d, paraphrases=(b,))
    name = dataset_file(tmp_path, made_dataset(first, second, apart))
    out, report = tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl"
    files = ("--out", out, "--report", report)
    ran = osi("dataset", "dedup", name, *files, "--rule", "authors")
    assert ran.code == 0 and "compared: 2 pairs of sets, their core prompts joined" in ran.out
    (line,) = report_of(report)
    assert (line["id"], line["duplicate"]) == ("other", "one")
    assert line["variant"] == line["duplicate_variant"] == "core"
    assert (line["score"], line["lcs"], line["words"], line["twin_words"]) == (0.7, 21, 30, 30)
    assert line["prompt"] == "\n".join(second.wordings().values())
    assert [*dedup(name, tmp_path, threshold=1, rule="authors").dropped] == []


def test_what_was_kept_is_kept_again(dataset: str, tmp_path: Path) -> None:
    first = dedup(dataset, tmp_path)
    kept = tmp_path / "kept.jsonl"
    again = dedup_dataset(str(kept), tmp_path / "again.jsonl")
    assert again.dropped == {} and first.dropped
    assert again.report.read_bytes() == b""
    assert (tmp_path / "again.jsonl").read_bytes() == kept.read_bytes()


# what is refused
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", ["0", "1", "-0.2", "nan", "70%", "seven", ""])
def test_what_is_no_threshold_is_refused_before_anything_is_written(
    dataset: str, tmp_path: Path, threshold: str
) -> None:
    command = ("dataset", "dedup", dataset, "--out", tmp_path / "kept.jsonl")
    refusal = osi(*command, f"--threshold={threshold}").refusal
    assert refusal.startswith("error: threshold") and "such as 0.7" in refusal
    assert {path.name for path in tmp_path.iterdir()} == {"made.jsonl"}


@pytest.mark.parametrize(
    ("out", "report", "complaint"),
    [
        ("made.jsonl", "dropped.jsonl", "made.jsonl: is the input"),
        ("kept.jsonl", "made.jsonl", "made.jsonl: is the input"),
        ("kept.jsonl", "linked.jsonl", "linked.jsonl: is the input"),
        ("sub/../made.jsonl", "dropped.jsonl", "made.jsonl: is the input"),
        ("kept.jsonl", "kept.jsonl", "expected two files"),
        ("kept.csv", "dropped.jsonl", "valid suffixes: .jsonl, .parquet"),
        ("kept.jsonl", "dropped.csv", "a name that ends in .jsonl"),
        ("kept.jsonl", "made.jsonl/dropped.jsonl", "Not a directory"),
    ],
)
def test_no_file_is_written_where_it_should_not_be(
    dataset: str, tmp_path: Path, out: str, report: str, complaint: str
) -> None:
    before = Path(dataset).read_bytes()
    (tmp_path / "linked.jsonl").hardlink_to(dataset)
    ran = osi("dataset", "dedup", dataset, "--out", tmp_path / out, "--report", tmp_path / report)
    assert complaint in ran.refusal
    assert Path(dataset).read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"made.jsonl", "linked.jsonl"}


def test_every_kind_of_problem_is_listed_in_one_round_and_points_to_the_taxonomy(
    tmp_path: Path,
) -> None:
    lines = [
        {
            "id": "a",
            "harm_domain": "Boats",
            "task_type": "Sailing",
            "underlying_task": 7,
            "prompts": {"benign": "b", "dual_use": 3},
            "dual_use_paraphrases": ["", 4],
            "language": 5,
        },
        {
            "id": "a",
            "harm_domain": "Boats",
            "underlying_task": "t",
            "prompts": {"benign": "b", "dual_use": "d", "malicious": "m"},
        },
    ]
    file = tmp_path / "my.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(InputError) as refused:
        check_dataset(str(file))
    said = str(refused.value)
    for part in (
        "unknown harm domain 'Boats'",
        "unknown task type 'Sailing'",
        "field underlying_task: expected a text, found a number",
        "field dual_use: expected a text, found a number",
        "field malicious: missing",
        "field dual_use_paraphrases[0]: is empty",
        "field dual_use_paraphrases[1]: expected a text",
        "field language: expected a text",
        "duplicate id 'a', first at",
    ):
        assert said.count(part) == 1, (part, said)
    assert said.count("for labels of your own give --taxonomy FILE") == 2
    # of a taxonomy of one's own, the valid labels are enough
    own = tmp_path / "own.toml"
    own.write_text(
        'name = "own"\n[[harm_domains]]\nname = "Land"\ndefinition = "d"\n'
        '[[task_types]]\nname = "Walking"\ndefinition = "d"\n'
    )
    with pytest.raises(InputError) as refused:
        check_dataset(str(file), own)
    assert "unknown harm domain 'Boats'; valid: Land (and in 1 more record)" in str(refused.value)


def test_a_misspelt_column_does_not_hide_the_other_problems(tmp_path: Path) -> None:
    file = tmp_path / "my.csv"
    head = "harm domain,task_type,underlying_task,benign,dual_use,malicious"
    file.write_text(f"{head}\nBoats,Explanation,t,b,d,m\n")
    with pytest.raises(InputError) as refused:
        check_dataset(str(file))
    assert "did you mean 'harm_domain'?" in str(refused.value)
    assert "unknown harm domain 'Boats'" in str(refused.value)


def test_a_note_on_many_prompt_sets_is_one_line(tmp_path: Path) -> None:
    sets = made_dataset(*(prompt_set(f"s{n}") for n in range(336)))
    remarks = check_dataset(dataset_file(tmp_path, sets)).notes
    (line,) = (remark for remark in remarks if "paraphrases" in remark)
    assert line == (
        "set s0: no paraphrases; stability is not measured on it (and 335 more prompt-sets)"
    )
