"""Datasets written for the hub: what other programs and we read back, and what stands in the card."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from endtoend import osi
from opensafeintent import (
    Dataset,
    OpenSafeIntentError,
    check_dataset,
    export_dataset,
    load_dataset,
    load_taxonomy,
)
from opensafeintent.exports.publication import Publication
from opensafeintent.numbers.metrics import TRIPLET_SCOPE
from promptsets.fake_hub import hub_process
from promptsets.samples import OURS, lines, ours

pytest.importorskip("pyarrow")
pytest.importorskip("huggingface_hub")

PKU = "x. PKU-SafeRLHF, a source of the seeds, is published under CC BY-NC 4.0."
READ_BACK = """
import datasets, json, sys
default = datasets.load_dataset(sys.argv[1])
prompts = datasets.load_dataset(sys.argv[1], "prompts", split="test")
print(json.dumps({
    "configs": datasets.get_dataset_config_names(sys.argv[1]),
    "splits": list(default), "rows": default["test"].to_list(), "prompts": prompts.to_list(),
}))
"""


def export(
    folder: Path, dataset: str = "starter", taxonomy: Path | None = None, **fields: str
) -> Dataset:
    return export_dataset(dataset, folder, Publication(**fields), taxonomy).dataset


def written(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def small(folder: Path, *records: dict[str, Any]) -> str:
    """Write a dataset of a few sets and return its path."""
    path = folder / "small.jsonl"
    path.write_bytes(lines(*(records or (ours(1), ours(2)))))
    return str(path)


def taxonomy_of(folder: Path, name: str, domain: str) -> Path:
    """Write a taxonomy of one domain and one type."""
    path = folder / "labels.toml"
    named, labelled = (json.dumps(text, ensure_ascii=False) for text in (name, domain))
    text = f"""name = {named}
[[harm_domains]]\nname = {labelled}\ndefinition = "d"\nincludes = ["i", "j"]
[[task_types]]\nname = "Explanation"\ndefinition = "e"\nexcludes = ["x"]"""
    path.write_text(text, "utf-8")
    return path


def front_matter(folder: Path) -> dict[str, Any]:
    from huggingface_hub import metadata_load

    loaded: dict[str, Any] = metadata_load(folder / "README.md")
    return loaded


def body(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8").split("---\n", 2)[2]


# The data
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_datasets_library_reads_both_configurations(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    export(tmp_path / "d")
    program = ("-W", "ignore", "-c", READ_BACK, str(tmp_path / "d"))
    ran = hub_process("http://127.0.0.1:9", tmp_path, *program, HF_HUB_OFFLINE="1")
    assert ran.returncode == 0, ran.stderr
    read = json.loads(ran.stdout)
    assert (read["configs"], read["splits"]) == (["prompt_sets", "prompts"], ["test"])
    sets = load_dataset("starter").prompt_sets
    # as every record's `source` has it
    canary = "5d0b6c1e-7f4a-4c0e-9b52-0f6a3b8de471"
    for row, item in zip(read["rows"], sets, strict=True):
        expected = {"content_shift": None, "family": None, "canary": canary} | item.to_json()
        assert row == expected | {"dual_use_paraphrases": [*item.dual_use_paraphrases]}
    assert len(read["prompts"]) == 42 * 7  # 42 sets of three core prompts and four paraphrases
    assert {row["prompt"]: (row["id"], row["variant"]) for row in read["prompts"]} == {
        text: (item.id, variant) for item in sets for variant, text in item.wordings().items()
    }
    intents = [row["intent"] for row in read["prompts"][:7]]
    assert intents == ["benign", "dual_use", "malicious", *["dual_use"] * 4]
    assert {row["canary"] for row in read["prompts"]} == {canary}


@pytest.mark.parametrize(
    "name", ["starter", "odd", "opensafeintent-700.json", "opensafeintent-115.json"]
)
def test_the_folder_is_the_same_dataset_and_the_same_bytes(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    dataset = name
    if name == "odd":
        prompts = OURS["prompts"] | {"benign": "Zeilen\nund\tTab, 😀, =1+1, \u202e"}
        dataset = small(tmp_path, OURS | {"prompts": prompts})
    elif name != "starter":
        dataset = str(request.getfixturevalue("published") / name)
    exported = export(tmp_path / "out.v1", dataset)
    first = written(tmp_path / "out.v1")
    assert sorted(first) == [
        *("README.md", "eval.yaml", "prompt_sets/test.parquet", "prompts/test.parquet")
    ]
    export(tmp_path / "other", dataset)
    assert written(tmp_path / "other") == first
    again = load_dataset(str(tmp_path / "out.v1"))
    assert (again.hash, again.name) == (exported.hash, "out.v1")
    texts = [item.wordings() for item in load_dataset(dataset).prompt_sets]
    assert [item.wordings() for item in again.prompt_sets] == texts
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out.v1").rglob("*.*")}
    assert modes == {0o600}


def test_a_dataset_brings_its_taxonomy(tmp_path: Path) -> None:
    hostile = 'A "domain" \\ with quotes, \u202e and 😀'
    taxonomy = taxonomy_of(tmp_path, "mine | <b>", hostile)
    exported = export(tmp_path / "d", small(tmp_path, ours(1, harm_domain=hostile)), taxonomy)
    assert load_taxonomy(tmp_path / "d" / "taxonomy.toml") == load_taxonomy(taxonomy)
    assert load_dataset(str(tmp_path / "d")).hash == exported.hash
    assert "mine \\| \\<b\\>" in body(tmp_path / "d")
    assert '| A "domain" \\\\ with quotes, \\\\u202e and 😀 | 1 | 1 |' in body(tmp_path / "d")


def test_the_headline_metrics_are_the_tasks_of_a_benchmark(tmp_path: Path) -> None:
    import yaml

    export(tmp_path, title='Sets: "mine" # all')
    benchmark = yaml.safe_load((tmp_path / "eval.yaml").read_text("utf-8"))
    assert benchmark["name"] == 'Sets: "mine" # all'
    assert benchmark["evaluation_framework"] == "inspect-ai"
    where = {"config": "prompt_sets", "split": "test"}
    assert benchmark["tasks"] == [{"id": name, **where} for name in TRIPLET_SCOPE.headlines]


def test_the_command_in_the_list_of_tasks_names_the_dataset(tmp_path: Path) -> None:
    command = "inspect eval opensafeintent/opensafeintent -T dataset=hf:"
    for fields, name in (({}, "OWNER/NAME"), ({"repo": "someone/sets"}, "someone/sets")):
        out = tmp_path / name.replace("/", "-")
        export(out, **fields)
        assert f"{command}{name}\n" in (out / "eval.yaml").read_text("utf-8")


def test_a_folder_that_holds_anything_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(OpenSafeIntentError, match="holds files; expected a new folder, or an emp"):
        export(tmp_path)
    assert written(tmp_path) == {"README.md": b"mine"}


def test_an_export_without_a_licence_says_so(tmp_path: Path) -> None:
    first = osi("dataset", "export", small(tmp_path), tmp_path / "first")
    assert "note: no licence is chosen; before you publish, name one in the card" in first.text
    named = ("--license", "cc-by-4.0", "--repo", "a/b")
    second = osi("dataset", "export", small(tmp_path), tmp_path / "second", *named)
    assert "note:" not in second.text and "Next: hf upload a/b" in second.text


# The card
# ------------------------------------------------------------------------------


# two sets of the same cell, the first domain and the first type, and nothing elsewhere; (3 core
# prompts + 2 paraphrases) × 2
CARD_PARTS = (
    *("| all | 2 | 0 | 0 | 0 | 0 | 0 | 2 |", "10 prompts", "2 prompt-sets in 1 of 42 cells"),
    *("made up for a test (2 sets)", "--dataset hf:someone/some-sets\n", "Responsible use"),
)


def test_the_card_says_what_the_dataset_is(tmp_path: Path) -> None:
    fields = {"title": "Invented sets", "license": "cc-by-4.0", "repo": "someone/some-sets"}
    exported = export(tmp_path / "d", small(tmp_path), **fields)
    front = front_matter(tmp_path / "d")
    stated = [front[name] for name in ("license", "pretty_name", "size_categories")]
    assert stated == ["cc-by-4.0", "Invented sets", ["n<1K"]]
    assert "language" not in front  # no set states one
    configs = [(config["config_name"], config.get("default")) for config in front["configs"]]
    assert configs == [("prompt_sets", True), ("prompts", None)]
    for part in (exported.hash, *CARD_PARTS):
        assert part in body(tmp_path / "d")


def test_the_card_counts_the_sets_with_paraphrases(tmp_path: Path) -> None:
    bare = ours(2, dual_use_paraphrases=[])
    wordings = "the dual-use prompt in further wordings"
    for name, records, words in (
        ("all", (ours(1), ours(2)), f"malicious, and {wordings}. The"),
        ("some", (ours(1), bare, ours(3)), f"malicious; 2 of 3 sets also have {wordings}. The"),
        ("none", (bare,), "malicious. The"),
    ):
        export(tmp_path / name, small(tmp_path, *records))
        assert words in " ".join(body(tmp_path / name).split())


def test_the_column_that_an_export_adds_is_no_news(tmp_path: Path) -> None:
    export(tmp_path / "d", small(tmp_path))
    remarks = check_dataset(str(tmp_path / "d")).notes
    assert not [remark for remark in remarks if "not read" in remark]


@pytest.mark.slow
def test_the_origin_of_a_dataset_goes_to_the_hub_and_back(tmp_path: Path) -> None:
    models = ("--generator", "baseline/generator", "--judge", "baseline/construction-judge")
    built = tmp_path / "built"
    assert osi("build", "--per-cell", 1, *models, "--out", built).code == 0
    card = built / "README.md"
    text = card.read_text("utf-8").replace("and replace this paragraph.", PKU)
    hostile = "> **Look.** <img src=x> [here](http://b)\n\n{"
    card.write_text(text.replace("## Checks\n", "## Checks\n\n<script>\n").replace("{", hostile, 1))
    hub, again = tmp_path / "hub", tmp_path / "again"
    export(hub, str(built / "dataset.jsonl"))
    export(again, str(hub), license="cc-by-4.0")
    export(tmp_path / "third", str(again))
    for folder in (hub, again, tmp_path / "third"):
        shown = body(folder)
        assert "synthetic" in front_matter(folder)["tags"]
        for part in (
            "> **Handle with care.**",  # which every card has by itself
            "> **Not for evaluation.** baseline/generator and baseline/construction-judge are",
            "**People have not checked it** (stage 7).",
            "- Judge: baseline/construction-judge",
            "| Stage |" if "| Stage |" in text else "stage",
            "is published under CC BY-NC 4.0.",
        ):
            assert shown.count(part) == 1 or part == "stage", part
        assert "<script" not in shown and "<img" not in shown and "](http://b" not in shown
    assert front_matter(hub)["license"] == "other"
    assert front_matter(tmp_path / "third")["license"] == "cc-by-4.0"
    # the card of another dataset says nothing about this one
    some = (built / "dataset.jsonl").read_text("utf-8").splitlines(keepends=True)[:3]
    (built / "dataset.jsonl").write_text("".join(some), "utf-8")
    export(tmp_path / "other", str(built / "dataset.jsonl"))
    assert "Not for evaluation" not in body(tmp_path / "other")


def test_a_canary_is_made_where_the_records_have_none(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    export(tmp_path / "d", small(tmp_path))
    table = pq.read_table(tmp_path / "d" / "prompts" / "test.parquet")
    (canary,) = set(table["canary"].to_pylist())
    assert f"canary {canary}" in body(tmp_path / "d")
    export(tmp_path / "e", small(tmp_path, ours(1), ours(3)))
    assert canary not in body(tmp_path / "e")


def test_no_prompt_stands_in_the_card(tmp_path: Path) -> None:
    exported = export(tmp_path / "d")
    shown = (tmp_path / "d" / "README.md").read_text()
    for item in exported.prompt_sets:
        texts = (*item.wordings().values(), item.underlying_task)
        assert not [text for text in texts if text in shown]


def test_text_from_outside_is_no_markup(tmp_path: Path) -> None:
    title = '"x"\nlicense: mit\n---\n# [a](http://b) <script> | `c` \ufffe'
    source = "<img src=x> **bold** | cell"
    records = (ours(1, source=source, language="no"), ours(2, source=source, language='e"\n- x'))
    export(tmp_path / "d", small(tmp_path, *records), title=title)
    front = front_matter(tmp_path / "d")
    # one line, and nothing but text
    shown = '"x" license: mit --- # [a](http://b) <script> | `c` \\ufffe'
    assert front["pretty_name"] == shown
    assert (front["license"], front["language"]) == ("other", ['e" - x', "no"])
    text = body(tmp_path / "d")
    assert '# "x" license: mit --- \\# \\[a\\](http:\\//b) \\<script\\> \\| \\`c\\`' in text
    assert "- \\<img src=x\\> \\*\\*bold\\*\\* \\| cell (2 sets)" in text


# The command
# ------------------------------------------------------------------------------


def test_what_is_said_has_to_be_of_its_form(tmp_path: Path) -> None:
    for field, value, message in (
        ("license", "cc-by-4", "did you mean 'cc-by-4.0'"),
        ("repo", "some-sets", "--repo some-sets"),
        ("repo", "a/b`; rm", "--repo a/b`; rm"),
    ):
        with pytest.raises(OpenSafeIntentError, match=re.escape(message)):
            export(tmp_path / "d", **{field: value})
    assert not (tmp_path / "d").exists()
