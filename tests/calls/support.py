"""What the tests of calls share: calls, a model behind the loopback server, and what a ledger file
holds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from opensafeintent.calls.client import Budget, Client
from opensafeintent.calls.http import ChatModel, HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.calls.records import Call, Outcome, Sampling
from opensafeintent.templates.template import Message

MODEL = "openai-api/loopback/m"
KEY = "sk-loopback-0123456789abcdef"
KEY_VARIABLE = "LOOPBACK_API_KEY"


def user_call(text: str = "Write a note about boats.", **fields: Any) -> Call:
    """Return a call to the loopback model with one user message."""
    given = {
        "model": MODEL,
        "messages": (Message("user", (text,)),),
        "sampling": Sampling(),
        "purpose": "generate",
    }
    return Call(**(given | fields))


def user_calls(count: int) -> list[Call]:
    """Return so many calls that differ in their text."""
    return [user_call(f"Write note {number}.") for number in range(count)]


def chat_model(base_url: str, http: HttpSession, *, key: str = KEY) -> ChatModel:
    """Return the loopback model."""
    environment = {"LOOPBACK_BASE_URL": base_url, KEY_VARIABLE: key}
    return ChatModel(MODEL, resolve_endpoint(MODEL, environment), http)


@asynccontextmanager
async def open_client(
    ledger: Ledger,
    base_url: str,
    *,
    max_connections: int | None = None,
    budget: Budget | None = None,
    key: str = KEY,
) -> AsyncIterator[Client]:
    """Open a client of the loopback model."""
    async with HttpSession(max_connections) as http:
        yield Client(ledger, {MODEL: chat_model(base_url, http, key=key)}, budget)


def ask_all(
    ledger: Ledger, base_url: str, calls: Iterable[Call], **options: Any
) -> list[Outcome | BaseException]:
    """Make calls side by side; an exception stands in the place of its call's outcome."""

    async def run() -> list[Outcome | BaseException]:
        async with open_client(ledger, base_url, **options) as client:
            return await asyncio.gather(*map(client.ask, calls), return_exceptions=True)

    return asyncio.run(run())


def ask(ledger: Ledger, base_url: str, call: Call | None = None, **options: Any) -> Outcome:
    """Make one call."""
    (outcome,) = ask_all(ledger, base_url, [call or user_call()], **options)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


def rows(path: Path, columns: str = "status, error") -> list[tuple[Any, ...]]:
    """Return columns of the ledger's calls, in the order in which they were written."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {columns} FROM calls ORDER BY id").fetchall()


def statuses(path: Path) -> list[str]:
    """Return the status of each attempt, in the order in which they were written."""
    return [status for (status,) in rows(path, "status")]


def holds(path: Path, text: str) -> bool:
    """Tell whether a text stands anywhere in a ledger: in the bytes of its files, or in what it
    compressed.
    """
    files = b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))
    with closing(sqlite3.connect(path)) as connection:
        blobs = [
            blob
            for (blob,) in connection.execute(
                "SELECT response FROM calls UNION ALL SELECT body FROM texts"
            )
        ]
    return text.encode() in files + b"".join(
        zlib.decompress(blob[1:]) for blob in blobs if blob[:1] == b"z"
    )
