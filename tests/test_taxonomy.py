"""The vocabularies are the paper's, and a dataset may bring its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from opensafeintent import OpenSafeIntentError, load_dataset, load_taxonomy
from opensafeintent.promptsets import Dataset
from opensafeintent.taxonomy import (
    default_taxonomy,
)
from samples import dataset_file, prompt_set

DOMAINS = (  # the seven of the paper's Table 1
    *("Physical Harm and Weapons", "Hazardous Agent Use", "Hate and Harassment"),
    *("Cyber Compromise", "Fraud and Deception", "Privacy and Data Misuse"),
    "Evasion and Circumvention",
)
TYPES = (  # the six of the paper's Table 2
    *("Explanation", "Recommendation and Selection", "Planning and Procedure"),
    *("Troubleshooting", "Optimization", "Transformation"),
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


def test_the_papers_taxonomy_has_42_cells_all_defined() -> None:
    taxonomy = default_taxonomy()
    assert taxonomy.domain_names == DOMAINS
    assert taxonomy.type_names == TYPES
    assert len(set(taxonomy.cells)) == 42  # 7 × 6
    assert taxonomy.cells[:2] == ((DOMAINS[0], TYPES[0]), (DOMAINS[0], TYPES[1]))
    for category in (*taxonomy.harm_domains, *taxonomy.task_types):
        assert category.definition and category.includes and category.excludes, category.name


@pytest.mark.parametrize(
    ("asked", "belongs_to"),
    [("what techniques can be used", "Explanation"), ("how can I", "Planning and Procedure")],
)
def test_a_common_way_to_ask_belongs_to_one_task_type(asked: str, belongs_to: str) -> None:
    types = default_taxonomy().task_types
    assert [kind.name for kind in types if asked in " ".join(kind.includes)] == [belongs_to]


@pytest.mark.parametrize("encode", ["plain", "bom", "crlf"])
def test_a_dataset_is_read_in_a_taxonomy_of_its_own(tmp_path: Path, encode: str) -> None:
    texts = {"bom": "\ufeff" + KITCHEN, "crlf": KITCHEN.replace("\n", "\r\n")}
    text = texts.get(encode, KITCHEN)
    (tmp_path / "kitchen.toml").write_bytes(text.encode())
    taxonomy = load_taxonomy(tmp_path / "kitchen.toml")
    assert taxonomy.cells == (("Burnt Toast", "Rescue"),)
    sets = Dataset("made", (prompt_set("one", 0, "Burnt Toast", "Rescue"),), taxonomy)
    path = dataset_file(tmp_path, sets)
    assert load_dataset(path, taxonomy).prompt_sets[0].cell == ("Burnt Toast", "Rescue")
    with pytest.raises(OpenSafeIntentError, match="unknown harm domain 'Burnt Toast'"):
        load_dataset(path)  # it is no domain of the paper's


NO_DOMAINS = 'name = "n"\nharm_domains = []\ntask_types = []'
TWICE = KITCHEN + KITCHEN.partition("\n")[2].partition("[[task")[0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "missing required field"),
        ("name = ", "Invalid value"),
        (KITCHEN.replace("[[harm_domains]]", "[[harm_domain]]"), "`harm_domains`"),
        (KITCHEN.replace('"Scrape it."', "7"), r"`str`, got `int` - at `\$.task_types"),
        (NO_DOMAINS, "harm_domains is empty"),
        (NO_DOMAINS.replace("[]", '["Arson"]', 1), r"got `str` - at `\$.harm_domains"),
        (TWICE, r"harm_domains names \['Burnt Toast'\] twice"),
        (KITCHEN.encode("utf-16"), "is UTF-16; expected UTF-8"),
    ],
    ids=["empty", "no TOML", "misspelt", "a number", "no domain", "names alone", "twice", "UTF-16"],
)
def test_a_file_that_is_no_taxonomy_is_refused_by_name(
    tmp_path: Path, content: str | bytes, complaint: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(OpenSafeIntentError, match=complaint) as caught:
        load_taxonomy(path)
    assert str(path) in str(caught.value)
