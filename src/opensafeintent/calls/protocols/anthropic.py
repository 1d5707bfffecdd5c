"""Anthropic's messages, as its own service and gateways to it speak them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from opensafeintent.calls.outcomes import classify_message
from opensafeintent.calls.protocols import (
    dict_or_empty,
    join_system,
    list_settings,
    make_no_reply_error,
    read_served_model,
    token_count,
)
from opensafeintent.calls.reasoning import has_reasoning_beside, is_reasoning
from opensafeintent.calls.records import Answered, Call, Refused, Sampling, Usage
from opensafeintent.hostile import clean_name
from opensafeintent.templates.template import Message

API_VERSION = "2023-06-01"
"""The last version that takes a temperature: 2026-10-21 refuses one for every model, and a judge's
is 0. A model that takes none refuses it here too; then it is left out, and named.
"""

MAX_TOKENS = 32_000
"""Limit of a call that sets none, since the protocol requires one: the same as through Inspect AI,
so that answers of both routes are alike. Thinking counts towards it.
"""

_REQUIRED = frozenset(("model", "messages", "system", "max_tokens"))
_EFFORT, _SCHEMA, _BUDGET = "reasoning_effort", "response_format", "reasoning_tokens"
"""Settings that a request holds inside other fields, by the names that other protocols and Inspect
AI give them.
"""
_EFFORTS = {"minimal": "low"}
"""Efforts that the service names otherwise."""
_RENAMED = {"stop_seqs": "stop_sequences"}
"""Names of Inspect AI's that `-M` takes, so that one command has the same keys on both routes."""
_CACHED = {"type": "ephemeral"}


class Messages:
    """The protocol; see `WireProtocol`."""

    name = "messages"
    reply_name = "message"

    def route(self, model: str) -> str:
        """Return the one path of all models."""
        return "/v1/messages"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the key and the version of the protocol."""
        version = {"anthropic-version": API_VERSION}
        return version | {"x-api-key": api_key} if api_key else version

    def request(self, call: Call, model: str, left_out: Collection[str]) -> dict[str, Any]:
        """Return the fields of a request."""
        system = join_system(call.messages)
        fields = {
            "model": model,
            "messages": [
                {"role": message.role, "content": _content(message)}
                for message in call.messages
                if message.role != "system"
            ],
            **({"system": system} if system else {}),
        }
        return fields | _settings(call.sampling, left_out)

    def optional(self, fields: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the settings of a request that it can be without, and their names in it."""
        names = fields.keys() - _REQUIRED - {"output_config", "thinking"}
        optional = {name: name for name in names}
        output = dict_or_empty(fields.get("output_config"))
        thinking = dict_or_empty(fields.get("thinking"))
        if "budget_tokens" in thinking:
            optional[_BUDGET] = "budget_tokens"
        elif thinking:
            optional[_EFFORT] = "thinking"
        if "effort" in output:
            optional[_EFFORT] = "effort"
        if "format" in output:
            optional[_SCHEMA] = "output_config.format"
        return optional

    def join(self, parts: Sequence[Mapping[str, Any]], *, ended: bool) -> dict[str, Any]:
        """Return the message that came in events; one that broke off says so in its stop reason."""
        reply: dict[str, Any] = {}
        blocks: dict[str, dict[str, Any]] = {}
        for part in parts:
            index = str(part.get("index"))
            match part.get("type"):
                case "message_start":
                    reply |= dict_or_empty(part.get("message"))
                case "content_block_start":
                    blocks[index] = dict(dict_or_empty(part.get("content_block")))
                case "content_block_delta":
                    _extend(blocks.setdefault(index, {}), dict_or_empty(part.get("delta")))
                case "message_delta":
                    reply |= _drop_empty(part.get("delta"))
                    reply["usage"] = dict_or_empty(reply.get("usage")) | _drop_empty(
                        part.get("usage")
                    )
                case "message_stop":
                    ended = True
                case "message":
                    reply |= part
                case "error":
                    reply["error"] = part.get("error") or part
                case _ if part.get("error"):
                    reply["error"] = part["error"]
        content = reply.get("content")
        whole = content if isinstance(content, list) else []
        if not (ended or reply.get("stop_reason")):
            reply["stop_reason"] = "not_finished"
        return reply | {"content": [*whole, *blocks.values()]}

    def usage(self, reply: Mapping[str, Any]) -> Usage:
        """Return the tokens that a reply reports. Those read from a cache, and those written to it,
        are input tokens too.
        """
        usage = dict_or_empty(reply.get("usage"))
        cached = token_count(usage.get("cache_read_input_tokens"))
        written = token_count(usage.get("cache_creation_input_tokens"))
        return Usage(
            token_count(usage.get("input_tokens")) + cached + written,
            token_count(usage.get("output_tokens")),
            cached,
            written,
        )

    def text(self, reply: Mapping[str, Any]) -> str | None:
        """Return the text of the blocks of text; None if there are only blocks of unknown types."""
        content = reply.get("content")
        blocks = content if isinstance(content, list) else []
        fields = map(dict_or_empty, blocks)
        texts = [block.get("text") for block in fields if block.get("type") == "text"]
        if blocks and not texts and not any(map(is_reasoning, blocks)):
            return None
        return "".join(text for text in texts if isinstance(text, str))

    def beside(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the reply itself, which is a message."""
        return reply

    def read(self, reply: Mapping[str, Any], body: bytes) -> Answered | Refused:
        """Read a message, or an error in its place."""
        is_message = reply.get("type") == "message" and isinstance(reply.get("content"), list)
        if not is_message or reply.get("error"):
            raise make_no_reply_error("the reply is not a message", reply)
        reason = reply.get("stop_reason")
        usage = dict_or_empty(reply.get("usage"))
        tokens = self.usage(reply)
        outcome = classify_message(
            self.text(reply),
            reason if isinstance(reason, str) else "",
            tokens,
            read_served_model(reply),
            beside=lambda: has_reasoning_beside(reply, usage),
            counts_nothing=bool(usage) and tokens == Usage(),
        )
        if isinstance(outcome, Refused):
            return msgspec.structs.replace(outcome, reason=_refusal(reply, outcome.reason))
        return outcome


MESSAGES = Messages()

_DELTAS = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking")}
"""Parts of a block that have a text: the type of the block, and the field with the text. Others,
such as signatures and arguments of tools, are of no use here.
"""


def _extend(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a part to a block, whose start some gateways leave out."""
    kind, field = _DELTAS.get(str(delta.get("type")), ("", ""))
    if isinstance(more := delta.get(field), str):
        block.setdefault("type", kind)
        so_far = block.get(field)
        block[field] = (so_far if isinstance(so_far, str) else "") + more


def _drop_empty(value: Any) -> dict[str, Any]:
    """Return the fields of an object that are neither null nor 0: a later event of a stream may
    know less than an earlier one.
    """
    return {name: given for name, given in dict_or_empty(value).items() if given}


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Return a message's text. Of a filled template, the part before the first placeholder is a
    block of its own: it is equal in all requests, and the service keeps it if it is long enough.
    """
    first, *others = message.parts
    if message.role != "user" or not others or not first.strip():
        return message.content
    rest = "".join(others)
    if not rest.strip():
        return message.content
    cached = {"type": "text", "text": first, "cache_control": _CACHED}
    return [cached, {"type": "text", "text": rest}]


def _settings(sampling: Sampling, left_out: Collection[str]) -> dict[str, Any]:
    """Return the fields of a request besides its texts."""
    settings = list_settings(sampling, left_out, renamed=_RENAMED)
    effort, schema, budget = (settings.pop(name, None) for name in (_EFFORT, _SCHEMA, _BUDGET))
    thinking, output = (
        dict_or_empty(settings.pop(name, None)) for name in ("thinking", "output_config")
    )
    if budget is not None:
        thinking = {"type": "enabled", "budget_tokens": budget, "display": "summarized"}
    elif effort == "none":
        thinking = {"type": "disabled"}
    elif effort is not None:
        thinking = {"type": "adaptive", "display": "summarized"}
    if effort not in (None, "none"):
        output = output | {"effort": _EFFORTS.get(effort, effort)}
    if schema is not None:
        output = output | {"format": {"type": "json_schema", "schema": schema}}
    # the user's own objects may have what is left out
    if (_BUDGET if "budget_tokens" in thinking else _EFFORT) in left_out:
        thinking = {}
    inside = {_EFFORT: "effort", _SCHEMA: "format"}
    refused = [inside[name] for name in inside if name in left_out]
    output = {name: value for name, value in output.items() if name not in refused}
    usual = MAX_TOKENS + (budget if isinstance(budget, int) else 0)
    objects = {"thinking": thinking, "output_config": output}
    return {"max_tokens": usual, **settings, **{name: of for name, of in objects.items() if of}}


def _refusal(reply: Mapping[str, Any], reason: str) -> str:
    """Return the reason of a refusal, with the category that the service gives."""
    category = dict_or_empty(reply.get("stop_details")).get("category")
    if not isinstance(category, str) or not category:
        return reason
    return f"{reason}: {clean_name(category)}"
