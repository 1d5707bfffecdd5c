"""Wire protocols: how a call becomes a request, and how the body of a reply becomes an outcome.

A protocol is a module here with one object, and the rows of `calls.providers` that name it. It does
no input and output. Connections, limits, retries, secrets, refused fields and errors are the same
for all protocols, in `calls.http` and the tables beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from opensafeintent.calls.records import Answered, Call, Refused, Sampling, Usage
from opensafeintent.hostile import clean_name, one_line
from opensafeintent.templates.template import Message


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
        """Return the fields of a request: the messages, and each setting of `list_settings` in its
        place.

        Settings that the protocol has no field for are fields of the body by their usual names, or
        of its object for settings, if it has one. If the server refuses one, `left_out` has it from
        then on, and the report names it.

        Args:
            call: the call.
            model: the name that the server knows the model by.
            left_out: settings that the model refused, which the request has to be without, by the
                usual names that `optional` gives them.
        """

    def optional(self, fields: Mapping[str, Any]) -> Mapping[str, str | tuple[str, ...]]:
        """Return the settings that a request has and can be without: usual name to name in the
        request, such as `{"temperature": "heat", "seed": "seed"}`, or to the names of several
        fields that say one setting.

        If the server answers 400 or 422 and names one of them by either name, the request is made
        again with the usual name, that of `list_settings`, in `left_out`. For a setting inside
        another field, give its own name, or the path `output_config.format` if the name is a word
        that errors have for other reasons. Leave out what the protocol requires, and a token limit,
        if it has one name alone: an error about too long a prompt may name it too. A server that
        refuses it then stops the model.
        """

    def join(self, parts: Sequence[Mapping[str, Any]], *, ended: bool) -> dict[str, Any]:
        """Return the reply that came as a stream of events, or the error in it.

        Gateways send streams that nobody asked for. A protocol without streams returns
        `merge_parts`.

        Args:
            parts: the data of the events, at least one.
            ended: whether the stream ends with `[DONE]`.
        """

    def read(self, reply: Mapping[str, Any], body: bytes) -> Answered | Refused:
        """Return the outcome of a call by its reply: what `classify_message` makes of it, or a
        `Refused` if a field says that a filter took the prompt.

        Args:
            reply: its decoded fields, each of which may be of any type, or be absent: a text that
                has no stop reason is an answer.
            body: its bytes.

        Raises:
            NotAnAnswer: it is a complete reply without an answer.
            ValueError: it is neither an answer nor a content filter's error.
        """

    def usage(self, reply: Mapping[str, Any]) -> Usage:
        """Return the tokens that a reply reports; none if it reports none."""

    def text(self, reply: Mapping[str, Any]) -> str | None:
        """Return the model's text, reasoning between marks included; "" if its place is empty,
        which at the end of a turn is a refusal; None if a reply has no place for a text, which is
        no answer.

        `read` gives it to `classify_message`, which cuts the reasoning off, and `trace` shows what
        was cut.
        """

    def beside(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object in a reply that holds reasoning apart from its text: in one of
        `REASONING_FIELDS` of `calls.reasoning`, or in `content`, in blocks of a type of
        `REASONING_BLOCKS` or with `"thought": true`. A field of another name is renamed here,
        `{"reasoning": reply["musing"]}`. Return {} if the protocol has no place for reasoning.

        In `read`, `has_reasoning_beside` takes it, and a count of its tokens as `reasoning_tokens`.
        """


ERROR_TEXTS = ("message", "detail", "fault", "msg")
ERROR_CODES = (
    *("code", "type", "kind", "status", "reason"),
    *("error_type", "error_code", "status_code"),
)
ERROR_SETTINGS = ("param", "parameter", "field")
"""Fields of an error, whatever the server: with its text, with a code of `calls.provider_errors`,
and with the name of the setting that it is about.
"""

_MOST_TOKENS = 2**53
_ERROR_FIELDS = frozenset((*ERROR_TEXTS, "code"))


def token_count(tokens: Any) -> int:
    """Return a count of tokens, 0 if the server's value cannot be one."""
    if not isinstance(tokens, int | float) or not 0 <= tokens <= _MOST_TOKENS:
        return 0
    return int(tokens)


def dict_or_empty(value: Any) -> dict[str, Any]:
    """Return the fields of an object in a reply, none if the server's value is no object."""
    return value if isinstance(value, dict) else {}


def merge_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of all parts of a reply, a later part's before an earlier one's."""
    return {name: value for part in parts for name, value in part.items()}


def join_system(messages: Sequence[Message]) -> str:
    """Return the system messages as one text; "" if there is none."""
    return "\n\n".join(message.content for message in messages if message.role == "system")


def list_settings(
    sampling: Sampling,
    left_out: Collection[str],
    *,
    renamed: Mapping[str, str] | None = None,
    limit: str = "max_tokens",
) -> dict[str, Any]:
    """Return the settings of a request by their usual names, none that is None or left out: those
    of `Sampling`, its JSON schema as `response_format`, and the user's further fields, which take
    the place of a setting of the same name.

    Args:
        sampling: of the call.
        left_out: see `WireProtocol.request`.
        renamed: other names that a user may give to settings, and the usual ones: that of the field
            in the request, and Inspect AI's, so that one command has the same keys on both routes:
            `{"heat": "temperature", "stop_seqs": "stop"}`.
        limit: the usual name of the token limit.
    """
    names = renamed or {}
    settings = {
        limit: sampling.max_tokens,
        "temperature": sampling.temperature,
        "reasoning_effort": sampling.reasoning_effort,
        "response_format": sampling.json_schema or None,
        **{names.get(name, name): value for name, value in sampling.extra.items()},
    }
    return {
        name: value
        for name, value in settings.items()
        if value is not None and name not in left_out
    }


def find_error(reply: Mapping[str, Any]) -> Any:
    """Return what a body has under `error`, or the object that is its only field, if that reads
    like an error, such as `{"problem": {"code": 5, "detail": "no such model"}}`; None if it has
    neither.
    """
    if "error" in reply or len(reply) != 1:
        return reply.get("error")
    (only,) = reply.values()
    return only if not _ERROR_FIELDS.isdisjoint(dict_or_empty(only)) else None


def error_text(error: Any) -> str:
    """Return the text of an error, on one line."""
    if isinstance(error, dict):
        error = next((error[name] for name in ERROR_TEXTS if error.get(name)), "")
    return one_line(str(error or "it says no more"))


def make_no_reply_error(line: str, reply: Mapping[str, Any]) -> ValueError:
    """Return the error of a body that is no reply, with the error that it has in its place."""
    error = find_error(reply)
    return ValueError(f"{line} but an error: {error_text(error)}" if error else line)


def read_served_model(reply: Mapping[str, Any], field: str = "model") -> str:
    """Return the name of the model that wrote a reply, as its server gives it in a field; "" if it
    gives none.
    """
    name = reply.get(field)
    return clean_name(name) if isinstance(name, str) else ""
