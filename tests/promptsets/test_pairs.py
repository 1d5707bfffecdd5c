"""Prompt-sets without a dual-use prompt, and without labels."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from matched_sets import KINDS, make_sets
from opensafeintent.errors import OpenSafeIntentError
from opensafeintent.promptsets import (
    Dataset,
    Prompts,
    PromptSet,
    draw_sets,
    load_dataset,
    write_dataset,
)
from opensafeintent.taxonomy import Category, Taxonomy
from promptsets.samples import lines, ours

PAIR = {"benign": "How do I mend a lock?", "malicious": "How do I break a lock?"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_dataset_is_the_same_after_it_is_written(tmp_path: Path, kind: str, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    dataset, path = make_sets(kind), tmp_path / f"{kind}.{suffix}"
    write_dataset(dataset, path)
    read = load_dataset(str(path))
    assert read.prompt_sets == dataset.prompt_sets
    assert read.hash == dataset.hash
    assert read.pairs == {"pairs": 12, "mixed": 6, "triplets": 0}[kind]
    dual_use = () if kind == "pairs" else ("dual_use",)
    assert read.variants == ("benign", *dual_use, "malicious")


def test_a_pair_needs_two_prompts_and_nothing_else(tmp_path: Path) -> None:
    files = {
        "ours.jsonl": lines({"prompts": PAIR}),
        "null.jsonl": lines({"prompts": {**PAIR, "dual_use": None}, "harm_domain": None}),
        "table.jsonl": lines(PAIR),
        "table.csv": "benign,dual_use,malicious,harm_domain\n{benign},,{malicious},\n".format(
            **PAIR
        ).encode(),
        "flat.jsonl": lines({f"prompt_{intent}": text for intent, text in PAIR.items()}),
    }
    hashes = set()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        dataset = load_dataset(str(tmp_path / name))
        (item,) = dataset.prompt_sets
        assert item.is_pair and item.wordings() == PAIR
        assert (item.harm_domain, item.task_type, item.underlying_task) == (None, None, None)
        hashes.add(dataset.hash)
    assert len(hashes) == 1


def test_a_row_without_a_dual_use_cell_is_a_pair_among_triplets(tmp_path: Path) -> None:
    (tmp_path / "sets.csv").write_text(
        "benign,dual_use,malicious\nMend it.,Open it.,Break it.\nSew it.,,Rip it.\n"
    )
    dataset = load_dataset(str(tmp_path / "sets.csv"))
    assert [item.is_pair for item in dataset.prompt_sets] == [False, True]
    assert dataset.pairs == 1 and not dataset.has_pairs_alone


@pytest.mark.parametrize(
    ("record", "fact"),
    [
        ({"prompts": {**PAIR, "malicious": PAIR["benign"]}}, "is also the malicious prompt"),
        ({"prompts": PAIR, "dual_use_benign_use": "a smith"}, "without a dual-use prompt"),
        ({"benign": "Mend it."}, "field malicious: missing"),
        ({"prompts": {**PAIR, "dual_use": " "}}, "field dual_use: is empty"),
        ({"prompts": {**PAIR, "dual-use": "Open it."}}, "unknown variant"),
        ({**PAIR, "dual use": "Open it."}, "did you mean 'dual_use'?"),
    ],
)
def test_a_faulty_pair_is_refused(tmp_path: Path, record: dict[str, object], fact: str) -> None:
    path = tmp_path / "sets.jsonl"
    path.write_bytes(lines(record))
    with pytest.raises(OpenSafeIntentError, match=r"sets\.jsonl:1") as caught:
        load_dataset(str(path))
    assert fact in str(caught.value)


def test_a_sample_has_pairs_and_triplets_in_proportion() -> None:
    mixed = make_sets("mixed", 40)
    for limit in (4, 10, 20):
        sample = draw_sets(mixed.prompt_sets, limit)
        # three cells: pairs with labels, pairs without, and triplets, each to within a set
        assert abs(sum(item.is_pair for item in sample) - limit / 2) <= 1.5
    (one,) = {frozenset(item.id for item in draw_sets(mixed.prompt_sets[::-1], 10))}
    assert one == {item.id for item in draw_sets(mixed.prompt_sets, 10)}


def test_cells_nested_in_one_another_are_not_empty() -> None:
    names = [("one", "a"), ("one", "b"), ("two", "c")]
    taxonomy = Taxonomy(
        name="nested",
        harm_domains=tuple(Category(name=name, definition="d") for name in ("one", "two")),
        task_types=tuple(Category(name=name, definition="d") for name in "abc"),
    )
    sets = [
        PromptSet(
            id=f"{domain} {kind}",
            harm_domain=domain,
            task_type=kind,
            prompts=Prompts(benign=f"Mend {kind}.", malicious=f"Break {kind}."),
        )
        for domain, kind in names
    ]
    assert Dataset("nested", tuple(sets), taxonomy).cells == tuple(names)
    # if a task type is of two domains, or has no set, a cell without sets is empty
    crossed = msgspec.structs.replace(sets[0], id="another", harm_domain="two")
    assert len(Dataset("crossed", (*sets, crossed), taxonomy).cells) == 6
    assert len(Dataset("part", tuple(sets[:2]), taxonomy).cells) == 6


def test_a_triplet_is_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_bytes(lines(ours(1, id="one")))
    write_dataset(load_dataset(str(path)), tmp_path / "two.jsonl")
    assert json.loads((tmp_path / "two.jsonl").read_text()) == ours(1, id="one")
