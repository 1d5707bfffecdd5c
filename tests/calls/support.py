"""What the tests of calls share: calls, a model behind the loopback server, and what a ledger file
holds.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from loopback.messages import MessagesServer, Reply, serving
from opensafeintent.calls.client import Client
from opensafeintent.calls.costs import Budget
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_writer import LedgerEntry
from opensafeintent.calls.providers import resolve_endpoint
from opensafeintent.calls.recorded import RecordedResponse, SourceFile
from opensafeintent.calls.records import (
    Answered,
    Attempt,
    Call,
    Failure,
    Outcome,
    Refused,
    Replied,
    Sampling,
    call_key,
)
from opensafeintent.files import sha256_hex
from opensafeintent.templates.template import Message

MODEL = "openai-api/loopback/m"
KEY = "sk-loopback-0123456789abcdef"
KEY_VARIABLE = "LOOPBACK_API_KEY"


def user_call(text: str = "Write a note about boats.", **fields: Any) -> Call:
    """Return a call to the loopback model with one user message."""
    messages = (Message("user", (text,)),)
    call_fields = {
        "messages": messages,
        "sampling": Sampling(),
        "purpose": "generate",
        "model": MODEL,
    }
    return Call(**(call_fields | fields))


def user_calls(count: int) -> list[Call]:
    """Return so many calls that differ in their text."""
    return [user_call(f"Write note {number}.") for number in range(count)]


def chat_model(base_url: str, http: HttpSession) -> EndpointModel:
    """Return the loopback model."""
    environment = {"LOOPBACK_BASE_URL": base_url, KEY_VARIABLE: KEY}
    return EndpointModel(MODEL, resolve_endpoint(MODEL, environment), http)


@asynccontextmanager
async def open_client(
    ledger: Ledger, base_url: str, max_connections: int | None = None, budget: Budget | None = None
) -> AsyncIterator[Client]:
    """Open a client of the loopback model."""
    async with HttpSession(max_connections) as http:
        yield Client(ledger, {MODEL: chat_model(base_url, http)}, budget)


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


def body_of(text: str) -> bytes:
    return b'{"choices":[{"message":{"content":"%s"},"finish_reason":"stop"}]}' % text.encode()


def entry(outcome: Outcome | Failure, call: Call | None = None, raw: bytes = b"") -> LedgerEntry:
    """Return what a ledger is given of an attempt."""
    call = call or user_call("q")
    attempt = outcome if isinstance(outcome, Failure) else Replied(outcome, raw, seconds=1.25)
    return LedgerEntry(call_key(call, "m"), call, attempt)


def answered(text: str, *, number: int = 0, answer: str = "Yes.") -> LedgerEntry:
    outcome = Answered(text=answer, stop_reason="stop")
    return entry(outcome, user_call(text, epoch=number), body_of(answer))


def failed(text: str, call: Call | None = None) -> LedgerEntry:
    return entry(Failure(kind="server", error="500"), call or user_call(text, epoch=0))


def imported(
    response: str | None, set_id: str = "s1", source: str = "one.json", **fields: Any
) -> tuple[SourceFile, RecordedResponse]:
    response_fields = {"variant": "benign", "helpfulness": 3}
    recorded = RecordedResponse(
        model="m", set_id=set_id, response=response, **(response_fields | fields)
    )
    return SourceFile(Path(source), sha256_hex(source)), recorded


def written(path: Path, *entries: LedgerEntry) -> Path:
    with Ledger(path) as ledger:
        for item in entries:
            ledger.add(item)
    return path


def outcome_in(path: Path, entry: LedgerEntry) -> Outcome | None:
    with Ledger(path, readonly=True) as ledger:
        return ledger.find(entry.key)


def execute(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Do something to a ledger behind its back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()


def run_python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a script that imports what tests import."""
    here = str(Path(__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, **options)


def rows(path: Path, columns: str = "status, error") -> list[tuple[Any, ...]]:
    """Return columns of the ledger's calls, in the order in which they were written."""
    return execute(path, f"SELECT {columns} FROM calls ORDER BY id")


def statuses(path: Path) -> list[str]:
    """Return the status of each attempt, in the order in which they were written."""
    return [status for (status,) in rows(path, "status")]


def holds(path: Path, text: str) -> bool:
    """Tell whether a text stands anywhere in a ledger: in the bytes of its files, or in what it
    compressed.
    """
    files = b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))
    blobs = execute(path, "SELECT response FROM calls UNION ALL SELECT body FROM texts")
    packed = [zlib.decompress(blob[1:]) for (blob,) in blobs if blob[:1] == b"z"]
    return text.encode() in files + b"".join(packed)


def attempt_against(
    reply: Reply, call: Call, name: str, variables: Callable[[str], Mapping[str, str]]
) -> tuple[Attempt, MessagesServer]:
    """Make one attempt against a server, and those without refused fields that belong to it.

    Args:
        reply: of the server.
        call: the call.
        name: of the model.
        variables: from the server's address to the variables that are set.
    """

    async def run(server: MessagesServer) -> Attempt:
        async with HttpSession() as http:
            endpoint = resolve_endpoint(name, variables(server.base_url))
            return await EndpointModel(name, endpoint, http).attempt(call)

    with serving(reply) as server:
        return asyncio.run(run(server)), server


def word_for(result: Attempt, text: str) -> str:
    """Return what an attempt came to in a word; an answer with a text has to have this one."""
    match result:
        case Failure(kind=kind):
            return kind
        case Replied(outcome=Refused()):
            return "refused"
        case Replied(outcome=Answered() as answer):
            if answer.text:
                assert answer.text == text
                return "cut" if answer.truncated else "answered"
            if answer.truncated:
                return "truncated"
            return "reasoning_only" if answer.reasoning_only else "empty"
    raise AssertionError(result)
