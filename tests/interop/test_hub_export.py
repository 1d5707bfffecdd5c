"""Datasets written for the hub: what other programs and we read back, and what stands in card and
metadata.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opensafeintent import (
    Dataset,
    OpenSafeIntentError,
    export_dataset,
    load_dataset,
    load_taxonomy,
)
from opensafeintent.cli.commands import cli
from opensafeintent.interop.hub import Publication
from promptsets.samples import OURS, lines, ours

pytest.importorskip("pyarrow")
pytest.importorskip("huggingface_hub")

SAID = Publication(title="Invented sets", license="cc-by-4.0", repo="someone/some-sets")
READ_BACK = """
import datasets, json, sys
default = datasets.load_dataset(sys.argv[1])
prompts = datasets.load_dataset(sys.argv[1], "prompts", split="test")
print(json.dumps({
    "configs": datasets.get_dataset_config_names(sys.argv[1]),
    "splits": list(default),
    "columns": default["test"].column_names,
    "rows": default["test"].to_list(),
    "prompts": prompts.to_list(),
}))
"""


def export(
    folder: Path, dataset: str = "starter", taxonomy: Path | None = None, **said: str
) -> Dataset:
    return export_dataset(dataset, folder, Publication(**said), taxonomy)[0]


def written(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def small(folder: Path, *records: dict[str, Any]) -> str:
    """Write a dataset of a few sets and return its path."""
    path = folder / "small.jsonl"
    path.write_bytes(lines(*(records or (ours(1), ours(2)))))
    return str(path)


def front_matter(folder: Path) -> dict[str, Any]:
    from huggingface_hub import metadata_load

    loaded: dict[str, Any] = metadata_load(folder / "README.md")
    return loaded


def body(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8").split("---\n", 2)[2]


# Read back
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_datasets_library_reads_both_configurations(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    export(tmp_path / "d")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_BACK, str(tmp_path / "d")],
        env={"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    read = json.loads(ran.stdout)
    assert (read["configs"], read["splits"]) == (["prompt_sets", "prompts"], ["test"])
    sets = load_dataset("starter").prompt_sets
    # as docs/starter-set.md and every record's `source` have it
    canary = "5d0b6c1e-7f4a-4c0e-9b52-0f6a3b8de471"
    assert read["rows"] == [
        {"content_shift": None}
        | item.to_json()
        | {"canary": canary, "dual_use_paraphrases": [*item.dual_use_paraphrases]}
        for item in sets
    ]
    assert len(read["prompts"]) == 42 * 7  # 42 sets of three core prompts and four paraphrases
    assert {row["prompt"]: (row["id"], row["variant"]) for row in read["prompts"]} == {
        text: (item.id, variant) for item in sets for variant, text in item.wordings().items()
    }
    intents = [row["intent"] for row in read["prompts"][:7]]
    assert intents == [
        "benign",
        "dual_use",
        "malicious",
        "dual_use",
        "dual_use",
        "dual_use",
        "dual_use",
    ]
    assert {row["canary"] for row in read["prompts"]} == {canary}


def test_our_own_loader_reads_the_folder_as_the_same_dataset(tmp_path: Path) -> None:
    exported = export(tmp_path / "out.v1")
    again = load_dataset(str(tmp_path / "out.v1"))
    assert again.hash == exported.hash == load_dataset("starter").hash
    assert again.name == "out.v1"


@pytest.mark.parametrize("file", ["opensafeintent-700.json", "opensafeintent-115.json"])
def test_the_published_files_keep_their_hash(tmp_path: Path, published: Path, file: str) -> None:
    exported = export(tmp_path / "d", str(published / file))
    assert load_dataset(str(tmp_path / "d")).hash == exported.hash


def test_a_dataset_with_its_own_taxonomy_brings_it_along(tmp_path: Path) -> None:
    hostile = 'A "domain" \\ with quotes, \u202e and 😀'
    taxonomy = tmp_path / "labels.toml"
    text = json.dumps(hostile, ensure_ascii=False)
    taxonomy.write_text(
        f'name = "mine | <b>"\n[[harm_domains]]\nname = {text}\ndefinition = "d"\nincludes = ["i",'
        ' "j"]\n[[task_types]]\nname = "Explanation"\ndefinition = "e"\nexcludes = ["x"]\n',
        "utf-8",
    )
    exported = export(tmp_path / "d", small(tmp_path, ours(1, harm_domain=hostile)), taxonomy)
    assert load_taxonomy(tmp_path / "d" / "taxonomy.toml") == load_taxonomy(taxonomy)
    assert load_dataset(str(tmp_path / "d")).hash == exported.hash
    assert "mine \\| \\<b\\>" in body(tmp_path / "d")
    assert '| A "domain" \\\\ with quotes, \\\\u202e and 😀 | 1 | 1 |' in body(tmp_path / "d")


# The files
# ------------------------------------------------------------------------------


def test_the_same_dataset_gives_the_same_bytes(tmp_path: Path) -> None:
    export(tmp_path / "a")
    first = written(tmp_path / "a")
    assert sorted(first) == ["README.md", "prompt_sets/test.parquet", "prompts/test.parquet"]
    export(tmp_path / "a")
    export(tmp_path / "b")
    assert first == written(tmp_path / "a") == written(tmp_path / "b")


def test_files_are_private_to_their_user(tmp_path: Path) -> None:
    export(tmp_path / "d")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "d").rglob("*.*")} == {0o600}


def test_the_next_export_leaves_nothing_of_the_last(tmp_path: Path) -> None:
    taxonomy = tmp_path / "labels.toml"
    labels = (
        "[[harm_domains]]\nname = 'Physical Harm and Weapons'\ndefinition ="
        " 'd'\n[[task_types]]\nname = 'Explanation'\n"
    )
    taxonomy.write_text(f"name = 'mine'\n{labels}definition = 'e'\n")
    export(tmp_path / "d", small(tmp_path), taxonomy)
    export(tmp_path / "d")
    assert load_dataset(str(tmp_path / "d")).hash == load_dataset("starter").hash
    assert not (tmp_path / "d" / "taxonomy.toml").exists()


def test_an_edited_card_and_the_files_of_others_are_not_written_over(tmp_path: Path) -> None:
    export(tmp_path / "d")
    card = tmp_path / "d" / "README.md"
    card.write_text(card.read_text().replace("Written by", "Once written by"))
    with pytest.raises(
        OpenSafeIntentError,
        match=r"README\.md: was not written by `dataset export`, or was edited since",
    ):
        export(tmp_path / "d")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "README.md").write_text("mine")
    with pytest.raises(OpenSafeIntentError, match=r"README\.md: was not written"):
        export(tmp_path / "e")
    assert written(tmp_path / "e") == {"README.md": b"mine"}


# The card
# ------------------------------------------------------------------------------


def test_the_card_says_what_the_dataset_is(tmp_path: Path) -> None:
    export_dataset(small(tmp_path), tmp_path / "d", SAID)
    front = front_matter(tmp_path / "d")
    assert (front["license"], front["pretty_name"], front["size_categories"]) == (
        "cc-by-4.0",
        "Invented sets",
        ["n<1K"],
    )
    assert "language" not in front  # no set states one
    assert [(config["config_name"], config.get("default")) for config in front["configs"]] == [
        ("prompt_sets", True),
        ("prompts", None),
    ]
    text = body(tmp_path / "d")
    dataset = load_dataset(str(tmp_path / "d"))
    assert dataset.hash in text
    # Two sets of the same cell, the first domain and the first type, and nothing elsewhere.
    assert "| Physical Harm and Weapons | 2 | – | – | – | – | – | 2 |" in text
    assert "| all | 2 | 0 | 0 | 0 | 0 | 0 | 2 |" in text
    assert "10 prompts" in text  # (3 + 2 paraphrases) × 2
    assert "2 prompt-sets in 1 of 42 cells" in text
    assert "made up for a test (2 sets)" in text
    assert "--dataset hf:someone/some-sets\n" in text
    assert 'load_dataset("someone/some-sets", "prompts", split="test")' in text
    assert "spdx.org/licenses/CC-BY-4.0" in text
    assert "Responsible use" in text
    assert "Not meant for" in text


def test_a_canary_is_made_where_the_records_have_none(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    export(tmp_path / "d", small(tmp_path))
    (canary,) = set(
        pq.read_table(tmp_path / "d" / "prompts" / "test.parquet")["canary"].to_pylist()
    )
    assert f"canary {canary}" in body(tmp_path / "d")
    export(tmp_path / "e", small(tmp_path, ours(1), ours(3)))
    assert canary not in body(tmp_path / "e")


def test_no_prompt_stands_in_the_card(tmp_path: Path) -> None:
    export(tmp_path / "d")
    shown = (tmp_path / "d" / "README.md").read_text()
    for item in load_dataset("starter").prompt_sets:
        assert not [
            text for text in (*item.wordings().values(), item.underlying_task) if text in shown
        ]


def test_text_from_outside_is_no_markup(tmp_path: Path) -> None:
    title = '"x"\nlicense: mit\n---\n# [a](http://b) <script> | `c` \ufffe'
    source = "<img src=x> **bold** | cell"
    records = (ours(1, source=source, language="no"), ours(2, source=source, language='e"\n- x'))
    export(tmp_path / "d", small(tmp_path, *records), title=title)
    front = front_matter(tmp_path / "d")
    assert (
        front["pretty_name"] == '"x" license: mit --- # [a](http://b) <script> | `c` \\ufffe'
    )  # one line, and nothing but text
    assert (front["license"], front["language"]) == ("other", ['e" - x', "no"])
    text = body(tmp_path / "d")
    assert '# "x" license: mit --- \\# \\[a\\](http:\\//b) \\<script\\> \\| \\`c\\`' in text
    assert "- \\<img src=x\\> \\*\\*bold\\*\\* \\| cell (2 sets)" in text


# The command
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [["{}"], ["--out", "{}"]])
def test_the_command_takes_the_folder_either_way(tmp_path: Path, place: list[str]) -> None:
    named = [part.format(tmp_path / "d") for part in place]
    ran = CliRunner().invoke(cli, ["dataset", "export", "starter", "--format", "hf", *named])
    assert ran.exit_code == 0, ran.output
    assert load_dataset("starter").hash in ran.output
    assert len(written(tmp_path / "d")) == 3


@pytest.mark.parametrize("place", [[], ["a", "--out", "b"]])
def test_the_command_wants_one_folder(place: list[str]) -> None:
    ran = CliRunner().invoke(cli, ["dataset", "export", "starter", *place])
    assert ran.exit_code == 2
    assert "Name the folder once" in ran.output


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"license": "cc-by-4"}, "--license cc-by-4: unknown; did you mean 'cc-by-4.0'"),
        ({"repo": "some-sets"}, "--repo some-sets: expected owner/name"),
        ({"repo": "a/b`; rm"}, "expected owner/name"),
    ],
)
def test_what_is_said_has_to_be_of_its_form(
    tmp_path: Path, said: dict[str, str], complaint: str
) -> None:
    with pytest.raises(OpenSafeIntentError) as caught:
        export(tmp_path / "d", **said)
    assert complaint in str(caught.value)
    assert not (tmp_path / "d").exists()


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        OpenSafeIntentError, match=r'needs an extra: pip install "opensafeintent\[parquet\]"'
    ):
        export(tmp_path / "d")


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")
    with pytest.raises(OpenSafeIntentError, match="expected a folder"):
        export(tmp_path / "d")


def test_prompts_stay_what_they_are(tmp_path: Path) -> None:
    odd = "Zeilen\nund\tTab, 😀, =1+1, \u202e"
    prompts = OURS["prompts"] | {"benign": odd}
    exported = export(tmp_path / "d", small(tmp_path, OURS | {"prompts": prompts}))
    again = load_dataset(str(tmp_path / "d"))
    assert again.hash == exported.hash
    assert again.prompt_sets[0].prompts.benign == odd
