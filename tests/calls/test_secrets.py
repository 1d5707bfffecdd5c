"""Secrets are in nothing that is stored or printed, however what quotes them has written them."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from calls import support
from calls.support import ask, chat_model, holds, user_call
from endtoend import osi
from loopback import Fault, LoopbackServer
from opensafeintent import EvaluateSettings, FunctionModel, evaluate, secrets
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.records import Answered, Attempt
from opensafeintent.errors import InputError
from opensafeintent.secrets import Secrets, collect_secrets
from samples import dataset_file, made_dataset, prompt_set

SECRET = "sk+canary/47==11_canary&Q"

FORMS: list[Callable[[str], str]] = [
    str,
    json.dumps,
    lambda text: json.dumps(json.dumps(html.escape(text))).replace("&", "\\u0026"),
    lambda text: quote(text, safe=""),
    lambda text: quote(quote(text, safe=""), safe=""),
    lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    html.escape,
    lambda text: "".join(f"&#{ord(char)};" for char in text),
    lambda text: "".join(f"&#x{ord(char):X};" if n % 2 else char for n, char in enumerate(text)),
    lambda text: text.replace("+", "&plus;"),
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: base64.b64encode(f"user:{text}, and more".encode()).decode(),
    lambda text: quote(base64.urlsafe_b64encode(f"me:{text}?".encode()).decode()),
]


def core(written: str) -> str:
    """Return the middle of a form: at its ends base64 holds something of the neighbours too."""
    return written[10:-8]


@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_comes_back_in_any_form_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Callable[[str], str]
) -> None:
    monkeypatch.setattr(support, "KEY", SECRET)
    written = form(SECRET)
    with (
        Ledger(tmp_path / "ledger.sqlite") as ledger,
        LoopbackServer(
            faults=[Fault(action="completion", content=f"[{written}] says so")]
        ) as server,
    ):
        outcome = ask(ledger, server.base_url)
    assert "says so" in repr(outcome) and "***" in repr(outcome)
    assert core(written) not in repr(outcome)
    assert holds(tmp_path / "ledger.sqlite", "says so")
    assert not holds(tmp_path / "ledger.sqlite", core(json.dumps(written)[1:-1]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", ["\U0001f511-and-a-key", 'a"b\\c-d\u00e9f', "plain-secret"])
def test_what_stands_beside_a_secret_is_kept(form: Callable[[str], str], secret: str) -> None:
    scrubbed = Secrets([secret]).scrub(f"R&amp;D, 50 %25, before {form(secret)} after \\u0041")
    assert scrubbed.startswith("R&amp;D, 50 %25, before ")
    assert scrubbed.endswith(" after \\u0041")
    assert "***" in scrubbed


def test_a_proxys_password_that_comes_back_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Echo what the proxy was sent, as some do that are asked for nothing they know."""
        head = await reader.readuntil(b"\r\n\r\n")
        (header,) = re.findall(rb"Proxy-Authorization: (.*)\r", head)
        body = b'{"error": {"message": "You said %b, for s3cretpassw0rd."}}' % header
        writer.write(b"HTTP/1.1 400 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async def run() -> Attempt:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTP_PROXY", f"http://user:s3cretpassw0rd@127.0.0.1:{port}")
        async with server, HttpSession() as http:
            return await chat_model("http://model.invalid/v1", http).attempt(user_call())

    kept = repr(asyncio.run(run()))
    assert "You said Basic ***" in kept and "for ***." in kept
    assert (
        "s3cretpassw0rd" not in kept
        and core(base64.b64encode(b"user:s3cretpassw0rd").decode()) not in kept
    )


@pytest.mark.slow
def test_secrets_in_what_a_function_says_and_raises_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opensafeintent.calls.client._FIRST_WAIT", 0.01)
    monkeypatch.setenv("MAPS_API_KEY", SECRET)
    monkeypatch.setenv("DATABASE_URL", "postgres://me:hunter2hunter2@db.example/x")
    message = f"GET https://maps.example/?key={quote(SECRET, safe='')}: hunter2hunter2: refused"

    def respond(messages: list[dict[str, str]]) -> str:
        if "unkindly" in messages[-1]["content"]:
            raise ValueError(message)
        return message

    evaluate(
        EvaluateSettings(
            models=FunctionModel(respond, name="mine", version="1"),
            judges="baseline/judge",
            dataset=dataset_file(tmp_path, made_dataset(prompt_set("a", 0))),
            probe="none",
            max_missing=1.0,
            out=tmp_path / "run",
        )
    )
    ledger = tmp_path / "run" / "ledger.sqlite"
    assert holds(ledger, "raised ValueError: GET https://maps.example/?key=***: ***: refused")
    assert not holds(ledger, quote(SECRET, safe="")) and not holds(ledger, "hunter2hunter2")


def test_secrets_are_not_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotes_its_key.py").write_text(
        'import os\nraise ValueError(os.environ["X_TOKEN"])'
    )
    name = "python/quotes_its_key:ask@1"
    ran = osi("evaluate", name, "--judge", "baseline/judge", "--out", "run", X_TOKEN=SECRET)
    assert ran.code == 2
    assert ran.err.endswith(f"error: {name}: ValueError: ***\n")
    monkeypatch.setenv("X_TOKEN", SECRET)
    with pytest.raises(InputError) as caught:
        evaluate(EvaluateSettings(models=name, judges="baseline/judge", out=tmp_path / "run"))
    assert str(caught.value) == f"{name}: ValueError: ***"


def test_what_a_server_names_after_a_key_is_not_kept(tmp_path: Path) -> None:
    names = dict.fromkeys(("id", "model", "system_fingerprint", "service_tier"), support.KEY)
    choice = {"message": {"content": "Help."}, "finish_reason": support.KEY}
    body = json.dumps(names | {"choices": [choice], "usage": {}}).encode()
    fault = Fault(
        action="body", status=200, body=body, headers={"x-gemini-service-tier": support.KEY}
    )
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger, LoopbackServer(faults=[fault]) as server:
        outcome = ask(ledger, server.base_url)
    assert isinstance(outcome, Answered)
    assert (outcome.text, outcome.served_model, outcome.stop_reason) == ("Help.", "***", "***")
    assert not holds(path, support.KEY) and not holds(path, "skloopback")


@pytest.mark.parametrize(
    "variable", ["LAB_AUTH", "DB_PASSWD", "PGP_PASSPHRASE", "LAB_PWD", "SESSION_COOKIE", "BEARER"]
)
def test_variables_that_are_called_otherwise_hold_secrets_too(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, SECRET)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Jo Miller-Mendes")
    assert collect_secrets().scrub(f"{SECRET}, Jo Miller-Mendes") == "***, Jo Miller-Mendes"


def test_a_noted_variable_holds_a_secret_whatever_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEAM_ROUTE", SECRET)
    assert collect_secrets().scrub(SECRET) == SECRET
    monkeypatch.setattr(secrets, "_noted", set())
    secrets.note_secret("TEAM_ROUTE")
    assert collect_secrets().scrub(SECRET) == "***"
    assert secrets.secret_variable(f"a {SECRET} b") == "TEAM_ROUTE"
    assert secrets.secret_variable("a b") == ""


def test_a_key_beyond_what_is_read_of_an_exception_leaves_no_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAB_KEY", SECRET)
    # all blanks are one: what is cut in the middle of the key would be shown
    (tmp_path / "far.py").write_text(f"raise ValueError(' ' * {2**16 - 25} + {SECRET!r})")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as caught:
        evaluate(EvaluateSettings(models="python/far:ask@1", judges="baseline/judge"))
    assert str(caught.value).endswith("ValueError: ***")


def test_a_word_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "disabled")
    assert collect_secrets().scrub("it is disabled") == "it is disabled"
