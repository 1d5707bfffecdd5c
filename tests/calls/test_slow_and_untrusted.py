"""Servers that are slow, and servers whose certificate is not trusted."""

from __future__ import annotations

import asyncio
import http.server
import ssl
from pathlib import Path

import pytest

from calls.support import MODEL, chat_model, open_client, user_calls
from endtoend import WORDINGS, begin, finish, osi, running, some_sets
from opensafeintent.calls import http as module
from opensafeintent.calls.costs import Budget
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.limiter import FEW, START
from opensafeintent.calls.records import Answered
from opensafeintent.taxonomy import QUESTIONS

CERTIFICATE = Path(__file__).with_name("self_signed.pem")
"""Of 127.0.0.1, with its key, made for these tests; nobody trusts it."""


def test_a_server_of_this_machine_gets_few_requests_at_first() -> None:
    async def limits() -> list[int]:
        async with HttpSession() as session:
            urls = (
                "http://127.0.0.1:8000/v1",
                "http://localhost:1/v1",
                "https://models.example/v1",
            )
            return [chat_model(url, session).limiter.limit for url in urls]

    assert asyncio.run(limits()) == [FEW, FEW, START]


@pytest.mark.slow
def test_a_timeout_lowers_the_number_of_requests_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with one slot: requests that wait behind three others take four times as long."""
    monkeypatch.setattr(module, "ATTEMPT_SECONDS", 0.5)
    slots = asyncio.Semaphore(1)

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"choices":[{"message":{"content":"Yes."},"finish_reason":"stop"}]}'
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                async with slots:
                    await asyncio.sleep(0.2)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> tuple[list[object], int, int]:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            budget = Budget(max_retries=9)
            async with open_client(ledger, f"http://127.0.0.1:{port}/v1", budget=budget) as client:
                outcomes = await asyncio.gather(*map(client.ask, user_calls(12)))
                model = client._models[MODEL]
                assert not isinstance(model, str)
                server.close()
                return list(outcomes), model.limiter.limit, client.tally.retries

    outcomes, limit, retries = asyncio.run(run())
    assert [type(outcome) for outcome in outcomes] == [Answered] * 12
    assert limit < FEW
    assert 0 < retries < 12


@pytest.fixture
def untrusted() -> tuple[http.server.ThreadingHTTPServer, str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server, f"https://127.0.0.1:{server.server_address[1]}/v1"


@pytest.mark.slow
def test_a_certificate_that_is_not_trusted_is_not_tried_again(
    tmp_path: Path, untrusted: tuple[http.server.ThreadingHTTPServer, str]
) -> None:
    server, url = untrusted
    tls = {"TLS_BASE_URL": url, "TLS_API_KEY": "sk-0123456789"}
    options = ("--dataset", some_sets(tmp_path, 1), "--out", tmp_path / "run")
    evaluate = ("evaluate", "openai-api/tls/m", "--judge", "baseline/judge", *options)
    with running(server):
        ran = osi(*evaluate, "--max-connections", 1, **tls)
        # in a process of its own: trusted certificates are read once
        process = begin(*evaluate, "--max-retries", 0, SSL_CERT_FILE=str(CERTIFICATE), **tls)
        trusting = finish(process)
    assert ran.code == 3
    assert "SSL_CERT_FILE names a file with that of its authority" in " ".join(ran.err.split())
    planned = WORDINGS * (1 + len(QUESTIONS)) + 2  # responses and grades, a mode and a probe
    assert f" 1 of {planned} calls" in ran.err
    # with it the server is reached: it answers 501 to every request
    assert "501 from" in trusting.err and "CERTIFICATE_VERIFY_FAILED" not in trusting.err
