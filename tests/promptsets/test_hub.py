"""Datasets on the hub, from a hub of our own on the loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from opensafeintent import OpenSafeIntentError, load_dataset, write_dataset
from promptsets.fake_hub import COMMITS, REPO, FakeHub
from promptsets.samples import lines, ours

NOWHERE = "http://127.0.0.1:9"
"""Port 9, "discard": nothing listens there."""
CARD = {"README.md": b"# A card", "dataset_infos.json": b"{}"}
TWO_FILES = CARD | {"data/train.jsonl": lines(ours(1)), "data/test.json": lines(ours(2))}


def convert(name: str, hub: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `dataset convert` in a process of its own: huggingface_hub reads HF_ENDPOINT when it is imported."""
    command = [sys.executable, "-m", "opensafeintent", "dataset", "convert", name, "--out", str(folder / "o.jsonl")]
    inherited = {
        variable: os.environ[variable] for variable in ("PATH", "PYTHONPATH", "SYSTEMROOT") if variable in os.environ
    }
    settings = {"HF_ENDPOINT": hub, "HF_HOME": str(folder / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    return subprocess.run(
        command, env=inherited | settings | environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(autouse=True)
def _extra() -> None:
    pytest.importorskip("huggingface_hub")


def refusal(ran: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that a command ended with."""
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr.rstrip("\n").split("\n")[-1]


def hash_of(folder: Path, *records: Mapping[str, object]) -> str:
    (folder / "expected.jsonl").write_bytes(lines(*records))
    return load_dataset(str(folder / "expected.jsonl")).hash


def test_all_data_files_of_a_dataset_are_one_dataset(tmp_path: Path) -> None:
    with FakeHub({COMMITS["main"]: TWO_FILES}) as hub:
        ran = convert(f"hf:{REPO}", hub.url, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert load_dataset(str(tmp_path / "o.jsonl")).hash == hash_of(tmp_path, ours(1), ours(2))
    assert "README.md" not in hub.fetched


def test_a_revision_is_what_it_was(tmp_path: Path) -> None:
    with FakeHub({COMMITS["main"]: TWO_FILES, COMMITS["v1"]: {"d.jsonl": lines(ours(3))}}) as hub:
        assert convert(f"hf:{REPO}@v1", hub.url, tmp_path).returncode == 0
    assert load_dataset(str(tmp_path / "o.jsonl")).hash == hash_of(tmp_path, ours(3))


def test_parquet_stands_for_the_same_rows_as_json_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    write_dataset(load_dataset("starter"), tmp_path / "d.parquet")
    write_dataset(load_dataset("starter"), tmp_path / "d.jsonl")
    files = {name: (tmp_path / name).read_bytes() for name in ("d.parquet", "d.jsonl")}
    with FakeHub({COMMITS["main"]: files}) as hub:
        assert convert(f"hf:{REPO}", hub.url, tmp_path).returncode == 0
    assert load_dataset(str(tmp_path / "o.jsonl")).hash == load_dataset("starter").hash


def test_what_was_fetched_once_is_there_without_a_network(tmp_path: Path) -> None:
    with FakeHub({COMMITS["main"]: TWO_FILES}) as hub:
        assert convert(f"hf:{REPO}", hub.url, tmp_path).returncode == 0
    (tmp_path / "o.jsonl").unlink()
    for offline in ({}, {"HF_HUB_OFFLINE": "1"}):
        assert convert(f"hf:{REPO}", NOWHERE, tmp_path, **offline).returncode == 0
        assert len(load_dataset(str(tmp_path / "o.jsonl"))) == 2


@pytest.mark.parametrize("offline", [{}, {"HF_HUB_OFFLINE": "1"}], ids=["refused", "told"])
def test_no_network(tmp_path: Path, offline: dict[str, str]) -> None:
    ran = convert(f"hf:{REPO}", NOWHERE, tmp_path, **offline)
    assert refusal(ran) == f"error: hf:{REPO}: cannot reach the hub, and the dataset is not in its cache"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("hf:someone/else", "the hub has no dataset someone/else, or it needs a token (HF_TOKEN)"),
        (f"hf:{REPO}@v9", f"the hub has no revision 'v9' of {REPO}"),
        (f"hf:{REPO}@v1", "holds no .jsonl, .json or .parquet file"),
        (f"hf:{REPO}", "d.jsonl:1, field prompts: missing; a prompt-set has prompts"),
    ],
)
def test_what_the_hub_does_not_have(tmp_path: Path, name: str, complaint: str) -> None:
    with FakeHub({COMMITS["main"]: {"d.jsonl": b'{"a": 1}'}, COMMITS["v1"]: CARD}) as hub:
        assert complaint in refusal(convert(name, hub.url, tmp_path))


def test_a_hub_that_hangs_up_is_one_clear_line(tmp_path: Path) -> None:
    with FakeHub({}, drops=True) as hub:
        assert f"error: hf:{REPO}: " in refusal(convert(f"hf:{REPO}", hub.url, tmp_path))


@pytest.mark.parametrize("name", ["hf:", "hf:name", "hf:a/b/c", "hf:a/b@", "hf:a b/c"])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(OpenSafeIntentError, match="not a hub dataset; expected hf:owner/name or hf:owner/name@revision"):
        load_dataset(name)


@pytest.mark.parametrize("name", ["hf:é/sets", "hf:../..", "hf:some--one/sets", "hf:-a/b", "hf:a/b.git", "hf:a/" + "b" * 97])
def test_a_name_that_the_hub_does_not_allow_is_refused(name: str) -> None:
    with pytest.raises(OpenSafeIntentError, match=r"^hf:.*: "):
        load_dataset(name)


def test_without_the_extra_the_hub_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(OpenSafeIntentError, match=r'need an extra: pip install "opensafeintent\[hf\]"'):
        load_dataset(f"hf:{REPO}")
