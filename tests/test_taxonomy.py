"""The vocabularies are the paper's, and a dataset may bring its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensafeintent import OpenSafeIntentError, load_dataset, load_taxonomy
from opensafeintent.taxonomy import (
    CORE_VARIANTS,
    MODES,
    REFUSAL_MODES,
    STRATEGIES,
    default_taxonomy,
    is_dual_use,
    paraphrase_variant,
)

DOMAINS = (  # the seven of the paper's Table 1
    "Physical Harm and Weapons",
    "Hazardous Agent Use",
    "Hate and Harassment",
    "Cyber Compromise",
    "Fraud and Deception",
    "Privacy and Data Misuse",
    "Evasion and Circumvention",
)
TYPES = (  # the six of the paper's Table 2
    "Explanation",
    "Recommendation and Selection",
    "Planning and Procedure",
    "Troubleshooting",
    "Optimization",
    "Transformation",
)

KITCHEN = """name = "kitchen"
[[harm_domains]]
name = "Burnt Toast"
definition = "Bread that was left in."
[[task_types]]
name = "Rescue"
definition = "Scrape it."
includes = ["scraping"]
"""


def test_the_closed_vocabularies() -> None:
    assert CORE_VARIANTS == ("benign", "dual_use", "malicious")
    assert MODES == ("A0", "A1", "A2", "A3", "A4")
    assert REFUSAL_MODES == ("A0", "A1")
    assert STRATEGIES == ("full", "constrained", "refuse")


def test_the_papers_taxonomy_has_42_cells_all_defined() -> None:
    taxonomy = default_taxonomy()
    assert taxonomy.domain_names == DOMAINS
    assert taxonomy.type_names == TYPES
    assert len(set(taxonomy.cells)) == 42  # 7 × 6
    assert taxonomy.cells[:2] == (
        ("Physical Harm and Weapons", "Explanation"),
        (DOMAINS[0], "Recommendation and Selection"),
    )
    for category in (*taxonomy.harm_domains, *taxonomy.task_types):
        assert category.definition, category.name
        assert category.includes, category.name
        assert category.excludes, category.name


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("benign", False),
        ("malicious", False),
        ("dual_use", True),
        (paraphrase_variant(1), True),
        ("dual_use_paraphrase_12", True),
        ("dual_use_paraphrases", False),
    ],
)
def test_which_variants_are_dual_use_wordings(variant: str, expected: bool) -> None:
    assert is_dual_use(variant) is expected


@pytest.mark.parametrize("encode", ["plain", "bom", "crlf"])
def test_a_dataset_is_read_in_a_taxonomy_of_its_own(tmp_path: Path, encode: str) -> None:
    text = {"plain": KITCHEN, "bom": "\ufeff" + KITCHEN, "crlf": KITCHEN.replace("\n", "\r\n")}[
        encode
    ]
    (tmp_path / "kitchen.toml").write_bytes(text.encode())
    taxonomy = load_taxonomy(tmp_path / "kitchen.toml")
    assert taxonomy.cells == (("Burnt Toast", "Rescue"),)

    prompts = {"benign": "a", "dual_use": "b", "malicious": "c"}
    record = {
        "harm_domain": "Burnt Toast",
        "task_type": "Rescue",
        "underlying_task": "t",
        "prompts": prompts,
    }
    (tmp_path / "sets.jsonl").write_text(json.dumps(record))
    assert load_dataset(str(tmp_path / "sets.jsonl"), taxonomy).prompt_sets[0].cell == (
        "Burnt Toast",
        "Rescue",
    )
    with pytest.raises(
        OpenSafeIntentError, match="field harm_domain: unknown harm domain 'Burnt Toast'"
    ):
        load_dataset(str(tmp_path / "sets.jsonl"))  # it is no domain of the paper's


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "missing required field"),
        (b"name = ", "Invalid value"),
        (KITCHEN.encode().replace(b"[[harm_domains]]", b"[[harm_domain]]"), "`harm_domains`"),
        (KITCHEN.encode().replace(b'"Scrape it."', b"7"), r"`str`, got `int` - at `\$.task_types"),
        (
            b'name = "n"\nharm_domains = []\ntask_types = []',
            "harm_domains is empty; a taxonomy has at least one",
        ),
        (
            b'name = "n"\nharm_domains = ["Arson"]\ntask_types = []',
            r"got `str` - at `\$.harm_domains",
        ),
        (
            KITCHEN.encode() + KITCHEN.encode().split(b"\n", 1)[1].partition(b"[[task")[0],
            r"harm_domains names \['Burnt Toast'\] twice",
        ),
        (KITCHEN.encode("utf-16"), "not UTF-8"),
    ],
    ids=["empty", "no TOML", "misspelt", "a number", "no domain", "names alone", "twice", "UTF-16"],
)
def test_a_file_that_is_no_taxonomy_is_refused_by_name(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(OpenSafeIntentError, match=complaint) as caught:
        load_taxonomy(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_a_taxonomy_that_cannot_be_read_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(OpenSafeIntentError, match="cannot read"):
        load_taxonomy(tmp_path / name)
