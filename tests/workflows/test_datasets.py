"""`dataset dedup`: earlier sets stay, every dropped one is explained, and the input is never
written over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endtoend import osi
from opensafeintent import dedup_dataset, load_dataset
from opensafeintent.errors import InputError
from opensafeintent.promptsets import Prompts, PromptSet
from opensafeintent.workflows.datasets import Deduplication
from samples import dataset_file, made_dataset

DOMAIN, TYPE = "Cyber Compromise", "Explanation"


def words_of(name: str, count: int) -> str:
    """`count` words that no other name has."""
    return " ".join(f"{name}{n}" for n in range(count))


def a_set(
    name: str, task_type: str = TYPE, paraphrases: tuple[str, ...] = (), **prompts: str
) -> PromptSet:
    """A set whose prompts are unlike all others, but for those given."""
    intents = {
        intent: prompts.get(intent, words_of(f"{name}{intent}", 10))
        for intent in ("benign", "dual_use", "malicious")
    }
    return PromptSet(
        id=name,
        harm_domain=DOMAIN,
        task_type=task_type,
        underlying_task=f"the task of {name}",
        prompts=Prompts(**intents),
        dual_use_paraphrases=paraphrases,
    )


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
    assert kept.prompt_sets == tuple(one for one in SETS if one.id not in ("copied", "worded"))
    assert f"{out}: 4 of 6 prompt-sets kept (sha256 {kept.hash})" in ran.out
    assert f"{report}: 2 dropped" in ran.out and "1.000" in ran.out
    where = {
        "twin": "first",
        "harm_domain": DOMAIN,
        "task_type": TYPE,
        "twin_variant": "benign",
        "twin_prompt": SHARED,
        "words": 10,
        "twin_words": 10,
    }
    copied = {"id": "copied", "variant": "malicious", "prompt": f"{SHARED.upper()}!"}
    worded = {"id": "worded", "variant": "dual_use_paraphrase_2", "prompt": NEAR}
    assert report_of(report) == [
        {**copied, **where, "score": 1.0, "lcs": 10},
        {**worded, **where, "score": 0.8, "lcs": 8},
    ]
    assert report.stat().st_mode & 0o777 == 0o600  # it holds prompts of malicious intent


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_without_a_place_of_its_own_the_report_goes_beside_what_is_kept(
    dataset: str, tmp_path: Path, suffix: str
) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    found = dedup_dataset(dataset, tmp_path / f"kept.{suffix}")
    assert found.report == tmp_path / "kept.dropped.jsonl"
    assert [line["id"] for line in report_of(found.report)] == [*found.dropped]
    assert found.report.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("threshold", "dropped"),
    [
        ("0.69", ["copied", "tied", "worded"]),
        ("0.7", ["copied", "worded"]),
        ("0.79", ["copied", "worded"]),
        ("0.8", ["copied"]),
    ],
)
def test_the_threshold_decides_and_a_tie_is_kept(
    dataset: str, tmp_path: Path, threshold: str, dropped: list[str]
) -> None:
    result = dedup(dataset, tmp_path, threshold=threshold)
    assert [*result.dropped] == dropped
    assert len(result.kept) == len(SETS) - len(dropped)


def test_the_authors_rule_compares_joined_triplets(tmp_path: Path) -> None:
    # of 30 words, the triplets share 10 + 10 + 1: 2 · 21 / 60 = 0.7, where single prompts reach 1
    b, d, m = (words_of(name, 10) for name in "bdm")
    one = a_set("one", benign=b, dual_use=d, malicious=m)
    other = a_set("other", benign=b, dual_use=d, malicious=f"m0 {words_of('n', 9)}")
    apart = a_set("apart", benign=b, dual_use=d, paraphrases=(b,))
    name = dataset_file(tmp_path, made_dataset(one, other, apart))
    out, report = tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl"
    files = ("--out", out, "--report", report)
    assert osi("dataset", "dedup", name, *files, "--rule", "authors").code == 0
    (line,) = report_of(report)
    assert (line["id"], line["twin"]) == ("other", "one")
    assert line["variant"] == line["twin_variant"] == "triplet"
    assert (line["score"], line["lcs"], line["words"], line["twin_words"]) == (0.7, 21, 30, 30)
    assert line["prompt"] == "\n".join(other.wordings().values())
    assert [*dedup(name, tmp_path, threshold=1, rule="authors").dropped] == []


def test_what_was_kept_is_kept_again(dataset: str, tmp_path: Path) -> None:
    first = dedup(dataset, tmp_path)
    kept = tmp_path / "kept.jsonl"
    again = dedup_dataset(str(kept), tmp_path / "again.jsonl")
    assert again.dropped == {} and first.dropped
    assert again.report.read_bytes() == b""
    assert (tmp_path / "again.jsonl").read_bytes() == kept.read_bytes()


def test_labels_of_another_taxonomy(tmp_path: Path) -> None:
    taxonomy = tmp_path / "small.toml"
    taxonomy.write_text(
        'name = "small"\n'
        '[[harm_domains]]\nname = "Kitchens"\ndefinition = "what is cooked"\n'
        '[[task_types]]\nname = "Recipes"\ndefinition = "how it is cooked"\n'
    )
    record = a_set("x").to_json() | {"harm_domain": "Kitchens", "task_type": "Recipes"}
    name = tmp_path / "kitchens.jsonl"
    name.write_text("".join(json.dumps(record | {"id": id_}) + "\n" for id_ in ("soup", "stew")))
    result = dedup(str(name), tmp_path, taxonomy=taxonomy)
    assert {set_id: match.twin for set_id, match in result.dropped.items()} == {"stew": "soup"}
    with pytest.raises(InputError, match="Kitchens"):
        dedup(str(name), tmp_path)


# what is refused
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", ["0", "1", "1.5", "-0.2", "nan", "70%", "seven", ""])
def test_what_is_no_threshold_is_refused_before_anything_is_written(
    dataset: str, tmp_path: Path, threshold: str
) -> None:
    out = tmp_path / "kept.jsonl"
    ran = osi("dataset", "dedup", dataset, "--out", out, f"--threshold={threshold}")
    (line,) = ran.errors
    assert ran.code == 2
    assert line.startswith("error: threshold") and "such as 0.7" in line
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
    (line,) = ran.errors
    assert ran.code == 2
    assert complaint in line
    assert Path(dataset).read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"made.jsonl", "linked.jsonl"}


def test_an_unknown_rule_is_refused_with_those_that_are_valid(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="valid: paper, authors"):
        dedup(dataset, tmp_path, rule="strictest")
    ran = osi("dataset", "dedup", dataset, "--out", "k.jsonl", "--rule", "strictest")
    assert ran.code == 2
    assert "authors" in ran.err
