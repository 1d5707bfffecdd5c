"""Whatever a server sends is an outcome or a failure with one line: nothing is raised, and no key
is kept. Whatever a judge or a generator says is read, or is no answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from hypothesis import example, given, strategies as st

from calls.support import KEY, chat_model
from fuzz.contract import FUZZ, TRIED, attempt
from fuzz.faults import LITERALS, TEXTS, damaged_json
from opensafeintent.calls.http import HttpSession
from opensafeintent.calls.outcomes import NotAnAnswer
from opensafeintent.calls.provider_errors import is_filter, read_delay, read_error
from opensafeintent.calls.records import Answered, Failure, Refused, Replied, stop_kind
from opensafeintent.calls.replies import read_reply
from opensafeintent.construction.asking import read_object
from opensafeintent.construction.augmentation import ParaphraseReply
from opensafeintent.construction.metadata import MetadataReply
from opensafeintent.construction.triplets import TripletReply
from opensafeintent.secrets import Secrets
from opensafeintent.taxonomy import MODES, STRATEGIES, ParseRule
from opensafeintent.templates import load_templates, parse_reply

FINISHED = ("stop", "length", "abort", "content_filter", "tool_calls", "error", "text", "SAFETY")
WORDS = st.sampled_from((*FINISHED, "<think>", "</think>", "", " ", "A note."))
ODD = st.sampled_from((None, True, 10**400, "\ud83d"))
SCALARS = st.one_of(ODD, st.integers(), st.floats(), WORDS, st.text(max_size=5))


def values_around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.text(max_size=3)
    return st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)


VALUES = st.recursive(SCALARS, values_around, max_leaves=8)


def fields(**known_fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects that have some of these fields, mostly of their own types, and anything else
    at times.
    """
    mostly = {name: value | VALUES for name, value in known_fields.items()}
    return st.fixed_dictionaries({}, optional=mostly)


PARTS = st.lists(fields(type=WORDS, text=WORDS), max_size=3)
MESSAGES = fields(content=WORDS | PARTS, refusal=WORDS, tool_calls=st.lists(VALUES, max_size=2))
FILTERED = st.dictionaries(WORDS, fields(filtered=st.booleans()), max_size=2)
ERRORS = fields(
    code=WORDS | st.integers(300, 700),
    type=WORDS,
    message=st.text(max_size=20) | st.just(f"your key {KEY}"),
    metadata=fields(reasons=st.lists(WORDS, max_size=2), flagged_input=WORDS, error_type=WORDS),
    innererror=fields(code=WORDS, content_filter_result=FILTERED),
)
CHOICES = st.lists(fields(message=MESSAGES, finish_reason=WORDS, error=ERRORS), max_size=2)
USAGE = fields(prompt_tokens=st.integers(), completion_tokens=st.floats())
COMPLETIONS = fields(choices=CHOICES, usage=USAGE, model=WORDS, error=ERRORS)
WHOLE = COMPLETIONS.map(json.dumps).map(str.encode)
BODIES = st.one_of(
    st.binary(max_size=60),
    WHOLE,
    st.tuples(WHOLE, st.integers(0, 200)).map(lambda cut: cut[0][: cut[1]]),
    ERRORS.map(lambda value: json.dumps({"error": value}).encode()),
)


@FUZZ
@given(BODIES)
@example(b"[" * 100_000)
@example(b'{"choices":[{"message":{"content":"' + b"<think>" * 10_000 + b'"}}]}')
@example(b'{"choices":[{"message":{"content":"x"}}],"usage":' + b"[" * 100_000)
def test_a_body_is_an_answer_a_refusal_or_a_value_error(body: bytes) -> None:
    try:
        outcome = read_reply(body)
    except ValueError as wrong:
        TRIED["chat completion", "refused"] += 1
        if isinstance(wrong, NotAnAnswer):
            kind = wrong.kind.partition(":")[0]
            assert kind in ("no_answer", "malformed", "broken_off", "stop_reason")
            assert "\n" not in str(wrong) and len(str(wrong)) < 400
        return
    TRIED["chat completion", "read"] += 1
    usage = outcome.usage
    assert isinstance(usage.input_tokens, int) and isinstance(usage.output_tokens, int)
    assert 0 <= usage.input_tokens <= 2**53 and 0 <= usage.output_tokens <= 2**53
    json.dumps([usage.input_tokens, outcome.served_model]).encode()
    if isinstance(outcome, Answered):
        # an empty answer is one that ended by itself, or was cut
        assert outcome.text or stop_kind(outcome.stop_reason) in ("end", "cut", "none")
        assert outcome.text == outcome.text.strip()
        outcome.text.encode()
    else:
        assert isinstance(outcome, Refused)
        signs = (b"content_filter", b"flagged_input", b"reasons", b"filtered", b"SAFETY")
        assert any(sign in body for sign in signs)


@FUZZ
@given(st.integers(100, 599), BODIES, st.none() | st.text(max_size=20))
def test_whatever_comes_with_a_status_is_one_line(
    status: int, body: bytes, retry_after: str | None
) -> None:
    model = chat_model("http://127.0.0.1:9/v1", HttpSession())
    body = model._secrets.scrub_bytes(body)
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    result, _ = model._classify_failure({"model": "m", "seed": 1}, status, body, headers, 0.1)
    TRIED["error of a server", "read"] += 1
    if isinstance(result, Replied):
        assert isinstance(result.outcome, Refused) and is_filter(read_error(body))
        assert b"choices" in body or isinstance(read_reply(body), Refused)
    else:
        assert isinstance(result, Failure)
        assert "\n" not in result.error and len(result.error) < 500
        result.error.encode()
    assert KEY not in str(result)


DATES = st.datetimes().map("{:%a, %d %b %Y %H:%M:%S GMT}".format)


@FUZZ
@given(st.text(max_size=40) | st.floats().map(str) | st.integers().map(str) | DATES)
@example("9" * 5000)
@example("Fri, 31 Dec 99999 23:59:59 GMT")
@example("Mon, 01 Jan 0001 00:00:00 +9999")
def test_retry_after_is_a_bounded_wait_or_none(value: str) -> None:
    prose = json.dumps({"error": {"message": f"try again in {value}s"}}).encode()
    for headers, body in (({"Retry-After": value}, b""), ({}, prose)):
        seconds = read_delay(headers, read_error(body))
        assert seconds is None or 0 <= seconds <= 300


PRINTED = st.characters(codec="utf-8", exclude_categories=("Cc",))


@FUZZ
@given(st.text(PRINTED, min_size=8, max_size=20), st.randoms(use_true_random=False))
def test_a_secret_is_found_however_json_writes_it(secret: str, random: Any) -> None:
    def written(char: str) -> str:
        units = char.encode("utf-16-be")
        codes = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        plain = "\\/" if char == "/" else json.dumps(char, ensure_ascii=False)[1:-1]
        return random.choice([json.dumps(char)[1:-1], codes, plain])

    text = "".join(map(written, secret))
    assert json.loads(f'"{text}"') == secret
    secrets = Secrets([secret])
    assert json.loads(secrets.scrub_bytes(f'"before {text} after"'.encode())) == "before *** after"
    assert secrets.scrub(text) == "***"


# What judges and generators say
# ------------------------------------------------------------------------------

MODE = {"mode": "A3", "strategy": "full", "declined": ""}
TRIPLET = {"unsafe": True, "summary": "a b c d e", "harm_domain": "x", "paraphrases": ["a", "b"]}


def as_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass" if b"\xed" in raw else "replace")


SAID = (*TEXTS, *LITERALS, "4", "```\n3\n```", "```json\n{}\n```", "٣", "²", "3\n")
BROKEN = st.one_of(damaged_json(MODE), damaged_json(TRIPLET)).map(as_text)
reply = st.sampled_from(SAID) | st.text(max_size=200) | BROKEN


@FUZZ
@given(text=reply)
def test_replies_of_judges(text: str) -> None:
    templates = load_templates()

    def read(_: Path) -> None:
        for template in (
            templates.of("helpfulness"),
            templates.of("harm"),
            templates.mode,
            templates.strategy,
        ):
            for rule in get_args(ParseRule):
                grade: Any = parse_reply(template.contract, text, rule)
                assert grade is None or grade in (*STRATEGIES, *MODES, 0, 1, 2, 3, 4)

    attempt("replies of judges", read, Path(), named="")


@FUZZ
@given(text=reply)
def test_replies_of_generators(text: str) -> None:
    def read(_: Path) -> None:
        for kind in (MetadataReply, ParaphraseReply, TripletReply):
            value: Any = read_object(text, kind)
            if isinstance(value, str):
                assert len(value) < 2000
            else:
                assert all(part.encode() for part in value.texts().values())

    attempt("replies of generators", read, Path(), named="")
