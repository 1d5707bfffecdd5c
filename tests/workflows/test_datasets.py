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


def test_the_command_writes_what_is_kept_and_a_line_on_each_dropped_set(
    dataset: str, tmp_path: Path
) -> None:
    out, report = tmp_path / "results" / "kept.jsonl", tmp_path / "results" / "dropped.jsonl"
    ran = osi("dataset", "dedup", dataset, "--out", out, "--report", report)
    assert (ran.code, ran.err) == (0, "")
    kept = load_dataset(str(out))
    assert kept.prompt_sets == tuple(one for one in SETS if one.id not in ("copied", "worded"))
    assert ran.out.splitlines() == [
        f"{out}: 4 of 6 prompt-sets kept (sha256 {kept.hash})",
        f"{report}: 2 dropped as too similar to an earlier set; the highest score is 1.000",
    ]
    where = {
        "twin": "first",
        "harm_domain": DOMAIN,
        "task_type": TYPE,
        "twin_variant": "benign",
        "twin_prompt": SHARED,
    }
    assert report_of(report) == [
        {
            "id": "copied",
            "variant": "malicious",
            "prompt": f"{SHARED.upper()}!",
            **where,
            **{"score": 1.0, "lcs": 10, "words": 10, "twin_words": 10},
        },
        {
            "id": "worded",
            "variant": "dual_use_paraphrase_2",
            "prompt": NEAR,
            **where,
            **{"score": 0.8, "lcs": 8, "words": 10, "twin_words": 10},
        },
    ]
    assert report.stat().st_mode & 0o777 == 0o600  # it holds prompts of malicious intent


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_without_a_place_of_its_own_the_report_goes_beside_what_is_kept(
    dataset: str, tmp_path: Path, suffix: str
) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    out, beside = (
        tmp_path / "results" / f"kept.{suffix}",
        tmp_path / "results" / "kept.dropped.jsonl",
    )
    ran = osi("dataset", "dedup", dataset, "--out", out)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1].startswith(f"{beside}: 2 dropped as too similar")
    assert [line["id"] for line in report_of(beside)] == ["copied", "worded"]
    assert beside.stat().st_mode & 0o077 == 0
    found = dedup_dataset(dataset, out)
    assert (found.report, [*found.dropped]) == (beside, ["copied", "worded"])


def test_a_report_by_default_is_not_written_over_the_input(dataset: str, tmp_path: Path) -> None:
    name = Path(dataset).rename(tmp_path / "kept.dropped.jsonl")
    before = name.read_bytes()
    ran = osi("dataset", "dedup", name, "--out", tmp_path / "kept.jsonl")
    assert (ran.code, name.read_bytes()) == (2, before)
    assert "kept.dropped.jsonl: is the input" in ran.errors[0]


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
    result = dedup_dataset(
        dataset, tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl", threshold=threshold
    )
    assert [*result.dropped] == dropped
    assert len(result.kept) == len(SETS) - len(dropped)


def test_the_authors_rule_compares_joined_triplets(tmp_path: Path) -> None:
    # of 30 words, the triplets share 10 + 10 + 1: 2 · 21 / 60 = 0.7, where single prompts reach 1
    one = a_set(
        "one", benign=words_of("b", 10), dual_use=words_of("d", 10), malicious=words_of("m", 10)
    )
    other = a_set(
        "other",
        benign=words_of("b", 10),
        dual_use=words_of("d", 10),
        malicious=f"m0 {words_of('n', 9)}",
    )
    apart = a_set(
        "apart",
        benign=words_of("b", 10),
        dual_use=words_of("d", 10),
        paraphrases=(words_of("b", 10),),
    )
    name = dataset_file(tmp_path, made_dataset(one, other, apart))
    ran = osi(
        *(
            "dataset",
            "dedup",
            name,
            "--out",
            tmp_path / "kept.jsonl",
            "--report",
            tmp_path / "dropped.jsonl",
        ),
        *("--rule", "authors"),
    )
    assert ran.code == 0
    (line,) = report_of(tmp_path / "dropped.jsonl")
    assert (line["id"], line["twin"], line["variant"], line["twin_variant"]) == (
        "other",
        "one",
        "triplet",
        "triplet",
    )
    assert (line["score"], line["lcs"], line["words"], line["twin_words"]) == (0.7, 21, 30, 30)
    assert line["prompt"] == "\n".join(
        (other.prompts.benign, other.prompts.dual_use, other.prompts.malicious)
    )


def test_where_nothing_is_alike_everything_is_kept(tmp_path: Path) -> None:
    ran = osi(
        "dataset",
        "dedup",
        "starter",
        "--out",
        tmp_path / "kept.jsonl",
        "--report",
        tmp_path / "dropped.jsonl",
    )
    assert (
        ran.out.splitlines()[1]
        == f"{tmp_path / 'dropped.jsonl'}: 0 dropped as too similar to an earlier set"
    )
    assert (tmp_path / "dropped.jsonl").read_bytes() == b""
    assert load_dataset(str(tmp_path / "kept.jsonl")).hash == load_dataset("starter").hash


def test_what_was_kept_is_kept_again(dataset: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    dedup_dataset(dataset, kept, tmp_path / "dropped.jsonl")
    again = dedup_dataset(str(kept), tmp_path / "again.jsonl", tmp_path / "none.jsonl")
    assert again.dropped == {}
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
    name.write_text(
        "".join(json.dumps(record | {"id": set_id}) + "\n" for set_id in ("soup", "stew"))
    )
    result = dedup_dataset(
        str(name), tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl", taxonomy=taxonomy
    )
    assert {set_id: match.twin for set_id, match in result.dropped.items()} == {"stew": "soup"}
    with pytest.raises(InputError, match="Kitchens"):
        dedup_dataset(str(name), tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl")
    with pytest.raises(InputError, match="is the input"):
        dedup_dataset(
            str(name),
            tmp_path / "kept.jsonl",
            taxonomy.with_suffix(".jsonl"),
            taxonomy=taxonomy.with_suffix(".jsonl"),
        )


# what is refused
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", ["0", "1", "1.5", "-0.2", "nan", "70%", "seven", ""])
def test_what_is_no_threshold_is_refused_before_anything_is_written(
    dataset: str, tmp_path: Path, threshold: str
) -> None:
    out, report = tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl"
    ran = osi(
        "dataset", "dedup", dataset, "--out", out, "--report", report, f"--threshold={threshold}"
    )
    (line,) = ran.errors
    assert ran.code == 2
    assert line.startswith("error: threshold")
    assert "such as 0.7" in line
    assert not out.exists()
    assert not report.exists()


def test_equal_triplets_are_found_by_the_authors_rule_at_the_threshold_one(tmp_path: Path) -> None:
    same = {"benign": words_of("b", 3), "dual_use": words_of("d", 3), "malicious": words_of("m", 3)}
    name = dataset_file(tmp_path, made_dataset(a_set("one", **same), a_set("two", **same)))
    result = dedup_dataset(
        name, tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl", threshold=1, rule="authors"
    )
    assert [*result.dropped] == ["two"]


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
        dedup_dataset(
            dataset, tmp_path / "kept.jsonl", tmp_path / "dropped.jsonl", rule="strictest"
        )  # type: ignore[arg-type]
    ran = osi(
        "dataset",
        "dedup",
        dataset,
        "--out",
        "k.jsonl",
        "--report",
        "d.jsonl",
        "--rule",
        "strictest",
    )
    assert ran.code == 2
    assert "authors" in ran.err
