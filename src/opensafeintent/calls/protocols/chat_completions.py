"""OpenAI's chat completions, which nearly every provider and server speaks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from opensafeintent.calls.left_out import choose_limit_field
from opensafeintent.calls.outcomes import (
    NotAnAnswer,
    classify_message,
    make_broken_off,
)
from opensafeintent.calls.protocols import (
    dict_or_empty,
    error_text,
    list_settings,
    make_no_reply_error,
    read_served_model,
    token_count,
)
from opensafeintent.calls.provider_errors import is_filter, read_error
from opensafeintent.calls.reasoning import has_reasoning_beside, is_reasoning
from opensafeintent.calls.records import Answered, Call, Refused, Usage, stop_kind


class ChatCompletions:
    """The protocol; see `WireProtocol`.

    Args:
        limit_field: the usual name of the token limit, of the two that there are.
    """

    name = "chat_completions"
    reply_name = "chat completion"

    def __init__(self, limit_field: str = "max_tokens") -> None:
        self._limit_field = limit_field

    def route(self, model: str) -> str:
        """Return the one path of all models."""
        return "/chat/completions"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the key as a bearer's token."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def request(self, call: Call, model: str, left_out: Collection[str]) -> dict[str, Any]:
        """Return the fields of a request."""
        messages = [{"role": message.role, "content": message.content} for message in call.messages]
        limit = choose_limit_field(self._limit_field, left_out)
        settings = list_settings(call.sampling, left_out, limit=limit)
        if settings.get("response_format") is call.sampling.json_schema:
            schema = {"name": "reply", "strict": True, "schema": call.sampling.json_schema}
            settings["response_format"] = {"type": "json_schema", "json_schema": schema}
        return {"model": model, "messages": messages, **settings}

    def optional(self, fields: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the fields of a request besides model and messages."""
        return {name: name for name in fields.keys() - {"model", "messages"}}

    def join(self, parts: Sequence[Mapping[str, Any]], *, ended: bool) -> dict[str, Any]:
        """Return the completion that came in chunks; one that broke off says so in its finish
        reason.
        """
        completion = _Chunks()
        for part in parts:
            completion.add(part)
        return completion.reply(ended=ended)

    def usage(self, reply: Mapping[str, Any]) -> Usage:
        """Return the tokens that a reply reports."""
        return _usage(dict_or_empty(reply.get("usage")))

    def text(self, reply: Mapping[str, Any]) -> str | None:
        """Return the text of the message of the first choice."""
        return _message_text(self.beside(reply))

    def beside(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the message of the first choice, whole or as a stream's part."""
        choices = reply.get("choices")
        choice = _first_choice(choices) if isinstance(choices, list) and choices else {}
        return dict_or_empty(choice.get("message")) or dict_or_empty(choice.get("delta")) or reply

    def read(self, reply: Mapping[str, Any], body: bytes) -> Answered | Refused:
        """Read a chat completion, or an error in its place."""
        usage = dict_or_empty(reply.get("usage"))
        choices = reply.get("choices")
        if choices is not None and not isinstance(choices, list):
            raise ValueError("the reply's `choices` is not an array")
        if not choices:
            return _read_filter_refusal(reply, body)
        choice = _first_choice(choices)
        finish_reason = choice.get("finish_reason")
        reason = finish_reason if isinstance(finish_reason, str) else ""
        if error := reply.get("error") or choice.get("error"):
            raise make_broken_off(reason, error_text(error))
        message = choice.get("message") or choice.get("delta")
        if not isinstance(message, dict):
            # Gemini's compatible route leaves out the message of a refusal
            if stop_kind(reason) != "refusal":
                raise NotAnAnswer("no_answer", "the reply's choice holds no message")
            message = {}
        text = _message_text(message)
        try:
            return classify_message(
                text,
                reason,
                _usage(usage),
                read_served_model(reply),
                beside=lambda: has_reasoning_beside(message, usage),
                counts_nothing=_counts_nothing(usage),
            )
        except NotAnAnswer as wrong:
            if text is not None or message.get("content") is None or not wrong.final:
                raise
            raise NotAnAnswer("malformed", "the reply's content holds no text") from wrong


CHAT_COMPLETIONS = ChatCompletions()


class _Chunks:
    """A completion that comes in chunks."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._whole = False
        """Whether a part had the whole message."""

    def add(self, part: Mapping[str, Any]) -> None:
        choices = part.get("choices")
        if part.get("error") or (choices is None and "usage" not in part):
            self._fields["error"] = part.get("error") or part
        self._fields |= {
            name: value
            for name, value in part.items()
            if name not in ("choices", "error") and value is not None
        }
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                self._choice |= {name: value for name, value in choice.items() if value is not None}
                self._whole = self._whole or isinstance(choice.get("message"), dict)
                delta = choice.get("message") or choice.get("delta")
                self._add_message(delta if isinstance(delta, dict) else {})

    def _add_message(self, delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if isinstance(value, str) and name != "role":
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list) and isinstance(self._message.get(name), list):
                self._message[name].extend(value)
            elif value is not None:
                self._message[name] = value

    def reply(self, *, ended: bool) -> dict[str, Any]:
        """Return the completion; one that broke off says so in its finish reason."""
        if not self._choice:
            return {"choices": [], **self._fields}
        choice = {name: value for name, value in self._choice.items() if name != "delta"}
        if not (ended or self._whole or choice.get("finish_reason")):
            choice["finish_reason"] = "not_finished"
        message = self._message | {name: "".join(texts) for name, texts in self._texts.items()}
        return {**self._fields, "choices": [choice | {"message": message}]}


_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
"""Fields of a usage with cached tokens, if its details have none: of DeepSeek; of Moonshot and
Together; of LiteLLM, Databricks and MiniMax.
"""
_WRITTEN = ("cache_write_tokens", "cache_creation_tokens")
"""Fields of the details with tokens written to a cache: of OpenAI and OpenRouter, of LiteLLM."""


def _usage(usage: Mapping[str, Any]) -> Usage:
    tokens = token_count(usage.get("prompt_tokens"))
    details = dict_or_empty(usage.get("prompt_tokens_details"))
    read = min(_first_count(details, ("cached_tokens",)) or _first_count(usage, _CACHED), tokens)
    written = _first_count(details, _WRITTEN) or _first_count(
        usage, ("cache_creation_input_tokens",)
    )
    return Usage(
        tokens,
        token_count(usage.get("completion_tokens")),
        read,
        min(written, tokens - read),
    )


def _first_count(fields: Mapping[str, Any], names: Iterable[str]) -> int:
    """Return the first count of tokens that is not 0."""
    for name in names:
        if name in fields and (count := token_count(fields[name])):
            return count
    return 0


def _first_choice(choices: list[Any]) -> dict[str, Any]:
    """Return the choice with index 0, or the first one if none has it."""
    first = dict_or_empty(choices[0])
    if len(choices) == 1 or first.get("index") == 0:  # as nearly all
        return first
    objects = map(dict_or_empty, choices)
    return next((choice for choice in objects if choice.get("index") == 0), first)


def _read_filter_refusal(reply: Mapping[str, Any], body: bytes) -> Refused:
    """Return the refusal of a content filter in a reply without choices.

    Raises:
        ValueError: the reply is something else.
    """
    error = read_error(body)
    if is_filter(error) or _prompt_filtered(reply):
        return Refused(
            reason=error_text(error.fields[0]),
            usage=_usage(dict_or_empty(reply.get("usage"))),
            served_model=read_served_model(reply),
        )
    raise make_no_reply_error("the reply holds no choices", reply)


def _counts_nothing(usage: Mapping[str, Any]) -> bool:
    """Tell whether a server counts that no token was read or written: no model wrote the reply."""
    return usage.get("prompt_tokens") == 0 and usage.get("completion_tokens") == 0


def _prompt_filtered(reply: Mapping[str, Any]) -> bool:
    """Tell whether Azure says that its filter took the prompt."""
    listed = reply.get("prompt_filter_results")
    return any(
        dict_or_empty(verdict).get("filtered") is True
        for item in (listed if isinstance(listed, list) else ())
        for verdict in dict_or_empty(dict_or_empty(item).get("content_filter_results")).values()
    )


def _message_text(message: Mapping[str, Any]) -> str | None:
    """Return the text of a message: its content, or the refusal in its place; None if neither has a
    text.
    """
    content, refusal = message.get("content"), message.get("refusal")
    for text in (content, refusal):
        if isinstance(text, str) and text:
            return text
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [
        text
        for part in content
        if isinstance(part, dict) and not is_reasoning(part)
        for name in ("text", "refusal")
        if part.get("type") == name and isinstance(text := part.get(name), str)
    ]
    return "".join(texts) if texts else None
