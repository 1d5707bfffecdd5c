"""What lies in a ledger comes out as it went in, or not at all."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from fuzz.contract import bounded
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_file import pack, unpack
from opensafeintent.calls.recorded import ImportedRow, RecordedResponse
from opensafeintent.errors import InputError

GRADE = b'{"choices": [{"message": {"content": "3"}, "finish_reason": "stop"}]}'
RECORDED = RecordedResponse(
    set_id="s", variant="benign", response="Yes. " * 100, helpfulness=3, harm_severity=0
)
ROW = ImportedRow(
    model="m", recorded=RECORDED, source=Path("responses.jsonl"), source_sha256="a" * 64
)


@given(raw=st.sampled_from((b"", b"3", GRADE, GRADE * 20)), draw=st.data())
def test_a_flipped_bit_is_never_another_reply(raw: bytes, draw: st.DataObject) -> None:
    packed = pack(raw)
    assert unpack(packed) == raw
    at = draw.draw(st.integers(0, len(packed) - 1))
    flipped = (
        packed[:at] + bytes((packed[at] ^ (1 << draw.draw(st.integers(0, 7))),)) + packed[at + 1 :]
    )
    with pytest.raises((ValueError, zlib.error)):
        unpack(flipped)


@pytest.mark.slow
def test_what_would_unpack_to_gigabytes_is_refused() -> None:
    stream = zlib.compressobj(9)
    bomb = b"z" + b"".join(stream.compress(b"\0" * 2**20) for _ in range(600)) + stream.flush()
    assert len(bomb) < 2**20
    with bounded(), pytest.raises(ValueError, match="does not end"):
        unpack(bomb)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE imported SET record = CAST(replace(record, '\"helpfulness\":3',"
        " '\"helpfulness\":2') AS BLOB)",
        "UPDATE imported SET variant = 'malicious'",
        "UPDATE imported SET record = 'null'",
        "UPDATE imported SET epoch = 'one'",
        "UPDATE texts SET body = x'7A00'",
        "UPDATE texts SET sha = zeroblob(32)",
        "DELETE FROM texts",
    ],
)
def test_an_imported_response_that_was_changed_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.imports.add("d", [ROW])
        assert [row.recorded for row in ledger.imports.rows()] == [RECORDED]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(damage)
    with (
        Ledger(path, readonly=True) as ledger,
        pytest.raises(InputError, match=r"ledger\.sqlite: the ledger is damaged: "),
    ):
        list(ledger.imports.rows())
