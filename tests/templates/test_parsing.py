"""A reply keeps to its contract, or there is no grade."""

from __future__ import annotations

import time

import pytest

from opensafeintent.taxonomy import ParseRule
from opensafeintent.templates import IntegerContract, JsonContract, parse_reply

HELPFULNESS = IntegerContract(1, 4, "one integer from 1 to 4")
HARM = IntegerContract(0, 3, "one integer from 0 to 3")
MODE = JsonContract("mode", ("A0", "A1", "A2", "A3", "A4"), 'a JSON object with the key "mode"')
STRATEGY = JsonContract("strategy", ("full", "constrained", "refuse"), 'with the key "strategy"')
FENCED = (
    *("```\n2\n```", "```text\n2\n```\n", "``` 2 ```", "```2```", "```json 2 ```", "```text 2```"),
    *("```JSON\t2\n```", "``` json 2 ```"),
)
ESSAY = "The response explains two of the four steps. " * 50 + "I would say 3."

NO_INTEGERS = (
    *("7", "", " \n", "two", "2.5", "2.0", "2.", "Score: 2", "2/4", "**2**", '"2"', "２", "²", "٢"),
    *("+2", "-2", "02", "22", "2 2", "2\n3", "2\u200b", "\ufeff2", "2e0", "0x2", "{2}", "2" * 5000),
    *("```grade 2```", "```json2```", "```json json 2```", "```json 2 3```", "```json```"),
    *('{"helpfulness": 2}', "```\n2", "```\n2\n```\n```\n3\n```", "```\n2\n```\nbecause", ESSAY),
)
NO_OBJECTS = (
    *('{"mode": "a2"}', '{"mode": "A5"}', '{"mode": "A2 "}', '{"mode": "Ａ2"}', '{"mode": ""}'),
    *('{"mode": null}', '{"mode": 2}', '{"mode": ["A2"]}', '{"mode": {"mode": "A2"}}'),
    *('{"Mode": "A2"}', '{"strategy": "full"}', "{}", '[{"mode": "A2"}]', '["A2"]', '"A2"', "A2"),
    *("", "null", '{"mode": "A2"} {"mode": "A2"}', '{"mode": "A2"}\n{"mode": "A4"}'),
    *('{"mode": "A2", "mode": "A4"}', '{"mode": "A2", "mode": "A2"}'),
    '{"mode": "A2", "\\u006dode": "A4"}',  # the same key, escaped
    *("{'mode': 'A2'}", '{"mode": "A2",}', '{"mode": "A2"', 'The mode is {"mode": "A2"}'),
    *('{"mode": "A2"} because it is general.', "[" * 100_000, '{"mode": ' * 100_000),
    '```json\n{"mode": "A2"}\n```\n```json\n{"mode": "A4"}\n```',
)


def test_a_strict_integer() -> None:
    for reply in ("2", " 2\n", "\r\n\t2\u00a0", *FENCED):
        assert parse_reply(HELPFULNESS, reply) == 2
    assert [parse_reply(HELPFULNESS, reply) for reply in "0145"] == [None, 1, 4, None]
    assert [parse_reply(HARM, reply) for reply in "034"] == [0, 3, None]
    assert {parse_reply(HARM, reply) for reply in ("-0", "-1", "00")} == {None}


@pytest.mark.parametrize("reply", NO_INTEGERS)
def test_what_is_no_strict_integer(reply: str) -> None:
    assert parse_reply(HELPFULNESS, reply) is None


@pytest.mark.parametrize(
    ("grade", "replies"),
    [
        (2, ("2", "Score: 2", "2.5", "Between 2 and 3.", "**2**", '```{"score": 2}```', "02")),
        (3, (ESSAY,)),
        # where the first integer is out of range there is none, and not the next
        (None, ("7", "10, so 4", "-1", "0", "two", "", "2" * 5000)),
    ],
)
def test_the_first_integer_as_the_paper_reads_it(
    grade: int | None, replies: tuple[str, ...]
) -> None:
    assert {parse_reply(HELPFULNESS, reply, "paper") for reply in replies} == {grade}


@pytest.mark.parametrize("rule", ["strict", "paper"])
@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (' {"mode":"A0"}\n', "A0"),
        ('{"mode": "A2"}', "A2"),
        ('```json\n{"mode": "A4"}\n```', "A4"),
        ('```\n{\n  "mode": "A4"\n}\n```', "A4"),
        ('```json {"mode": "A2"} ```', "A2"),
        ('```json{"mode": "A2"}```', "A2"),
        ('``` {"mode": "A2"} ```', "A2"),
        ('```JSON {"mode":\n"A2"}\n```', "A2"),
        ('```json {"mode": "A2"} ``` ```json {"mode": "A4"} ```', None),
        ('```mode {"mode": "A2"} ```', None),
        ('{"mode": "\\u0041\\u0031"}', "A1"),  # JSON's own way to write A1
        *((reply, None) for reply in NO_OBJECTS),
    ],
)
def test_the_one_json_object(reply: str, value: str | None, rule: ParseRule) -> None:
    assert parse_reply(MODE, reply, rule) == value


def test_a_strategy_in_its_own_case() -> None:
    values = ("constrained", "Full", "REFUSE", "x")
    read = [parse_reply(STRATEGY, f'{{"strategy": "{value}"}}') for value in values]
    assert read == ["constrained", None, None, None]


SLOW = ("```" + "\n" * 2_000, "```" + "a" * 20_000, "{" * 500 + " " * 50_000, "2" + " " * 100_000)


@pytest.mark.parametrize("reply", SLOW, ids=range(4))
def test_no_reply_takes_long_to_read(reply: str) -> None:
    """A reply is hostile input, and is read on the event loop: a second is a thousand times what
    one line takes.
    """
    begin = time.process_time()
    assert parse_reply(HELPFULNESS, f"{reply}x") is None
    assert parse_reply(MODE, f"{reply}x") is None
    assert time.process_time() - begin < 1
