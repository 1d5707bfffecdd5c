"""Files are read strictly, private, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from opensafeintent.errors import InputError
from opensafeintent.files import (
    any_json,
    make_private_folder,
    parse_toml,
    read_json,
    read_text,
    write_beside,
    write_private,
)
from opensafeintent.replacing import Taken, lock_folder, write_together
from samples import contents


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_made_for_its_user_alone_and_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private_folder(folder)
    assert mode_of(folder) == 0o700
    folder.chmod(0o755)
    make_private_folder(folder)
    assert mode_of(folder) == 0o755


@pytest.mark.parametrize("content", ["é\r\n", "é\r\n".encode()])
def test_a_file_is_written_to_the_byte_and_replaced(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, content)
    assert path.read_bytes() == b"\xc3\xa9\r\n"
    assert mode_of(path) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]  # no temporary file stays


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write: No such file or directory"):
        write_private(tmp_path / "nowhere" / "file", "text")
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="taken: is not a file"):
        write_private(tmp_path / "taken", "text")  # a file cannot take a folder's place
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("file", "file: is a file; expected a folder"),
        ("file/below", "cannot create the folder"),
        ("n" * 300, "too long"),
    ],
)
def test_a_folder_that_cannot_be(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=complaint):
        make_private_folder(tmp_path / name)


def test_a_folder_that_was_made_for_nothing_is_removed(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.mkdir()
    for folder in (new, old):
        with pytest.raises(KeyError), lock_folder(folder, "evaluating into"):
            raise KeyError
    assert not new.exists() and old.exists()
    with pytest.raises(KeyError), lock_folder(new, "evaluating into"):
        (new / "run.json").touch()
        raise KeyError
    assert sorted(path.name for path in new.iterdir()) == [".lock", "run.json"]
    with pytest.raises(KeyError), lock_folder(tmp_path / "gone", "evaluating into"):
        shutil.rmtree(tmp_path / "gone")
        raise KeyError  # is not hidden by the missing folder


def test_a_lock_whose_folder_was_removed_meanwhile_holds_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = lock_folder(folder, "evaluating into")
    first.__enter__()
    waits = lock_folder(folder, "evaluating into", lambda _: first.__exit__(None, None, None))
    with pytest.raises(InputError, match="was removed meanwhile; type the command again"), waits:
        pytest.fail("two processes could hold it")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EAGAIN, "another process is evaluating into this folder"),  # no more is known yet
        (errno.ENOLCK, "cannot be locked: No locks available"),
    ],
)
def test_why_a_folder_cannot_be_locked_is_told(tmp_path: Path, number: int, message: str) -> None:
    pytest.importorskip("fcntl")
    folder = lock_folder(tmp_path / "run", "evaluating into")
    with (
        mock.patch("fcntl.flock", side_effect=OSError(number, os.strerror(number))),
        pytest.raises(InputError, match=f"run: {message}"),
        folder,
    ):
        pass


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"a": "\xff"}', ":1: not UTF-8"),
        (b'\n\n{"a": "\xed\xa0\x80"}', ":3: not UTF-8"),
        (b'{"a": "\\ud800"}', "not a thing"),
        (b'{"a": %b}' % (b"9" * 5000), "not a thing: Integer value out of range"),
        (b'{"a": 1e999}', "not a thing: Number out of range"),
        (b'{"a": NaN}', "not a thing"),
        (f'{{"a": {DEEP}'.encode(), "not a thing: nested too deeply"),
        (f'{{"a": {"[" * 900}{"]" * 900}}}'.encode(), "not a thing: nested too deeply"),
        (b'{"schema": 2}', "schema 2; this program reads 1"),
        (b'{"a": 1, "a": 2}', "not a thing: the key 'a' appears twice in one object"),
        (b"", "not a thing"),
        (b"[]", "not a thing: Expected `object`, got `array`"),
    ],
    ids=range(12),
)
def test_unusable_json_is_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_json(path, dict[str, Any], "a thing", schema=1)
    assert str(raised.value).startswith(f"{path}:") and complaint in str(raised.value)


@pytest.mark.parametrize(
    "text", [f"a = {'9' * 5000}", f"a = {DEEP}", "a = 2024-02-30", "a = 1\na = 2"]
)
def test_toml_that_cannot_be_used_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"x\.toml: not a thing: ") as raised:
        parse_toml(text, dict[str, Any], "x.toml", "a thing")
    assert "set_int_max_str_digits" not in str(raised.value)


UNWRITABLE = ("9" * 5000, "9" * 21, "1e999", "-1e999", "NaN", '{"a": 1, "a": 2}')


@pytest.mark.parametrize("text", [*UNWRITABLE, DEEP, "[" * 900 + "]" * 900], ids=range(8))
def test_json_that_could_not_be_written_again_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"out of range|not JSON|twice|deeply"):
        any_json(text)


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbfa = 1")
    assert read_text(tmp_path / "x.toml") == "a = 1"


def test_a_file_takes_its_place_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "sets.jsonl"
    path.write_text("old")
    path.chmod(0o640)
    with write_beside(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert mode_of(path) == 0o640  # a file that others may read stays one
    assert [file.name for file in tmp_path.iterdir()] == ["sets.jsonl"]


def test_a_new_file_has_the_mode_that_new_files_have(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with write_beside(tmp_path / "sets.jsonl") as file:
        file.write(b"new")
    assert mode_of(tmp_path / "sets.jsonl") == mode_of(tmp_path / "plain")


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "cannot write: No space left on device"),
        (KeyboardInterrupt("again"), "again"),
    ],
)
def test_what_stands_there_outlives_a_write_that_fails(
    tmp_path: Path, failure: BaseException, message: str
) -> None:
    path = tmp_path / "sets.jsonl"
    path.write_text("old")
    with (
        pytest.raises((InputError, KeyboardInterrupt), match=message),
        write_beside(path) as file,
    ):
        file.write(b"half")
        raise failure
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["sets.jsonl"]


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    pytest.importorskip("fcntl")
    path, leftover = tmp_path / "sets.jsonl", tmp_path / ".sets.jsonl.0123456789ab"
    other_names = {".sets.jsonl.mine", ".other.jsonl.0123456789ab"}
    for name in (leftover.name, *other_names):
        (tmp_path / name).write_text("half")
    with write_beside(path) as first:
        with write_beside(path) as second:
            second.write(b"second")
        first.write(b"first")
    assert path.read_text() == "first"
    assert {file.name for file in tmp_path.iterdir()} == {"sets.jsonl", *other_names}


def test_a_new_file_that_is_taken_for_one_that_was_left_is_made_again(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    flock, removed = fcntl.flock, []

    def first(handle: int, operation: int) -> None:
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].unlink()
        flock(handle, operation)

    with mock.patch("fcntl.flock", first), write_beside(tmp_path / "sets.jsonl") as file:
        file.write(b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_a_disk_without_locks_takes_files(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    (tmp_path / ".sets.jsonl.0123456789ab").write_text("half")
    refused = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    with (
        mock.patch("fcntl.flock", side_effect=refused),
        write_beside(tmp_path / "sets.jsonl") as file,
    ):
        file.write(b"new")
    assert {file.name for file in tmp_path.iterdir()} == {"sets.jsonl", ".sets.jsonl.0123456789ab"}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with write_beside(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "new"


def test_results_come_into_a_folder_together_and_nothing_else_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyError), write_together(out) as new:
        (new / "a").write_text("half")
        raise KeyError
    assert not out.exists()
    with write_together(out) as new:
        (new / "tables").mkdir()
        (new / "tables/a").write_text("a")
        (new / "old").write_text("old")
    with pytest.raises(KeyError), write_together(out) as new:
        (new / "old").write_text("half")
        raise KeyError
    assert contents(out) == {"tables/a": b"a", "old": b"old"}
    with pytest.raises(InputError, match="holds files"), write_together(out, empty=True):
        pass
    with write_together(out) as new:
        (new / "a").write_text("new")
        assert contents(out / "tables") == {"a": b"a"}
    assert contents(out) == {"tables/a": b"a", "a": b"new", "old": b"old"}
    assert list(out.rglob(".*")) == []


def test_a_folder_in_use_is_waited_for_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fcntl")
    first = lock_folder(tmp_path, "evaluating into")
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    with first, pytest.raises(Taken, match="evaluating into"), write_together(tmp_path):
        pytest.fail("two processes could hold it")
    assert 10 <= len(slept) <= 100
    first = lock_folder(tmp_path, "evaluating into")
    first.__enter__()
    monkeypatch.setattr("time.sleep", lambda _: first.__exit__(None, None, None))
    with write_together(tmp_path) as new:
        (new / "a").write_text("a")
    assert contents(tmp_path) == {"a": b"a"}
