"""Wire protocols: how a call becomes a request, and how the body of a reply becomes an outcome.

A protocol is a module here with one object, and the rows of `calls.providers` that name it. It does
no input and output. Connections, limits, retries, secrets, refused fields and errors are the same
for all protocols, in `calls.http` and the tables beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from opensafeintent.calls.records import Answered, Call, Refused, Usage
from opensafeintent.hostile import clean_name, one_line


class WireProtocol(Protocol):
    """What a server of some kind understands, and how it answers."""

    @property
    def name(self) -> str:
        """The name by which a ledger says which protocol a reply is of, in at most 40 characters;
        it never changes.
        """

    @property
    def reply_name(self) -> str:
        """What a reply is called, for errors: "chat completion"."""

    def route(self, model: str) -> str:
        """Return the path of a request, which follows a provider's base URL.

        Args:
            model: the name that the server knows the model by, quoted for an address.
        """

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers of every request to a model."""

    def request(self, call: Call, model: str, left_out: Collection[str]) -> dict[str, Any]:
        """Return the fields of a request.

        A setting that the protocol has no field for is sent under its usual name, such as
        `reasoning_effort` or `response_format`. If the server refuses it, `left_out` has it from
        then on, and the report names it.

        Args:
            call: the call.
            model: the name that the server knows the model by.
            left_out: settings that the model refused, which the request has to be without, by the
                names that `optional` gives them.
        """

    def optional(self, fields: Mapping[str, Any]) -> Collection[str]:
        """Return the names of the settings that a request has and can be without.

        If the server answers 400 or 422 and names one of them, the request is made again with that
        name in `left_out`. A setting inside another field goes by its own name, `temperature` for
        `sampling.temperature`; a setting of `Sampling` by the name there, and its `json_schema` as
        `response_format`, whatever the protocol calls it. Leave out what the protocol requires,
        and a token limit, unless it is called `max_tokens` or `max_completion_tokens`: an error
        about too long a prompt may name the limit too.
        """

    def join(self, parts: Sequence[Mapping[str, Any]], *, ended: bool) -> dict[str, Any]:
        """Return the reply that came as a stream of events, or the error in it.

        Args:
            parts: the data of the events, at least one.
            ended: whether the stream ends with `[DONE]`.
        """

    def read(self, reply: Mapping[str, Any], body: bytes) -> Answered | Refused:
        """Return the outcome of a call by its reply.

        Args:
            reply: its decoded fields, each of which may be of any type.
            body: its bytes.

        Raises:
            NotAnAnswer: it is a complete reply without an answer.
            ValueError: it is neither an answer nor a content filter's error.
        """

    def usage(self, reply: Mapping[str, Any]) -> Usage:
        """Return the tokens that a reply reports; none if it reports none."""

    def text(self, reply: Mapping[str, Any]) -> str | None:
        """Return the model's text, reasoning between marks included; None if a reply has none.

        `read` gives it to `classify_message`, which cuts the reasoning off, and `trace` shows what
        was cut.
        """

    def beside(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object in a reply that holds reasoning apart from its text: in one of
        `REASONING_FIELDS` of `calls.reasoning`, or in blocks of its `content`. Return {} if the
        protocol has no place for reasoning.
        """


_MOST_TOKENS = 2**53


def token_count(tokens: Any) -> int:
    """Return a count of tokens, 0 if the server's value cannot be one."""
    if not isinstance(tokens, int | float) or not 0 <= tokens <= _MOST_TOKENS:
        return 0
    return int(tokens)


def dict_or_empty(value: Any) -> dict[str, Any]:
    """Return the fields of an object in a reply, none if the server's value is no object."""
    return value if isinstance(value, dict) else {}


def error_text(error: Any) -> str:
    """Return the text of an error, on one line."""
    message = error.get("message") if isinstance(error, dict) else error
    return one_line(str(message or "it says no more"))


def make_no_reply_error(line: str, reply: Mapping[str, Any]) -> ValueError:
    """Return the error of a body that is no reply, with the error that it has in its place."""
    error = reply.get("error")
    return ValueError(f"{line} but an error: {error_text(error)}" if error else line)


def read_served_model(reply: Mapping[str, Any]) -> str:
    """Return the name of the model that wrote a reply, as its server gives it; "" if it gives
    none.
    """
    name = reply.get("model")
    return clean_name(name) if isinstance(name, str) else ""
