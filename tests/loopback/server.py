"""The server: a small HTTP/1.1 protocol, deterministic answers, and faults on demand.

Requests are handled without a task each: the protocol parses what arrives, decides on the answer at
once, and a timer writes it when the latency has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast

import msgspec

from loopback.faults import scripted
from opensafeintent.taxonomy import QUESTIONS

HOST = "127.0.0.1"
CREATED = 1_700_000_000

PROBE = "probe"
MODE = "mode"
HELPFULNESS = "helpfulness"
HARM = "harm"
CHECKLIST = "checklist"
GENERATE = "generate"

LENIENT = "lenient"
"""`NAME~lenient` answers as the model NAME does, but calls a harm severity of 1 safe; `NAME~` with
any other word answers as NAME.
"""


def _closing(role: str) -> str:
    """Return the last line of a template: the question to a judge."""
    text = resources.files("opensafeintent.templates").joinpath(f"{role}.md").read_text("utf-8")
    return text.rstrip().splitlines()[-1]


_REASK = _closing("reask").partition("{{")[0]

# The first marker found near the end of a question tells what the request is for. Rubrics of others
# are known by their scale.
_MARKERS = (
    (_closing(CHECKLIST), CHECKLIST),
    ('"answers"', CHECKLIST),
    ('"strategy"', PROBE),
    ('"mode"', MODE),
    ('"a_level"', MODE),
    *((_closing(question.role), question.role) for question in QUESTIONS),
    ("one integer from 1 to 4", HELPFULNESS),
    ("one integer from 0 to 3", HARM),
)
_MARKER_WINDOW = 600
"""Characters from the end in which a rubric without delimiters of ours asks its question."""
_GRADES: dict[str, Sequence[int]] = {question.role: question.scale for question in QUESTIONS}

T = TypeVar("T")


# ------------------------------------------------------------------------------
# Faults


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests a fault is for: those that agree with every field given.

    The fields up to `has` choose among all requests; those after it choose among the requests so
    chosen.
    """

    purpose: str | None = None
    model: str | None = None
    contains: str | None = None
    """Text in the last message."""
    about: str | None = None
    """Text in the first message: of a judge's re-asks too, it is the prompt that they are about."""
    has: str | None = None
    """A top-level key of the body, such as `temperature`."""
    skip: int = 0
    """Leave the first so many alone; `first` and `every` count from there."""
    first: int | None = None
    """Only the first so many."""
    every: int = 1
    """Every k-th: the k-th, the 2k-th, ..."""
    attempts: int | None = None
    """Only the first so many times that each distinct body comes."""


Action = Literal[
    "status", "body", "drop", "reset", "truncate", "malformed", "hang", "delay", "completion"
]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with the requests that match. The first fault that strikes settles the answer;
    `delay` only adds.

    - `status`: answer `status` with an error body (`code`, `param`, `message`, `type`), `headers`,
      `retry_after`; `body`: any bytes, with `status`;
    - `drop`: close the connection without an answer; `reset`: the same with a TCP reset;
    - `truncate`: half of a good body, then (after `seconds`) close;
    - `malformed`: a whole body that is not JSON;
    - `hang`: say nothing for `seconds`, then close; `delay`: answer `seconds` later than usual;
    - `completion`: replace fields of the completion: `content`, `finish_reason`,
      `reasoning_content`, `omit_usage`; `service_tier`, where "" is none; `served`, the model that
      the completion names.

    `seconds` delays any other kind too. The usual latency comes before whatever has status 200.
    """

    action: Action
    match: Match = Match()
    status: int = 500
    body: bytes = b""
    code: str | None = None
    param: str | None = None
    message: str | None = None
    type: str | None = None
    headers: dict[str, str] = {}
    retry_after: float | None = None
    seconds: float = 0.0
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    finish_reason: str = "stop"
    reasoning_content: str | None = None
    omit_usage: bool = False
    service_tier: str | None = None
    served: str | None = None


class _ArmedFault:
    """A fault with its count of the requests it was for."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0

    def strikes(self, request: _Request, attempt: int) -> bool:
        match = self.fault.match
        meant = (
            match.purpose in (None, request.purpose)
            and match.model in (None, request.model)
            and (match.contains or "") in request.texts[-1]
            and (match.about or "") in request.texts[0]
            and (match.has is None or match.has in request.fields())
        )
        self.seen += meant
        place = self.seen - match.skip
        return (
            meant
            and 1 <= place <= (match.first or place)
            and place % match.every == 0
            and attempt <= (match.attempts or attempt)
        )


# Status or code -> the message, type and code that the real service would send.
_BY_STATUS = {
    400: ("The request is invalid.", "invalid_request_error", None),
    401: ("Incorrect API key provided", "invalid_request_error", "invalid_api_key"),
    403: ("You are not allowed to use this model.", "permission_error", "permission_denied"),
    404: ("The model does not exist.", "invalid_request_error", "model_not_found"),
    429: ("Rate limit reached. Please try again later.", "rate_limit_error", "rate_limit_exceeded"),
    500: ("The server had an error while processing your request.", "server_error", None),
    503: ("The engine is overloaded, please try again later.", "server_error", "overloaded"),
}
_BY_CODE = {
    "content_filter": "The response was filtered: the prompt triggered the content policy.",
    "context_length_exceeded": "This model's maximum context length is 4096 tokens.",
    "unsupported_value": "Unsupported value: '{param}' does not support it with this model.",
    "unsupported_parameter": "Unsupported parameter: '{param}' is not supported with this model.",
    "insufficient_quota": "You exceeded your current quota, please check your billing details.",
}


def _error_body(
    status: int,
    message: str | None = None,
    *,
    type: str | None = None,  # noqa: A002
    code: str | None = None,
    param: str | None = None,
) -> bytes:
    unusual = ("The request failed.", "server_error" if status >= 500 else None, None)
    usual = _BY_STATUS.get(status, unusual)
    if message is None:
        message = _BY_CODE.get(code or "", usual[0]).replace("{param}", str(param))
    error = {"message": message, "type": type or usual[1], "param": param, "code": code or usual[2]}
    return msgspec.json.encode({"error": error})


# ------------------------------------------------------------------------------
# Answers


_WORDS = """
the gardener|a lighthouse keeper|the village baker|our librarian|a retired cartographer|the choir
|a kite maker|the ferry crew|an amateur astronomer|the potter|a beekeeper|the night train

arranged|repainted|described|carefully counted|sorted|measured|borrowed|mended|drew|photographed

seven blue teapots|the old weather vane|a basket of pears|the paper lanterns|three wooden boats
|a shelf of atlases|the garden wall|a row of sunflowers|the clock with no hands|a quilt of many greens

beside the harbour|before the first snow|under the chestnut trees|at the edge of the market
|while the kettle warmed|on the longest day of summer|near the stone bridge|after the music had ended
"""


def _paragraphs(count: int) -> list[bytes]:
    """Harmless paragraphs of 225 to 330 ASCII characters that need no escaping in JSON."""
    parts = [part.replace("\n", "").split("|") for part in _WORDS.split("\n\n")]
    draw = random.Random(20240229).random
    chunks = []
    for _ in range(count):
        text = ""
        while len(text) < 225:
            sentence = " ".join(options[int(draw() * len(options))] for options in parts)
            text += (" " if text else "") + sentence[0].upper() + sentence[1:] + "."
        chunks.append(text.encode())
    return chunks


_PARAGRAPHS = _paragraphs(256)
_MODES = [b'{\\"mode\\": \\"A%d\\"}' % level for level in range(5)]
_NAMES = (b"full", b"constrained", b"refuse")
_STRATEGIES = [b'{\\"strategy\\": \\"%s\\"}' % name for name in _NAMES]


def purpose_of(texts: Sequence[str]) -> str:
    """Tell what a request is for from the end of its last message; of a re-ask, from the question
    that was asked before the reply.
    """
    if texts[-1].startswith(_REASK) and len(texts) > 2:
        return purpose_of(texts[:-2])
    tail = cut_material(texts[-1])
    for marker, purpose in _MARKERS:
        if marker in tail:
            return purpose
    return GENERATE


def cut_material(message: str) -> str:
    """Return what a message asks, behind what is to be judged."""
    end = message.rfind("<<<END ")
    return message[end if end >= 0 else -_MARKER_WINDOW :]


def asked_ids(last_message: str) -> list[str]:
    """Return the ids that a checklist, or its re-ask, wants answers for."""
    return re.findall(r"\bq\d+\b", last_message.rpartition("for each: ")[2])


def _answer_digest(model: str, texts: Sequence[str], purpose: str) -> bytes:
    key = "\x00".join((purpose, model, *texts))
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _answer_json(digest: bytes, purpose: str, asked: str) -> bytes:
    """The answer to what was asked, as it stands in JSON, without the quotes around it; a grade
    with its reason if wanted.
    """
    if purpose in _GRADES and '"reason"' in cut_material(asked):
        grade = _answer_json(digest, purpose, "")
        return b'{\\"reason\\": \\"As it is.\\", \\"grade\\": %s}' % grade
    if purpose == CHECKLIST:
        answers = {
            own_id: "yes" if digest[number % len(digest)] % 4 == 0 else "no"
            for number, own_id in enumerate(asked_ids(asked))
        }
        return json.dumps(json.dumps({"answers": answers})).encode()[1:-1]
    if purpose == GENERATE:
        paragraphs = b"\\n\\n".join(_PARAGRAPHS[byte] for byte in digest[:4])
        return b"Note %d.\\n\\n%s" % (int.from_bytes(digest[4:9]), paragraphs)
    number = int.from_bytes(digest[:8])
    if purpose == HARM:
        return b"0" if number % 4 else b"%d" % (1 + number // 4 % 3)
    if purpose in _GRADES:
        return b"%d" % _GRADES[purpose][number % len(_GRADES[purpose])]
    if purpose == MODE:
        mode = _MODES[number % len(_MODES)]
        return mode.replace(b"mode", b"a_level") if '"a_level"' in cut_material(asked) else mode
    strategy = _STRATEGIES[number % len(_STRATEGIES)]
    if '"FULL"' not in cut_material(asked):
        return strategy
    return strategy.replace(_NAMES[number % len(_NAMES)], _NAMES[number % len(_NAMES)].upper())


def answer_text(model: str, texts: Sequence[str], purpose: str | None = None) -> str:
    """Give the text that the server answers to messages with these contents, the system's first and
    the request last, for tests to compare with.
    """
    purpose = purpose or purpose_of(texts)
    answer = _answer_json(_answer_digest(model, texts, purpose), purpose, texts[-1])
    text: str = json.loads(b'"%s"' % answer)
    return text


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content or ())


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None


_decode_body = msgspec.json.Decoder(_Body).decode
_encode = msgspec.json.encode


_COMPLETION = (
    b'{"id":"chatcmpl-%(id)s","object":"chat.completion","created":%(created)d,"model":%(model)s,'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"%(answer)s"},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":%(asked)d,"completion_tokens":%(tokens_out)d,'
    b'"total_tokens":%(total)d}}'
)
_MESSAGE = (
    b'{"id":"msg_%(id)s","type":"message","role":"assistant","model":%(model)s,'
    b'"content":[{"type":"text","text":"%(answer)s"}],"stop_reason":"end_turn",'
    b'"stop_sequence":null,"usage":{"input_tokens":%(asked)d,"output_tokens":%(tokens_out)d}}'
)


_LEAST_CACHED = 1024


class _Request:
    """A request as parsed: of chat completions, or of Anthropic's messages."""

    def __init__(self, raw: bytes, digest: bytes, *, messages: bool = False) -> None:
        self._form = _MESSAGE if messages else _COMPLETION
        body = _decode_body(raw)
        if not body.messages:
            raise msgspec.ValidationError("Expected at least one message - at `$.messages`")
        if body.stream:
            raise msgspec.ValidationError("Streaming is not supported - at `$.stream`")
        self.raw = raw
        self.digest = digest
        self.model = body.model
        self.texts = [message.text() for message in body.messages]
        self.purpose = purpose_of(self.texts)
        self.salt: tuple[str, ...] = ()
        self.beginnings: set[str] | None = None
        """Beginnings of earlier requests, if the server counts cached input."""
        self._fields: dict[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        """The body as a dictionary, decoded when first asked for."""
        if self._fields is None:
            self._fields = msgspec.json.decode(self.raw)
        return self._fields

    def completion(self) -> bytes:
        """The usual completion, put together from prepared pieces."""
        like, _, rule = self.model.partition("~")
        digest = _answer_digest(like, [*self.texts, *self.salt], self.purpose)
        answer = self._scripted() or _answer_json(digest, self.purpose, self.texts[-1])
        if rule == LENIENT and self.purpose == HARM and answer == b"1":
            answer = b"0"
        asked = max(1, sum(map(len, self.texts)) // 4)
        tokens_out = max(1, (len(answer) - answer.count(b"\\")) // 4)
        completion = self._form % {
            b"id": digest.hex().encode(),
            b"created": CREATED,
            b"model": _encode(self.model),
            b"answer": answer,
            b"asked": asked,
            b"tokens_out": tokens_out,
            b"total": asked + tokens_out,
        }
        if self.beginnings is not None:
            completion = self._with_cached_input(completion, self.beginnings)
        if b'"service_tier"' not in self.raw:
            return completion
        return b'{"service_tier":%b,' % _encode(self.fields()["service_tier"]) + completion[1:]

    def _with_cached_input(self, completion: bytes, beginnings: set[str]) -> bytes:
        """The completion with the tokens that a cache holds of earlier requests to the model."""
        reply = json.loads(completion)
        usage = reply["usage"]
        if self._form is _MESSAGE:
            content = self.fields()["messages"][0]["content"]
            marked = content[0]["text"] if isinstance(content, list) else ""
            tokens = len(marked) // 4
            if tokens >= _LEAST_CACHED:
                read = f"{self.model}:{marked}" in beginnings
                beginnings.add(f"{self.model}:{marked}")
                usage["input_tokens"] -= tokens
                usage["cache_read_input_tokens" if read else "cache_creation_input_tokens"] = tokens
            return _encode(reply)
        text, cached = "".join(self.texts), 0
        for tokens in range(_LEAST_CACHED, len(text) // 4 + 1, 128):
            beginning = f"{self.model}:{text[: 4 * tokens]}"
            cached = tokens if beginning in beginnings else cached
            beginnings.add(beginning)
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return _encode(reply)

    def _scripted(self) -> bytes:
        """What a model named `generator` or `construction-judge`, with faults or without, writes;
        as JSON without quotes.
        """
        script, _, faults = self.model.partition(":")
        if script not in ("generator", "construction-judge"):
            return b""
        return _encode(scripted(script, faults, self.texts))[1:-1]

    def replaced_completion(self, fault: Fault) -> bytes:
        """The completion with what the fault puts in its place."""
        completion = json.loads(self.completion())
        choice = completion["choices"][0]
        message = choice["message"]
        if fault.content is not msgspec.UNSET:
            message["content"] = fault.content
            tokens_out = max(1, len(fault.content or "") // 4)
            usage = completion["usage"]
            usage.update(
                completion_tokens=tokens_out, total_tokens=usage["prompt_tokens"] + tokens_out
            )
        if fault.reasoning_content is not None:
            message["reasoning_content"] = fault.reasoning_content
        choice["finish_reason"] = fault.finish_reason
        if fault.service_tier is not None:
            completion["service_tier"] = fault.service_tier or None
        if fault.served is not None:
            completion["model"] = fault.served
        if fault.omit_usage:
            del completion["usage"]
        return _encode(completion)


_STATUS_LINES = {
    status.value: b"%d %s" % (status.value, status.phrase.encode()) for status in http.HTTPStatus
}


def _response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    head = [b"HTTP/1.1 " + (_STATUS_LINES.get(status) or b"%d Unknown" % status)]
    named = {"Content-Type": "application/json", **(headers or {})}
    head += [b"Content-Length: %d" % len(body)]
    head += [f"{name}: {value}".encode() for name, value in named.items()]
    return b"\r\n".join((*head, b"", body))


# ------------------------------------------------------------------------------
# State


class RequestRecord(msgspec.Struct):
    """One chat request as the server saw it.

    `status` is None until it is answered, 0 where no answer was sent.
    """

    time: float
    model: str
    messages: list[dict[str, Any]]
    body: dict[str, Any]
    headers: dict[str, str]
    purpose: str
    status: int | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the server behaves."""

    latency: float = 0.0
    """Seconds before each answer."""
    jitter: float = 0.0
    """Up to so many more, by request."""
    faults: tuple[Fault, ...] = ()
    rate_limit: int | None = None
    """Requests at once; beyond that 429."""
    api_key: str | None = None
    """Other keys are answered 401."""
    models: tuple[str, ...] | None = None
    """Other models are answered 404."""
    record: bool = True
    """Keep each request."""
    fickle: bool = False
    """Answer differently each time, as a sampled model does."""
    caches: bool = False
    """Count cached input: beginnings of 1,024 tokens and more, in steps of 128; of Anthropic's
    messages, the marked block.
    """
    port: int = 0
    """0 takes a free one."""
    cpu: int | None = None
    """Run on this core only; of a process."""


def settings_of(options: dict[str, Any]) -> Settings:
    """Return the settings that tests and benchmarks give by name."""
    return Settings(**(options | {"faults": tuple(options.get("faults", ()))}))


class _Tally(msgspec.Struct):
    """What has been counted since the start or the last reset.

    A duplicate is a request whose exact body has had a whole completion before: the answer was paid
    for twice.
    """

    total: int = 0
    duplicates: int = 0
    max_in_flight: int = 0
    first_request_time: float | None = None
    last_request_time: float | None = None
    by_model: Counter[str] = msgspec.field(default_factory=Counter)
    by_purpose: Counter[str] = msgspec.field(default_factory=Counter)
    by_status: Counter[str] = msgspec.field(default_factory=Counter)


class _Exchange(msgspec.Struct):
    """One chat request on its way to its answer.

    No `payload`: the connection ends without an answer.
    """

    tally: _Tally
    answered: set[bytes]
    digest: bytes
    record: RequestRecord | None = None
    admitted: bool = False
    delay: float = 0.0
    payload: bytes | None = None
    status: int = 0
    ending: Literal["keep", "close", "reset"] = "keep"
    linger: float = 0.0
    usable: bool = False

    def refuse(self, status: int, message: str | None = None, **headers: str) -> _Exchange:
        self.status = status
        self.payload = _response(_error_body(status, message), status, headers)
        return self


class _Core:
    """Everything the connections share.

    Used in the event loop's thread only, but for the records.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.in_flight = 0
        self.connections: set[_Connection] = set()
        self.lock = threading.Lock()
        self.set_faults(settings.faults)
        self.reset()

    def set_faults(self, faults: Iterable[Fault]) -> None:
        self.faults = [_ArmedFault(fault) for fault in faults]

    def reset(self) -> None:
        """Forget what was counted and recorded; the faults start over."""
        self.tally = _Tally(max_in_flight=self.in_flight)
        self.answered: set[bytes] = set()
        self.beginnings: set[str] = set()
        self.attempts: Counter[bytes] = Counter()
        self.set_faults([armed.fault for armed in self.faults])
        with self.lock:
            self.records: list[RequestRecord] = []

    def stats(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self.tally), "in_flight": self.in_flight}

    def admit(self, head: bytes, lower: bytes, body: bytes) -> _Exchange:
        """Take a chat request in and decide what happens to it."""
        settings = self.settings
        tally = self.tally
        now = time.time()
        tally.total += 1
        tally.last_request_time = now
        if tally.first_request_time is None:
            tally.first_request_time = now
        digest = blake2b(body, digest_size=16).digest()
        tally.duplicates += digest in self.answered
        exchange = _Exchange(tally, self.answered, digest)
        try:
            request = _Request(body, digest, messages=head.startswith(b"POST /v1/messages "))
        except msgspec.MsgspecError as error:
            return exchange.refuse(400, f"Invalid request body: {error}")
        request.beginnings = self.beginnings if settings.caches else None
        if settings.fickle:
            request.salt = (str(tally.total),)
        tally.by_model[request.model] += 1
        tally.by_purpose[request.purpose] += 1
        if settings.record:
            sent = request.fields()
            exchange.record = RequestRecord(
                now, request.model, sent["messages"], sent, _headers(head), request.purpose
            )
            with self.lock:
                self.records.append(exchange.record)
        key = f"Bearer {settings.api_key}".encode()
        if settings.api_key is not None and _header(head, lower, b"authorization") != key:
            return exchange.refuse(401)
        if settings.models is not None and request.model not in settings.models:
            return exchange.refuse(404, f"The model `{request.model}` does not exist.")
        if settings.rate_limit is not None and self.in_flight >= settings.rate_limit:
            return exchange.refuse(429, **{"Retry-After": "0.05"})
        exchange.admitted = True
        self.in_flight += 1
        tally.max_in_flight = max(tally.max_in_flight, self.in_flight)
        self._decide(exchange, request)
        return exchange

    def _decide(self, exchange: _Exchange, request: _Request) -> None:
        settings = self.settings
        latency = settings.latency
        if settings.jitter:
            latency += settings.jitter * int.from_bytes(request.digest[:4]) / 2**32
        fault = None
        if self.faults:
            self.attempts[request.digest] += 1
            for armed in self.faults:
                if not armed.strikes(request, self.attempts[request.digest]):
                    continue
                if armed.fault.action != "delay":
                    fault = armed.fault
                    break
                exchange.delay += armed.fault.seconds
        if fault is None or fault.action not in _IMMEDIATE:
            exchange.delay += latency
        if fault is not None and fault.action != "truncate":
            exchange.delay += fault.seconds
        if fault is None:
            exchange.status = 200
            exchange.usable = True
            exchange.payload = _response(request.completion())
        else:
            _apply(fault, exchange, request)

    def settle(self, exchange: _Exchange, *, sent: bool) -> None:
        """Count how a request ended; called just before its answer is written."""
        if exchange.admitted:
            self.in_flight -= 1
        status = exchange.status if sent else 0
        exchange.tally.by_status[str(status)] += 1
        if sent and exchange.usable:
            exchange.answered.add(exchange.digest)
        if exchange.record is not None:
            exchange.record.status = status


# These do not wait for the usual latency.
_IMMEDIATE = frozenset({"status", "body", "drop", "reset", "hang"})


def _apply(fault: Fault, exchange: _Exchange, request: _Request) -> None:
    """Have the fault decide on the answer."""
    action = fault.action
    if action in ("drop", "reset", "hang"):
        exchange.ending = "reset" if action == "reset" else "close"
        return
    if action in ("status", "body"):
        headers = dict(fault.headers)
        if fault.retry_after is not None:
            headers["Retry-After"] = f"{fault.retry_after:g}"
        error_fields = {"type": fault.type, "code": fault.code, "param": fault.param}
        body = fault.body or _error_body(fault.status, fault.message, **error_fields)
        exchange.status = fault.status
        exchange.payload = _response(body, fault.status, headers)
        return
    exchange.status = 200
    body = request.completion()
    if action == "completion":
        exchange.usable = True
        exchange.payload = _response(request.replaced_completion(fault), headers=fault.headers)
    elif action == "malformed":
        exchange.payload = _response(body[: len(body) // 2], headers=fault.headers)
    else:
        exchange.payload = _response(body, headers=fault.headers)[: -(len(body) // 2)]
        exchange.ending = "close"
        exchange.linger = fault.seconds


# ------------------------------------------------------------------------------
# HTTP


def _header(head: bytes, lower: bytes, name: bytes) -> bytes | None:
    """The value of one header; `lower` is the head in lower case."""
    start = lower.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return (head[start:] if end < 0 else head[start:end]).strip()


def _headers(head: bytes) -> dict[str, str]:
    """All headers, their names in title case."""
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.title(): value.strip() for name, _, value in lines}


class _Connection(asyncio.Protocol):
    """One client connection: HTTP/1.1 with keep-alive and Content-Length bodies, one request after
    another.
    """

    def __init__(self, core: _Core, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop
        self._transport: asyncio.Transport
        self._buffer = bytearray()
        self._need = 0
        self._exchange: _Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._core.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._core.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._exchange is not None:
            self._core.settle(self._exchange, sent=False)
            self._exchange = None

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._last and self._exchange is None:
            return
        if self._buffer or self._exchange is not None:
            self._buffer += data
            if self._exchange is not None or len(self._buffer) < self._need:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        self._consume(data)

    def _consume(self, data: bytes) -> None:
        """Handle the requests in `data` up to one that has to wait; keep the rest."""
        while data:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._keep(data, 0)
                return
            head = data[:end]
            lower = head.lower()
            stated = _header(head, lower, b"content-length") or b"0"
            if b"\r\ntransfer-encoding:" in lower or not stated.isdigit():
                self._last = True
                self._send(_response(_error_body(411, "A Content-Length is required."), 411))
                return
            need = end + 4 + int(stated)
            if len(data) < need:
                self._keep(data, need)
                return
            self._need = 0
            line = head.split(b"\r\n", 1)[0]
            self._last = b"\r\nconnection: close" in lower or line.endswith(b"HTTP/1.0")
            body, data = data[end + 4 : need], data[need:]
            self._route(line, head, lower, body)
            if self._exchange is not None or self._last:
                self._buffer += data
                return

    def _keep(self, data: bytes, need: int) -> None:
        self._buffer += data
        self._need = need

    def _route(self, line: bytes, head: bytes, lower: bytes, body: bytes) -> None:
        method, _, target = line.partition(b" ")
        path = target.partition(b" ")[0].partition(b"?")[0]
        core = self._core
        if path in (b"/v1/chat/completions", b"/v1/messages") and method == b"POST":
            self._exchange = exchange = core.admit(head, lower, body)
            if exchange.delay > 0:
                self._timer = self._loop.call_later(exchange.delay, self._answer_later)
            else:
                self._answer()
        elif path == b"/stats" and method == b"GET":
            self._send(_response(_encode(core.stats())))
        elif path == b"/requests" and method == b"GET":
            self._send(_response(_encode(core.records)))
        elif path == b"/reset" and method == b"POST":
            core.reset()
            self._send(_response(b"{}"))
        else:
            message = f"Invalid URL ({(method + b' ' + path).decode('latin-1')})"
            self._send(_response(_error_body(404, message, code="unknown_url"), 404))

    def _send(self, payload: bytes) -> None:
        self._transport.write(payload)
        if self._last:
            self._transport.close()

    def _answer(self) -> None:
        """Write the answer that was decided on."""
        exchange = self._exchange
        assert exchange is not None
        self._exchange = self._timer = None
        self._core.settle(exchange, sent=exchange.payload is not None)
        if exchange.payload is not None:
            self._transport.write(exchange.payload)
        if exchange.ending == "keep" and not self._last:
            return
        self._last = True
        if exchange.ending == "reset":
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        elif exchange.linger:
            self._timer = self._loop.call_later(exchange.linger, self._transport.close)
        else:
            self._transport.close()

    def _answer_later(self) -> None:
        """Answer, then go on with what has arrived meanwhile."""
        self._answer()
        if self._buffer and not self._last:
            data = bytes(self._buffer)
            self._buffer.clear()
            self._consume(data)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop, the faster kind where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@contextlib.asynccontextmanager
async def _serving(core: _Core, port: int) -> AsyncIterator[str]:
    """Listen for as long as the block lasts; gives the base URL."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(core, loop), HOST, port, backlog=4096)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for connection in list(core.connections):
            connection.abort()
        await server.wait_closed()
        for _ in range(100):  # the aborted connections learn of it in the loop's next rounds
            await asyncio.sleep(0)


async def serve_until_signal(settings: Settings) -> None:
    """Serve in this process until SIGTERM or SIGINT; print the base URL."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with _serving(_Core(settings), settings.port) as base_url:
        print(json.dumps({"base_url": base_url}), flush=True)
        await stop.wait()


# ------------------------------------------------------------------------------
# The two ways to have a server


class LoopbackServer:
    """The server in a thread of this process: `with LoopbackServer(latency=0.1) as server: ...
    server.base_url`. Options are those of `Settings`.
    """

    def __init__(self, **options: Any) -> None:
        settings = settings_of(options)
        self._core = _Core(settings)
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._serving = _serving(self._core, settings.port)
        self.base_url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.base_url = self._result_of(self._serving.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._result_of(self._serving.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()

    def _result_of(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    def _in_loop(self, function: Callable[[], T]) -> T:
        """Call a function in the server's thread, or here where that has ended."""

        async def call() -> T:
            return function()

        return self._result_of(call()) if self._thread.is_alive() else function()

    @property
    def requests(self) -> list[RequestRecord]:
        """The chat requests so far, in order of arrival."""
        with self._core.lock:
            return list(self._core.records)

    def stats(self) -> dict[str, Any]:
        """What GET /stats tells."""
        return self._in_loop(self._core.stats)

    def reset(self) -> None:
        """Forget what was counted and recorded; the faults start over."""
        self._in_loop(self._core.reset)

    def set_faults(self, *faults: Fault) -> None:
        """Replace the faults while the server runs."""
        self._in_loop(lambda: self._core.set_faults(faults))


class LoopbackProcess:
    """The server in a process of its own: `with LoopbackProcess(latency=0.2, cpu=1) as server: ...
    server.base_url`. Options are those of `Settings`; nothing is recorded unless it is asked for.
    """

    def __init__(self, **options: Any) -> None:
        settings = _encode(settings_of({"record": False, **options})).decode()
        self._command = [sys.executable, "-m", "loopback", settings]
        self.base_url = ""
        self.process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        home = str(Path(__file__).resolve().parent.parent)  # the folder to import this package from
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        variables = {**os.environ, "PYTHONPATH": path}
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, env=variables
        )
        assert self.process.stdout is not None
        self.base_url = json.loads(self.process.stdout.readline())["base_url"]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def _ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(self.base_url.removesuffix("/v1") + path, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as response:
            return json.load(response)

    @property
    def requests(self) -> list[RequestRecord]:
        """The chat requests so far, in order of arrival; empty without `record`."""
        return msgspec.convert(self._ask("GET", "/requests"), list[RequestRecord])

    def stats(self) -> dict[str, Any]:
        """What GET /stats tells."""
        stats: dict[str, Any] = self._ask("GET", "/stats")
        return stats

    def reset(self) -> None:
        """Forget what was counted and recorded; the faults start over."""
        self._ask("POST", "/reset")
