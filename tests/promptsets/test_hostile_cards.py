"""The card of a dataset is a stranger's: it is bounded before it is expanded."""

from __future__ import annotations

from pathlib import Path

import pytest

from samples import dataset_file, exit_code, made_dataset, prompt_set

pytest.importorskip("huggingface_hub")


def doubled(name: str) -> str:
    """Return eight lines of YAML, the last of which stands for 10^9 values."""
    lines = [f"{name}0: &{name}0 x"]
    for n in range(1, 9):
        lines.append(f"{name}{n}: &{name}{n} [{', '.join([f'*{name}{n - 1}'] * 10)}]")
    return "\n".join(lines)


MERGED = "\n".join(
    [
        "m0: &m0 {a: b}",
        *(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}" for n in range(1, 9)),
    ]
)
CARDS = {
    "aliases": f"{doubled('a')}\nconfigs: [{{data_files: *a8}}]",
    "aliases in a name": f"{doubled('b')}\nconfigs: [{{config_name: *b8}}, {{config_name: c}}]",
    "merged keys": f"{MERGED}\nconfigs: [{{data_files: x}}]",
    "a list in itself": "configs: [{data_files: &a [*a]}]",
    "a mapping in itself": "configs: [{data_files: &a {train: *a}}]",
    "deep": f"configs: {'[' * 100_000}",
    "long": "x: y\n" * 300_000,
    "a huge number": f"configs: [{{config_name: 0x{'f' * 9999}}}, {{config_name: c}}]",
    "many **": f"configs: [{{data_files: '{'**/' * 200}*.jsonl'}}]",
    "a long path": f"configs: [{{data_files: '{'a/' * 5000}*.jsonl'}}]",
    "many patterns": f"configs: [{{data_files: [{', '.join(['x.jsonl'] * 2000)}]}}]",
}


@pytest.mark.parametrize("name", CARDS)
def test_a_hostile_card_ends_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    dataset_file(tmp_path, made_dataset(prompt_set("a")))
    (tmp_path / "README.md").write_text(f"---\n{CARDS[name]}\n---\n")
    assert exit_code(monkeypatch, "dataset", "check", tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "README.md: " in line


def test_links_of_folders_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten links to itself and twenty `*/` would be 10^20 folders."""
    dataset_file(tmp_path, made_dataset(prompt_set("a")))
    for n in range(10):
        (tmp_path / f"again{n}").symlink_to(tmp_path)
    (tmp_path / "README.md").write_text(
        f"---\nconfigs: [{{data_files: ['{'*/' * 20}*.jsonl']}}]\n---\n"
    )
    assert exit_code(monkeypatch, "dataset", "check", tmp_path) == 2
    assert "there is no" in capsys.readouterr().err


def test_a_card_with_an_anchor_and_a_glob_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset_file(tmp_path, made_dataset(prompt_set("a")))
    (tmp_path / "README.md").write_text(
        "---\ntags: &t [a]\nconfigs:\n- {config_name: default, data_files: '**/*.jsonl'}\n---\nText\n---\n"
    )
    assert exit_code(monkeypatch, "dataset", "check", tmp_path) == 0
